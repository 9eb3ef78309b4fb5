//! Next-token prediction: the mean negative log-probability of every token of the optimizer step.

use super::StepContext;
use crate::base::registry::Entry;
use crate::nn::TokenOutputs;
use candle_core::{Result, Tensor};
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
    fn loss(&self, out: &TokenOutputs, context: &StepContext) -> Result<Tensor> {
        out.logp.sum_all()? * (-1.0 / context.step_tokens as f64)
    }
}
