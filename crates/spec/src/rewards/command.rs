//! Any program as a reward: it reads one JSON object per line and writes one score per line.

use super::program::Program;
use super::{Answer, Reward, Worker};
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "command",
    title: "A program",
    summary: "Your own program reads one JSON line per answer and writes its score.",
    source: "docs/rewards.md",
};

/// What happens to answers that the program does not score.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The run ends; it can be resumed from its last checkpoint.
    #[default]
    Stop,
    /// They score 0, and the share of them is a reading.
    Zero,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The command line, run by `sh`.
    pub run: String,
    /// Seconds that the program may take for one answer.
    #[schemars(range(min = 0.001))]
    pub timeout: f64,
    /// Answers that it is sent before their scores are waited for, in order: a program that asks a service can then ask about
    /// several at once. 1: each waits for the score before it.
    #[schemars(range(min = 1, max = 100000))]
    pub ahead: usize,
    /// What happens to answers that it does not score, after one restart.
    pub on_failure: OnFailure,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            run: String::new(),
            timeout: 10.0,
            ahead: 1,
            on_failure: OnFailure::Stop,
        }
    }
}

impl Reward for Config {
    fn judges_message(&self) -> bool {
        false
    }

    fn score(&self, _answer: &Answer) -> Result<f64, String> {
        Err("a program scores this reward".into())
    }

    fn program(&self) -> Option<&Config> {
        Some(self)
    }

    fn worker(&self) -> Option<Box<dyn Worker>> {
        Some(Box::new(Program::new(self.clone())))
    }

    fn fault(&self) -> Option<(String, String)> {
        self.run.trim().is_empty().then(|| {
            let fix = "{command: {run: 'python3 score.py'}}";
            ("no command line".into(), fix.into())
        })
    }
}
