//! Preflight results as they arrive; the start after them.

use crate::advisor::wizard::checks::State;
use crate::advisor::wizard::question::{Ask, Explanation, Row, note};
use crate::advisor::wizard::{Outcome, Step, Wizard};
use crate::base::finding::Status;

pub(in crate::advisor::wizard) struct Check;

impl Ask for Check {
    fn word(&self) -> &'static str {
        "check"
    }

    fn title(&self) -> &'static str {
        "Checks before the first step"
    }

    fn rows(&self, wizard: &Wizard) -> Vec<Row> {
        let checks = wizard.checks();
        let title = match checks.obstacle() {
            Some(_) => "back to the settings",
            None => "start training now",
        };
        let first = Row {
            open: checks.state != State::Running,
            ..Row::choice(title, checks.words())
        };
        let anyway = checks.overridden_failures();
        let anyway = anyway.map(|failed| Row::choice("train anyway", failed));
        [first].into_iter().chain(anyway).collect()
    }

    fn explain(&self, wizard: &Wizard, _: &[Row]) -> Explanation {
        let checks = wizard.checks();
        let lines = &checks.lines;
        if lines.is_empty() && checks.state != State::Running {
            return (Vec::new(), Vec::new());
        }
        if lines.is_empty() {
            let words = "A copy of the model is being tested; the first results come in a moment.";
            return (vec![note("At work", words)], Vec::new());
        }
        let notes = checks
            .sorted()
            .into_iter()
            .map(|line| {
                let advice = match line.advice() {
                    advice if advice.is_empty() => advice,
                    advice => format!("; {advice}"),
                };
                let text = format!("{}: {}{advice}", line.title, line.evidence);
                let label = match line.status {
                    Status::Fail => "failed",
                    Status::Warn => "warning",
                    Status::Unknown => "skipped",
                    Status::Pass | Status::NotApplicable => "passed",
                };
                note(label, text)
            })
            .collect();
        (notes, Vec::new())
    }

    /// Starts if every check completed and none failed; after a failed one it leads to the settings, with the reason, or
    /// starts all the same.
    fn enter(&self, wizard: &mut Wizard) -> Outcome {
        let force = wizard.selected() == 1 && wizard.checks.overridden_failures().is_some();
        if wizard.checks.good() || force {
            let (Some(yaml), Some((draft, _))) = (wizard.yaml(), wizard.draft()) else {
                return wizard.refuse("choose a model first");
            };
            return Outcome::Start {
                name: draft.run_name(),
                yaml,
                force,
            };
        }
        match wizard.checks.obstacle() {
            Some(why) => {
                wizard.go_to(Step::Settings);
                wizard.error = Some(why);
                Outcome::Moved
            }
            None => {
                let done = wizard.checks().lines.len();
                wizard.refuse(format!(
                    "the checks are still running, {done} done so far: seconds with a small model, minutes with a large one"
                ))
            }
        }
    }
}
