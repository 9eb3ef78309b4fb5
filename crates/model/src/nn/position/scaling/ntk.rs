//! NTK-aware scaling: a larger base, theta · factor^(d / (d − 2)), so that the slowest pair rotates factor times slower and
//! the fastest one as before.

use super::Rotation;
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "ntk",
    title: "NTK-aware scaling",
    summary: "Raises the base, so far positions are stretched and near ones kept; works without training.",
    source: "bloc97 2023 (NTK-aware scaled RoPE); Peng et al. 2023, arXiv 2309.00071, section 3.1",
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

impl Config {
    /// The base instead of `theta`.
    pub fn base(&self, theta: f64, half: usize) -> f64 {
        let d = 2.0 * half as f64;
        // A single pair rotates at speed 1 with any base.
        if half < 2 {
            return theta;
        }
        theta * self.factor.powf(d / (d - 2.0))
    }
}

impl super::Scaling for Config {
    fn rotation(&self, theta: f64, half: usize, _seq_len: usize) -> Rotation {
        Rotation::plain(self.base(theta, half), half)
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
    fn bases_match_the_formula() {
        for (factor, base) in [(4.0, 40_889.94), (8.0, 82_684.62)] {
            let found = Config { factor }.base(10_000.0, 64);
            assert!((found - base).abs() < 0.01, "{found}");
        }
    }

    #[test]
    fn the_fastest_pair_is_unchanged_and_the_slowest_stretched_by_the_factor() {
        let scaled = Config { factor: 4.0 }.rotation(10_000.0, 64, 64);
        let plain = Rotation::plain(10_000.0, 64);
        assert_eq!(scaled.frequencies[0], plain.frequencies[0]);
        let stretched = plain.frequencies[63] / scaled.frequencies[63];
        assert!((stretched - 4.0).abs() < 1e-9, "{stretched}");
    }
}
