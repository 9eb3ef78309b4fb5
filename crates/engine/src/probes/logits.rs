//! The mean level of the output logits.

use super::{Cadence, ProbeInput, Probe, ProbeEntry, Report};
use crate::metrics::{Direction, Metric, Origin, Repeatable, metric};

pub static ENTRY: ProbeEntry = ProbeEntry {
    id: "logits",
    metrics: &[LSE],
    cadence: Cadence::Often,
    inputs: &[ProbeInput::Activations],
    cost: "one pass over a number for each token",
    make: |_| Some(Box::new(Logits::default())),
};

const LSE: Metric = metric(
    "logit_lse",
    "Logit level",
    "nats",
    Direction::Neutral,
    Repeatable::Yes,
    "root mean square of the log-sum-exp of logits over the first micro-batch: what a z-loss penalizes (PaLM, arXiv 2204.02311)",
)
.estimator("rms_lse")
.label("logit level")
.health()
.band(f64::NEG_INFINITY, 50.0, Origin::RuleOfThumb)
.meaning(
    "Starts at ln V and drifts: the softmax ignores a constant added to all logits, so only weight decay and a z-loss limit it.",
    "Unbounded growth: bf16 loses the differences between logits. Tie embeddings, decay the head, add a z-loss, lower the learning rate.",
);

#[derive(Default)]
struct Logits(Option<f64>);

impl Probe for Logits {
    fn logits(&mut self, lse: &[f32]) {
        let squares: f64 = lse.iter().map(|x| f64::from(*x).powi(2)).sum();
        self.0 = (!lse.is_empty()).then(|| (squares / lse.len() as f64).sqrt());
    }

    fn report(&mut self, into: &mut Report) {
        if let Some(level) = self.0.take() {
            into.set(LSE.id, level);
        }
    }
}
