//! How far the loss curve departs from that of a reference run: `health.reference_run`.

use super::{Cadence, ProbeInput, Probe, ProbeEntry, Report, Setup, StepStats};
use crate::metrics::estimators::collapse::{Collapse as Estimator, Reference};
use crate::metrics::{Direction, Metric, Origin, Repeatable, metric};
use crate::wire::id;
use serde::Deserialize;
use serde_json::Value;

pub static ENTRY: ProbeEntry = ProbeEntry {
    id: "collapse",
    metrics: &[RESIDUAL, NOISE, FORECAST],
    cadence: Cadence::Step,
    inputs: &[ProbeInput::Steps],
    cost: "a few additions",
    make,
};

const RESIDUAL: Metric = metric(
    id::COLLAPSE_RESIDUAL,
    "Collapse residual",
    "of the final loss",
    Direction::Neutral,
    Repeatable::Yes,
    "loss / S − reference at the same share of the run, means over 100 steps; S is fitted between 25 and 50 % of the run (arXiv 2507.02119, 2509.25087)",
)
.label("collapse residual")
.health()
.estimator("early_align")
.band(-0.01, 0.01, Origin::RuleOfThumb)
.meaning(
    "Within ±0.005: runs with the same schedule, tokens per parameter and timescale of weight decay have the same curve, whatever their size. Needs `health.reference_run`.",
    "A drift upwards: a numerical fault, bad data, another batch after a restart. Downwards: easier or repeated data. Off from the start of the second half: settings differ from the reference's.",
);

const NOISE: Metric = metric(
    id::COLLAPSE_NOISE,
    "Noise of the collapse residual",
    "of the final loss",
    Direction::Lower,
    Repeatable::Yes,
    "standard deviation of the residual between 25 and 50 % of the run",
)
.label("residual's noise")
.health()
.estimator("early_align");

const FORECAST: Metric = metric(
    "loss_forecast",
    "Forecast of the final training loss",
    "",
    Direction::Lower,
    Repeatable::Yes,
    "S of the collapse residual: the divisor that lays the loss on the reference's normalized curve, from 30 % of the run on",
)
.label("final loss, forecast")
.health()
.estimator("early_align")
.meaning(
    "Nearly constant from half of the run on, and the training loss of the last steps at the end.",
    "A forecast worse than you can accept is a reason to stop early.",
);

fn make(setup: &Setup<'_>) -> Option<Box<dyn Probe>> {
    let reference = setup.reference?.clone();
    Some(Box::new(Collapse {
        run: Estimator::new(setup.max_steps, &reference),
        steps: setup.max_steps,
        reference,
    }))
}

struct Collapse {
    steps: u64,
    reference: Reference,
    run: Estimator,
}

impl Probe for Collapse {
    fn step(&mut self, seen: &StepStats<'_>) {
        self.run.push(seen.step, seen.loss, &self.reference);
    }

    fn report(&mut self, into: &mut Report) {
        let readings = [
            (RESIDUAL.id, self.run.residual(&self.reference)),
            (NOISE.id, self.run.noise()),
            (FORECAST.id, self.run.forecast()),
        ];
        for (id, value) in readings {
            if let Some(value) = value {
                into.set(id, value);
            }
        }
    }

    fn saved_state(&self) -> Option<Value> {
        serde_json::to_value(&self.run).ok()
    }

    /// What was fitted for another number of steps is at another share of the run, and what was fitted to another curve has another
    /// divisor.
    fn restore_state(&mut self, carried: Option<&Value>) {
        let anew = Estimator::new(self.steps, &self.reference);
        let carried = carried.and_then(|c| Estimator::deserialize(c).ok());
        self.run = carried.filter(|run| run.fits(&anew)).unwrap_or(anew);
    }
}
