//! The rewards of a run with their weights, as in a spec, and the judge that calls them.

use super::command::OnFailure;
use super::{Answer, Reward, RewardConfig, Worker};
use crate::base::near::{did_you_mean, nearest};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// A reward with its share in the sum.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedReward {
    pub reward: RewardConfig,
    /// What its score is multiplied by; 0: it is measured and teaches nothing.
    pub weight: f64,
    /// In readings and errors; its kind where the spec gives none.
    pub name: String,
}

/// The reward that decides whether an answer passes, as an index; none where all give scores without a scale.
pub fn verifier(rewards: &[WeightedReward]) -> Option<usize> {
    rewards
        .iter()
        .position(|reward| reward.reward.is_verifier())
}

impl WeightedReward {
    /// Reads `exact`, or a map: `{number: {tolerance: 0.01}, weight: 0.5, name: sum}`.
    fn parse(value: Value) -> Result<WeightedReward, String> {
        let mut map = match value {
            Value::String(word) => Map::from_iter([(word, Value::Null)]),
            Value::Object(map) => map,
            other => return Err(format!("{other} is not a reward; write {EXAMPLE}")),
        };
        let weight = match map.remove("weight") {
            None => 1.0,
            Some(weight) => weight
                .as_f64()
                .ok_or_else(|| format!("weight {weight} is not a number"))?,
        };
        let name = match map.remove("name") {
            None => None,
            Some(Value::String(name)) => Some(name),
            Some(other) => return Err(format!("name {other} is not a string")),
        };
        let mut kinds = map.into_iter();
        let (Some((kind, mut settings)), None) = (kinds.next(), kinds.next()) else {
            return Err(format!(
                "one reward per item, with `weight` and `name` next to it: {EXAMPLE}"
            ));
        };
        if settings.is_null() {
            settings = Value::Object(Map::new());
        }
        let known: Vec<&str> = RewardConfig::ENTRIES.iter().map(|entry| entry.id).collect();
        if !known.contains(&kind.as_str()) {
            let fix = meant(&kind, &known);
            return Err(format!("unknown reward `{kind}`{FIX}{fix}"));
        }
        let reward =
            serde_json::from_value(Value::Object(Map::from_iter([(kind.clone(), settings)])));
        let reward: RewardConfig =
            reward.map_err(|e| format!("{kind}: {}", of_setting(&e.to_string())))?;
        Ok(WeightedReward {
            name: name.unwrap_or(kind),
            reward,
            weight,
        })
    }

    /// What is wrong with it and what to do.
    pub fn fault(&self) -> Option<(String, String)> {
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || !self.name.chars().all(good) {
            let what = format!("the name {:?} is used in a metric's name", self.name);
            return Some((what, "use letters, digits, `-`, `_` or `.`".into()));
        }
        if !self.weight.is_finite() {
            return Some((
                format!("{}: weight {}", self.name, self.weight),
                "use a number".into(),
            ));
        }
        let (what, fix) = self.reward.fault()?;
        Some((format!("{}: {what}", self.name), fix))
    }
}

/// What stands between a fault and its fix in the errors of a reader.
pub const FIX: &str = "; try: ";

/// The name that was meant, or all that there are.
fn meant(said: &str, known: &[&str]) -> String {
    match nearest(said, known.iter().copied()) {
        Some(near) => did_you_mean(near),
        None => format!("one of {}", known.join(", ")),
    }
}

/// A fault of a reward's settings with its fix: serde names the settings that there are between backticks.
fn of_setting(error: &str) -> String {
    let Some(said) = error.strip_prefix("unknown field `") else {
        return error.to_string();
    };
    // `fre`, expected `free` or `limit`: every second part is a name.
    let key = said.split('`').next().unwrap_or_default();
    let known: Vec<&str> = said.split('`').skip(2).step_by(2).collect();
    let fix = match known.is_empty() {
        true => "it has no settings: leave it out".to_string(),
        false => meant(key, &known),
    };
    format!("unknown key {key}{FIX}{fix}")
}

const EXAMPLE: &str = "`- exact` or `- {number: {tolerance: 0.01}, weight: 0.5}`";

impl Serialize for WeightedReward {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut value = serde_json::to_value(&self.reward).map_err(serde::ser::Error::custom)?;
        if let Value::Object(map) = &mut value {
            map.insert("weight".into(), self.weight.into());
            map.insert("name".into(), self.name.clone().into());
        }
        value.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for WeightedReward {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WeightedReward, D::Error> {
        WeightedReward::parse(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl JsonSchema for WeightedReward {
    fn schema_name() -> Cow<'static, str> {
        "WeightedReward".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a reward by its name, or a map with its settings, `weight` and `name`",
            "anyOf": [{"type": "string"}, {"type": "object"}],
        })
    }
}

/// A reward that could not be given, and that the spec does not take for 0.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("reward `{name}`: {what}; prompt {prompt:?}, answer {answer:?}")]
pub struct RewardError {
    pub name: String,
    /// Which of the answers, from 0.
    pub number: usize,
    pub what: String,
    pub prompt: String,
    pub answer: String,
}

/// Scores answers; holds the programs and models that do.
#[derive(Debug)]
pub struct Scorer {
    rewards: Vec<(WeightedReward, Option<Box<dyn Worker>>)>,
}

/// What one reward gave some answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    pub name: String,
    pub weight: f64,
    /// One for each answer.
    pub values: Vec<f64>,
    /// Of each answer, whether a program did not score it: it counts 0.
    pub failed: Vec<bool>,
    /// Of each answer, whether it holds nothing to score; `None` where any text can be scored.
    pub unread: Option<Vec<bool>>,
}

impl Scores {
    /// Answers that a program did not score.
    pub fn n_failed(&self) -> usize {
        count(&self.failed)
    }

    /// Answers in which nothing was found to score; `None` where any text can be scored.
    pub fn n_unread(&self) -> Option<usize> {
        self.unread.as_deref().map(count)
    }

    /// Puts what `fresh` answers got at these places of others.
    pub fn replace(&mut self, places: &[usize], fresh: Scores) {
        put(&mut self.values, places, fresh.values);
        put(&mut self.failed, places, fresh.failed);
        if let (Some(unread), Some(fresh)) = (&mut self.unread, fresh.unread) {
            put(unread, places, fresh);
        }
    }
}

fn count(flags: &[bool]) -> usize {
    flags.iter().filter(|flag| **flag).count()
}

fn put<T>(all: &mut [T], places: &[usize], fresh: Vec<T>) {
    for (place, value) in places.iter().zip(fresh) {
        all[*place] = value;
    }
}

/// Whether there is no message to judge.
fn is_void(reward: &dyn Reward, answer: &Answer) -> bool {
    reward.judges_message() && answer.is_unfinished()
}

fn unread(reward: &dyn Reward, answers: &[Answer]) -> Option<Vec<bool>> {
    let unread = |answer| {
        let reads = reward.reads(answer)?;
        Some(!reads || is_void(reward, answer))
    };
    let unread: Option<Vec<bool>> = answers.iter().map(unread).collect();
    unread.filter(|unread| !unread.is_empty())
}

impl Scorer {
    pub fn new(rewards: &[WeightedReward]) -> Scorer {
        let one = |reward: &WeightedReward| (reward.clone(), reward.reward.worker());
        Scorer {
            rewards: rewards.iter().map(one).collect(),
        }
    }

    /// The scores of each reward for all answers.
    ///
    /// # Errors
    /// A row without what a reward needs; a program that gave no score.
    pub fn score(&mut self, answers: &[Answer]) -> Result<Vec<Scores>, RewardError> {
        let mut all = Vec::new();
        for (reward, worker) in &mut self.rewards {
            let error = |what, number, answer: &Answer| RewardError {
                name: reward.name.clone(),
                number,
                what,
                prompt: answer.prompt.clone(),
                answer: answer.text.clone(),
            };
            if let (Some(worker), Some(first)) = (&mut *worker, answers.first()) {
                worker
                    .begin(answers)
                    .map_err(|what| error(what, 0, first))?;
            }
            let (mut values, mut failed) = (Vec::with_capacity(answers.len()), Vec::new());
            let forgiving = reward.reward.program();
            let forgiving = forgiving.is_some_and(|c| c.on_failure == OnFailure::Zero);
            for (number, answer) in answers.iter().enumerate() {
                let score = match worker {
                    _ if is_void(&*reward.reward, answer) => Ok(0.0),
                    Some(worker) => worker.score(number, answer),
                    None => reward.reward.score(answer),
                };
                failed.push(score.is_err());
                values.push(match score {
                    Ok(score) => score,
                    Err(_) if forgiving => 0.0,
                    Err(what) => return Err(error(what, number, answer)),
                });
            }
            all.push(Scores {
                name: reward.name.clone(),
                weight: reward.weight,
                values,
                failed,
                unread: unread(&*reward.reward, answers),
            });
        }
        Ok(all)
    }
}
