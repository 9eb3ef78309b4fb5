//! Key-value recall: keys with values, and a query for one of the keys, `q=4 b=7 x=0; b=` → `7`. The task of induction heads.

use super::{Generator, Problem, range_fault};
use crate::base::registry::Entry;
use crate::base::rng::Rng;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "recall",
    title: "Key-value recall",
    summary: "Key-value pairs and a query for one key: q=4 b=7 x=0; b= → 7.",
    source: "Arora et al. 2023, arXiv:2312.04927",
};

const KEYS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
const MAX_PAIRS: usize = 26 * 26;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Pairs in the shortest list.
    #[schemars(range(min = 1, max = 676))]
    pub min_pairs: usize,
    /// Pairs in the longest list; beyond 26, keys have two letters.
    #[schemars(range(min = 1, max = 676))]
    pub max_pairs: usize,
    /// Digits of a value.
    #[schemars(range(min = 1, max = 9))]
    pub digits: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            min_pairs: 2,
            max_pairs: 8,
            digits: 1,
        }
    }
}

impl Config {
    fn key(&self, index: usize) -> String {
        let letter = |i: usize| char::from(KEYS[i % KEYS.len()]);
        match self.max_pairs > KEYS.len() {
            true => [letter(index / KEYS.len()), letter(index)].iter().collect(),
            false => letter(index).to_string(),
        }
    }
}

impl Generator for Config {
    fn problem(&self, rng: &mut Rng) -> Problem {
        let pairs = super::between(self.min_pairs, self.max_pairs, rng);
        let known = match self.max_pairs > KEYS.len() {
            true => MAX_PAIRS,
            false => KEYS.len(),
        };
        let mut keys: Vec<usize> = (0..known).collect();
        rng.shuffle(&mut keys);
        let width = self.digits as usize;
        let list: Vec<(String, String)> = keys[..pairs]
            .iter()
            .map(|key| {
                let value = rng.below(10u64.pow(self.digits));
                (self.key(*key), format!("{value:0width$}"))
            })
            .collect();
        let (key, value) = &list[rng.below(pairs as u64) as usize];
        let written: Vec<String> = list.iter().map(|(k, v)| format!("{k}={v}")).collect();
        Problem {
            prompt: format!("{}; {key}=", written.join(" ")),
            answer: value.clone(),
        }
    }

    fn fault(&self) -> Option<String> {
        if !(1..=9).contains(&self.digits) {
            return Some(format!("digits is {}: from 1 to 9", self.digits));
        }
        range_fault("pairs", self.min_pairs, self.max_pairs, MAX_PAIRS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Stream;
    use std::collections::HashMap;

    #[test]
    fn the_answer_is_the_value_of_the_key_and_no_key_stands_twice() {
        for (max_pairs, digits) in [(8, 1), (40, 3)] {
            let config = Config {
                max_pairs,
                digits,
                ..Default::default()
            };
            for step in 0..100 {
                let problem = config.problem(&mut Rng::new(1, Stream::Test, step, 0));
                let (list, asked) = problem.prompt.split_once("; ").unwrap();
                let pairs: Vec<(&str, &str)> = list
                    .split(' ')
                    .map(|p| p.split_once('=').unwrap())
                    .collect();
                let map: HashMap<&str, &str> = pairs.iter().copied().collect();
                assert_eq!(map.len(), pairs.len(), "{problem:?}");
                assert_eq!(map[asked.trim_end_matches('=')], problem.answer);
            }
        }
    }
}
