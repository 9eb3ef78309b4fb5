//! How often a run evaluates and saves, where a tool counts in epochs. Here it is a share of the run.

use super::{KeyOutcome, Reader, plain};
use serde_json::{Map, Value};

/// Keys that say when, and the interval here.
const STRATEGIES: [(&str, &str); 3] = [
    ("eval_strategy", "eval.every"),
    ("evaluation_strategy", "eval.every"),
    ("save_strategy", "checkpoint.every"),
];

/// What a strategy says. `no` without quotes is false to YAML.
#[derive(Debug, PartialEq, Eq)]
enum When {
    Epoch,
    Steps,
    Never,
    Other,
}

fn when(value: &Value) -> When {
    match plain(value).as_str() {
        "epoch" => When::Epoch,
        "steps" => When::Steps,
        "no" | "false" => When::Never,
        _ => When::Other,
    }
}

/// The intervals for which Hugging Face's trainer does not read the steps of a file.
pub(super) fn without_steps(map: &Map<String, Value>) -> Vec<&'static str> {
    let said = |(key, path)| {
        let when = map.get(key).map(when);
        matches!(when, Some(When::Epoch | When::Never)).then_some(path)
    };
    STRATEGIES.into_iter().filter_map(said).collect()
}

/// The steps between two evaluations where a file wants some and does not say how many: those between two lines of the log
/// (transformers 5.24 `TrainingArguments.__post_init__`).
pub(super) fn evaluates_as_it_logs(map: &Map<String, Value>) -> Option<Value> {
    let logged = map
        .get("logging_steps")
        .filter(|_| has_steps(map, "logging_steps"));
    logged.filter(|_| !has_steps(map, "eval_steps")).cloned()
}

/// Whether a key has a number of steps above 0.
pub(super) fn has_steps(map: &Map<String, Value>, key: &str) -> bool {
    match map.get(key) {
        None | Some(Value::Null) => false,
        Some(value) => value.as_f64() != Some(0.0),
    }
}

impl Reader {
    /// `evals_per_epoch: 4`. Axolotl makes a share of the run of it, also where steps end the run.
    pub(super) fn per_epoch(&mut self, theirs: String, path: &str, value: &Value) {
        match value.as_f64() {
            Some(0.0) => self.line(KeyOutcome::Needless, theirs, "", "off"),
            Some(times) if times > 0.0 => self.share_of_run(theirs, path, times),
            _ => {
                let words = "a number of times in an epoch is understood";
                self.line(KeyOutcome::NoEqual, theirs, "", words);
            }
        }
    }

    /// `eval_strategy: epoch`.
    pub(super) fn strategy(&mut self, theirs: String, path: &str, value: &Value) {
        match when(value) {
            // Other settings than steps end the run only where there are no steps.
            When::Epoch if self.max_steps.is_some() => {
                let words = format!(
                    "max_steps ends the run, and how many steps an epoch has is known once the data are read: set {path}"
                );
                self.line(KeyOutcome::NoEqual, theirs, "", words);
            }
            When::Epoch => self.share_of_run(theirs, path, 1.0),
            When::Never => self.set(theirs, path, "0", "once, after the last step"),
            When::Steps if path == "eval.every" && self.logging_steps.is_some() => {
                let every = self.logging_steps.as_ref().map(plain).unwrap_or_default();
                self.set(format!("{theirs} (of logging_steps)"), path, &every, "");
            }
            When::Steps if path == "eval.every" && !self.says_eval_steps => {
                let words = format!(
                    "the tool evaluates as often as it logs, and the file says neither: set {path}"
                );
                self.line(KeyOutcome::NoEqual, theirs, "", words);
            }
            When::Steps => {
                let words = format!("{path} takes the steps");
                self.line(KeyOutcome::Needless, theirs, "", words);
            }
            When::Other => {
                let words = format!("set {path}; the best checkpoint is always kept");
                self.line(KeyOutcome::NoEqual, theirs, "", words);
            }
        }
    }

    /// So many times an epoch. What comes to once a run or less happens after the last step, as everything does.
    fn share_of_run(&mut self, theirs: String, path: &str, times: f64) {
        let all = times * self.epochs;
        let every = match all > 1.0 {
            // In all its digits: a share rounded up would come one step late.
            true => (1.0 / all).to_string(),
            false => "0".into(),
        };
        self.set(theirs, path, &every, "");
    }
}
