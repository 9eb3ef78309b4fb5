//! Rotary positions: queries and keys are rotated by angles proportional to the position, so that their dot product depends
//! only on the distance. Halves are paired (feature j with j + width/2), as in Hugging Face's models. Some blocks may be left
//! without (Yang et al. 2025, RNoPE, arXiv 2501.18795).

use super::scaling::ScalingConfig;
use crate::base::registry::Entry;
pub use crate::kernels::rotary::Rotation;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "rope",
    title: "Rotary positions (RoPE)",
    summary: "Rotates queries and keys by position, so attention depends on distance; the Llama choice.",
    source: "Su et al. 2021, arXiv 2104.09864",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Base of the angles: feature pair j turns by position / theta^(2j / head_dim).
    #[schemars(range(min = 1.0))]
    pub theta: f64,
    /// Share of each head's features that are rotated, the first ones (Phi-3, GPT-NeoX).
    #[schemars(range(min = 0.01, max = 1.0))]
    pub fraction: f64,
    /// RoPE scaling, for contexts longer than a model was trained on. Default: none, or with train.from the start model's.
    pub scaling: Option<ScalingConfig>,
    /// theta in blocks with a sliding window, which are not scaled (Gemma 3: 10000). Default: theta in all blocks.
    #[schemars(range(min = 1.0))]
    pub local_theta: Option<f64>,
    /// Every n-th block rotates nothing: it has no position encoding (NoPE; SmolLM3: 4). Default: all blocks rotate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub nope_every: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            theta: 10_000.0,
            fraction: 1.0,
            scaling: None,
            local_theta: None,
            nope_every: None,
        }
    }
}

impl super::Position for Config {
    fn rope(&self) -> Option<&Config> {
        Some(self)
    }
}

impl Config {
    /// Features of a head that are rotated.
    pub fn width(&self, head_dim: usize) -> usize {
        (head_dim as f64 * self.fraction) as usize
    }

    /// Whether queries and keys of block `layer`, counted from 0, are rotated.
    pub fn rotates(&self, layer: usize) -> bool {
        let is_nope = |n: usize| (layer + 1).is_multiple_of(n.max(1));
        !self.nope_every.is_some_and(is_nope)
    }

    /// Rotated pairs of a head by what they are rotated by in models of pictures, time, height and width, which take turns. For a text
    /// the three are one position.
    pub fn sections(&self, head_dim: usize) -> [usize; 3] {
        let half = self.width(head_dim) / 2;
        [2, 1, 0].map(|more| (half + more) / 3)
    }

    /// The same rotations in the form of other programs: NTK-aware scaling becomes another base, and YaRN's defaults are
    /// written out. `seq_len` is the longest text.
    #[must_use]
    pub fn in_files(&self, head_dim: usize, seq_len: usize) -> Config {
        let half = self.width(head_dim) / 2;
        let mut rope = self.clone();
        match &self.scaling {
            Some(ScalingConfig::Ntk(ntk)) => {
                rope.theta = ntk.base(self.theta, half);
                rope.scaling = None;
            }
            Some(ScalingConfig::Yarn(yarn)) => {
                let yarn = yarn.in_files(self.theta, half, seq_len);
                rope.scaling = Some(ScalingConfig::Yarn(yarn));
            }
            _ => {}
        }
        rope
    }

    /// The rotation in blocks without a window; `seq_len` is the longest text.
    pub fn rotation(&self, head_dim: usize, seq_len: usize) -> Rotation {
        let half = self.width(head_dim) / 2;
        match &self.scaling {
            Some(scaling) => scaling.rotation(self.theta, half, seq_len),
            None => Rotation::plain(self.theta, half),
        }
    }

    /// The rotation in blocks with a window, if it differs.
    pub fn local_rotation(&self, head_dim: usize) -> Option<Rotation> {
        let half = self.width(head_dim) / 2;
        self.local_theta.map(|theta| Rotation::plain(theta, half))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_height_and_width_take_turns_among_the_rotated_pairs() {
        let sections = |fraction, head_dim| {
            let config = Config {
                fraction,
                ..Config::default()
            };
            config.sections(head_dim)
        };
        assert_eq!(sections(0.25, 256), [11, 11, 10], "Qwen 3.5");
        assert_eq!(sections(0.25, 16), [1, 1, 0]);
        assert_eq!(sections(0.5, 16), [2, 1, 1]);
        assert_eq!(sections(1.0, 6), [1, 1, 1]);
    }

    #[test]
    fn every_nth_block_does_not_rotate_and_specs_without_such_blocks_are_as_before() {
        let rotating = |nope_every| {
            let config = Config {
                nope_every,
                ..Config::default()
            };
            (0..9)
                .map(|layer| config.rotates(layer))
                .collect::<Vec<_>>()
        };
        assert_eq!(rotating(None), [true; 9]);
        let (y, n) = (true, false);
        assert_eq!(rotating(Some(4)), [y, y, y, n, y, y, y, n, y]);
        assert_eq!(rotating(Some(1)), [n; 9]);
        let text = serde_json::to_string(&Config::default()).unwrap();
        assert!(!text.contains("nope"), "{text}");
    }
}
