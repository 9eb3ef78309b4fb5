//! The facts that pages are filled with, each with its origin.

use super::Asked;
use crate::base::finding::{Finding, Status};
use crate::base::human;
use crate::diagnosis::{self, Diagnosis, RULES};
use crate::plan::changes::{Change, ladder};
use crate::plan::quantity::capacity;
use crate::plan::request::ValueSource;
use crate::plan::{Plan, Verdict};
use crate::run::RunState;
use crate::spec::{RunConfig, RunSpec, Sizes};
use serde_json::Value;
use std::time::Duration;

/// What the guide speaks of; what is left out is unknown.
#[derive(Debug, Clone, Default)]
pub struct Subject<'a> {
    /// The machine in one line.
    pub machine: Option<String>,
    /// Name of the spec and its plan on this machine.
    pub plan: Option<(String, Plan)>,
    pub run: Option<&'a RunState>,
    /// The model that the question names.
    pub asked: Option<Asked>,
}

const NAME_A_RUN: &str = "a run";
const NAME_A_SPEC: &str = "a spec";
const NO_MACHINE: &str = "facts of this machine";

/// Marks without an argument.
#[cfg(test)]
const MARKS: [&str; 17] = [
    "asked.memory",
    "asked.data",
    "machine",
    "spec",
    "plan.memory",
    "plan.time",
    "plan.cheaper",
    "plan.data",
    "plan.settings",
    "run.method",
    "run.settings",
    "run.verdict",
    "run.findings",
    "run.rescued",
    "run.ending",
    "run.epochs",
    "run.gap",
];

impl Subject<'_> {
    /// Whether there is such a mark.
    #[cfg(test)]
    pub(super) fn knows(&self, mark: &str) -> bool {
        match mark.split_once(':') {
            Some(("rule", id)) => rule(id).is_some(),
            Some(("default", path)) => default(path).is_some(),
            _ => MARKS.contains(&mark),
        }
    }

    /// The words for a mark; `Ok(None)` where there is nothing to say.
    ///
    /// # Errors
    /// What has to be named first.
    pub(super) fn fact(&self, mark: &str) -> Result<Option<String>, &'static str> {
        match mark.split_once(':') {
            Some(("rule", id)) => return Ok(rule(id)),
            Some(("default", path)) => return Ok(default(path)),
            _ => {}
        }
        if mark == "machine" {
            let machine = self.machine.as_ref().ok_or(NO_MACHINE)?;
            return Ok(Some(format!("This machine: {machine} (read now)")));
        }
        match mark {
            "asked.memory" => return Ok(self.asked.as_ref().map(Asked::memory)),
            "asked.data" => return Ok(self.asked.as_ref().map(Asked::data)),
            _ => {}
        }
        if let Some(of_run) = mark.strip_prefix("run.") {
            return Ok(of_the_run(of_run, self.run.ok_or(NAME_A_RUN)?));
        }
        let (name, plan) = self.plan.as_ref().ok_or(NAME_A_SPEC)?;
        Ok(of_the_plan(mark, name, plan))
    }
}

/// A rule's own words and source: a page never disagrees with it.
fn rule(id: &str) -> Option<String> {
    let rule = RULES.iter().find(|rule| rule.entry.id == id)?;
    let entry = rule.entry;
    Some(format!(
        "Healthy, {}: {} ({})",
        entry.title,
        entry.summary.trim_end_matches('.'),
        entry.source
    ))
}

/// A default of the specs.
fn default(path: &str) -> Option<String> {
    let config = serde_json::to_value(RunConfig::default()).ok()?;
    let found = path.split('.').try_fold(&config, |at, key| at.get(key))?;
    match found {
        Value::Number(n) => Some(n.to_string().trim_end_matches(".0").into()),
        Value::String(s) => Some(s.clone()),
        Value::Bool(b) => Some(b.to_string()),
        _ => None,
    }
}

fn of_the_plan(mark: &str, name: &str, plan: &Plan) -> Option<String> {
    let request = &plan.request;
    match mark {
        "spec" => Some(format!(
            "{name}: {} parameters, {} of them train, {} tokens in all (`llmtui plan`)",
            human::short(plan.params.total() as f64),
            human::short(plan.n_trainable as f64),
            human::short(request.tokens as f64)
        )),
        "plan.memory" => Some(memory(plan)),
        "plan.time" => time(plan),
        "plan.cheaper" => cheaper(plan),
        "plan.settings" => settings(&request.settings),
        // Of weights that were trained before, this run's tokens are a part only.
        "plan.data" if !request.is_from_scratch() => None,
        "plan.data" => Some(format!(
            "{} tokens for each parameter in the whole run (`llmtui plan`)",
            human::number(plan.tokens_per_param)
        )),
        _ => None,
    }
}

fn memory(plan: &Plan) -> String {
    let word = match plan.verdict() {
        Some(Verdict::Fits) => "so it fits",
        Some(Verdict::Tight) => "so it fits without its margin",
        Some(Verdict::TooLarge) => "so it does not fit",
        None => "and the machine's memory is unknown",
    };
    let there = match plan.request.device.memory {
        Some(bytes) => format!(" of {}", capacity(bytes)),
        None => String::new(),
    };
    format!(
        "Memory: {}{there}, {word} (`llmtui plan`: counted by part)",
        human::bytes(plan.p50_bytes())
    )
}

fn time(plan: &Plan) -> Option<String> {
    let time = Duration::try_from_secs_f64(3600.0 * plan.work.hours?).ok()?;
    let said = match plan.request.mfu_source {
        ValueSource::Learned => "from earlier runs on this machine",
        ValueSource::Probed => "from a measurement of this machine",
        _ => "with an assumed share of the peak",
    };
    let about = plan.request.about();
    Some(format!("Time: {about} {} ({said})", human::duration(time)))
}

/// Changes that need less memory; `None` where the plan fits as it is.
fn cheaper(plan: &Plan) -> Option<String> {
    if !matches!(plan.verdict(), Some(Verdict::Tight | Verdict::TooLarge)) {
        return None;
    }
    let cheaper = ladder(&plan.request);
    let line = |change: &Change| {
        let flag = match change.flag.as_str() {
            "" => String::new(),
            flag => format!(" `{flag}`"),
        };
        format!(
            "{}: then {}, cost: {}{flag}",
            change.what,
            human::bytes(change.needs_bytes),
            change.cost
        )
    };
    let mut lines: Vec<String> = cheaper.changes.iter().map(line).collect();
    if !cheaper.fits {
        lines.push("no change is enough: a smaller model, or another machine".into());
    }
    Some(format!(
        "Cheaper, in this order (`llmtui plan`): {}",
        lines.join("; ")
    ))
}

/// What settings are advised against; `None` where there is nothing.
fn settings(found: &[Finding]) -> Option<String> {
    let said = found
        .iter()
        .map(|f| format!("{}; {} ({})", f.evidence, f.fix, f.source));
    let said: Vec<String> = said.collect();
    listed("Settings that are probably unintended", &said)
}

/// A list below its heading: several sentences in one line are read as one.
fn listed(heading: &str, items: &[String]) -> Option<String> {
    (!items.is_empty()).then(|| format!("{heading}:\n  - {}", items.join("\n  - ")))
}

fn of_the_run(mark: &str, run: &RunState) -> Option<String> {
    let name = if run.run.is_empty() {
        "the run"
    } else {
        &run.run
    };
    Some(match mark {
        "method" => {
            let head = run.head.as_ref()?;
            format!("{name} trains with {} (its log)", head.method)
        }
        "settings" => {
            let head = run.head.as_ref()?;
            // JSON is YAML.
            let spec = RunSpec::from_yaml(&head.spec.to_string()).ok()?;
            let sizes = Sizes {
                step_tokens: Some(head.batch_tokens),
                ..Sizes::default()
            };
            settings(&spec.review(sizes))?
        }
        "verdict" => {
            let judged = diagnosis::diagnose(run);
            let at = human::grouped(run.step);
            format!(
                "{name} at step {at}: {}, {} (`llmtui diagnose`)",
                judged.verdict.word(),
                judged.summary
            )
        }
        "findings" => findings(&diagnosis::diagnose(run))?,
        "rescued" => format!("It was {} (its log)", run.rescued.as_ref()?.words()),
        "ending" => {
            let finish = run.finished.as_ref()?;
            let why = if finish.message.is_empty() {
                String::new()
            } else {
                format!(": {}", finish.message)
            };
            let word = crate::run::state::outcome_word(finish.outcome);
            format!(
                "{name} {word} at step {}{why} (its log)",
                human::grouped(finish.step)
            )
        }
        "epochs" => format!(
            "{name} has seen its training text {} times (its log)",
            human::number(run.epochs()?)
        ),
        "gap" => {
            // As the diagnosis has it: losses of single steps are not those around an evaluation.
            let judged = diagnosis::diagnose(run);
            let gap = judged.findings.iter().find(|f| f.id == "overfitting")?;
            format!("{name}: {} {} (`llmtui diagnose`)", gap.title, gap.evidence)
        }
        _ => return None,
    })
}

/// What warns or fails, with what to do.
fn findings(judged: &Diagnosis) -> Option<String> {
    let found = judged.findings.iter().filter(|f| f.status <= Status::Warn);
    let lines: Vec<String> = found
        .map(|f| format!("{}: {}. {}", f.title, f.evidence, f.advice()))
        .collect();
    listed("Findings (`llmtui diagnose`)", &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of them were one paragraph, with ` | ` between them.
    #[test]
    fn findings_are_a_list() {
        let finding = |title: &str| Finding::warn("loss 3.2", "", "lower lr").named(title, title);
        let judged = Diagnosis {
            findings: vec![finding("plateau"), finding("masked labels")],
            ..diagnosis::diagnose(&RunState::new())
        };
        let words = findings(&judged).unwrap_or_default();
        let lines: Vec<&str> = words.lines().collect();
        assert_eq!(lines.len(), 3, "{words}");
        assert!(lines[1].starts_with("  - plateau: loss 3.2"), "{words}");
        assert!(lines[2].starts_with("  - masked labels: "), "{words}");
    }
}
