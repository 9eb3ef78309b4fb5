//! How far gradient norm and loss deviate from the steps before.

use super::{Cadence, ProbeInput, Probe, ProbeEntry, Report, StepStats};
use crate::metrics::estimators::spikes::{NormRatio, SpikeScore};
use crate::metrics::{Direction, Metric, Origin, Repeatable, metric};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub static ENTRY: ProbeEntry = ProbeEntry {
    id: "spikes",
    metrics: &[RATIO, GRADIENT, LOSS],
    cadence: Cadence::Step,
    inputs: &[ProbeInput::Steps],
    cost: "a few additions",
    make: |_| Some(Box::new(Spikes::default())),
};

const RATIO: Metric = metric(
    "grad_spike",
    "Gradient spike",
    "× mean",
    Direction::Lower,
    Repeatable::Yes,
    "largest gradient norm over the running mean of earlier ones (α 0.97), since the last reading",
)
.label("gradient spike")
.health()
.estimator("norm_ratio")
.band(f64::NEG_INFINITY, 10.0, Origin::RuleOfThumb)
.meaning(
    "Near 1. A single high value is a bad batch. This is not the spike score of SPAM or OLMo: their thresholds do not apply.",
    "Above 10 once: inspect the batch. More than five in a hundred steps: the optimizer's moments are polluted; lower the learning rate or roll back.",
);

const SCORE: &str = "percent of steps seven or more standard deviations from the mean of the 1,000 before (OLMo 2, arXiv 2501.00656, section 3)";

const GRADIENT: Metric = metric(
    "spike_score/grad",
    "Spike score of the gradient norm",
    "%",
    Direction::Lower,
    Repeatable::Yes,
    SCORE,
)
.label("spikes, gradient")
.health()
.estimator("olmo")
.band(f64::NEG_INFINITY, 0.4, Origin::RuleOfThumb)
.meaning(
    "0.03 in OLMo 2 after its fixes of initialization, 0.4 before them. Within the first 1,000 steps one spike weighs more.",
    "Above 0.1: watch it; above 0.4 the run is unstable: QK-norm, a longer warm-up, a lower learning rate.",
);

const LOSS: Metric = metric(
    "spike_score/loss",
    "Spike score of the loss",
    "%",
    Direction::Lower,
    Repeatable::Yes,
    SCORE,
)
.label("spikes, loss")
.health()
.estimator("olmo")
.band(f64::NEG_INFINITY, 0.4, Origin::RuleOfThumb)
.meaning(
    "Near 0: batch losses rarely differ by seven standard deviations.",
    "With gradient spikes at the same steps: bad batches. Inspect their documents, filter repeated n-grams.",
);

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spikes {
    ratio: NormRatio,
    largest: Option<f64>,
    gradient: SpikeScore,
    loss: SpikeScore,
    /// Steps so far.
    seen: u64,
}

/// Steps before a score means anything.
const YOUNG: u64 = 100;

impl Probe for Spikes {
    fn step(&mut self, seen: &StepStats<'_>) {
        self.seen += 1;
        let ratio = self.ratio.push(seen.grad_norm);
        self.largest = [self.largest, ratio].into_iter().flatten().reduce(f64::max);
        // The initial drop does not count as spread.
        if self.seen > YOUNG {
            self.gradient.push(seen.grad_norm);
            self.loss.push(seen.loss);
        }
    }

    fn report(&mut self, into: &mut Report) {
        if let Some(largest) = self.largest.take() {
            into.set(RATIO.id, largest);
        }
        if self.seen > 2 * YOUNG {
            into.set(GRADIENT.id, self.gradient.percent());
            into.set(LOSS.id, self.loss.percent());
        }
    }

    fn saved_state(&self) -> Option<Value> {
        let seen = self.seen > 0;
        seen.then(|| serde_json::to_value(self).ok()).flatten()
    }

    fn restore_state(&mut self, carried: Option<&Value>) {
        let carried = carried.and_then(|c| Spikes::deserialize(c).ok());
        *self = carried.unwrap_or_default();
    }
}
