//! Shared by methods on pairs: their readings, named as in TRL, and the criterion of their best checkpoint.

use super::{Criterion, Knob, ScoredBatch, knob, read};
use crate::data::Unit;
use crate::metrics::{Direction, Metric, Readings, Repeatable, id, metric};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};

const LOGPS_REJECTED: &str = "logps/rejected";

use Direction::{Higher, Lower, Neutral};
use Repeatable::Yes;

/// Where the reference model's log-probabilities come from.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ReferenceChoice {
    /// The base below the adapter where there is one, else a frozen copy.
    #[default]
    Auto,
    /// A second copy of the starting weights stays in memory: one more forward pass a step.
    Frozen,
    /// The model itself with its adapter switched off: no second copy.
    AdapterOff,
    /// Every sequence is scored once before the first step: no second copy and no further passes.
    Precomputed,
}

/// What a reference model and the micro-batches of a method cannot be: rules of specs and of plans of a bare model alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceFault {
    /// `adapter_off` without an adapter.
    NoAdapter,
    /// KTO's baseline over scores that were computed before.
    FixedBaseline,
    /// KTO's baseline over no other answer.
    NoBaseline,
}

impl ReferenceFault {
    /// Those of a method on examples of `unit` with this reference, if it needs one.
    pub fn find(
        (unit, chosen): (Unit, Option<ReferenceChoice>),
        has_adapter: bool,
        micro_batch: u64,
    ) -> impl Iterator<Item = ReferenceFault> {
        let is_judged = unit == Unit::Judged;
        let off = chosen == Some(ReferenceChoice::AdapterOff) && !has_adapter;
        let fixed = is_judged && chosen == Some(ReferenceChoice::Precomputed);
        [
            off.then_some(ReferenceFault::NoAdapter),
            fixed.then_some(ReferenceFault::FixedBaseline),
            (is_judged && micro_batch < 2).then_some(ReferenceFault::NoBaseline),
        ]
        .into_iter()
        .flatten()
    }

    /// The cause, in a sentence.
    pub fn what(self) -> &'static str {
        match self {
            ReferenceFault::NoAdapter => {
                "the reference is the model without its adapter, but there is no adapter"
            }
            ReferenceFault::FixedBaseline => {
                "the KL baseline needs reference scores of mismatched answers, which change with every batch"
            }
            ReferenceFault::NoBaseline => {
                "the KL baseline needs other answers in the micro-batch, and there are none"
            }
        }
    }
}

/// What the wizard asks for where a reference model holds back.
pub(super) const KNOBS: &[Knob] = &[knob(
    "method.*.beta",
    "0.05 to 0.5; 0.1 is usual",
    "higher keeps the model closer to its reference, and it learns less from the data",
)];

/// Readings of every method that learns from pairs. The implicit reward of an answer is β times what the method compares:
/// log-ratios to the reference, or log-probabilities where there is none.
#[rustfmt::skip]
pub(super) const PAIRS: [Metric; 6] = [
    metric(id::ACCURACIES, "Reward accuracy", "share", Higher, Yes, "share of pairs whose chosen answer has the higher reward: implicit reward, or a reward model's score (TRL)"),
    metric(id::MARGINS, "Reward margin", "", Higher, Yes, "mean reward of chosen minus rejected answers (TRL)"),
    metric(id::CHOSEN, "Reward of chosen", "", Higher, Yes, "mean reward of chosen answers: a reward model's score; else β times log π − log π_ref with a reference, β times log π without (TRL)").label("chosen reward"),
    metric(id::REJECTED, "Reward of rejected", "", Neutral, Yes, "mean reward of rejected answers (TRL)").label("rejected reward"),
    metric(id::LOGPS_CHOSEN, "Log-probability of chosen", "nats", Neutral, Yes, "mean log-probability of chosen answers: of all their tokens, or per token where the method compares that (TRL)").label("chosen logp"),
    metric(LOGPS_REJECTED, "Log-probability of rejected", "nats", Neutral, Yes, "the same of rejected answers (TRL)").label("rejected logp"),
];

/// Of methods with a likelihood term.
pub(super) const NLL_LOSS: Metric = metric(
    id::NLL_LOSS,
    "Likelihood of chosen",
    "nats",
    Lower,
    Yes,
    "negative log-likelihood per token of chosen answers without their prompts, a mean over pairs (TRL's nll_loss is over all tokens of the batch, and of ORPO over prompts too)",
);

/// Held-out pairs ranked right.
pub(super) const BY_ACCURACY: Criterion = Criterion {
    metric: id::VAL_ACCURACIES,
    direction: Higher,
};

/// Notes the readings of pairs from the implicit rewards and log-probabilities of their sequences, (S,) each.
///
/// # Errors
/// A batch without pairs.
pub(super) fn note(
    scored: &ScoredBatch,
    rewards: &Tensor,
    logps: &Tensor,
    readings: &mut Readings,
) -> Result<()> {
    note_rewards(scored, rewards, readings)?;
    let [chosen, rejected] = scored.sides(logps)?;
    read(readings, id::LOGPS_CHOSEN, &chosen)?;
    read(readings, LOGPS_REJECTED, &rejected)
}

/// Notes how the rewards of pairs (S,) compare.
///
/// # Errors
/// A batch without pairs.
pub(super) fn note_rewards(
    scored: &ScoredBatch,
    rewards: &Tensor,
    readings: &mut Readings,
) -> Result<()> {
    let [chosen, rejected] = scored.sides(rewards)?;
    let margins = (&chosen - &rejected)?;
    let right = margins.gt(0.0)?.to_dtype(margins.dtype())?;
    read(readings, id::CHOSEN, &chosen)?;
    read(readings, id::REJECTED, &rejected)?;
    read(readings, id::MARGINS, &margins)?;
    read(readings, id::ACCURACIES, &right)
}

/// Notes the readings of answers judged alone; `desirable` (S,) holds 1 and 0.
///
/// # Errors
/// Those of candle.
pub(super) fn note_judged(
    desirable: &[f32],
    rewards: &Tensor,
    logps: &Tensor,
    readings: &mut Readings,
) -> Result<()> {
    let mut means = [None; 2];
    let ids = [
        (id::CHOSEN, id::LOGPS_CHOSEN),
        (id::REJECTED, LOGPS_REJECTED),
    ];
    for (side, (reward, logp)) in ids.into_iter().enumerate() {
        let of_side = |values: &Tensor| -> Result<(f64, f64)> {
            let values: Vec<f32> = values.detach().to_vec1()?;
            let here = values
                .iter()
                .zip(desirable)
                .filter(|(_, d)| (**d == 0.0) == (side == 1));
            Ok(here.fold((0.0, 0.0), |(sum, n), (x, _)| {
                (sum + f64::from(*x), n + 1.0)
            }))
        };
        let (sum, n) = of_side(rewards)?;
        if n > 0.0 {
            readings.add(reward, sum, n);
            means[side] = Some(sum / n);
            let (sum, n) = of_side(logps)?;
            readings.add(logp, sum, n);
        }
    }
    if let [Some(chosen), Some(rejected)] = means {
        readings.add(id::MARGINS, chosen - rejected, 1.0);
    }
    Ok(())
}

/// Negative log-likelihood per token of each chosen answer, (P,), noted.
///
/// # Errors
/// A batch without pairs.
pub(super) fn nll_of_chosen(
    scored: &ScoredBatch,
    mean_logps: &Tensor,
    readings: &mut Readings,
) -> Result<Tensor> {
    let [chosen, _] = scored.sides(mean_logps)?;
    let nll = chosen.neg()?;
    read(readings, id::NLL_LOSS, &nll)?;
    Ok(nll)
}
