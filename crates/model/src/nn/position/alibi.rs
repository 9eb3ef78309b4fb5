//! Attention with linear biases (ALiBi): a score is reduced by slope · distance, with one slope per head.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "alibi",
    title: "ALiBi",
    summary: "Attention scores fall linearly with distance, with a slope per head; extrapolates to longer texts.",
    source: "Press et al. 2021, arXiv 2108.12409",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl super::Position for Config {
    fn slopes(&self, n_head: usize) -> Option<Vec<f32>> {
        Some(slopes(n_head).into_iter().map(|x| x as f32).collect())
    }
}

/// 2^(−8h/n) for heads h = 1..=n if n is a power of two. Otherwise those of the largest power p below, and then every other one
/// of
/// 2p heads.
pub fn slopes(n_head: usize) -> Vec<f64> {
    let power = match n_head {
        0 => return Vec::new(),
        n if n.is_power_of_two() => n,
        n => n.next_power_of_two() / 2,
    };
    let geometric = |heads: usize, h: usize| (-8.0 * h as f64 / heads as f64).exp2();
    let own = (1..=power).map(|h| geometric(power, h));
    let between = (0..n_head - power).map(|k| geometric(2 * power, 2 * k + 1));
    own.chain(between).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::FRAC_1_SQRT_2 as SQRT_HALF;

    fn close(n_head: usize, from: usize, expected: &[f64]) {
        let all = slopes(n_head);
        assert_eq!(all.len(), n_head);
        for (slope, expected) in all[from..].iter().zip(expected) {
            assert!((slope - expected).abs() < 1e-6, "{n_head}: {all:?}");
        }
    }

    #[test]
    fn slopes_match_the_paper() {
        close(8, 0, &[0.5, 0.25, 0.125]);
        close(8, 7, &[1.0 / 256.0]);
        close(12, 0, &[0.5]);
        close(
            12,
            7,
            &[
                0.003_906,
                SQRT_HALF,
                SQRT_HALF / 2.0,
                SQRT_HALF / 4.0,
                SQRT_HALF / 8.0,
            ],
        );
        close(14, 12, &[SQRT_HALF / 16.0, SQRT_HALF / 32.0]);
        close(1, 0, &[1.0 / 256.0]);
    }
}
