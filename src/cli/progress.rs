//! Progress lines of a run, for pipes and terminals without the workbench. Decides what deserves a line; prints nothing.

use super::diagnose::verdict_line;
use super::finding;
use super::run_ref::command;
use crate::base::clock::UnixMillis;
use crate::base::finding::Finding;
use crate::base::human;
use crate::base::text::{one_line, sanitize, shown};
use crate::base::turns::question;
use crate::diagnosis::{VERDICT, diagnose};
use crate::plan::request::Request;
use crate::plan::target::of_run;
use crate::run::RunState;
use crate::run::engine_time;
use crate::run::state::{UNFINISHED, outcome_word};
use crate::wire::{Envelope, Event, Outcome, Values, id};
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

/// Least time between two step lines, by the engine's clock.
const PACE: Duration = Duration::from_secs(1);
/// Characters of a sample that are shown.
const SAMPLE_CHARS: usize = 500;

/// Folds a run's events into progress lines.
#[derive(Debug, Default)]
pub struct Progress {
    state: RunState,
    last_line: UnixMillis,
    /// The step of the last step line.
    last_step: u64,
    /// Notes that have been reported: a resume reads the data again, and notes the same of them.
    noted: HashSet<String>,
}

impl Progress {
    pub fn new() -> Progress {
        Progress::default()
    }

    /// The run state so far.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Consumes an event; returns the lines to print, usually none.
    pub fn lines_for(&mut self, envelope: &Envelope) -> Vec<String> {
        // In the words of the log view.
        let line = self.state.line_of(&envelope.event);
        self.state.apply(envelope);
        match &envelope.event {
            Event::Started { .. } => self.started(),
            Event::Stepped { step, .. } => self.stepped(*step, envelope.t),
            Event::Evaluated { step, values, .. } => evaluated(*step, values),
            Event::Checked { finding, .. } => found("check", finding),
            Event::Diagnosed { finding, .. } if finding.id != VERDICT => {
                found("diagnosis", finding)
            }
            Event::Sampled {
                step,
                prompt,
                text,
                thought,
                ..
            } => sampled(*step, prompt, text, thought.is_some()),
            Event::Checkpointed {
                path,
                bytes,
                best,
                by,
                ..
            } => {
                let rank = self.state.rank_of_best(by.as_ref());
                let by = by.as_ref().and_then(|by| self.state.best_by(by));
                let best = match (best, by) {
                    (false, _) => String::new(),
                    (true, None) => format!(", {rank}"),
                    (true, Some(words)) => format!(", {rank} by {words}"),
                };
                vec![format!(
                    "checkpoint {} ({}){best}",
                    one_line(path),
                    human::bytes(*bytes)
                )]
            }
            Event::Noted { text, .. } => self.noted(text),
            Event::Warned { message, hint, .. } => {
                let mut lines = vec![format!("warning: {}", one_line(message))];
                lines.extend((!hint.is_empty()).then(|| format!("  try: {}", one_line(hint))));
                lines
            }
            Event::Rescued { .. } => {
                let rescue = self.state.rescued.as_ref();
                rescue
                    .map(|rescue| vec![rescue.words()])
                    .unwrap_or_default()
            }
            // Settings changed on the way, pauses and what goes on behind them, requests that were refused.
            Event::Adjusted { .. }
            // Where steps are given up; a resume from the last one gives up none.
            | Event::RolledBack { .. }
            | Event::StartedOver
            | Event::PhaseChanged { .. }
            | Event::Queued { .. }
            | Event::Skipped { .. }
            | Event::Rejected { .. }
            | Event::RescueUndone { .. } => line.into_iter().collect(),
            Event::Finished { .. } => self.finished(),
            _ => Vec::new(),
        }
    }

    /// As in a dry run.
    fn noted(&mut self, text: &str) -> Vec<String> {
        match self.noted.insert(text.to_string()) {
            true => vec![format!("note    {}", one_line(text))],
            false => Vec::new(),
        }
    }

    fn started(&self) -> Vec<String> {
        let Some(head) = &self.state.head else {
            return Vec::new();
        };
        let from = match head.resumed_from {
            Some(step) => format!(", resumed from step {step}"),
            None => String::new(),
        };
        let frozen = head.spec["train"]["freeze"].as_array();
        let is_part =
            !head.spec["adapter"].is_null() || frozen.is_some_and(|names| !names.is_empty());
        let request = is_part.then(|| of_run(head)).flatten();
        // Another program's log may say none of these.
        let mut known = Vec::new();
        known.extend(request.as_ref().and_then(adapter_words));
        let trained = request.map_or_else(String::new, |request| {
            trained_words(request.n_trainable(), head.n_params)
        });
        if head.n_params > 0 {
            let n = human::short(head.n_params as f64);
            known.push(format!("{n} parameters{trained}"));
        }
        let steps = human::counted(head.max_steps, "step");
        match (head.max_steps, head.batch_tokens) {
            (0, _) => {}
            (_, 0) => known.push(steps),
            (_, n) => {
                let ramps = head.spec["train"]["batch_ramp"].as_array();
                let ramps = ramps.is_some_and(|stages| !stages.is_empty());
                // Answers of its own end when they end.
                let upto = match ramps || of_run(head).is_some_and(|r| r.method.rolls_out()) {
                    true => "up to ",
                    false => "",
                };
                let tokens = human::grouped(n);
                known.push(format!("{steps} of {upto}{tokens} tokens"));
            }
        }
        let known = match known.is_empty() {
            true => String::new(),
            false => format!(": {}", known.join(", ")),
        };
        let (name, method) = (one_line(&head.name), one_line(&head.method));
        vec![format!("{name} ({method}){known}{from}")]
    }

    /// `step 120/2,000  loss 2.534  val 2.601  grad 0.812  lr 1.00e-3  epoch 0.34  21.0k tok/s  eta 1:30`
    fn stepped(&mut self, step: u64, t: UnixMillis) -> Vec<String> {
        let max_steps = self.state.head.as_ref().map_or(0, |head| head.max_steps);
        let due = self.last_step == 0 || step == max_steps || t.since(self.last_line) >= PACE;
        if !due {
            return Vec::new();
        }
        self.last_line = t;
        self.last_step = step;
        vec![self.step_line(step, max_steps)]
    }

    fn step_line(&self, step: u64, max_steps: u64) -> String {
        // Another program's log may not say where it ends.
        let of = match max_steps {
            0 => String::new(),
            n => format!("/{}", human::grouped(n)),
        };
        let mut line = format!("step {}{of}", human::grouped(step));
        // Once answers are learned from, the loss of a cold start is that of an earlier step.
        let answers = self.state.latest(id::REWARD).is_some();
        let first = match answers {
            true => [("reward", id::REWARD), ("pass@1", id::PASS_AT_1)],
            false => [("loss", id::TRAIN_LOSS), ("val", id::VAL_LOSS)],
        };
        // Methods on pairs and judged answers; others report none of these.
        let preferences = [("accuracy", id::ACCURACIES), ("margin", id::MARGINS)];
        let others = [("grad", id::GRAD_NORM), ("lr", id::LR)];
        for (word, id) in first.into_iter().chain(preferences).chain(others) {
            if let Some(x) = self.state.latest(id) {
                line.push_str(&format!("  {word} {}", human::number(x)));
            }
        }
        if let Some(epochs) = self.state.latest(id::EPOCHS) {
            line.push_str(&format!("  epoch {}", human::epochs(epochs)));
        }
        if let Some(rate) = self.state.tok_per_sec() {
            line.push_str(&format!("  {} tok/s", human::short(rate)));
        }
        if let Some(left) = self.state.remaining() {
            line.push_str(&format!("  eta {}", human::duration(left)));
        }
        line
    }

    fn finished(&self) -> Vec<String> {
        if let Some(refused) = &self.state.refused {
            return vec![format!("not resumed: {}", refused.message)];
        }
        let Some(finish) = &self.state.finished else {
            return Vec::new();
        };
        let mut line = format!(
            "{} at step {}",
            outcome_word(finish.outcome),
            human::grouped(self.state.step)
        );
        if let Some(loss) = finish.val_loss {
            line.push_str(&format!(", val loss {}", human::loss(loss)));
        }
        // A log without times says nothing of how long it took.
        if !(self.state.is_foreign() && finish.seconds <= 0.0) {
            let took = engine_time::words(finish.seconds, self.state.seconds);
            line.push_str(&format!(", after {took}"));
        }
        let mut lines = vec![line];
        lines.extend((!finish.message.is_empty()).then(|| format!("  {}", finish.message)));
        // Of a run that failed before its first step there is nothing to judge.
        if self.state.step == 0 && finish.outcome != Outcome::Completed {
            return lines;
        }
        let diagnosis = diagnose(&self.state);
        lines.push(format!("verdict {}", verdict_line(&diagnosis)));
        lines
    }

    /// Where the run is and what to type next.
    pub fn next_steps(&self, run: &Path, runs_dir: &Path) -> Vec<String> {
        let command = |verb: &str| command(verb, run, runs_dir);
        let mut lines = vec![format!("run {}", shown(run))];
        if !self.state.checkpoints.is_empty() {
            lines.push(match self.state.judges() {
                true => format!("score: {} FILE", command("score")),
                false => format!("chat: {}", command("chat")),
            });
        }
        lines.push(format!("view: {}", command("attach")));
        let done = self.state.progress() == Some(1.0);
        if self.state.finished.is_some() && !done && !self.state.checkpoints.is_empty() {
            lines.push(format!("resume: {}", command("train --resume")));
        }
        lines
    }
}

fn evaluated(step: u64, values: &Values) -> Vec<String> {
    let word = |id: &str| match id {
        id::VAL_LOSS => Some("val loss".to_string()),
        id::VAL_ACCURACIES => Some("val accuracy".to_string()),
        id::VAL_MARGINS => Some("val margin".to_string()),
        id if id.starts_with(id::EXTRA) => {
            Some(format!("loss on {}", one_line(&id[id::EXTRA.len()..])))
        }
        // What answers are worth, and tasks by their names.
        id => id.strip_prefix(id::EVAL).map(one_line),
    };
    let told = values.iter().filter_map(|(id, value)| {
        let mut value = human::number(value.0);
        // Accuracy says something only above what the lengths alone tell.
        let by_length = values.get(id::VAL_LENGTH_ACCURACIES);
        if let Some(share) = by_length.filter(|_| id == id::VAL_ACCURACIES) {
            value.push_str(&format!(", by length alone {}", human::number(share.0)));
        }
        Some(format!(
            "step {}  {} {value}",
            human::grouped(step),
            word(id)?
        ))
    });
    told.collect()
}

/// `check ok: title: evidence`, and below what to do.
fn found(kind: &str, found: &Finding) -> Vec<String> {
    let (title, seen) = (one_line(&found.title), found.evidence.to_string());
    let mut lines = vec![format!(
        "{kind} {}: {title}: {}",
        finding::word(found.status),
        one_line(&seen)
    )];
    let advice = found.advice();
    lines.extend((!advice.is_empty()).then(|| format!("  try: {}", one_line(&advice))));
    lines
}

/// In the place of an answer that is empty.
const ENDED: &str = "→ (ended at once)";

fn sampled(step: u64, prompt: &str, text: &str, has_thought: bool) -> Vec<String> {
    // A template's first lines would leave no room for the answer.
    let ended = text.trim().is_empty();
    let note = match has_thought {
        true => format!("→ {UNFINISHED}"),
        false => ENDED.to_string(),
    };
    let whole = match question(prompt) {
        Some(asked) if ended => format!("{asked}\n{note}"),
        Some(asked) => format!("{asked}\n→ {}", text.trim()),
        // Nothing would show that the prompt is all there is.
        None if ended && !prompt.trim().is_empty() => format!("{}\n{note}", prompt.trim_end()),
        None => format!("{prompt}{text}"),
    };
    let whole = sanitize(&whole);
    let shown: String = whole
        .trim_matches('\n')
        .chars()
        .take(SAMPLE_CHARS)
        .collect();
    let mut lines = vec![format!("sample at step {}:", human::grouped(step))];
    let mut blank = false;
    for line in shown.lines() {
        // A model that writes line ends alone fills no screen with them.
        let empty = line.trim().is_empty();
        if !(empty && blank) {
            lines.push(format!("  | {line}"));
        }
        blank = empty;
    }
    lines
}

/// `LoRA rank 8 (all)`, where adapters train.
pub fn adapter_words(request: &Request) -> Option<String> {
    let targets = request.lora?.targets.word();
    let rank = request.rank_words().unwrap_or_default();
    Some(format!("LoRA {rank} ({targets})"))
}

/// `, of which 81.9k train (8.75 %)`, of adapters and what trains beside them, or of what is not frozen; nothing where all weights train.
pub fn trained_words(trained: u64, all: u64) -> String {
    if trained == all {
        return String::new();
    }
    let share = human::percent(trained as f64 / all.max(1) as f64, 2);
    format!(
        ", of which {} train ({share})",
        human::short(trained as f64)
    )
}

#[cfg(test)]
mod tests;
