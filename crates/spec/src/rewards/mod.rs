//! Rewards: scores for completions. A reward is one file and one word in the list; a spec lists those of a run with their
//! weights. Generating completions and training on rewards are elsewhere.

pub mod command;
mod countdown;
mod exact;
mod json;
mod language;
mod length;
mod list;
mod model;
mod number;
mod program;
mod python;
mod regex;
pub mod repetition;
mod schema;
mod tags;
#[cfg(test)]
mod tests;

pub use list::{FIX, RewardError, Scorer, Scores, WeightedReward, verifier};

use serde_json::{Map, Value};
use std::borrow::Cow;

/// An answer with what it answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub prompt: String,
    /// What the model said, without the token that ends texts: of one that thinks first the final message.
    pub text: String,
    /// Where some of what it wrote is set apart as thoughts.
    pub thinking: Option<Thinking>,
    /// Tokens of it, the one that ended it included.
    pub tokens: usize,
    /// It ended by itself, not at its longest length.
    pub ended: bool,
    /// Where a chat template wrote the prompt: what it writes behind an answer. None behind plain text.
    pub behind: Option<String>,
    pub reference: Reference,
}

/// What a model wrote besides its final message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thinking {
    /// Without marks.
    pub thought: String,
    /// All of it, with thoughts and marks.
    pub completion: String,
    /// It ended inside its thoughts: there is no final message, so no rule finds it right.
    pub is_unfinished: bool,
    /// The final message behind its prompt, as a model of this convention writes it that thinks nothing.
    pub alone: String,
}

impl Answer {
    /// All that the model wrote, with thoughts and marks.
    pub fn completion(&self) -> &str {
        let thinking = self.thinking.as_ref();
        thinking.map_or(&self.text, |thinking| &thinking.completion)
    }

    /// Thoughts and final message, without marks.
    pub fn words(&self) -> Cow<'_, str> {
        match &self.thinking {
            Some(thinking) => format!("{}\n{}", thinking.thought, self.text).into(),
            None => self.text.as_str().into(),
        }
    }

    /// It ended inside its thoughts.
    pub fn is_unfinished(&self) -> bool {
        let thinking = self.thinking.as_ref();
        thinking.is_some_and(|thinking| thinking.is_unfinished)
    }
}

/// What a row of the data says of its answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reference {
    /// The right answer.
    pub answer: Option<String>,
    /// The row's other columns.
    pub metadata: Map<String, Value>,
}

impl Reference {
    /// Reads the object that the store keeps behind a prompt: `answer` and other columns.
    pub fn parse(json: &str) -> Reference {
        let mut metadata: Map<String, Value> = serde_json::from_str(json).unwrap_or_default();
        let answer = metadata.remove("answer").map(|answer| match answer {
            Value::String(text) => text,
            other => other.to_string(),
        });
        Reference { answer, metadata }
    }
}

/// A rule that gives answers a number.
pub trait Reward: Send + Sync {
    /// What the answer is worth.
    ///
    /// # Errors
    /// What the row lacks.
    fn score(&self, answer: &Answer) -> Result<f64, String>;

    /// Whether the answer holds what is scored: a number, JSON, a program. `None` where any text can be scored.
    fn reads(&self, _answer: &Answer) -> Option<bool> {
        None
    }

    /// Whether 1 means that the answer is right: pass@k counts those. A score without a scale and a penalty say no such thing.
    fn is_verifier(&self) -> bool {
        true
    }

    /// Whether the final message alone is judged: without one it is wrong, and nothing more is asked. Others judge all that the model
    /// wrote, or decide themselves.
    fn judges_message(&self) -> bool {
        true
    }

    /// A program that scores instead.
    fn program(&self) -> Option<&command::Config> {
        None
    }

    /// The folder of a model that scores instead.
    fn model(&self) -> Option<&std::path::Path> {
        None
    }

    /// Texts that such a model reads at once.
    fn read_at_once(&self) -> usize {
        1
    }

    /// Makes the paths of the settings absolute.
    fn fix_paths(&mut self, _absolute: &dyn Fn(&std::path::Path) -> std::path::PathBuf) {}

    /// What scores instead: it keeps something from answer to answer.
    fn worker(&self) -> Option<Box<dyn Worker>> {
        None
    }

    /// What this machine lacks for it, and what to do; `None` when nothing.
    fn missing(&self) -> Option<(String, String)> {
        None
    }

    /// What is wrong with the settings and what to do; `None` when nothing is.
    fn fault(&self) -> Option<(String, String)> {
        None
    }
}

/// What scores answers with something that it keeps: a child process, a model.
pub trait Worker: std::fmt::Debug + Send {
    /// Hears of all answers before the first is scored.
    ///
    /// # Errors
    /// None of them can be scored.
    fn begin(&mut self, _answers: &[Answer]) -> Result<(), String> {
        Ok(())
    }

    /// The score of answer `number` of those.
    ///
    /// # Errors
    /// What went wrong.
    fn score(&mut self, number: usize, answer: &Answer) -> Result<f64, String>;
}

crate::base::registry! {
    /// What an answer is rewarded for.
    pub enum RewardConfig: dyn Reward {
        exact: Exact, number: Number, regex: Regex, tags: Tags, json: Json, schema: Schema, length: Length, repetition: Repetition, command: Command, model: Model, python: Python, countdown: Countdown, language: Language
    }
}

/// What is wrong with a row of which a reward wants the right answer.
pub const NO_REFERENCE: &str = "the row has no answer to compare with; name the column with data.format, or use another reward";

/// The right answer of a row, for rewards that compare with it.
fn right_answer(answer: &Answer) -> Result<&str, String> {
    let right = answer.reference.answer.as_deref();
    right.ok_or_else(|| NO_REFERENCE.into())
}
