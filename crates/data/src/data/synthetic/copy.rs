//! Repeats a string: `copy dbac=` → `dbac`. Attention learns it first; recurrent states forget it.

use super::{Generator, Problem, between, pick, range_fault};
use crate::base::registry::Entry;
use crate::base::rng::Rng;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "copy",
    title: "Copying",
    summary: "Copy a string, or reverse it: copy dbac= → dbac.",
    source: "Jelassi et al. 2024, arXiv:2402.01032",
};

const MAX_LENGTH: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Letters in the shortest string.
    #[schemars(range(min = 1, max = 10000))]
    pub min_length: usize,
    /// Letters in the longest string.
    #[schemars(range(min = 1, max = 10000))]
    pub max_length: usize,
    /// The letters.
    pub alphabet: String,
    /// Asks for it backwards.
    pub backwards: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            min_length: 4,
            max_length: 12,
            alphabet: "abcdefghijklmnopqrstuvwxyz".into(),
            backwards: false,
        }
    }
}

impl Generator for Config {
    fn problem(&self, rng: &mut Rng) -> Problem {
        let mut buffer = [0; 4];
        let letters: Vec<String> = self
            .alphabet
            .chars()
            .map(|c| c.encode_utf8(&mut buffer).to_string())
            .collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        let length = between(self.min_length, self.max_length, rng);
        let said: Vec<&str> = (0..length).map(|_| pick(&letters, rng)).collect();
        let (word, answer) = match self.backwards {
            true => ("reverse", said.iter().rev().copied().collect()),
            false => ("copy", said.concat()),
        };
        Problem {
            prompt: format!("{word} {}=", said.concat()),
            answer,
        }
    }

    fn fault(&self) -> Option<String> {
        if self.alphabet.is_empty() {
            return Some("alphabet is empty: name the letters to copy".into());
        }
        range_fault("length", self.min_length, self.max_length, MAX_LENGTH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Stream;

    #[test]
    fn the_answer_is_what_was_said_or_its_reverse() {
        for backwards in [false, true] {
            let config = Config {
                alphabet: "xyé".into(),
                backwards,
                ..Default::default()
            };
            for step in 0..50 {
                let problem = config.problem(&mut Rng::new(1, Stream::Test, step, 0));
                let said = problem
                    .prompt
                    .split(' ')
                    .nth(1)
                    .unwrap()
                    .trim_end_matches('=');
                let answer: String = match backwards {
                    true => said.chars().rev().collect(),
                    false => said.to_string(),
                };
                assert_eq!(problem.answer, answer);
                assert!((4..=12).contains(&said.chars().count()));
            }
        }
    }
}
