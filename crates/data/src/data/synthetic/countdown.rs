//! Numbers that make a target: `3 7 25 46=` → `25+3*7`.

use super::{Generator, Problem, between};
use crate::base::registry::Entry;
use crate::base::rng::Rng;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "countdown",
    title: "Countdown",
    summary: "Reach a target using each number once: 3 7 25 to 46= → 25+3*7. The reward countdown accepts any solution.",
    source: "Gandhi et al. 2024, arXiv 2404.03683",
};

const MAX_NUMBERS: usize = 6;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Minimum count of numbers in a problem.
    #[schemars(range(min = 2, max = 6))]
    pub min_numbers: usize,
    /// Maximum count of numbers in a problem.
    #[schemars(range(min = 2, max = 6))]
    pub max_numbers: usize,
    /// The largest number.
    #[schemars(range(min = 2, max = 100000))]
    pub max_value: u64,
    /// The largest target.
    #[schemars(range(min = 2, max = 1000000))]
    pub max_target: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            min_numbers: 3,
            max_numbers: 3,
            max_value: 20,
            max_target: 100,
        }
    }
}

impl Generator for Config {
    /// Draws until the target is in range. Products come first in what is written, so that no brackets are needed.
    fn problem(&self, rng: &mut Rng) -> Problem {
        loop {
            let n = between(self.min_numbers, self.max_numbers, rng);
            let numbers: Vec<u64> = (0..n).map(|_| 1 + rng.below(self.max_value)).collect();
            let (mut text, mut value) = (numbers[0].to_string(), i128::from(numbers[0]));
            let mut only_products = true;
            for number in &numbers[1..] {
                let sign = ['*', '+', '-'][rng.below(3) as usize];
                match sign {
                    '*' if only_products => value *= i128::from(*number),
                    '-' => value -= i128::from(*number),
                    _ => value += i128::from(*number),
                }
                let sign = if sign == '*' && !only_products {
                    '+'
                } else {
                    sign
                };
                only_products &= sign == '*';
                text = format!("{text}{sign}{number}");
            }
            if (1..=i128::from(self.max_target)).contains(&value) {
                // In another order than in the answer.
                let mut given = numbers;
                for i in (1..given.len()).rev() {
                    given.swap(i, rng.below(i as u64 + 1) as usize);
                }
                let given: Vec<String> = given.iter().map(u64::to_string).collect();
                return Problem {
                    prompt: format!("{} to {value}=", given.join(" ")),
                    answer: text,
                };
            }
        }
    }

    fn fault(&self) -> Option<String> {
        if self.max_value < 2 || self.max_target < 2 {
            return Some(
                "max_value and max_target are at least 2: few problems are left below".into(),
            );
        }
        super::range_fault("numbers", self.min_numbers, self.max_numbers, MAX_NUMBERS)
            .or_else(|| (self.min_numbers < 2).then(|| "min_numbers is at least 2".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Stream;

    #[test]
    fn answers_make_their_targets_with_the_numbers_that_are_given() {
        let config = Config {
            min_numbers: 2,
            max_numbers: 6,
            ..Config::default()
        };
        for step in 0..300 {
            let problem = config.problem(&mut Rng::new(1, Stream::Test, step, 0));
            let (given, target) = problem
                .prompt
                .trim_end_matches('=')
                .split_once(" to ")
                .unwrap();
            let mut given: Vec<i64> = given.split(' ').map(|x| x.parse().unwrap()).collect();
            // Products before sums, as they are written.
            let mut sum = 0;
            let mut used: Vec<i64> = Vec::new();
            for term in problem.answer.replace('-', "+-").split('+') {
                let sign = if term.starts_with('-') { -1 } else { 1 };
                let factors: Vec<i64> = term
                    .trim_start_matches('-')
                    .split('*')
                    .map(|x| x.parse().unwrap())
                    .collect();
                used.extend(&factors);
                sum += sign * factors.iter().product::<i64>();
            }
            assert_eq!(sum, target.parse::<i64>().unwrap(), "{problem:?}");
            given.sort_unstable();
            used.sort_unstable();
            assert_eq!(given, used, "{problem:?}");
        }
    }
}
