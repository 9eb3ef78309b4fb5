//! RMS of the residual stream after each block.

use super::{Cadence, ProbeInput, Probe, ProbeEntry, Report, Setup};
use crate::metrics::{Direction, Metric, Origin, Repeatable, id, metric};
use crate::nn::tap::{Activation, Site};

pub static ENTRY: ProbeEntry = ProbeEntry {
    id: "activations",
    metrics: &[RMS, MAX],
    cadence: Cadence::Usual,
    inputs: &[ProbeInput::Activations],
    cost: "one pass over the residual stream of one micro-batch, each block",
    make: |setup| Some(Box::new(Activations::of(setup))),
};

const RMS: Metric = metric(
    id::ACT_RMS,
    "Activation RMS by layer",
    "",
    Direction::Neutral,
    Repeatable::Yes,
    "root mean square of the residual stream after each block, over the first micro-batch",
)
.estimator("rms")
.label("activation RMS")
.per_layer()
.meaning(
    "Grows smoothly with depth, as each block adds to the stream: by a factor of about ten from first to last. There is no published band.",
    "A jump in one block, or unbounded growth over steps: lower the learning rate; QK-norm and z-loss keep logits small.",
);

const MAX: Metric = metric(
    "act_max/layer",
    "Largest activation by layer",
    "",
    Direction::Neutral,
    Repeatable::Yes,
    "largest |x| in the residual stream after each block, over the first micro-batch",
)
.estimator("max_abs")
.label("largest activation")
.per_layer()
.band(f64::NEG_INFINITY, 65504.0, Origin::Derived)
.meaning(
    "Tens to hundreds of times the RMS: a few features carry massive activations (Sun et al. 2024, arXiv 2402.17762). Above 65,504 fp16 overflows.",
    "Rising towards that: serve in bf16 instead of fp16, lower the learning rate.",
);

struct Activations {
    rms: Vec<f64>,
    largest: Vec<f64>,
}

impl Activations {
    fn of(setup: &Setup<'_>) -> Activations {
        Activations {
            rms: vec![f64::NAN; setup.n_layer],
            largest: vec![f64::NAN; setup.n_layer],
        }
    }
}

/// Root mean square and largest |x|; NaN where any value is.
fn sizes(values: &[f32]) -> (f64, f64) {
    let (mut squares, mut largest) = (0.0_f64, [0.0_f32; 16]);
    for chunk in values.chunks(1 << 10) {
        let mut sum = [0.0_f32; 16];
        let (wide, rest) = chunk.as_chunks::<16>();
        for part in wide {
            for (i, x) in part.iter().enumerate() {
                sum[i] += x * x;
                largest[i] = largest[i].max(x.abs());
            }
        }
        for x in rest {
            sum[0] += x * x;
            largest[0] = largest[0].max(x.abs());
        }
        squares += f64::from(sum.iter().sum::<f32>());
    }
    let largest = f64::from(largest.iter().copied().fold(0.0, f32::max));
    let rms = (squares / values.len().max(1) as f64).sqrt();
    (rms, if rms.is_nan() { f64::NAN } else { largest })
}

impl Probe for Activations {
    fn activation(&mut self, seen: &Activation<'_>) {
        if seen.site == Site::Block && seen.layer < self.rms.len() {
            (self.rms[seen.layer], self.largest[seen.layer]) = sizes(seen.values);
        }
    }

    fn report(&mut self, into: &mut Report) {
        into.set_layers(RMS.id, self.rms.iter().copied());
        into.set_layers(MAX.id, self.largest.iter().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_known_values() {
        let values: Vec<f32> = (0..5000).map(|i| if i % 2 == 0 { 3.0 } else { -4.0 }).collect();
        let (rms, largest) = sizes(&values);
        assert!((rms - 12.5f64.sqrt()).abs() < 1e-6 && largest == 4.0);
        assert!(sizes(&[1.0, f32::NAN]).0.is_nan());
    }
}
