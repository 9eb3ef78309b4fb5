//! Kahneman-Tversky optimization: answers judged alone become more probable than a baseline where they are desirable and
//! less probable where they are not.
//!
//! With Δ = log π(y|x) − log π_ref(y|x), the loss of a desirable answer is w_D · (1 − σ(β · (Δ − κ))), of an undesirable one
//! w_U · (1 − σ(β · (κ − Δ))); a mean over answers. The baseline κ estimates how far the policy has moved from the reference
//! altogether: the mean of Δ over the micro-batch's prompts with the answers to other prompts, at least 0, without a
//! gradient. A micro-batch needs two answers for it.

use super::preference::{self, PAIRS, ReferenceChoice};
use super::{
    BASELINE, Criterion, Knob, LossMask, Needs, Normalizer, REFERENCE_LOGP, ScoredBatch, sigmoid,
};
use crate::base::registry::Entry;
use crate::data::{LABEL, Unit};
use crate::metrics::{Direction, Metric, Readings, Repeatable, id, metric};
use candle_core::{Device, Result, Tensor, bail};
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "kto",
    title: "Kahneman-Tversky optimization (KTO)",
    summary: "Learn from single answers labelled good or bad, staying close to a reference model.",
    source: "Ethayarajh et al. 2024, arXiv 2402.01306",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// KL strength β towards the reference; higher stays closer to it.
    #[schemars(range(min = 1e-6, max = 100))]
    pub beta: f64,
    /// Weight of desirable answers. Weight × number should be 1 to 4/3 of that of the undesirable ones.
    #[schemars(range(min = 0, max = 1000))]
    pub desirable_weight: f64,
    /// Weight of undesirable answers.
    #[schemars(range(min = 0, max = 1000))]
    pub undesirable_weight: f64,
    /// Where the reference model's log-probabilities come from; the KL baseline needs a model, so `precomputed` is not available.
    pub reference: ReferenceChoice,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            beta: 0.1,
            desirable_weight: 1.0,
            undesirable_weight: 1.0,
            reference: ReferenceChoice::Auto,
        }
    }
}

#[rustfmt::skip]
const READINGS: &[Metric] = &{
    let [_, margins, chosen, rejected, logps_chosen, logps_rejected] = PAIRS;
    [
        margins, chosen, rejected,
        metric(id::KL, "KL baseline", "nats", Direction::Neutral, Repeatable::Yes, "mean log π − log π_ref of answers to other prompts, at least 0 (TRL's kl)"),
        logps_chosen, logps_rejected,
    ]
};

impl super::Method for Config {
    fn knobs(&self) -> &'static [Knob] {
        preference::KNOBS
    }

    fn needs(&self) -> Needs {
        Needs {
            unit: Unit::Judged,
            mask: LossMask::CompletionOnly,
            reference: Some(self.reference),
            ..Needs::default()
        }
    }

    fn normalizer(&self) -> Normalizer {
        Normalizer::Sequences
    }

    fn loss(&self, scored: &ScoredBatch, readings: &mut Readings) -> Result<Tensor> {
        let policy = scored.sequence_logps()?;
        let ratios = (&policy - scored.column(REFERENCE_LOGP)?)?;
        let Some(desirable) = scored.batch.column(LABEL) else {
            bail!("this batch has no desirability labels")
        };
        let moved = scored.batch.column(BASELINE).unwrap_or_default();
        let sum: f64 = moved.iter().map(|x| f64::from(*x)).sum();
        let baseline = (sum / moved.len().max(1) as f64).max(0.0);
        // A lone answer has no others to tell it by.
        if !moved.is_empty() {
            readings.add(id::KL, baseline * moved.len() as f64, moved.len() as f64);
        }
        preference::note_judged(desirable, &(&ratios * self.beta)?, &policy, readings)?;

        let of_label = |good: f64, bad: f64| {
            let value = |label: &f32| if *label > 0.0 { good } else { bad } as f32;
            let values: Vec<f32> = desirable.iter().map(value).collect();
            Tensor::from_vec(values, desirable.len(), &Device::Cpu)
        };
        let weights = of_label(self.desirable_weight, self.undesirable_weight)?;
        // 1 − σ(x) = σ(−x).
        let away = ((ratios - baseline)? * of_label(-self.beta, self.beta)?)?;
        (sigmoid(&away)? * weights)?.sum_all()? / scored.normalizer
    }

    fn readings(&self) -> &'static [Metric] {
        READINGS
    }

    fn best(&self) -> Criterion {
        Criterion {
            metric: id::VAL_MARGINS,
            direction: Direction::Higher,
        }
    }
}
