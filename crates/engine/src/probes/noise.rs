//! Gradient signal and noise, from the gradients of the step's micro-batches.

use super::sample::Sample;
use super::{Cadence, ProbeInput, Probe, ProbeEntry, Report, Setup};
use crate::base::stats::Ema;
use crate::metrics::estimators::noise::{Estimate, SquaredNorms};
use crate::metrics::{Direction, Metric, Origin, Repeatable, id, metric};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub static ENTRY: ProbeEntry = ProbeEntry {
    id: "noise",
    metrics: &[SCALE, GSNR, CONSISTENCY, EXPECTED, BY_LAYER],
    cadence: Cadence::Often,
    inputs: &[ProbeInput::MicroGradients],
    cost: "a copy of at most 131,072 elements of the gradient after each micro-batch",
    make: |setup| (setup.micro_batches > 1).then(|| Box::new(Noise::of(setup)) as Box<dyn Probe>),
};

const SOURCE: &str = "McCandlish et al. 2018, arXiv 1812.06162: trΣ / |G|² from norms of the micro-batches' gradients and of their sum, both averaged over measurements first";

const SCALE: Metric = metric(
    id::NOISE_SCALE,
    "Gradient noise scale",
    "tokens",
    Direction::Neutral,
    Repeatable::Yes,
    SOURCE,
)
.label("noise scale")
.health()
.estimator("gns_simple")
.meaning(
    "The batch size at which signal equals noise. It grows as the loss falls. Far below it a larger batch is a nearly free speed-up; far above it compute is wasted.",
    "Batch below a tenth of it: raise train.grad_accum_steps. Batch above ten times: lower it and take more steps.",
);

const GSNR: Metric = metric(
    "gsnr",
    "Gradient signal to noise",
    "",
    Direction::Higher,
    Repeatable::Yes,
    "|G|² / trΣ of one micro-batch (Liu et al. 2020, arXiv 2001.07384; McCandlish et al. 2018, arXiv 1812.06162)",
)
.label("GSNR, whole")
.health()
.estimator("gns_simple")
.meaning(
    "High at the start, when all gradients agree, and falling as the model learns what the data share.",
    "A sudden drop to a fifth: inspect the data of these steps. A high norm with a low ratio precedes divergence: lower the learning rate.",
);

const BY_LAYER: Metric = metric(
    "gsnr/layer",
    "Gradient signal to noise by layer",
    "",
    Direction::Higher,
    Repeatable::Yes,
    "|G|² / trΣ of each block's part of the gradient, as gsnr",
)
.label("GSNR")
.per_layer()
.estimator("gns_simple")
.meaning(
    "Blocks lie within a factor of ten of their median.",
    "A deep block below a tenth of the median gets mostly noise: check residual scaling and learning-rate groups.",
);

const CONSISTENCY: Metric = metric(
    id::GRAD_CONSISTENCY,
    "Gradient direction consistency",
    "",
    Direction::Neutral,
    Repeatable::Yes,
    "mean cosine between the micro-batches' mean gradients, weighted by their norms (Li et al. 2026, arXiv 2602.14462)",
)
.label("consistency")
.health()
.estimator("c_w")
.band(f64::NEG_INFINITY, 0.99, Origin::RuleOfThumb)
.meaning(
    "1 / (1 + B_noise / b) of micro-batches of b tokens: near 0 is normal for small ones. Falls as the model learns.",
    "Above 0.99 with four micro-batches or more: they have the same data; see the Data pane.",
);

const EXPECTED: Metric = metric(
    "grad_consistency/expected",
    "Expected direction consistency",
    "",
    Direction::Neutral,
    Repeatable::Yes,
    "|G|² / (|G|² + trΣ) by gns_simple: the value for independent micro-batches",
)
.label("consistency, expected")
.health()
.estimator("gns_simple");

/// Weight of the past among measurements.
const PAST: f64 = 0.9;

/// Signal and noise of one part of the parameters, averaged apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Averages {
    signal: Ema,
    noise: Ema,
}

impl Averages {
    fn new() -> Averages {
        Averages {
            signal: Ema::new(PAST),
            noise: Ema::new(PAST),
        }
    }

    fn push(&mut self, seen: Estimate) -> Estimate {
        Estimate {
            signal: self.signal.push(seen.signal),
            noise: self.noise.push(seen.noise),
        }
    }
}

struct Noise {
    sample: Sample,
    /// Tokens of a micro-batch.
    tokens: f64,
    /// The sum so far, of the sample, and before the newest micro-batch.
    sum: Vec<f32>,
    before: Vec<f32>,
    /// Σ ‖g_i‖² of each block, and of what belongs to none.
    parts: Vec<f64>,
    seen: usize,
    /// Σ w² of their shares of the step.
    weights: f64,
    means: Means,
    all: Averages,
    blocks: Vec<Averages>,
}

impl Noise {
    fn of(setup: &Setup<'_>) -> Noise {
        Noise {
            sample: Sample::of(setup.params, setup.n_layer),
            tokens: setup.batch_tokens as f64 / setup.micro_batches as f64,
            sum: Vec::new(),
            before: Vec::new(),
            parts: vec![0.0; setup.n_layer + 1],
            seen: 0,
            weights: 0.0,
            means: Means::default(),
            all: Averages::new(),
            blocks: vec![Averages::new(); setup.n_layer],
        }
    }
}

/// The mean gradients of micro-batches, whose directions are compared. Their contributions to the step's gradient are these times
/// their shares of it: of three tokens beside two hundred, hardly anything.
#[derive(Debug, Default)]
struct Means {
    k: usize,
    /// Their sum.
    sum: Vec<f32>,
    /// Σ ‖·‖².
    parts: f64,
    /// The share of each, as long as it is that of all.
    share: Option<f64>,
    differ: bool,
}

impl Means {
    /// Takes up a contribution of this share and squared norm. One without a token has no mean.
    fn push(&mut self, contribution: &[f32], share: f64, square: f64) {
        if share <= 0.0 {
            self.differ = true;
            return;
        }
        self.differ |= *self.share.get_or_insert(share) != share;
        self.k += 1;
        self.parts += square / (share * share);
        self.sum.resize(contribution.len(), 0.0);
        for (sum, g) in self.sum.iter_mut().zip(contribution) {
            *sum += (f64::from(*g) / share) as f32;
        }
    }

    fn clear(&mut self) {
        self.sum.clear();
        *self = Means {
            sum: std::mem::take(&mut self.sum),
            ..Means::default()
        };
    }
}

impl Probe for Noise {
    fn micro_gradient(&mut self, micro: usize, weight: f64, grads: &[f32]) {
        if micro == 0 {
            (self.seen, self.weights) = (0, 0.0);
            self.parts.fill(0.0);
            self.before.clear();
            self.means.clear();
        }
        self.sample.gather(grads, &mut self.sum);
        self.before.resize(self.sum.len(), 0.0);
        // This micro-batch's contribution; afterwards the sum is stored.
        for (before, sum) in self.before.iter_mut().zip(&self.sum) {
            *before = sum - *before;
        }
        let squares = self.sample.dots(&self.before, &self.before);
        self.means.push(&self.before, weight, squares.iter().sum());
        self.parts.iter_mut().zip(squares).for_each(|(sum, x)| *sum += x);
        std::mem::swap(&mut self.before, &mut self.sum);
        self.seen += 1;
        self.weights += weight * weight;
    }

    fn report(&mut self, into: &mut Report) {
        // The variance needs at least two; a batch-size ramp may begin with single ones.
        if self.seen < 2 {
            return;
        }
        let sums = self.sample.dots(&self.before, &self.before);
        let (k, weights) = (self.seen, self.weights);
        let squares = |parts, sum| SquaredNorms {
            k,
            parts,
            sum,
            weights,
        };
        let whole = squares(self.parts.iter().sum(), sums.iter().sum());
        let means = match (self.means.differ, self.means.k) {
            // The contributions point where the means do, and the sum is known.
            (false, _) => Some(whole),
            // No micro-batch has a supervised token, or one alone.
            (true, 0 | 1) => None,
            (true, k) => {
                let (means, sample) = (&self.means, &self.sample);
                let sum = sample.dots(&means.sum, &means.sum).iter().sum();
                Some(SquaredNorms::of_equals(k, means.parts, sum))
            }
        };
        if let Some(consistency) = means.and_then(|means| means.consistency()) {
            into.set(CONSISTENCY.id, consistency);
        }
        if let Some(seen) = whole.estimate() {
            let mean = self.all.push(seen);
            if let Some(expected) = mean.expected_consistency() {
                into.set(EXPECTED.id, expected);
            }
            if let Some(gsnr) = mean.gsnr() {
                into.set(GSNR.id, gsnr);
            }
            if let Some(batch) = mean.critical_batch() {
                into.set(SCALE.id, batch * self.tokens);
            }
        }
        let blocks = self.blocks.iter_mut().zip(self.parts.iter().zip(&sums));
        let gsnr = |(block, (parts, sum)): (&mut Averages, (&f64, &f64))| {
            let mean = squares(*parts, *sum).estimate().map(|seen| block.push(seen));
            mean.and_then(Estimate::gsnr).unwrap_or(f64::NAN)
        };
        into.set_layers(BY_LAYER.id, blocks.map(gsnr));
    }

    fn saved_state(&self) -> Option<Value> {
        let carried = (self.all, &self.blocks);
        let seen = self.all != Averages::new();
        seen.then(|| serde_json::to_value(carried).ok()).flatten()
    }

    fn restore_state(&mut self, carried: Option<&Value>) {
        let n_layer = self.blocks.len();
        let carried = carried.and_then(|c| <(Averages, Vec<Averages>)>::deserialize(c).ok());
        let carried = carried.filter(|(_, blocks)| blocks.len() == n_layer);
        let afresh = || (Averages::new(), vec![Averages::new(); n_layer]);
        (self.all, self.blocks) = carried.unwrap_or_else(afresh);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::info;
    use super::*;

    /// What a step of micro-batches of these shares and mean gradients reports.
    fn seen(micro: &[(f64, [f32; 2])]) -> Report {
        let params = [info(Some(0), 0, 2)];
        let setup = Setup {
            n_layer: 1,
            params: &params,
            micro_batches: micro.len(),
            batch_tokens: 100,
            max_steps: 1,
            reference: None,
            remote: false,
        };
        let mut noise = Noise::of(&setup);
        let mut grads = [0.0; 2];
        for (at, (share, mean)) in micro.iter().enumerate() {
            for (sum, mean) in grads.iter_mut().zip(mean) {
                *sum += *share as f32 * mean;
            }
            noise.micro_gradient(at, *share, &grads);
        }
        let mut report = Report::default();
        noise.report(&mut report);
        report
    }

    /// One long answer beside short ones: cosines of −4 and of 1.005 were reported.
    #[test]
    fn directions_of_unequal_micro_batches_are_those_of_their_means() {
        let means = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]];
        // Two of six pairs point the same way.
        for shares in [[1.0 / 3.0; 3], [0.9, 0.05, 0.05], [0.01, 0.98, 0.01]] {
            let micro: Vec<_> = shares.into_iter().zip(means).collect();
            let report = seen(&micro);
            let found = report.values[CONSISTENCY.id].0;
            assert!((found - 1.0 / 3.0).abs() < 1e-4, "{shares:?}: {found}");
            let expected = report.values[EXPECTED.id].0;
            assert!((-1.0..=1.0).contains(&expected), "{shares:?}: {expected}");
        }
        let opposed = seen(&[(0.99, [1.0, 0.0]), (0.01, [-1.0, 0.0])]);
        assert!((opposed.values[CONSISTENCY.id].0 + 1.0).abs() < 1e-5);
        // One without a token has no direction; beside a single other one there is nothing to compare.
        let blank = seen(&[(0.5, [1.0, 0.0]), (0.0, [0.0, 0.0]), (0.5, [1.0, 0.0])]);
        assert!((blank.values[CONSISTENCY.id].0 - 1.0).abs() < 1e-6);
        let alone = seen(&[(1.0, [1.0, 0.0]), (0.0, [0.0, 0.0])]);
        assert!(!alone.values.contains_key(CONSISTENCY.id));
        // A step whose targets are all masked ended the run.
        let masked = seen(&[(0.0, [0.0, 0.0]), (0.0, [0.0, 0.0])]);
        assert!(!masked.values.contains_key(CONSISTENCY.id));
    }
}
