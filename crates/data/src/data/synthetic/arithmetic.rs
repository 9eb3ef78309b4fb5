//! Sums, differences and products: `12+34=` → `46`.

use super::{Generator, Problem, between, pick};
use crate::base::registry::Entry;
use crate::base::rng::Rng;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "arithmetic",
    title: "Arithmetic",
    summary: "Sums, differences and products of whole numbers: 12+34= → 46.",
    source: "Lee et al. 2023, arXiv:2307.03381",
};

/// Beyond, products of eight terms leave 128 bits.
const MAX_DIGITS: u32 = 9;
const MAX_TERMS: usize = 4;

/// What is done with the terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Add,
    Subtract,
    Multiply,
}

impl Operation {
    fn sign(self) -> char {
        match self {
            Operation::Add => '+',
            Operation::Subtract => '-',
            Operation::Multiply => '*',
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Maximum number of digits of a term.
    #[schemars(range(min = 1, max = 9))]
    pub digits: u32,
    /// Terms in a problem.
    #[schemars(range(min = 2, max = 4))]
    pub terms: usize,
    /// Operations: `add`, `subtract`, `multiply`. One kind per problem.
    pub operations: Vec<Operation>,
    /// Writes the answer's digits in reverse: carries then come in order, and the model learns far
    /// sooner.
    pub reverse: bool,
    /// Pads every term with leading zeros.
    pub pad: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            digits: 2,
            terms: 2,
            operations: vec![Operation::Add, Operation::Subtract],
            reverse: false,
            pad: false,
        }
    }
}

impl Generator for Config {
    fn problem(&self, rng: &mut Rng) -> Problem {
        let operation = pick(&self.operations.iter().collect::<Vec<_>>(), rng);
        // Every number of digits alike: of all numbers below 1000, nine of ten would have three.
        let terms: Vec<i128> = (0..self.terms)
            .map(|_| {
                let digits = between(1, self.digits as usize, rng) as u32;
                i128::from(rng.below(10u64.pow(digits)))
            })
            .collect();
        let rest = &terms[1..];
        let result = match operation {
            Operation::Add => terms.iter().sum(),
            Operation::Subtract => terms[0] - rest.iter().sum::<i128>(),
            Operation::Multiply => terms.iter().product::<i128>(),
        };
        let width = if self.pad { self.digits as usize } else { 1 };
        let written: Vec<String> = terms.iter().map(|t| format!("{t:0width$}")).collect();
        let sign = operation.sign().to_string();
        let answer = result.to_string();
        Problem {
            prompt: format!("{}=", written.join(&sign)),
            answer: match self.reverse {
                true => answer.chars().rev().collect(),
                false => answer,
            },
        }
    }

    fn fault(&self) -> Option<String> {
        if self.operations.is_empty() {
            return Some("operations is empty: name add, subtract or multiply".into());
        }
        if !(1..=MAX_DIGITS).contains(&self.digits) {
            return Some(format!("digits is {}: from 1 to {MAX_DIGITS}", self.digits));
        }
        (!(2..=MAX_TERMS).contains(&self.terms))
            .then(|| format!("terms is {}: from 2 to {MAX_TERMS}", self.terms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Stream;

    /// Reads a problem as a person would.
    fn solve(prompt: &str) -> i128 {
        let expression = prompt.trim_end_matches('=');
        let sign = expression.chars().find(|c| !c.is_ascii_digit()).unwrap();
        let mut terms = expression.split(sign).map(|t| t.parse::<i128>().unwrap());
        let first = terms.next().unwrap();
        terms.fold(first, |sum, term| match sign {
            '+' => sum + term,
            '-' => sum - term,
            _ => sum * term,
        })
    }

    #[test]
    fn answers_are_right() {
        for terms in 2..=4 {
            let config = Config {
                digits: 9,
                terms,
                operations: vec![Operation::Add, Operation::Subtract, Operation::Multiply],
                ..Default::default()
            };
            for step in 0..200 {
                let problem = config.problem(&mut Rng::new(1, Stream::Test, step, 0));
                assert_eq!(
                    problem.answer,
                    solve(&problem.prompt).to_string(),
                    "{problem:?}"
                );
            }
        }
    }

    #[test]
    fn digits_can_be_padded_and_turned_round() {
        let config = Config {
            digits: 3,
            reverse: true,
            pad: true,
            operations: vec![Operation::Add],
            ..Default::default()
        };
        for step in 0..50 {
            let problem = config.problem(&mut Rng::new(1, Stream::Test, step, 0));
            assert_eq!(problem.prompt.len(), 3 + 1 + 3 + 1);
            let forward: String = problem.answer.chars().rev().collect();
            assert_eq!(forward, solve(&problem.prompt).to_string());
        }
    }
}
