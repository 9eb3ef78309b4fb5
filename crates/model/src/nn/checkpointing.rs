//! Activation checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174): blocks
//! drop their activations in the forward pass, and run forward again in the backward.

use serde::{Deserialize, Serialize};

/// Which activations wait for the backward pass, and which are computed again. The numbers are the same, bit for bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ActivationCheckpointing {
    /// All activations are kept: the fastest, and the most memory.
    None {},
    /// Only the input of each segment of n blocks is kept; a segment runs forward again before its backward, all but the
    /// last one, which is still there.
    EveryN {
        /// Blocks per segment.
        #[serde(default = "two")]
        #[schemars(range(min = 1, max = 1000))]
        n: usize,
    },
    /// Only the input of each block is kept: the least memory, for about a third more arithmetic.
    Full {},
}

fn two() -> usize {
    2
}

impl Default for ActivationCheckpointing {
    fn default() -> Self {
        ActivationCheckpointing::None {}
    }
}

impl ActivationCheckpointing {
    /// Blocks of one segment in a model of `n_layer` blocks.
    pub fn segment_len(self, n_layer: usize) -> usize {
        match self {
            ActivationCheckpointing::None {} => n_layer,
            ActivationCheckpointing::EveryN { n } => n.clamp(1, n_layer.max(1)),
            ActivationCheckpointing::Full {} => 1,
        }
    }

    /// Fraction of the forward pass's blocks that run a second time.
    pub fn recomputed_share(self, n_layer: usize) -> f64 {
        let segment = self.segment_len(n_layer).max(1);
        let last = match n_layer % segment {
            0 => segment,
            rest => rest,
        };
        (n_layer - last.min(n_layer)) as f64 / n_layer.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_fit_the_model_and_the_last_one_is_not_repeated() {
        let none = ActivationCheckpointing::default();
        let every = |n| ActivationCheckpointing::EveryN { n };
        let full = ActivationCheckpointing::Full {};
        let lens = [none, every(2), every(99), full].map(|c| c.segment_len(5));
        assert_eq!(lens, [5, 2, 5, 1]);
        let shares = [none, every(2), every(99), full].map(|c| c.recomputed_share(5));
        assert_eq!(shares, [0.0, 0.8, 0.0, 0.8]);
        assert_eq!(every(2).recomputed_share(4), 0.5);
    }

    #[test]
    fn a_spec_writes_it_as_a_name_with_settings() {
        let read = |text: &str| serde_json::from_str::<ActivationCheckpointing>(text);
        assert_eq!(
            read(r#"{"full": {}}"#).unwrap(),
            ActivationCheckpointing::Full {}
        );
        assert_eq!(
            read(r#"{"every_n": {}}"#).unwrap(),
            ActivationCheckpointing::EveryN { n: 2 }
        );
        assert!(read(r#"{"every_n": {"k": 2}}"#).is_err());
    }
}
