//! A penalty for long answers: nothing up to a length, then linear down to −1.

use super::{Answer, Reward};
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "length",
    title: "Length penalty",
    summary: "0 up to `free` tokens, then linearly down to -1 at `limit` tokens.",
    source: "DAPO's soft overlong punishment, arXiv 2503.14476",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Tokens that cost nothing.
    pub free: usize,
    /// Tokens from which on the penalty is whole.
    #[schemars(range(min = 1))]
    pub limit: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            free: 0,
            limit: 256,
        }
    }
}

impl Reward for Config {
    fn is_verifier(&self) -> bool {
        false
    }

    fn judges_message(&self) -> bool {
        false
    }

    fn score(&self, answer: &Answer) -> Result<f64, String> {
        let over = answer.tokens.saturating_sub(self.free) as f64;
        Ok(-(over / (self.limit - self.free) as f64).min(1.0))
    }

    fn fault(&self) -> Option<(String, String)> {
        (self.free >= self.limit).then(|| {
            let what = format!("free {} is not below limit {}", self.free, self.limit);
            (what, "the penalty grows from free to limit tokens".into())
        })
    }
}
