//! Two linear layers with a Gaussian error linear unit in between.

use crate::base::registry::Entry;
use crate::kernels::activation::Activation;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "gelu",
    title: "GELU",
    summary: "Two linear layers with GELU in between; the GPT-2 choice.",
    source: "Hendrycks and Gimpel 2016, arXiv 1606.08415",
};

/// Which form of GELU.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Approximate {
    /// 0.5 x (1 + erf(x/√2)), as nanoGPT.
    #[default]
    None,
    /// 0.5 x (1 + tanh(√(2/π)(x + 0.044715 x³))), as GPT-2.
    Tanh,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `none` is exact, `tanh` is GPT-2's approximation.
    pub approximate: Approximate,
}

impl super::Mlp for Config {
    fn activation(&self) -> Activation {
        match self.approximate {
            Approximate::None => Activation::Gelu,
            Approximate::Tanh => Activation::GeluTanh,
        }
    }
}
