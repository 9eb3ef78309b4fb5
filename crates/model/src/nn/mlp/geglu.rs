//! A gated block: down(gelu(gate(x)) · up(x)).

use super::Approximate;
use crate::base::registry::Entry;
use crate::kernels::activation::Activation;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "geglu",
    title: "GEGLU",
    summary: "A gated feed-forward block with GELU on the gate; the Gemma choice.",
    source: "Shazeer 2020, arXiv 2002.05202",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `none` is exact, `tanh` is the approximation that Gemma uses.
    pub approximate: Approximate,
}

impl super::Mlp for Config {
    fn activation(&self) -> Activation {
        match self.approximate {
            Approximate::None => Activation::GeGlu,
            Approximate::Tanh => Activation::GeGluTanh,
        }
    }
}
