//! A gated block: down(silu(gate(x)) · up(x)).

use crate::base::registry::Entry;
use crate::kernels::activation::Activation;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "swiglu",
    title: "SwiGLU",
    summary: "A gated feed-forward block, better per parameter; the Llama choice.",
    source: "Shazeer 2020, arXiv 2002.05202",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl super::Mlp for Config {
    fn activation(&self) -> Activation {
        Activation::SwiGlu
    }
}
