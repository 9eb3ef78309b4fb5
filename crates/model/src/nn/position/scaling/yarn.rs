//! YaRN: pairs that turn often within the old context are kept, those that turn less than once are interpolated, a ramp lies
//! between; and scores are sharpened a little.

use super::Rotation;
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "yarn",
    title: "YaRN",
    summary: "Stretches slow pairs only and sharpens attention: the usual choice beyond 4096 tokens.",
    source: "Peng et al. 2023, arXiv 2309.00071",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How many times longer texts become.
    #[schemars(range(min = 1.0, max = 1000.0))]
    pub factor: f64,
    /// The context that the model was trained with. Default: seq_len / factor.
    #[schemars(range(min = 1, max = 1048576))]
    pub original_len: Option<usize>,
    /// Pairs that turn more often than this within the old context are kept.
    #[schemars(range(min = 0.001, max = 10000.0))]
    pub beta_fast: f64,
    /// Pairs that turn less often than this are interpolated.
    #[schemars(range(min = 0.001, max = 10000.0))]
    pub beta_slow: f64,
    /// What cosines and sines are multiplied by. Default: 0.1 ln(factor) + 1.
    #[schemars(range(min = 0.001, max = 1000.0))]
    pub attention_factor: Option<f64>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            factor: 4.0,
            original_len: None,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: None,
        }
    }
}

impl Config {
    /// First and last pair of the ramp.
    fn ramp(&self, theta: f64, half: usize, seq_len: usize) -> (f64, f64) {
        let original = self
            .original_len
            .map_or(seq_len as f64 / self.factor, |len| len as f64);
        let d = 2.0 * half as f64;
        // The pair that turns `rotations` times within the old context.
        let pair = |rotations: f64| {
            d * (original / (rotations * std::f64::consts::TAU)).ln() / (2.0 * theta.ln())
        };
        let low = pair(self.beta_fast).floor().max(0.0);
        let high = pair(self.beta_slow).ceil().min(d - 1.0);
        // A ramp of no width is a step.
        (low, if high == low { high + 0.001 } else { high })
    }
}

impl super::Scaling for Config {
    fn rotation(&self, theta: f64, half: usize, seq_len: usize) -> Rotation {
        let (low, high) = self.ramp(theta, half, seq_len);
        let mut rotation = Rotation::plain(theta, half);
        for (j, frequency) in rotation.frequencies.iter_mut().enumerate() {
            let stretched = ((j as f64 - low) / (high - low)).clamp(0.0, 1.0);
            *frequency = *frequency / self.factor * stretched + *frequency * (1.0 - stretched);
        }
        rotation.factor = self
            .attention_factor
            .unwrap_or(0.1 * self.factor.ln() + 1.0);
        rotation
    }

    fn factor(&self) -> f64 {
        self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scaling;
    use super::*;

    #[test]
    fn ramp_factor_and_frequencies_are_the_known_ones() {
        let config = Config {
            original_len: Some(4096),
            ..Default::default()
        };
        assert_eq!(config.ramp(10_000.0, 64, 16_384), (20.0, 46.0));
        let rotation = config.rotation(10_000.0, 64, 16_384);
        assert!((rotation.factor - 1.138_629).abs() < 1e-6);
        let expected = [
            (0, 1.0),
            (20, 0.056_234_1),
            (30, 0.009_488_52),
            (45, 0.000_429_403),
            (63, 2.886_95e-5),
        ];
        for (pair, expected) in expected {
            let found = rotation.frequencies[pair];
            assert!((found / expected - 1.0).abs() < 1e-5, "{pair}: {found}");
        }
        // seq_len / factor where nobody says the old context.
        let silent = Config::default().rotation(10_000.0, 64, 16_384);
        assert_eq!(silent, rotation);
    }

    #[test]
    fn the_attention_factor_may_be_said() {
        let config = Config {
            attention_factor: Some(1.5),
            ..Default::default()
        };
        assert_eq!(config.rotation(10_000.0, 8, 64).factor, 1.5);
    }
}
