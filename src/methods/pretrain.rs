//! Next-token prediction: the mean negative log-probability of every token of the optimizer step.

use super::StepContext;
use crate::base::registry::Entry;
use crate::nn::{TokenOutputs, TokenValues, Upstream};
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
        super::mean_likelihood(out, context)
    }

    fn known_gradient(
        &self,
        weights: Option<&[f32]>,
        context: &StepContext,
        gradient: &mut Upstream,
    ) -> bool {
        super::pull_alike(weights, context, gradient);
        true
    }

    fn closed_form(
        &self,
        values: TokenValues,
        context: &StepContext,
        gradient: &mut Upstream,
    ) -> Option<f64> {
        Some(super::mean_likelihood_by_hand(values, context, gradient))
    }
}
