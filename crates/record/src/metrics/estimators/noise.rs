//! Signal and noise of a gradient, from the gradients of the micro-batches that it is the mean of (McCandlish et al. 2018, arXiv
//! 1812.06162), and how much their directions agree (Li et al. 2026, arXiv 2602.14462).

/// Sums of squares of K micro-batches' gradients and of their sum, all divided by the step's normalizer: the sum is the gradient.
/// A micro-batch's share of the normalizer is its weight w_i.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SquaredNorms {
    /// Micro-batches, K.
    pub k: usize,
    /// Σ ‖g_i‖².
    pub parts: f64,
    /// ‖Σ g_i‖².
    pub sum: f64,
    /// Σ w_i²: 1/K if all have equal weight.
    pub weights: f64,
}

/// Unbiased estimates from one step. Their ratio is biased: average both over steps first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// ‖G‖², of the true gradient.
    pub signal: f64,
    /// tr Σ, of the gradient of one micro-batch.
    pub noise: f64,
}

impl SquaredNorms {
    /// `gns_simple` in units of micro-batches of the mean size; `None` for fewer than two. With S/n_i the noise of a micro-batch
    /// of n_i tokens, the mean of `parts` is ‖G‖² Σ w_i² + S/N and that of `sum` ‖G‖² + S/N.
    pub fn estimate(self) -> Option<Estimate> {
        (self.k > 1 && self.weights < 1.0).then(|| {
            let signal = (self.sum - self.parts) / (1.0 - self.weights);
            let noise = self.k as f64 * (self.parts - signal * self.weights);
            Estimate { signal, noise }
        })
    }

    /// Of K gradients of equal weight.
    pub fn of_equals(k: usize, parts: f64, sum: f64) -> SquaredNorms {
        SquaredNorms {
            k,
            parts,
            sum,
            weights: 1.0 / k as f64,
        }
    }

    /// Mean cosine between K gradients, weighted by their norms, from −1/(K − 1) to 1: 1 if all are equal, 0 if orthogonal.
    /// `None` where their weights differ: shares of unequal size say nothing of the mean gradients' directions.
    pub fn consistency(self) -> Option<f64> {
        /// Sums of shares that are equal but for rounding.
        const ROUNDING: f64 = 1e-9;
        let Estimate { signal, noise } = self.estimate()?;
        let equal = self.weights * self.k as f64 - 1.0 < ROUNDING;
        (equal && self.parts > 0.0).then(|| signal / (signal + noise))
    }
}

impl Estimate {
    /// Gradient signal-to-noise ratio of one micro-batch; `None` without noise, 0 without signal.
    pub fn gsnr(self) -> Option<f64> {
        (self.noise > 0.0).then(|| self.signal.max(0.0) / self.noise)
    }

    /// The consistency of independent micro-batches, at most 1. Noise that comes out below zero, as it may where their sizes
    /// differ, is none; `None` where the two leave nothing.
    pub fn expected_consistency(self) -> Option<f64> {
        let all = self.signal + self.noise.max(0.0);
        (all > 0.0).then(|| (self.signal / all).max(-1.0))
    }

    /// B_noise, the batch at which signal and noise are equal, in micro-batches; `None` without a measurable signal.
    pub fn critical_batch(self) -> Option<f64> {
        (self.signal > 0.0).then(|| self.noise.max(0.0) / self.signal)
    }
}

#[cfg(test)]
mod tests {
    use super::super::close;
    use super::*;

    /// From gradients normalized as in a step: each over K.
    fn squares(gradients: &[&[f64]]) -> SquaredNorms {
        let k = gradients.len() as f64;
        let square = |g: &[f64]| g.iter().map(|x| (x / k).powi(2)).sum::<f64>();
        let sum: Vec<f64> = (0..gradients[0].len())
            .map(|i| gradients.iter().map(|g| g[i]).sum())
            .collect();
        SquaredNorms {
            k: gradients.len(),
            parts: gradients.iter().map(|g| square(g)).sum(),
            sum: square(&sum),
            weights: 1.0 / k,
        }
    }

    #[test]
    fn two_gradients_by_hand() {
        let seen = squares(&[&[3.0, 1.0], &[3.0, -1.0]]);
        let estimate = seen.estimate().unwrap();
        close(estimate.signal, 8.0, 1e-12);
        close(estimate.noise, 2.0, 1e-12);
        close(estimate.critical_batch().unwrap(), 0.25, 1e-12);
        close(seen.consistency().unwrap(), 0.8, 1e-12);
        let orthogonal = squares(&[&[1.0, 0.0], &[0.0, 1.0]]);
        close(orthogonal.estimate().unwrap().signal, 0.0, 1e-12);
        close(orthogonal.estimate().unwrap().noise, 1.0, 1e-12);
        close(orthogonal.consistency().unwrap(), 0.0, 1e-12);
        assert_eq!(orthogonal.estimate().unwrap().gsnr(), Some(0.0));
        let opposed = squares(&[&[1.0, 0.0], &[-1.0, 0.0]]);
        close(opposed.consistency().unwrap(), -1.0, 1e-12);
        let alike = squares(&[&[1.0, 2.0], &[1.0, 2.0], &[1.0, 2.0]]);
        close(alike.consistency().unwrap(), 1.0, 1e-12);
        close(alike.estimate().unwrap().noise, 0.0, 1e-12);
        assert_eq!(squares(&[&[1.0]]).estimate(), None);
        let unequal = SquaredNorms {
            weights: 0.9,
            ..seen
        };
        assert_eq!(unequal.consistency(), None);
        let of = |signal, noise| Estimate { signal, noise }.expected_consistency();
        assert_eq!(of(1.0, 3.0), Some(0.25));
        assert_eq!(of(1.0, -0.5), Some(1.0));
        assert_eq!(of(-1.0, 4.0), Some(-1.0 / 3.0));
        assert_eq!(of(-1.0, 1.1), Some(-1.0));
        assert_eq!(of(-1.0, -1.0), None);
    }

    #[test]
    fn signal_and_noise_are_unbiased_over_many_steps() {
        let mut rng = crate::base::rng::Rng::new(7, crate::base::rng::Stream::Init, 0, 0);
        let (k, d, steps) = (64, 100, 200);
        let (mut signal, mut noise) = (0.0, 0.0);
        for _ in 0..steps {
            let gradients: Vec<Vec<f64>> = (0..k)
                .map(|_| {
                    let mut g: Vec<f64> = (0..d).map(|_| 2.0 * f64::from(rng.normal())).collect();
                    g[0] += 1.0;
                    g
                })
                .collect();
            let all: Vec<&[f64]> = gradients.iter().map(Vec::as_slice).collect();
            let estimate = squares(&all).estimate().unwrap();
            signal += estimate.signal / f64::from(steps);
            noise += estimate.noise / f64::from(steps);
        }
        close(signal, 1.0, 0.3);
        close(noise, 400.0, 10.0);
    }

    /// Answers differ in length, and so do micro-batches' weights: ignoring that made the noise scale many times too high.
    #[test]
    fn micro_batches_of_different_sizes_are_unbiased_too() {
        let mut rng = crate::base::rng::Rng::new(7, crate::base::rng::Stream::Init, 1, 0);
        let (d, steps) = (100, 4000);
        let sizes: [f64; 4] = [1.0, 2.0, 3.0, 14.0];
        let total: f64 = sizes.iter().sum();
        let (mut signal, mut noise) = (0.0, 0.0);
        for _ in 0..steps {
            let mut sum = vec![0.0; d];
            let (mut parts, mut weights) = (0.0, 0.0);
            for n in sizes {
                let w = n / total;
                let mut square = 0.0;
                for (i, sum) in sum.iter_mut().enumerate() {
                    let mean = if i == 0 { 1.0 } else { 0.0 };
                    let g = w * (mean + 0.5 * f64::from(rng.normal()) / n.sqrt());
                    square += g * g;
                    *sum += g;
                }
                parts += square;
                weights += w * w;
            }
            let seen = SquaredNorms {
                k: sizes.len(),
                parts,
                sum: sum.iter().map(|g| g * g).sum(),
                weights,
            };
            let found = seen.estimate().unwrap();
            signal += found.signal / f64::from(steps);
            noise += found.noise / f64::from(steps);
        }
        close(signal, 1.0, 0.1);
        // 100 elements of variance 0.25 per token, five tokens on average.
        close(noise, 5.0, 0.3);
    }
}
