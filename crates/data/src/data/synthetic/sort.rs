//! Sorts numbers: `sort 31 4 15=` → `4 15 31`.

use super::{Generator, Problem, between, range_fault};
use crate::base::registry::Entry;
use crate::base::rng::Rng;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "sort",
    title: "Sorting",
    summary: "Sort numbers: sort 31 4 15= → 4 15 31.",
    source: "Graves et al. 2014, arXiv:1410.5401",
};

const MAX_LENGTH: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Numbers in the shortest list.
    #[schemars(range(min = 1, max = 1000))]
    pub min_length: usize,
    /// Numbers in the longest list.
    #[schemars(range(min = 1, max = 1000))]
    pub max_length: usize,
    /// The largest number.
    #[schemars(range(min = 1, max = 1000000))]
    pub max_value: u64,
    /// From the largest to the smallest.
    pub descending: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            min_length: 3,
            max_length: 8,
            max_value: 99,
            descending: false,
        }
    }
}

impl Generator for Config {
    fn problem(&self, rng: &mut Rng) -> Problem {
        let length = between(self.min_length, self.max_length, rng);
        let numbers: Vec<u64> = (0..length).map(|_| rng.below(self.max_value + 1)).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        if self.descending {
            sorted.reverse();
        }
        let written = |numbers: &[u64]| {
            let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
            words.join(" ")
        };
        Problem {
            prompt: format!("sort {}=", written(&numbers)),
            answer: written(&sorted),
        }
    }

    /// The same numbers out of order.
    fn wrong_answer(&self, problem: &Problem, rng: &mut Rng) -> Option<String> {
        let mut numbers: Vec<&str> = problem.answer.split(' ').collect();
        for _ in 0..super::MAX_DRAWS {
            for i in (1..numbers.len()).rev() {
                numbers.swap(i, rng.below(i as u64 + 1) as usize);
            }
            let shuffled = numbers.join(" ");
            if shuffled != problem.answer {
                return Some(shuffled);
            }
        }
        None
    }

    fn fault(&self) -> Option<String> {
        range_fault("length", self.min_length, self.max_length, MAX_LENGTH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Stream;

    fn numbers(text: &str) -> Vec<u64> {
        text.split(' ').map(|n| n.parse().unwrap()).collect()
    }

    #[test]
    fn answers_hold_the_same_numbers_in_order() {
        for descending in [false, true] {
            let config = Config {
                descending,
                ..Default::default()
            };
            for step in 0..50 {
                let problem = config.problem(&mut Rng::new(1, Stream::Test, step, 0));
                let mut given = numbers(
                    problem
                        .prompt
                        .trim_start_matches("sort ")
                        .trim_end_matches('='),
                );
                let answer = numbers(&problem.answer);
                let in_order = |pair: &[u64]| match descending {
                    true => pair[0] >= pair[1],
                    false => pair[0] <= pair[1],
                };
                assert!(answer.windows(2).all(in_order), "{problem:?}");
                given.sort_unstable();
                let mut same = answer.clone();
                same.sort_unstable();
                assert_eq!(given, same);
                let wrong = config.wrong_answer(&problem, &mut Rng::new(2, Stream::Test, step, 0));
                if let Some(wrong) = wrong {
                    let mut same = numbers(&wrong);
                    assert!(!same.windows(2).all(in_order), "{wrong}");
                    same.sort_unstable();
                    assert_eq!(given, same);
                }
            }
        }
    }
}
