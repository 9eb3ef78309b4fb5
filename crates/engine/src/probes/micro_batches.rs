//! Dispersion of the losses of a step's micro-batches.

use super::{Cadence, ProbeInput, Probe, ProbeEntry, Report, StepStats};
use crate::metrics::estimators::dispersion::population_std;
use crate::metrics::{Direction, Metric, Repeatable, id, metric};

pub static ENTRY: ProbeEntry = ProbeEntry {
    id: "micro_batches",
    metrics: &[DISPERSION],
    cadence: Cadence::Step,
    inputs: &[ProbeInput::Steps],
    cost: "a few additions",
    make: |setup| {
        let shown = setup.micro_batches > 1 && !setup.remote;
        shown.then(|| Box::new(Losses::default()) as Box<dyn Probe>)
    },
};

const DISPERSION: Metric = metric(
    id::LOSS_DISPERSION,
    "Loss dispersion",
    "nats",
    Direction::Neutral,
    Repeatable::Yes,
    "population standard deviation of the micro-batches' mean losses (Li et al. 2026, arXiv 2602.14462)",
)
.estimator("population_std")
.label("loss dispersion")
.health()
.meaning(
    "The spread of a single sequence's loss over √(sequences of a micro-batch): compare it with its own median.",
    "Three times its median for ten steps: lengths or sources are not shuffled, or one batch is bad. 0: micro-batches have the same data.",
);

#[derive(Default)]
struct Losses(Option<f64>);

impl Probe for Losses {
    fn step(&mut self, seen: &StepStats<'_>) {
        self.0 = population_std(seen.micro_losses);
    }

    fn report(&mut self, into: &mut Report) {
        if let Some(dispersion) = self.0.take() {
            into.set(DISPERSION.id, dispersion);
        }
    }
}
