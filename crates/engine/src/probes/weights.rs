//! Standard deviation of each block's weights.

use super::{Cadence, ProbeInput, Probe, ProbeEntry, Report, Setup};
use crate::metrics::estimators::dispersion::Moments;
use crate::metrics::{Direction, Metric, Repeatable, id, metric};
use crate::nn::Params;
use crate::optim::UpdateRule;
use candle_core::Result;
use std::ops::Range;

pub static ENTRY: ProbeEntry = ProbeEntry {
    id: "weights",
    metrics: &[STD],
    cadence: Cadence::Seldom,
    inputs: &[ProbeInput::Update],
    cost: "two passes over the matrices that train",
    make: |setup| Some(Box::new(Weights::of(setup))),
};

const STD: Metric = metric(
    id::WEIGHT_STD,
    "Weight spread by layer",
    "",
    Direction::Neutral,
    Repeatable::Yes,
    "population standard deviation of all elements of a block's matrices that train",
)
.estimator("population_std")
.label("weight std")
.per_layer()
.meaning(
    "Begins at the initialization (0.02 in GPT-2) and drifts slowly, all blocks alike, towards √(lr / (2 · weight_decay)) with AdamW after about 1 / (lr · weight_decay) steps (Kosson et al. 2023, arXiv 2305.17212).",
    "One block grows threefold while others do not: lower the learning rate, raise weight decay. Flat within 1 % after a tenth of the run: it is frozen or gets no gradient.",
);

struct Weights {
    /// Matrices of each block, in the flat weights.
    parts: Vec<Vec<Range<usize>>>,
    std: Vec<f64>,
}

impl Weights {
    fn of(setup: &Setup<'_>) -> Weights {
        let mut parts = vec![Vec::new(); setup.n_layer];
        for info in setup.params {
            let block = info.layer.and_then(|layer| parts.get_mut(layer as usize));
            if let Some(block) = block.filter(|_| info.trains() && info.shape.len() == 2) {
                block.push(info.offset..info.offset + info.len);
            }
        }
        Weights {
            std: vec![f64::NAN; parts.len()],
            parts,
        }
    }
}

impl Probe for Weights {
    fn update(&mut self, params: &Params, _rule: &dyn UpdateRule) -> Result<()> {
        let held = params.first_held();
        let (parts, found) = (&self.parts, &mut self.std);
        crate::kernels::flat::read(params.weights(), |weights| {
            for (std, block) in found.iter_mut().zip(parts) {
                let mut moments = Moments::default();
                for range in block {
                    moments.add(&weights[range.start - held..range.end - held]);
                }
                *std = moments.std().unwrap_or(f64::NAN);
            }
        })
    }

    fn report(&mut self, into: &mut Report) {
        if self.std.iter().any(|x| x.is_finite()) {
            into.set_layers(STD.id, self.std.iter().copied());
        }
    }
}
