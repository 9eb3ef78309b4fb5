//! Next-token prediction: the mean negative log-probability of every token of the optimizer step.

use super::Batch;
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "pretrain",
    title: "Pretraining",
    summary: "Learn to predict the next token of plain text.",
    source: "Radford et al. 2018 (GPT)",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl super::Method for Config {
    fn coefficients(&self, _batch: &Batch, _mask: &mut [f32]) -> bool {
        true
    }

    fn is_likelihood(&self) -> bool {
        true
    }
}
