//! 1 where the answer's number is the right one, however the two are written.

use super::{Answer, Reward, right_answer};
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "number",
    title: "Right number",
    summary: "1 where the number behind ####, in \\boxed{} or at the end equals the row's; else 0.",
    source: "GSM8K, arXiv 2110.14168; MATH, arXiv 2103.03874",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How far the number may be off, relative to the right one.
    #[schemars(range(min = 0.0))]
    pub tolerance: f64,
    /// Without #### or \boxed{} the answer is wrong; otherwise its last number counts.
    pub marked: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            tolerance: 1e-6,
            marked: false,
        }
    }
}

impl Config {
    fn said(&self, text: &str) -> Option<f64> {
        let said = marked(text);
        match self.marked {
            true => said,
            false => said.or_else(|| last_number(text)),
        }
    }
}

impl Reward for Config {
    fn reads(&self, answer: &Answer) -> Option<bool> {
        Some(self.said(&answer.text).is_some())
    }

    fn score(&self, answer: &Answer) -> Result<f64, String> {
        let right = right_answer(answer)?;
        let right = marked(right)
            .or_else(|| last_number(right))
            .ok_or_else(|| {
                format!("the row's answer {right:?} holds no number; use the reward `exact`")
            })?;
        let said = self.said(&answer.text);
        let near = |said: f64| (said - right).abs() <= self.tolerance * right.abs().max(1.0);
        Ok(f64::from(u8::from(said.is_some_and(near))))
    }
}

/// The number behind the last `####`, or in the last `\boxed{…}`.
fn marked(text: &str) -> Option<f64> {
    if let Some((_, said)) = text.rsplit_once("####") {
        return first_number(said);
    }
    let (_, said) = text.rsplit_once("\\boxed{")?;
    let inside = said.split_once('}').map_or(said, |(inside, _)| inside);
    first_number(inside)
}

fn last_number(text: &str) -> Option<f64> {
    numbers(text).last()
}

fn first_number(text: &str) -> Option<f64> {
    numbers(text).next()
}

/// Numbers in a text, commas between thousands left out; a dot or comma at the end belongs to the sentence.
fn numbers(text: &str) -> impl Iterator<Item = f64> + '_ {
    let words = text.split(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ',' | '-' | '+')));
    words.filter_map(|word| {
        let word = word.trim_end_matches(['.', ',', '-', '+']).replace(',', "");
        // `3-1` is a difference: its last number counts.
        let begin = word.rfind(['-', '+']).unwrap_or(0);
        word[begin..].parse::<f64>().ok().filter(|x| x.is_finite())
    })
}
