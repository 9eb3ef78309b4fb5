//! Position interpolation: positions are divided by the factor.

use super::Rotation;
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "linear",
    title: "Position interpolation",
    summary: "Divides positions by the factor: simple, needs some training, blurs near positions.",
    source: "Chen et al. 2023, arXiv 2306.15595",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Factor by which the context is extended. With train.from: context / original context, unless it is set (auto).
    #[schemars(range(min = 1.0, max = 1000.0))]
    pub factor: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config { factor: 2.0 }
    }
}

impl super::Scaling for Config {
    fn rotation(&self, theta: f64, half: usize, _seq_len: usize) -> Rotation {
        let mut rotation = Rotation::plain(theta, half);
        for frequency in &mut rotation.frequencies {
            *frequency /= self.factor;
        }
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
    fn a_position_times_the_factor_rotates_as_the_original_did() {
        let scaled = Config { factor: 4.0 }.rotation(10_000.0, 8, 64);
        let plain = Rotation::plain(10_000.0, 8);
        for (a, b) in scaled.frequencies.iter().zip(&plain.frequencies) {
            assert_eq!(4.0 * a, *b);
        }
    }
}
