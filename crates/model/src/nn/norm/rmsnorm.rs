//! Root-mean-square normalization: divide by the root mean square, scale; no centring, no shift.

use crate::base::registry::Entry;
use crate::kernels::norm::NormKind;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "rmsnorm",
    title: "RMSNorm",
    summary: "Scales each token's features without centring: cheaper, the Llama choice.",
    source: "Zhang and Sennrich 2019, arXiv 1910.07467",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Added to the mean square before the square root.
    #[schemars(range(min = 1e-12, max = 0.1))]
    pub eps: f64,
    /// Gains are stored as offsets from 1: features are multiplied by 1 + w (Gemma).
    pub unit_offset: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            eps: 1e-5,
            unit_offset: false,
        }
    }
}

impl super::Norm for Config {
    fn kind(&self) -> NormKind {
        NormKind::Rms
    }
    fn eps(&self) -> f64 {
        self.eps
    }
    fn gain_offset(&self) -> f64 {
        f64::from(u8::from(self.unit_offset))
    }
}
