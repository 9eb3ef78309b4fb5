//! Layer normalization: subtract the mean, divide by the standard deviation, scale (and shift).

use crate::base::registry::Entry;
use crate::kernels::norm::NormKind;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "layernorm",
    title: "LayerNorm",
    summary: "Centres and scales each token's features; the GPT-2 choice.",
    source: "Ba et al. 2016, arXiv 1607.06450",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Added to the variance before the square root.
    #[schemars(range(min = 1e-12, max = 0.1))]
    pub eps: f64,
    /// A bias vector beside the gain. Default: as the linear layers (`model.bias`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bias: Option<bool>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            eps: 1e-5,
            bias: None,
        }
    }
}

impl super::Norm for Config {
    fn kind(&self) -> NormKind {
        NormKind::Layer
    }
    fn eps(&self) -> f64 {
        self.eps
    }
    fn bias(&self) -> Option<bool> {
        self.bias
    }
}
