//! Fixed waves added to the token embedding: feature 2i of position p is sin(p / 10000^(2i / d_model)), feature 2i + 1 its
//! cosine.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "sinusoidal",
    title: "Sinusoidal positions",
    summary: "Fixed sines and cosines added to the embeddings: not learned, no maximum length; the original transformer.",
    source: "Vaswani et al. 2017, arXiv 1706.03762",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

/// The vector of a position, `d` features.
pub fn wave(position: usize, d: usize) -> impl Iterator<Item = f64> {
    (0..d).map(move |i| {
        let frequency = 10_000_f64.powf(-((i - i % 2) as f64) / d as f64);
        let angle = position as f64 * frequency;
        if i % 2 == 0 { angle.sin() } else { angle.cos() }
    })
}

impl super::Position for Config {
    fn adds_position_vectors(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_are_sines_and_cosines_side_by_side() {
        let first: Vec<f64> = wave(0, 4).collect();
        assert_eq!(first, [0.0, 1.0, 0.0, 1.0]);
        let third: Vec<f64> = wave(3, 4).collect();
        let expected = [3_f64.sin(), 3_f64.cos(), 0.03_f64.sin(), 0.03_f64.cos()];
        for (x, expected) in third.iter().zip(expected) {
            assert!((x - expected).abs() < 1e-12);
        }
    }
}
