//! Group relative policy optimization: of several answers to a prompt, those with higher rewards than the others become more
//! probable. No critic: the group is its own baseline.
//!
//! A_i = (R_i − mean R) / (std R + 1e-4) over the G answers of a prompt, for every token of answer i;
//! L = −agg min(ρ A, clip(ρ, 1 − ε_low, 1 + ε_high) A) + β · agg KL(π, π_ref), with ρ = π/π_old.

use super::policy::{
    self, ADVANTAGE, ANSWER_LIMIT, Aggregation, Kl, OLD_LOGP, OnPolicy, RatioLevel,
    TOKEN_REFERENCE, centred, of_row, scale_rows,
};
use super::{Batch, Criterion, Knob, LossMask, Needs, Normalizer, ReferenceChoice, ScoredBatch};
use crate::base::registry::Entry;
use crate::base::stats::sample_std;
use crate::data::Unit;
use crate::metrics::{Direction, Metric, Readings, id};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "grpo",
    title: "Group relative policy optimization (GRPO)",
    summary: "Learn from several of the model's own completions per prompt: those with above-average rewards become more probable.",
    source: "Shao et al. 2024, arXiv 2402.03300; aggregations: arXiv 2503.14476, 2503.20783",
};

/// Added to a standard deviation before it divides (TRL).
const STD_FLOOR: f64 = 1e-4;

/// What advantages are divided by.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// The standard deviation of the rewards of the group; of the step where that is the baseline.
    #[default]
    Group,
    /// The standard deviation of all rewards of the step.
    Batch,
    /// The standard deviation of all advantages of the step (REINFORCE++-baseline, arXiv 2501.03262).
    Advantages,
    /// Nothing (Dr. GRPO).
    None,
}

/// What a reward is compared with.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// The mean reward of the group.
    #[default]
    Group,
    /// The mean reward of the step (REINFORCE++ with `scale: batch`, arXiv 2501.03262).
    Batch,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How token losses are aggregated.
    pub aggregation: Aggregation,
    /// Baseline of the rewards: the mean of their group or, as in REINFORCE++, of the step.
    pub baseline: Baseline,
    /// What advantages are divided by: the rewards' standard deviation in the group or in the step (that of the step for
    /// both with `baseline: batch`), that of the step's advantages, or nothing.
    pub scale: Scale,
    /// Importance ratio to the sampling policy: per token or per sequence.
    pub ratio: RatioLevel,
    /// Lower clip range ε_low of the ratio.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub clip_low: f64,
    /// Upper clip range ε_high of the ratio; 0.28 keeps more exploration (DAPO).
    #[schemars(range(min = 0.0, max = 100.0))]
    pub clip_high: f64,
    /// Also caps the ratio at negative advantages, which is otherwise unbounded; above 1 + clip_high.
    /// 0: no cap (two-sided clipping, INTELLECT-2, arXiv 2505.07291).
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub delta: f64,
    /// KL coefficient β to the reference model; at 0 no reference is needed.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub beta: f64,
    /// Estimator of the KL to the reference.
    pub kl: Kl,
    /// Multiplies the KL by the ratio, which makes its gradient unbiased (TRL 1.16).
    pub kl_correction: bool,
    /// Where the reference model's log-probabilities come from, if beta is above 0.
    pub reference: ReferenceChoice,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            aggregation: Aggregation::Dapo,
            baseline: Baseline::Group,
            scale: Scale::Group,
            ratio: RatioLevel::Token,
            clip_low: 0.2,
            clip_high: 0.2,
            delta: 0.0,
            beta: 0.0,
            kl: Kl::K3,
            kl_correction: true,
            reference: ReferenceChoice::Auto,
        }
    }
}

impl OnPolicy for Config {
    /// Compared with the whole step, an answer needs no others to its prompt.
    fn least_group(&self) -> usize {
        match self.baseline {
            Baseline::Group => 2,
            Baseline::Batch => 1,
        }
    }

    /// A KL to the reference is a term of the loss.
    fn fresh_is_linear(&self) -> bool {
        self.beta <= 0.0
    }

    fn advantages(&self, rewards: &[f64], group_size: usize) -> Vec<f64> {
        // With the step as baseline the step is the one group.
        let size = match self.baseline {
            Baseline::Group => group_size,
            Baseline::Batch => rewards.len(),
        };
        let all = sample_std(rewards);
        let mut advantages = centred(rewards, size, |group| match self.scale {
            Scale::Group => sample_std(group) + STD_FLOOR,
            Scale::Batch => all + STD_FLOOR,
            Scale::Advantages | Scale::None => 1.0,
        });
        if self.scale == Scale::Advantages {
            let spread = sample_std(&advantages) + STD_FLOOR;
            advantages.iter_mut().for_each(|a| *a /= spread);
        }
        advantages
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
        match self.aggregation {
            Aggregation::Dapo => Normalizer::Tokens,
            Aggregation::Grpo | Aggregation::DrGrpo => Normalizer::Sequences,
            Aggregation::Bnpo => Normalizer::Batches,
        }
    }

    fn coefficients(&self, batch: &Batch, c: &mut [f32]) -> bool {
        if !self.fresh_is_linear() || batch.column(OLD_LOGP).is_some() {
            return false;
        }
        let local = batch.supervised_of_micro_batch().max(1) as f32;
        scale_rows(batch, c, |row, tokens| {
            let advantage = of_row(batch, ADVANTAGE, row).unwrap_or_default();
            advantage
                / match self.aggregation {
                    Aggregation::Dapo => 1.0,
                    Aggregation::Grpo => tokens,
                    Aggregation::Bnpo => local,
                    Aggregation::DrGrpo => of_row(batch, ANSWER_LIMIT, row).unwrap_or(tokens),
                }
        });
        true
    }

    fn loss(&self, scored: &ScoredBatch, readings: &mut Readings) -> Result<Tensor> {
        let (advantages, mask) = policy::advantages(scored)?;
        let log_ratio = policy::log_ratio(scored)?;
        let tokens = mask.sum_keepdim(1)?.maximum(1.0)?;
        let (ratio, counts) = match self.ratio {
            RatioLevel::Token => (log_ratio.exp()?, mask.clone()),
            RatioLevel::Sequence => {
                let mean = ((&log_ratio * &mask)?.sum_keepdim(1)? / &tokens)?;
                (mean.exp()?, tokens.ones_like()?)
            }
        };
        let capped = match self.delta > 0.0 {
            true => ratio.minimum(self.delta)?,
            false => ratio.clone(),
        };
        let clips = [self.clip_low, self.clip_high];
        let losses = policy::clipped((&capped, &advantages, &counts), clips, readings)?;
        let mut losses = losses.broadcast_as(mask.shape())?;
        if self.beta > 0.0 && scored.batch.column(TOKEN_REFERENCE).is_some() {
            let d = (scored.token_column(TOKEN_REFERENCE)? - &scored.logp)?;
            let mut kl = self.kl.estimate(&d)?;
            // Exact only by the whole ratio: the cap is for the advantages.
            if self.kl_correction {
                kl = kl.broadcast_mul(&ratio)?;
            }
            policy::read_tokens(readings, id::KL, &kl, &mask)?;
            losses = (losses + (kl * self.beta)?)?;
        }
        policy::aggregate(scored, (&losses, &mask), self.aggregation)
    }

    fn readings(&self) -> &'static [Metric] {
        policy::readings(self.beta > 0.0)
    }

    fn fault(&self) -> Option<(&'static str, String, String)> {
        let least = 1.0 + self.clip_high;
        (self.delta > 0.0 && self.delta <= least).then(|| {
            let what = format!("a cap of {} lies below the clipping at {least}", self.delta);
            (
                "delta",
                what,
                format!("delta above {least}, such as 4; 0 for no cap"),
            )
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of eight rewards are 1: their sample deviation is √(2 / 7), whatever lies in a group.
    #[test]
    fn with_the_step_as_baseline_the_step_is_the_group() {
        let rewards = [0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        let wanted = 0.5 / ((2.0_f64 / 7.0).sqrt() + STD_FLOOR);
        for scale in [Scale::Group, Scale::Batch] {
            let baseline = Baseline::Batch;
            let config = Config {
                baseline,
                scale,
                ..Config::default()
            };
            let found = config.advantages(&rewards, 4);
            for (advantage, reward) in found.iter().zip(rewards) {
                let sign = if reward > 0.5 { 1.0 } else { -1.0 };
                assert!(
                    (advantage - sign * wanted).abs() < 1e-12,
                    "{scale:?} {found:?}"
                );
            }
        }
    }
}
