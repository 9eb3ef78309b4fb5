//! What methods share that learn from the model's own answers: the columns of their batches, the ratio of the policy to the
//! one that answered, and its clipping. Rows of these batches hold one answer each.
//!
//! Answers that are fresh were written by the very weights that learn from them, so the ratio is 1: the gradient of the
//! clipped surrogate is then that of −A · logp, which is linear in log-probabilities.

use super::{Knob, Metric, ScoredBatch, knob};
use crate::data::Batch;
use crate::metrics::{Direction, Readings, Repeatable, id, metric};
use candle_core::{Result, Tensor, bail};
use serde::{Deserialize, Serialize};

/// One value for each sequence: how much better the answer is than expected. Without this column answers count 1 each,
/// which is supervised learning.
pub const ADVANTAGE: &str = "advantage";
/// One value for each sequence: tokens that an answer may have.
pub const ANSWER_LIMIT: &str = "answer_limit";
/// One value for each token: its log-probability when the rollout began to be used, where weights have changed since.
pub const OLD_LOGP: &str = "old_logp";
/// One value for each token: what the sampler said when it drew the token.
pub const SAMPLER_LOGP: &str = "sampler_logp";
/// One value for each token: the reference model's log-probability.
pub const TOKEN_REFERENCE: &str = "token_reference_logp";

/// What a method that learns from the model's own answers makes of their rewards.
pub trait OnPolicy {
    /// The advantage of each answer; those of a prompt, `group_size` of them, stand next to each other.
    fn advantages(&self, rewards: &[f64], group_size: usize) -> Vec<f64>;

    /// β of R − β · Σ (logp − logp_ref), for methods that count the distance to the reference among the rewards.
    fn kl_in_reward(&self) -> f64 {
        0.0
    }

    /// Whether the distance to a reference is charged by the policy's log-probabilities as a rollout begins.
    fn charges_kl(&self) -> bool {
        self.kl_in_reward() > 0.0 || self.critic().is_some_and(|critic| critic.beta > 0.0)
    }

    /// Whether the loss of fresh answers, without log-probabilities of an older policy beside them, is linear in log-probabilities:
    /// then [`super::Method::coefficients`] says it ahead of the forward pass. A KL that is charged to the reward is.
    fn fresh_is_linear(&self) -> bool {
        true
    }

    /// Answers to a prompt that it needs at least.
    fn least_group(&self) -> usize {
        2
    }

    /// The negative surrogate of fresh answers, before the normalizer, whose gradient with respect to log-probabilities is `c`: its ratio
    /// is 1 for each token.
    fn fresh(&self, _batch: &Batch, c: &[f32]) -> f64 {
        c.iter().map(|c| f64::from(*c)).sum()
    }

    /// How it learns with a critic, where it does: tokens then have advantages of their own.
    fn critic(&self) -> Option<&super::ppo::Config> {
        None
    }
}

/// How token losses are aggregated.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Mean over all tokens of the optimizer step.
    #[default]
    Dapo,
    /// Mean over the tokens of each answer, then over answers: tokens of long answers count less.
    Grpo,
    /// Mean over the tokens of each micro-batch, then over micro-batches.
    Bnpo,
    /// Sum over tokens divided by answers times the longest length: no bias towards length.
    DrGrpo,
}

/// Which log-ratio is exponentiated.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RatioLevel {
    /// Each token's own.
    #[default]
    Token,
    /// The mean over an answer's tokens (GSPO, arXiv 2507.18071).
    Sequence,
}

/// Estimator of the KL divergence from the reference, d = logp_ref − logp (Schulman 2020).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Kl {
    /// −d: unbiased, may be negative.
    K1,
    /// d² / 2: biased, low variance.
    K2,
    /// e^d − 1 − d: unbiased and never negative.
    #[default]
    K3,
}

impl Kl {
    /// The estimate for each token, from d.
    ///
    /// # Errors
    /// Those of candle.
    pub fn estimate(self, d: &Tensor) -> Result<Tensor> {
        match self {
            Kl::K1 => d.neg(),
            Kl::K2 => d.sqr()? * 0.5,
            Kl::K3 => (d.exp()? - 1.0)? - d,
        }
    }
}

const CLIP_LOW: &str = "clip_ratio/low_mean";
const CLIP_HIGH: &str = "clip_ratio/high_mean";

use Direction::{Lower, Neutral};
use Repeatable::Yes;

/// What methods on their own answers read, with a reference or without one.
pub fn readings(has_reference: bool) -> &'static [Metric] {
    match has_reference {
        true => READINGS,
        false => &READINGS[..READINGS.len() - 1],
    }
}

#[rustfmt::skip]
pub const READ_KL: Metric = metric(id::KL, "KL to the reference", "nats", Neutral, Yes, "mean over answer tokens, by the method's estimator; log pi - log pi_ref where it is charged to the reward (TRL)");

/// What the wizard asks for where a reference model is optional.
pub const KNOBS: &[Knob] = &[knob(
    "method.*.beta",
    "0 to 0.1; 0 for verified answers",
    "the price of leaving the reference model; 0 needs none and drifts more, which rewards that can be exploited allow",
)];

#[rustfmt::skip]
pub const READINGS: &[Metric] = &[
    metric(id::LOGP_DIFFERENCE, "Sampler against trainer", "nats", Lower, Yes, "mean distance of the sampler's log-probabilities from the trainer's: on fresh answers rounding, and what dropout changes, which the sampler has none of"),
    metric(CLIP_LOW, "Clipped below", "share", Neutral, Yes, "share of tokens, or of answers, whose ratio is below 1 - clip_low with a negative advantage (TRL)"),
    metric(CLIP_HIGH, "Clipped above", "share", Neutral, Yes, "share of tokens, or of answers, whose ratio is above 1 + clip_high with a positive advantage (TRL)"),
    // The last one: without a reference nobody reads it.
    READ_KL,
];

/// The id of pass@k: whether one of k answers to a held-out prompt is right.
pub fn pass_at(k: usize) -> String {
    format!("{}pass@{k}", id::EVAL)
}

/// The value of a column for the sequence of row `row`.
pub fn of_row(batch: &Batch, column: &str, row: usize) -> Option<f32> {
    batch.column(column)?.get(row).copied()
}

/// Multiplies the coefficients `c`, which come holding the mask, by `factor(row, supervised tokens of the row)`.
pub fn scale_rows(batch: &Batch, c: &mut [f32], factor: impl Fn(usize, f32) -> f32) {
    for (row, c) in c.chunks_exact_mut(batch.seq_len.max(1)).enumerate() {
        let supervised: f32 = c.iter().sum();
        let factor = factor(row, supervised.max(1.0));
        c.iter_mut().for_each(|c| *c *= factor);
    }
}

/// A column of sequences as (B, 1), and the mask (B, T).
///
/// # Errors
/// Rows that hold more than one sequence; a batch without the column.
pub fn advantages(scored: &ScoredBatch) -> Result<(Tensor, Tensor)> {
    let rows = scored.batch.batch_size;
    if scored.batch.origins.len() != rows {
        bail!("each row must have one completion")
    }
    let advantages = scored.column(ADVANTAGE)?.reshape((rows, 1))?;
    Ok((advantages, scored.mask()?))
}

/// log(π/π_old) of each token, (B, T): 0 with the gradient of logp where the answers are fresh.
///
/// # Errors
/// Those of candle.
pub fn log_ratio(scored: &ScoredBatch) -> Result<Tensor> {
    let old = match scored.batch.column(OLD_LOGP) {
        Some(_) => scored.token_column(OLD_LOGP)?,
        None => scored.logp.detach(),
    };
    &scored.logp - old
}

/// −min(ρ · A, clip(ρ, 1 − low, 1 + high) · A) for ratios of any shape; notes the shares that are clipped, over `counts`.
///
/// # Errors
/// Those of candle.
pub fn clipped(
    (ratio, advantages, counts): (&Tensor, &Tensor, &Tensor),
    [low, high]: [f64; 2],
    readings: &mut Readings,
) -> Result<Tensor> {
    let advantages = advantages.broadcast_as(ratio.shape())?;
    let flag = |x: Tensor| x.to_dtype(ratio.dtype());
    let total = f64::from(counts.sum_all()?.to_scalar::<f32>()?);
    let mut note = |id, out: Tensor, sign: Tensor| -> Result<()> {
        let out = ((flag(out)? * flag(sign)?)? * counts)?.sum_all()?;
        readings.add(id, f64::from(out.to_scalar::<f32>()?), total);
        Ok(())
    };
    note(CLIP_LOW, ratio.lt(1.0 - low)?, advantages.lt(0.0)?)?;
    note(CLIP_HIGH, ratio.gt(1.0 + high)?, advantages.gt(0.0)?)?;
    let free = (ratio * &advantages)?;
    let bound = (ratio.clamp(1.0 - low, 1.0 + high)? * &advantages)?;
    free.minimum(&bound)?.neg()
}

/// Σ over tokens of (B, T) losses by the aggregation; `normalizer` as the method's own counts it.
///
/// # Errors
/// A batch without what the aggregation needs.
pub fn aggregate(
    scored: &ScoredBatch,
    (losses, mask): (&Tensor, &Tensor),
    aggregation: Aggregation,
) -> Result<Tensor> {
    let losses = (losses * mask)?;
    let sum = match aggregation {
        Aggregation::Dapo => losses.sum_all()?,
        Aggregation::Grpo => {
            let tokens = mask.sum(1)?.maximum(1.0)?;
            (losses.sum(1)? / tokens)?.sum_all()?
        }
        Aggregation::Bnpo => {
            let tokens = scored.batch.supervised_of_micro_batch().max(1);
            (losses.sum_all()? / tokens as f64)?
        }
        Aggregation::DrGrpo => {
            let limits = match scored.batch.column(ANSWER_LIMIT) {
                Some(_) => scored.column(ANSWER_LIMIT)?,
                None => mask.sum(1)?.maximum(1.0)?,
            };
            (losses.sum(1)? / limits)?.sum_all()?
        }
    };
    sum / scored.normalizer
}

/// Reads a mean over supervised tokens.
///
/// # Errors
/// Those of candle.
pub fn read_tokens(
    readings: &mut Readings,
    id: &'static str,
    values: &Tensor,
    mask: &Tensor,
) -> Result<()> {
    let sum = (values.detach() * mask)?.sum_all()?.to_scalar::<f32>()?;
    readings.add(
        id,
        f64::from(sum),
        f64::from(mask.sum_all()?.to_scalar::<f32>()?),
    );
    Ok(())
}

/// Rewards less the mean of their group, divided by what `spread` says of the whole and of the group.
pub fn centred(rewards: &[f64], group_size: usize, spread: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let groups = rewards.chunks(group_size.max(1));
    let group = |group: &[f64]| {
        let mean = group.iter().sum::<f64>() / group.len() as f64;
        let spread = spread(group);
        let centred = group.iter().map(|r| (r - mean) / spread);
        centred.collect::<Vec<_>>()
    };
    groups.flat_map(group).collect()
}
