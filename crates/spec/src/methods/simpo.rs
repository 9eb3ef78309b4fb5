//! Simple preference optimization: the log-probability per token of the chosen answer exceeds that of the rejected one by a
//! margin; no reference model. L = −ln σ(β · (ℓ_chosen − ℓ_rejected) − γ), ℓ being log π(y|x) / |y|; a mean over pairs.

use super::dpo::smoothed;
use super::preference::{self, NLL_LOSS, PAIRS};
use super::{Criterion, Knob, LossMask, Needs, ScoredBatch, knob};
use crate::base::registry::Entry;
use crate::data::Unit;
use crate::metrics::{Metric, Readings};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "simpo",
    title: "Simple preference optimization (SimPO)",
    summary: "Learn from pairs which answer to prefer per token, by a margin; needs no reference model.",
    source: "Meng et al. 2024, arXiv 2405.14734",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Scale of the difference of log-probabilities per token.
    #[schemars(range(min = 1e-6, max = 100))]
    pub beta: f64,
    /// Target margin γ of the scaled difference; about half of beta.
    #[schemars(range(min = 0, max = 100))]
    pub gamma: f64,
    /// Weight of the chosen answers' negative log-likelihood per token (CPO-SimPO).
    #[schemars(range(min = 0, max = 1000))]
    pub nll_weight: f64,
    /// Assumed share of wrong labels.
    #[schemars(range(min = 0, max = 0.499))]
    pub label_smoothing: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            beta: 2.0,
            gamma: 1.0,
            nll_weight: 0.0,
            label_smoothing: 0.0,
        }
    }
}

impl super::Method for Config {
    fn knobs(&self) -> &'static [Knob] {
        const OWN: &[Knob] = &[
            knob(
                "method.*.beta",
                "2 to 10",
                "how sharply a difference per token counts: higher separates the answers more",
            ),
            knob(
                "method.*.gamma",
                "about half of beta",
                "the margin by which a chosen answer is to win",
            ),
        ];
        OWN
    }

    fn needs(&self) -> Needs {
        Needs {
            unit: Unit::Pair,
            mask: LossMask::CompletionOnly,
            ..Needs::default()
        }
    }

    fn loss(&self, scored: &ScoredBatch, readings: &mut Readings) -> Result<Tensor> {
        let logps = (scored.sequence_logps()? / scored.sequence_lengths()?)?;
        let rewards = (&logps * self.beta)?;
        preference::note(scored, &rewards, &logps, readings)?;
        let [chosen, rejected] = scored.sides(&rewards)?;
        let margins = ((chosen - rejected)? - self.gamma)?;
        let nll = preference::nll_of_chosen(scored, &logps, readings)?;
        let loss = (smoothed(&margins, self.label_smoothing)? + (nll * self.nll_weight)?)?;
        loss.sum_all()? / scored.normalizer
    }

    fn readings(&self) -> &'static [Metric] {
        const READINGS: &[Metric] = &{
            let [a, b, c, d, e, f] = PAIRS;
            [a, b, c, d, e, f, NLL_LOSS]
        };
        READINGS
    }

    fn best(&self) -> Criterion {
        preference::BY_ACCURACY
    }
}
