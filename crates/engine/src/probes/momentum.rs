//! Cosine between a step's gradient and the optimizer's first moment, the average of earlier gradients.

use super::sample::Sample;
use super::{Cadence, ProbeInput, Probe, ProbeEntry, Report, Setup};
use crate::metrics::{Direction, Metric, Repeatable, metric};
use crate::nn::Params;
use crate::optim::UpdateRule;
use candle_core::Result;

pub static ENTRY: ProbeEntry = ProbeEntry {
    id: "momentum",
    metrics: &[COSINE],
    cadence: Cadence::Often,
    inputs: &[ProbeInput::Gradient],
    cost: "a copy of at most 131,072 elements of gradient and first moment",
    make: |setup| Some(Box::new(Momentum::of(setup))),
};

const COSINE: Metric = metric(
    "grad_cosine",
    "Gradient-momentum cosine",
    "",
    Direction::Neutral,
    Repeatable::Yes,
    "cosine between the step's gradient and the optimizer's first moment before the step",
)
.label("grad cosine")
.health()
.estimator("first_moment")
.meaning(
    "Positive and falling: 0.5 or more while the loss falls fast, near 0.1 when noise dominates. There is no published band.",
    "Below 0 for many steps: steps overshoot; lower the learning rate. Near 1 for long: steps are too small, or data repeat.",
);

struct Momentum {
    sample: Sample,
    gradient: Vec<f32>,
    moment: Vec<f32>,
    cosine: Option<f64>,
}

impl Momentum {
    fn of(setup: &Setup<'_>) -> Momentum {
        Momentum {
            sample: Sample::of(setup.params, setup.n_layer),
            gradient: Vec::new(),
            moment: Vec::new(),
            cosine: None,
        }
    }
}

impl Probe for Momentum {
    fn gradient(&mut self, params: &Params, rule: &dyn UpdateRule, _scale: f64) -> Result<()> {
        let Some(part) = rule.mean_gradient() else {
            return Ok(());
        };
        params.read_grads(|grads| self.sample.gather(grads, &mut self.gradient))?;
        let (sample, moment) = (&self.sample, &mut self.moment);
        rule.read_state(part, &mut |mean| sample.gather(mean, moment))?;
        let dot = |a: &[f32], b: &[f32]| self.sample.dots(a, b).iter().sum::<f64>();
        let (g, m) = (&self.gradient, &self.moment);
        let lengths = (dot(g, g) * dot(m, m)).sqrt();
        self.cosine = (lengths > 0.0).then(|| dot(g, m) / lengths);
        Ok(())
    }

    fn report(&mut self, into: &mut Report) {
        if let Some(cosine) = self.cosine.take() {
            into.set(COSINE.id, cosine);
        }
    }
}
