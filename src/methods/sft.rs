//! Supervised fine-tuning: the mean negative log-probability of the answers' tokens over the whole optimizer step. Prompts
//! are read and not supervised; which tokens are answers is the data's matter.

use super::{LossMask, StepContext};
use crate::base::registry::Entry;
use crate::metrics::id;
use crate::nn::{TokenOutputs, TokenValues, Upstream};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "sft",
    title: "Supervised fine-tuning (SFT)",
    summary: "Learn to answer from conversations or prompt/completion pairs; only the answers count in the loss.",
    source: "Ouyang et al. 2022, arXiv 2203.02155",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl super::Method for Config {
    fn loss(&self, out: &TokenOutputs, context: &StepContext) -> Result<Tensor> {
        super::mean_likelihood(out, context)
    }

    fn learns(&self) -> LossMask {
        LossMask::CompletionOnly
    }

    fn metrics(&self) -> &'static [&'static str] {
        &[id::TOKEN_ACCURACY]
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
