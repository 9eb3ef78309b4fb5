//! Units of feed-forward blocks that no token of the micro-batch activates.

use super::{Cadence, ProbeInput, Probe, ProbeEntry, Report, Setup};
use crate::metrics::{Direction, Metric, Origin, Repeatable, id, metric};
use crate::nn::Role;
use crate::nn::tap::{Activation, Site};

pub static ENTRY: ProbeEntry = ProbeEntry {
    id: "dead_units",
    metrics: &[SHARE, BY_LAYER],
    cadence: Cadence::Usual,
    inputs: &[ProbeInput::Activations],
    cost: "one pass over the feed-forward activations of one micro-batch",
    make: |setup| is_dense(setup).then(|| Box::new(DeadUnits::of(setup)) as Box<dyn Probe>),
};

const SOURCE: &str = "share of feed-forward units whose largest |activation| over the first micro-batch stays below 1 % of the block's RMS (after Lu et al. 2019, arXiv 1903.06733; Voita et al. 2023, arXiv 2309.04827)";
const NORMAL: &str = "A few per cent with GELU and SiLU, whose gradient never quite vanishes; more with ReLU and in large models, especially in early blocks. Small micro-batches see fewer tokens, so more units look dead.";
const ADVICE: &str = "Rising through the run: lower the learning rate, check weight decay and the scale of the block's input. All of one block: it is disconnected.";

const SHARE: Metric = metric("dead_units", "Dead units", "share", Direction::Lower, Repeatable::Yes, SOURCE)
    .health()
    .label("dead units, mean")
    .estimator("max_below_1pct_rms")
    .band(f64::NEG_INFINITY, 0.3, Origin::RuleOfThumb)
    .meaning(NORMAL, ADVICE);

const BY_LAYER: Metric = metric(
    id::DEAD_UNITS,
    "Dead units by layer",
    "share",
    Direction::Lower,
    Repeatable::Yes,
    SOURCE,
)
.label("dead units")
.per_layer()
.estimator("max_below_1pct_rms")
.band(f64::NEG_INFINITY, 0.5, Origin::RuleOfThumb)
.meaning(NORMAL, ADVICE);

/// A unit below this share of the block's RMS does nothing.
const IDLE: f32 = 0.01;
/// Fewer tokens say nothing of a unit.
const ENOUGH: usize = 64;

/// Experts see a part of the tokens each: theirs are not comparable.
fn is_dense(setup: &Setup<'_>) -> bool {
    setup.params.iter().all(|info| info.expert.is_none())
        && setup.params.iter().any(|info| matches!(info.role, Role::Mlp(_)))
}

struct DeadUnits {
    shares: Vec<f64>,
    /// Largest |activation| of each unit.
    largest: Vec<f32>,
}

impl DeadUnits {
    fn of(setup: &Setup<'_>) -> DeadUnits {
        DeadUnits {
            shares: vec![f64::NAN; setup.n_layer],
            largest: Vec::new(),
        }
    }
}

/// The share of dead units of activations (rows, `width`).
fn dead_share(values: &[f32], width: usize, largest: &mut Vec<f32>) -> Option<f64> {
    if width == 0 || values.len() / width < ENOUGH {
        return None;
    }
    largest.clear();
    largest.resize(width, 0.0);
    // In f32 row by row, where the compiler takes many units at once.
    let mut squares = 0.0_f64;
    for row in values.chunks_exact(width) {
        let mut sum = [0.0_f32; 16];
        for (i, (most, x)) in largest.iter_mut().zip(row).enumerate() {
            *most = most.max(x.abs());
            sum[i % 16] += x * x;
        }
        squares += f64::from(sum.iter().sum::<f32>());
    }
    let rms = (squares / values.len() as f64).sqrt() as f32;
    // NaN counts as alive: another rule says so.
    let dead = largest.iter().filter(|most| **most <= IDLE * rms).count();
    Some(dead as f64 / width as f64)
}

impl Probe for DeadUnits {
    fn activation(&mut self, seen: &Activation<'_>) {
        if seen.site == Site::FeedForward
            && let Some(share) = self.shares.get_mut(seen.layer)
        {
            *share = dead_share(seen.values, seen.width, &mut self.largest).unwrap_or(f64::NAN);
        }
    }

    fn report(&mut self, into: &mut Report) {
        let mean = self.shares.iter().sum::<f64>() / self.shares.len().max(1) as f64;
        if mean.is_finite() {
            into.set(SHARE.id, mean);
            into.set_layers(BY_LAYER.id, self.shares.iter().copied());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_that_stay_silent_are_counted_and_too_few_tokens_say_nothing() {
        // Unit 0 fires on one token of 64, unit 1 never, unit 2 always, unit 3 hums below a hundredth.
        let mut values = Vec::new();
        for row in 0..64 {
            values.extend([if row == 40 { 5.0 } else { 0.0 }, 0.0, -1.0, 1e-4]);
        }
        let mut largest = Vec::new();
        assert_eq!(dead_share(&values, 4, &mut largest), Some(0.5));
        assert_eq!(dead_share(&values[..252], 4, &mut largest), None);
        assert_eq!(dead_share(&vec![0.0; 256], 4, &mut largest), Some(1.0));
    }
}
