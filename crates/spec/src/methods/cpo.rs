//! Contrastive preference optimization: DPO without a reference model, and a likelihood term that keeps the chosen answers
//! probable. L = −ln σ(β · (log π(y_c|x) − log π(y_r|x))) + α · NLL(y_c), a mean over pairs.

use super::dpo::smoothed;
use super::preference::{self, NLL_LOSS, PAIRS};
use super::{Criterion, Knob, LossMask, Needs, ScoredBatch, knob};
use crate::base::registry::Entry;
use crate::data::Unit;
use crate::metrics::{Metric, Readings};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "cpo",
    title: "Contrastive preference optimization (CPO)",
    summary: "Learn from pairs which answer to prefer while imitating the chosen ones; needs no reference model.",
    source: "Xu et al. 2024, arXiv 2401.08417",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Scale of the difference of log-probabilities.
    #[schemars(range(min = 1e-6, max = 100))]
    pub beta: f64,
    /// Weight α of the chosen answers' negative log-likelihood per token.
    #[schemars(range(min = 0, max = 1000))]
    pub nll_weight: f64,
    /// Assumed share of wrong labels.
    #[schemars(range(min = 0, max = 0.499))]
    pub label_smoothing: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            beta: 0.1,
            nll_weight: 1.0,
            label_smoothing: 0.0,
        }
    }
}

impl super::Method for Config {
    fn knobs(&self) -> &'static [Knob] {
        const OWN: &[Knob] = &[
            knob(
                "method.*.beta",
                "0.05 to 0.5; 0.1 is usual",
                "how sharply a difference between the answers counts",
            ),
            knob(
                "method.*.nll_weight",
                "0.5 to 1",
                "the weight of the chosen answers' likelihood, which stands in for a reference model",
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
        let logps = scored.sequence_logps()?;
        let rewards = (&logps * self.beta)?;
        preference::note(scored, &rewards, &logps, readings)?;
        let [chosen, rejected] = scored.sides(&rewards)?;
        let loss = smoothed(&(chosen - rejected)?, self.label_smoothing)?;
        let per_token = (logps / scored.sequence_lengths()?)?;
        let nll = preference::nll_of_chosen(scored, &per_token, readings)?;
        (loss + (nll * self.nll_weight)?)?.sum_all()? / scored.normalizer
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
