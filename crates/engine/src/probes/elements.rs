//! Outliers among single gradient elements relative to their history: SPAM's spike score, by its definition and by the test
//! of its optimizer. Embeddings and head are excluded: rows of rare tokens are almost always 0.

use super::sample::Sample;
use super::{Cadence, ProbeInput, Probe, ProbeEntry, Report, Setup};
use crate::metrics::estimators::spikes::spam_clip;
use crate::metrics::{Direction, Metric, Origin, Repeatable, metric};
use crate::nn::Params;
use crate::optim::UpdateRule;
use candle_core::Result;

pub static ENTRY: ProbeEntry = ProbeEntry {
    id: "elements",
    metrics: &[SCORE, SHARE],
    cadence: Cadence::Often,
    inputs: &[ProbeInput::Gradient],
    cost: "a copy of at most 131,072 elements of gradient and second moment, and a sum of each",
    make: |setup| Some(Box::new(Elements::of(setup))),
};

const SCORE: Metric = metric(
    "spike_score/element/layer",
    "Spike score of elements by layer",
    "× mean",
    Direction::Lower,
    Repeatable::No,
    "largest |g| of an element over the mean of its |g| at all looks since the start, this one included (GSS of SPAM, Huang et al. 2025, arXiv 2501.06842)",
)
.label("spikes, elements")
.per_layer()
.estimator("spam_elem")
.band(f64::NEG_INFINITY, 50.0, Origin::Literature)
.meaning(
    "Below 10: of 131,072 normal numbers the largest is six times their mean size. It cannot exceed the number of looks, of which there are 20 at the first value.",
    "Above 50 SPAM calls it a spike: a single one is a rare input, many at once a bad batch, repeated ones pollute the optimizer's moments. Units inactive for long, as with ReLU, spike when they reactivate.",
);

const SHARE: Metric = metric(
    "spiking_elements",
    "Spiking elements",
    "share",
    Direction::Lower,
    Repeatable::Yes,
    "share of elements with g² > 5,000 v, v the optimizer's mean square before the step, without its bias towards 0, g as clipped: what SPAM's optimizer clips (arXiv 2501.06842 and its code)",
)
.label("spiking elements")
.health()
.estimator("spam_theta")
.band(f64::NEG_INFINITY, 1e-2, Origin::RuleOfThumb)
.meaning(
    "0: |g| would have to be 71 times the root of its mean square.",
    "With a loss spike: the batch is bad. Repeatedly above 1 % of the elements: moments are polluted; lower the learning rate, raise β2, or roll back.",
);

/// Probes before an element has enough history.
const ENOUGH: u64 = 20;

struct Elements {
    sample: Sample,
    gradient: Vec<f32>,
    square: Vec<f32>,
    /// Σ |g| of each over the looks.
    sums: Vec<f32>,
    looks: u64,
    scores: Vec<f64>,
    share: Option<f64>,
}

impl Elements {
    fn of(setup: &Setup<'_>) -> Elements {
        let sample = Sample::of(setup.params, setup.n_layer);
        Elements {
            sums: vec![0.0; sample.len()],
            sample,
            gradient: Vec::new(),
            square: Vec::new(),
            looks: 0,
            scores: Vec::new(),
            share: None,
        }
    }

    /// The largest score of each block's elements.
    fn score(&mut self) {
        self.looks += 1;
        for (sum, g) in self.sums.iter_mut().zip(&self.gradient) {
            *sum += g.abs();
        }
        let mut scores = vec![0.0_f64; self.sample.n_layer()];
        for (block, range, _) in self.sample.pieces() {
            let Some(score) = scores.get_mut(block) else {
                continue;
            };
            let pairs = self.gradient[range.clone()].iter().zip(&self.sums[range]);
            let ratios = pairs.filter(|(_, sum)| **sum > 0.0);
            let largest = ratios.fold(0.0_f32, |most, (g, sum)| most.max(g.abs() / sum));
            *score = score.max(f64::from(largest) * self.looks as f64);
        }
        if self.looks >= ENOUGH {
            self.scores = scores;
        }
    }

    /// How many of the blocks' elements are beyond θ; `correction` is what v is divided by, `scale` what clips g.
    fn share(&self, correction: f64, scale: f64) -> Option<f64> {
        let (mut spiking, mut all) = (0.0, 0.0);
        for (block, range, weight) in self.sample.pieces() {
            if block == self.sample.n_layer() {
                continue;
            }
            let pairs = self.gradient[range.clone()].iter().zip(&self.square[range]);
            // An element that had no gradient so far has no usual size.
            for (g, v) in pairs.filter(|(_, v)| **v > 0.0) {
                let spikes = spam_clip(f64::from(*g) * scale, f64::from(*v) / correction).is_some();
                spiking += weight * f64::from(u8::from(spikes));
                all += weight;
            }
        }
        (all > 0.0).then(|| spiking / all)
    }
}

impl Probe for Elements {
    fn gradient(&mut self, params: &Params, rule: &dyn UpdateRule, scale: f64) -> Result<()> {
        params.read_grads(|grads| self.sample.gather(grads, &mut self.gradient))?;
        self.score();
        let Some(mean) = rule.mean_square() else {
            return Ok(());
        };
        let (sample, square) = (&self.sample, &mut self.square);
        rule.read_state(mean.part, &mut |squares| sample.gather(squares, square))?;
        self.share = self.share(mean.correction, scale);
        Ok(())
    }

    fn report(&mut self, into: &mut Report) {
        if !self.scores.is_empty() {
            into.set_layers(SCORE.id, std::mem::take(&mut self.scores));
        }
        if let Some(share) = self.share.take() {
            into.set(SHARE.id, share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::info;
    use super::*;

    fn elements() -> Elements {
        let params = [info(Some(0), 0, 4), info(Some(1), 4, 4), info(None, 8, 4)];
        Elements::of(&Setup {
            n_layer: 2,
            params: &params,
            micro_batches: 1,
            batch_tokens: 1,
            max_steps: 1,
            reference: None,
            remote: false,
        })
    }

    #[test]
    fn an_element_is_held_against_its_own_mean_with_the_newest_in_it() {
        let mut seen = elements();
        let mut look = |first: f32, other: f32| {
            seen.gradient = vec![1.0; 12];
            (seen.gradient[0], seen.gradient[9]) = (first, other);
            seen.score();
            seen.scores.clone()
        };
        for _ in 1..ENOUGH {
            assert!(look(-0.5, 0.0).is_empty(), "too few looks");
        }
        // 0.5 nineteen times, then 10: 10 · 20 / 19.5. What belongs to no block counts nowhere.
        let scores = look(10.0, 1e6);
        assert!(
            (scores[0] / (200.0 / 19.5) - 1.0).abs() < 1e-6,
            "{scores:?}"
        );
        assert!((scores[1] - 1.0).abs() < 1e-6, "{scores:?}");
    }

    #[test]
    fn elements_beyond_seventy_times_their_root_are_counted_after_clipping() {
        let mut seen = elements();
        seen.gradient = vec![1.0, 0.1, 0.1, 0.1, 0.5, 0.8, 0.0, 0.0, 9.0, 9.0, 9.0, 9.0];
        seen.square = vec![1e-4; 12];
        seen.square[3] = 0.0;
        // θ v = 0.5: beyond it are 1.0 and 0.8 of seven with a past.
        assert_eq!(seen.share(1.0, 1.0), Some(2.0 / 7.0));
        assert_eq!(seen.share(1.0, 0.5), Some(0.0));
        // v of a young moving average is too small: a tenth of its final value.
        assert_eq!(seen.share(0.1, 1.0), Some(0.0));
    }
}
