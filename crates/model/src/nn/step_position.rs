//! The position of a pass in a training run: the key of its random draws, and its weight in the step.

use crate::kernels::dropout::Dropout;

/// The position of a micro-step in a run. The default is the first one of a run with seed 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepPosition {
    pub seed: u64,
    /// Counted over the whole run.
    pub micro_step: u64,
    /// Tokens of the micro-step before this pass, if it is processed in parts.
    pub first_token: usize,
    /// The weight of balancing losses in the optimizer step: one over its micro-steps.
    pub share: f64,
}

impl Default for StepPosition {
    fn default() -> Self {
        StepPosition {
            seed: 0,
            micro_step: 0,
            first_token: 0,
            share: 1.0,
        }
    }
}

/// A dropout site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Embedding,
    /// The attention output of a block.
    Attention(usize),
    /// The feed-forward output of a block.
    Mlp(usize),
    /// The input of an adapted linear layer, by its number.
    Adapter(u32),
}

impl StepPosition {
    /// The dropout at a site, if there is any.
    pub(crate) fn dropout(&self, rate: f64, place: Place) -> Option<Dropout> {
        let lane = match place {
            Place::Embedding => 0,
            Place::Attention(layer) => 1 + 2 * layer as u32,
            Place::Mlp(layer) => 2 + 2 * layer as u32,
            // Far above all blocks.
            Place::Adapter(lane) => (1 << 24) | lane,
        };
        (rate > 0.0).then_some(Dropout {
            seed: self.seed,
            micro_step: self.micro_step,
            lane,
            first_row: self.first_token,
            rate,
        })
    }
}
