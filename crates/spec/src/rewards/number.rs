//! 1 if the completion's number equals the reference's, however the two are written.

mod forms;
mod latex;
mod scan;

use super::{Answer, Reward, right_answer};
use crate::base::registry::Entry;
use latex::{boxed, braced, plain};
use scan::{Number, numbers, only_number};
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "number",
    title: "Right number",
    summary: "1 if the number after ####, in \\boxed{} or at the end equals the row's; else 0.",
    source: "GSM8K, arXiv 2110.14168; MATH, arXiv 2103.03874",
};

/// What rounding leaves of a fraction. Whole numbers are not rounded, so up to here they must be equal.
const ROUNDING: f64 = 1e-6;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How far the number may be off, relative to the right one. Up to 1e-6 it applies to fractions alone: whole numbers must be
    /// equal.
    #[schemars(range(min = 0.0))]
    pub tolerance: f64,
    /// Without #### or \boxed{} the answer is wrong; otherwise its last number counts.
    pub marked: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            tolerance: ROUNDING,
            marked: false,
        }
    }
}

impl Config {
    fn said(&self, text: &str) -> Option<Number> {
        match (marked(text), self.marked) {
            (Some(said), _) => one_number(&said),
            (None, true) => None,
            (None, false) => numbers(&plain(text)).last(),
        }
    }

    fn equal(&self, said: Number, right: Number) -> bool {
        match (said.whole, right.whole) {
            (Some(said), Some(right)) if self.tolerance <= ROUNDING => said == right,
            _ => {
                // Around 0, where nothing is relative, what rounding leaves.
                let most = (self.tolerance * right.value.abs()).max(f64::EPSILON);
                (said.value - right.value).abs() <= most
            }
        }
    }
}

impl Reward for Config {
    fn reads(&self, answer: &Answer) -> Option<bool> {
        Some(self.said(&answer.text).is_some())
    }

    fn score(&self, answer: &Answer) -> Result<f64, String> {
        let right = right_answer(answer)?;
        let number = match marked(right) {
            Some(marked) => one_number(&marked),
            None if is_solution(right) => numbers(&plain(right)).last(),
            None => one_number(&Marked::Boxed(right)),
        };
        let right = number.ok_or_else(|| {
            let is = match plain(right).contains(|c: char| c.is_ascii_digit()) {
                true => "is not one number",
                false => "holds no number",
            };
            format!("the row's answer {right:?} {is}; use the reward `exact`")
        })?;
        let said = self.said(&answer.text);
        Ok(f64::from(u8::from(
            said.is_some_and(|said| self.equal(said, right)),
        )))
    }
}

/// What an answer marks as its result.
enum Marked<'a> {
    /// Behind `####`, as GSM8K writes it: `18 dollars`.
    Behind(&'a str),
    /// In `\boxed{…}`, as MATH writes it: LaTeX.
    Boxed(&'a str),
}

/// What stands behind the last `####` that marks a result, or in the last `\boxed{…}`, whichever comes later.
fn marked(text: &str) -> Option<Marked<'_>> {
    const HASHES: &str = "####";
    let behind = text
        .rmatch_indices(HASHES)
        .map(|(at, _)| (at, &text[at + HASHES.len()..]))
        .find(|(_, said)| is_result(said));
    let boxed = text.rmatch_indices("\\boxed").next();
    match (behind, boxed) {
        (Some((at, said)), boxed) if boxed.is_none_or(|(box_at, _)| box_at < at) => {
            Some(Marked::Behind(said))
        }
        (_, Some((at, command))) => {
            let said = text[at + command.len()..].trim_start();
            // An answer that ended inside its box is taken as far as it goes.
            Some(Marked::Boxed(
                braced(said).map_or(said.trim_start_matches('{'), |(inside, _)| inside),
            ))
        }
        _ => None,
    }
}

/// Whether a number stands behind a `####`. Headings of Markdown begin in the same way: `#### Step 2`, `#### 1. Count`.
fn is_result(behind: &str) -> bool {
    let line = plain(behind.lines().next().unwrap_or_default());
    let number = line.trim_start_matches(|c| " \t$€£¥*-+.≈~=(".contains(c));
    let rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
    let words = rest.strip_prefix(['.', ')', ':']).unwrap_or_default();
    let is_heading = words.starts_with([' ', '\t']) && words.contains(char::is_alphabetic);
    rest.len() < number.len() && !is_heading
}

/// Whether a reference is a solution in words, which ends in its number.
fn is_solution(text: &str) -> bool {
    /// Fewer may be a unit, or stand between two answers: `3 or 4`.
    const WORDS: usize = 3;
    let words = text.split_whitespace().filter(|word| {
        let letters = word.chars().filter(|c| c.is_alphabetic()).count();
        letters > 1 && letters + 2 > word.chars().count()
    });
    !text.contains('\\') && words.count() >= WORDS
}

/// The number that a mark names. In a box nothing may stand beside it that changes it, such as a root or a second number.
fn one_number(marked: &Marked) -> Option<Number> {
    match marked {
        Marked::Behind(said) => numbers(&plain(said)).next(),
        Marked::Boxed(said) => {
            let said = boxed(said);
            let Some((left, right)) = said.rsplit_once('=') else {
                return only_number(&said);
            };
            // Of `a = 1, b = 2` no number is the answer.
            let is_list = left.contains('=') && left.contains([',', ';']);
            only_number(right).filter(|_| !is_list)
        }
    }
}

#[cfg(test)]
mod tests;
