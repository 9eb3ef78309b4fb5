//! REINFORCE leave-one-out: an answer is compared with the mean reward of the other answers to its prompt, an unbiased
//! baseline; whole answers are one action.
//!
//! R̃_i = R_i − β · Σ_t (logp − logp_ref), A_i = R̃_i − mean of the others' R̃ = K/(K − 1) · (R̃_i − mean R̃);
//! L = −mean_i min(ρ_i A_i, clip(ρ_i, 1 − ε, 1 + ε) A_i), ρ_i = π/π_old of the whole answer.

use super::policy::{self, ADVANTAGE, OLD_LOGP, OnPolicy, centred, of_row, scale_rows};
use super::{Batch, Criterion, Knob, LossMask, Needs, Normalizer, ReferenceChoice, ScoredBatch};
use crate::base::registry::Entry;
use crate::base::stats::sample_std;
use crate::data::Unit;
use crate::metrics::{Direction, Metric, Readings, id};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "rloo",
    title: "REINFORCE leave-one-out (RLOO)",
    summary: "Learn from the model's own completions: each is compared with the mean reward of the others for its prompt.",
    source: "Ahmadian et al. 2024, arXiv 2402.14740",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// KL coefficient β to the reference model, as part of the reward; at 0 no reference is needed.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub beta: f64,
    /// Clip range ε of the sequence-level ratio to the sampling policy.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub clip: f64,
    /// Divides the step's advantages by their standard deviation.
    pub normalize: bool,
    /// Where the reference model's log-probabilities come from, if beta is above 0.
    pub reference: ReferenceChoice,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            beta: 0.05,
            clip: 0.2,
            normalize: false,
            reference: ReferenceChoice::Auto,
        }
    }
}

impl OnPolicy for Config {
    fn advantages(&self, rewards: &[f64], group_size: usize) -> Vec<f64> {
        let k = group_size as f64;
        let mut advantages = centred(rewards, group_size, |_| (k - 1.0) / k);
        if self.normalize {
            let spread = sample_std(&advantages) + 1e-4;
            let mean = advantages.iter().sum::<f64>() / advantages.len().max(1) as f64;
            advantages
                .iter_mut()
                .for_each(|a| *a = (*a - mean) / spread);
        }
        advantages
    }

    /// Answers have one ratio each.
    fn fresh(&self, batch: &Batch, _c: &[f32]) -> f64 {
        let rows = 0..batch.batch_size;
        let advantages = rows.filter_map(|row| of_row(batch, ADVANTAGE, row));
        advantages.map(f64::from).sum()
    }

    fn kl_in_reward(&self) -> f64 {
        self.beta
    }
}

impl super::Method for Config {
    fn knobs(&self) -> &'static [Knob] {
        policy::KNOBS
    }

    fn needs(&self) -> Needs {
        Needs {
            unit: Unit::Prompt,
            mask: LossMask::CompletionOnly,
            reference: (self.beta > 0.0).then_some(self.reference),
            ..Needs::default()
        }
    }

    fn normalizer(&self) -> Normalizer {
        Normalizer::Sequences
    }

    fn coefficients(&self, batch: &Batch, c: &mut [f32]) -> bool {
        if batch.column(OLD_LOGP).is_some() {
            return false;
        }
        scale_rows(batch, c, |row, _| {
            of_row(batch, ADVANTAGE, row).unwrap_or_default()
        });
        true
    }

    fn loss(&self, scored: &ScoredBatch, readings: &mut Readings) -> Result<Tensor> {
        let (advantages, mask) = policy::advantages(scored)?;
        let sums = (policy::log_ratio(scored)? * mask)?.sum_keepdim(1)?;
        let counts = sums.ones_like()?;
        let clips = [self.clip, self.clip];
        let losses = policy::clipped((&sums.exp()?, &advantages, &counts), clips, readings)?;
        losses.sum_all()? / scored.normalizer
    }

    fn readings(&self) -> &'static [Metric] {
        policy::readings(self.beta > 0.0)
    }

    fn best(&self) -> Criterion {
        Criterion {
            metric: id::PASS_AT_1,
            direction: Direction::Higher,
        }
    }

    fn on_policy(&self) -> Option<&dyn OnPolicy> {
        Some(self)
    }
}
