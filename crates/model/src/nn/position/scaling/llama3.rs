//! Llama 3's scaling: pairs with a wavelength longer than the original context are stretched, short ones are kept, in between
//! the two are blended.

use super::Rotation;
use crate::base::registry::Entry;
use crate::nn::Fault;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "llama3",
    title: "Llama 3 scaling",
    summary: "Stretches long wavelengths by the factor and keeps short ones, as Llama 3.1 does for 131072 tokens.",
    source: "Grattafiori et al. 2024, arXiv 2407.21783; the released code",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Factor by which the context is extended. With train.from: context / original context, unless it is set (auto).
    #[schemars(range(min = 1.0, max = 1000.0))]
    pub factor: f64,
    /// Waves longer than original_len / low_freq_factor are stretched.
    #[schemars(range(min = 0.001, max = 10000.0))]
    pub low_freq_factor: f64,
    /// Waves shorter than original_len / high_freq_factor are kept; must be above low_freq_factor.
    #[schemars(range(min = 0.001, max = 10000.0))]
    pub high_freq_factor: f64,
    /// The context that the model was trained with. With train.from: its context, unless it is set.
    #[schemars(range(min = 1, max = 1048576))]
    pub original_len: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_len: 8192,
        }
    }
}

impl super::Scaling for Config {
    fn rotation(&self, theta: f64, half: usize, _seq_len: usize) -> Rotation {
        let mut rotation = Rotation::plain(theta, half);
        for frequency in &mut rotation.frequencies {
            let waves = self.original_len as f64 * *frequency / std::f64::consts::TAU;
            let (low, high) = (self.low_freq_factor, self.high_freq_factor);
            let kept = ((waves - low) / (high - low)).clamp(0.0, 1.0);
            *frequency = *frequency / self.factor * (1.0 - kept) + *frequency * kept;
        }
        rotation
    }

    fn factor(&self) -> f64 {
        self.factor
    }

    fn original_context(&self, _context: usize) -> usize {
        self.original_len
    }

    fn faults(&self, _theta: f64, _half: usize) -> Vec<Fault> {
        let fault = Fault::unless(
            self.low_freq_factor < self.high_freq_factor,
            &[
                "position.rope.scaling.llama3.low_freq_factor",
                "position.rope.scaling.llama3.high_freq_factor",
            ],
            format!(
                "low_freq_factor {} is not below high_freq_factor {}",
                self.low_freq_factor, self.high_freq_factor
            ),
            "Llama 3.1 has 1 and 4",
        );
        fault.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scaling;
    use super::*;

    #[test]
    fn long_waves_are_stretched_and_short_ones_kept() {
        let config = Config::default();
        let (plain, scaled) = (
            Rotation::plain(500_000.0, 64),
            config.rotation(500_000.0, 64, 131_072),
        );
        for (old, new) in plain.frequencies.iter().zip(&scaled.frequencies) {
            let wave = std::f64::consts::TAU / old;
            if wave < 8192.0 / 4.0 {
                assert_eq!(old, new);
            } else if wave > 8192.0 {
                assert!((old / new - 8.0).abs() < 1e-12);
            } else {
                assert!(new < old && *new > old / 8.0);
            }
        }
        assert!(plain.frequencies[63] / scaled.frequencies[63] > 7.99);
    }
}
