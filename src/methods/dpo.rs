//! Direct preference optimization: of two answers to a prompt, the chosen one becomes more probable than the rejected one,
//! relative to a reference model that does not change.
//!
//! With r = β · (log π(y|x) − log π_ref(y|x)), the implicit reward of an answer, and m = r_chosen − r_rejected:
//! L = −(1 − ε) · ln σ(m) − ε · ln σ(−m), a mean over pairs. At the start π = π_ref, so m = 0 and L = ln 2. A higher β keeps
//! the policy closer to the reference.

use super::{Criterion, LossMask, Needs, Normalizer, REFERENCE_LOGP, Scored, log_sigmoid, read};
use crate::base::registry::Entry;
use crate::data::Unit;
use crate::metrics::{Direction, Metric, Readings, Repeatable, metric};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "dpo",
    title: "Direct preference optimization (DPO)",
    summary: "Learn from pairs of a chosen and a rejected answer which to prefer, close to a reference model.",
    source: "Rafailov et al. 2023, arXiv 2305.18290",
};

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
    /// Every pair is scored once before the first step: no second copy and no further passes.
    Precomputed,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Strength of the pull towards the reference; higher stays closer to it.
    #[schemars(range(min = 1e-6, max = 100))]
    pub beta: f64,
    /// Share of pairs whose label is taken to be wrong (conservative DPO).
    #[schemars(range(min = 0, max = 0.499))]
    pub label_smoothing: f64,
    /// Where the reference model's log-probabilities come from.
    pub reference: ReferenceChoice,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            beta: 0.1,
            label_smoothing: 0.0,
            reference: ReferenceChoice::Auto,
        }
    }
}

const CHOSEN: &str = "rewards/chosen";
const REJECTED: &str = "rewards/rejected";
const MARGINS: &str = "rewards/margins";
const ACCURACIES: &str = "rewards/accuracies";
const LOGPS_CHOSEN: &str = "logps/chosen";
const LOGPS_REJECTED: &str = "logps/rejected";

use Direction::{Higher, Neutral};
use Repeatable::Yes;

#[rustfmt::skip]
const READINGS: &[Metric] = &[
    metric(ACCURACIES, "Reward accuracy", "share", Higher, Yes, "share of pairs whose chosen answer has the higher implicit reward (TRL)"),
    metric(MARGINS, "Reward margin", "", Higher, Yes, "mean implicit reward of chosen minus rejected answers (TRL)"),
    metric(CHOSEN, "Reward of chosen", "", Higher, Yes, "mean of β · (log π − log π_ref) over chosen answers (TRL)"),
    metric(REJECTED, "Reward of rejected", "", Neutral, Yes, "mean of β · (log π − log π_ref) over rejected answers (TRL)"),
    metric(LOGPS_CHOSEN, "Log-probability of chosen", "nats", Neutral, Yes, "mean log-probability of whole chosen answers (TRL)"),
    metric(LOGPS_REJECTED, "Log-probability of rejected", "nats", Neutral, Yes, "mean log-probability of whole rejected answers (TRL)"),
];

impl super::Method for Config {
    fn needs(&self) -> Needs {
        Needs {
            unit: Unit::Pair,
            mask: LossMask::CompletionOnly,
            reference: Some(self.reference),
        }
    }

    fn normalizer(&self) -> Normalizer {
        Normalizer::Pairs
    }

    fn loss(&self, scored: &Scored, readings: &mut Readings) -> Result<Tensor> {
        let policy = scored.sequence_logps()?;
        let rewards = ((&policy - scored.column(REFERENCE_LOGP)?)? * self.beta)?;
        let [chosen, rejected] = scored.sides(&rewards)?;
        let margins = (&chosen - &rejected)?;

        let [logps_chosen, logps_rejected] = scored.sides(&policy)?;
        read(readings, CHOSEN, &chosen)?;
        read(readings, REJECTED, &rejected)?;
        read(readings, MARGINS, &margins)?;
        read(
            readings,
            ACCURACIES,
            &margins.gt(0.0)?.to_dtype(margins.dtype())?,
        )?;
        read(readings, LOGPS_CHOSEN, &logps_chosen)?;
        read(readings, LOGPS_REJECTED, &logps_rejected)?;

        let preferred = (log_sigmoid(&margins)? * (self.label_smoothing - 1.0))?;
        let flipped = (log_sigmoid(&margins.neg()?)? * -self.label_smoothing)?;
        (preferred + flipped)?.sum_all()? / scored.normalizer
    }

    fn readings(&self) -> &'static [Metric] {
        READINGS
    }

    fn best(&self) -> Criterion {
        Criterion {
            metric: "val/rewards/accuracies",
            direction: Direction::Higher,
        }
    }
}
