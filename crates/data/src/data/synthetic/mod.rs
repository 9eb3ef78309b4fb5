//! Synthetic rows with verifiable answers: for tests, teaching and rewards. One file per generator, one word in the list. A
//! row is a function of (seed, index), so a data set needs no file and never changes.

mod arithmetic;
mod copy;
mod countdown;
mod grammar;
mod recall;
mod sort;

use super::{Place, Record, RowFault};
use crate::base::rng::{Rng, Stream};
use serde::{Deserialize, Serialize};
use serde_json::Map;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Rows where a spec does not say how many.
pub const DEFAULT_ROWS: u64 = 10_000;

/// Draws of one row until it differs from every row before it; then the generator counts as exhausted.
const MAX_DRAWS: u32 = 1_000;

/// A question and its one right answer. `prompt` followed by `answer` is the whole text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Problem {
    pub prompt: String,
    pub answer: String,
}

/// What makes problems.
pub trait Generator {
    /// One problem.
    fn problem(&self, rng: &mut Rng) -> Problem;

    /// An answer to a problem that is wrong and looks like one; the answer to another problem where nothing better is known.
    fn wrong_answer(&self, problem: &Problem, rng: &mut Rng) -> Option<String> {
        let others = (0..MAX_DRAWS).map(|_| self.problem(rng).answer);
        others.into_iter().find(|answer| *answer != problem.answer)
    }

    /// What is wrong with the settings, and how to say it right; `None` when nothing is.
    fn fault(&self) -> Option<String>;
}

crate::base::registry! {
    /// What a made-up data set teaches.
    pub enum SyntheticConfig: dyn Generator {
        arithmetic: Arithmetic, copy: Copy, sort: Sort, grammar: Grammar, recall: Recall, countdown: Countdown
    }
}

/// What a problem is made into.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// A prompt and the answer to learn.
    #[default]
    Completion,
    /// Both as one text: pretraining.
    Text,
    /// A prompt; the answer is the reference for verifiable rewards.
    Prompt,
    /// A user who asks and an assistant who answers.
    Chat,
    /// A user who asks; the answer is the reference for verifiable rewards.
    ChatPrompt,
    /// A user who asks, the right answer as the chosen one and a wrong one as the rejected one.
    ChatPreference,
    /// A prompt, the right answer as the chosen one and a wrong one as the rejected one.
    Preference,
    /// A prompt with an answer and its label: the right one and a wrong one in turn.
    Judged,
}

/// A made-up data set as a spec says it.
#[derive(Debug, Clone, PartialEq)]
pub struct SyntheticSource {
    pub generator: SyntheticConfig,
    /// How many rows, all different.
    pub rows: u64,
    pub shape: Shape,
    pub seed: u64,
}

impl SyntheticSource {
    pub fn new(generator: SyntheticConfig) -> SyntheticSource {
        SyntheticSource {
            generator,
            rows: DEFAULT_ROWS,
            shape: Shape::default(),
            seed: 0,
        }
    }

    /// The rows, in the columns that formats know: `prompt` and `completion`, `text`, `prompt` and `answer`, `messages`,
    /// `prompt`, `chosen` and `rejected`, `prompt`, `completion` and `label`.
    pub fn rows(&self) -> Problems {
        Problems {
            place: format!("synthetic {}", self.generator.entry().id).into(),
            source: self.clone(),
            next: 0,
            seen: HashSet::new(),
            over: false,
        }
    }

    fn record(&self, place: Place, problem: Problem, wrong: Option<String>) -> Record {
        let Problem { prompt, answer } = problem;
        // The answer ends with its line: a model without a token that ends texts learns to stop there.
        let fields = match self.shape {
            Shape::Completion => {
                serde_json::json!({"prompt": prompt, "completion": format!("{answer}\n")})
            }
            Shape::Text => serde_json::json!({"text": format!("{prompt}{answer}\n")}),
            Shape::Prompt => serde_json::json!({"prompt": prompt, "answer": answer.trim()}),
            Shape::Chat => serde_json::json!({"messages": [
                {"role": "user", "content": prompt.trim()},
                {"role": "assistant", "content": answer.trim()},
            ]}),
            Shape::ChatPrompt => serde_json::json!({
                "prompt": [{"role": "user", "content": prompt.trim()}],
                "answer": answer.trim(),
            }),
            Shape::ChatPreference => serde_json::json!({
                "prompt": [{"role": "user", "content": prompt.trim()}],
                "chosen": [{"role": "assistant", "content": answer.trim()}],
                "rejected": [{"role": "assistant", "content": wrong.unwrap_or_default().trim()}],
            }),
            Shape::Preference => serde_json::json!({
                "prompt": prompt,
                "chosen": format!("{answer}\n"),
                "rejected": format!("{}\n", wrong.unwrap_or_default()),
            }),
            Shape::Judged => serde_json::json!({
                "prompt": prompt,
                "label": wrong.is_none(),
                "completion": format!("{}\n", wrong.unwrap_or(answer)),
            }),
        };
        let fields = match fields {
            serde_json::Value::Object(map) => map,
            _ => Map::new(),
        };
        Record { place, fields }
    }
}

/// The rows of a made-up data set, one after the other; none twice.
#[derive(Debug)]
pub struct Problems {
    place: Arc<str>,
    source: SyntheticSource,
    next: u64,
    /// Hashes of the prompts so far: 8 bytes a row.
    seen: HashSet<u64>,
    over: bool,
}

impl Problems {
    /// The problem of the next row, drawn again while its prompt was there before, and a wrong answer where one is needed:
    /// a problem that has none is drawn again too.
    fn draw(&mut self) -> Option<(Problem, Option<String>)> {
        let SyntheticSource {
            generator,
            shape,
            seed,
            ..
        } = &self.source;
        (0..MAX_DRAWS).find_map(|lane| {
            let mut rng = Rng::new(*seed, Stream::Test, self.next, lane);
            let problem = generator.problem(&mut rng);
            let mut hasher = DefaultHasher::new();
            problem.prompt.hash(&mut hasher);
            let wrong = match shape {
                Shape::Preference | Shape::ChatPreference => {
                    Some(generator.wrong_answer(&problem, &mut rng)?)
                }
                Shape::Judged if self.next % 2 == 1 => {
                    Some(generator.wrong_answer(&problem, &mut rng)?)
                }
                _ => None,
            };
            self.seen
                .insert(hasher.finish())
                .then_some((problem, wrong))
        })
    }
}

impl Iterator for Problems {
    type Item = Result<Record, RowFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over || self.next == self.source.rows {
            return None;
        }
        let place = Place {
            file: self.place.clone(),
            row: self.next + 1,
        };
        if let Some(fault) = self.source.generator.fault() {
            self.over = true;
            return Some(Err(RowFault::new(
                &place,
                fault,
                "fix the generator's settings",
            )));
        }
        let Some((problem, wrong)) = self.draw() else {
            self.over = true;
            return Some(Err(RowFault::new(
                &place,
                format!(
                    "no new problem in {MAX_DRAWS} draws: these settings give hardly more than {} different ones",
                    self.next
                ),
                "ask for fewer rows, or for harder problems",
            )));
        };
        self.next += 1;
        Some(Ok(self.source.record(place, problem, wrong)))
    }
}

/// One of several words or letters.
fn pick<'a, T: ?Sized>(items: &[&'a T], rng: &mut Rng) -> &'a T {
    items[rng.below(items.len() as u64) as usize]
}

/// A whole number of `min..=max`.
fn between(min: usize, max: usize, rng: &mut Rng) -> usize {
    min + rng.below((max - min + 1) as u64) as usize
}

/// What is wrong with a range of lengths that must lie in `1..=limit`.
fn range_fault(name: &str, min: usize, max: usize, limit: usize) -> Option<String> {
    (min == 0 || min > max || max > limit).then(|| {
        format!(
            "min_{name} {min} and max_{name} {max}: they must be in order and between 1 and {limit}"
        )
    })
}

#[cfg(test)]
mod tests;
