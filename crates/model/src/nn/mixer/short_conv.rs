//! A gated short convolution: out(c ∘ conv(b ∘ x)), with b, c and x from one projection of the input. The convolution is
//! causal and depthwise: each channel is a weighted sum of its last few values.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "short_conv",
    title: "Gated short convolution",
    summary: "Two gates around a causal convolution over a few tokens; the LFM2 choice.",
    source: "Liquid AI 2025, LFM2 technical report, arXiv 2511.23404",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Tokens that the convolution reads, the current one included.
    #[schemars(range(min = 1, max = 64))]
    pub conv_len: usize,
    /// Bias vectors in the convolution and in the two projections.
    pub bias: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            conv_len: 3,
            bias: false,
        }
    }
}

impl super::Mixer for Config {
    fn conv_channels(&self, d_model: usize) -> usize {
        d_model
    }

    fn conv_len(&self) -> usize {
        self.conv_len
    }
}
