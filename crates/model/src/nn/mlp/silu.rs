//! Two linear layers with a sigmoid linear unit in between: x · sigmoid(x).

use crate::base::registry::Entry;
use crate::kernels::activation::Activation;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "silu",
    title: "SiLU",
    summary: "Two linear layers with x · sigmoid(x) in between, without a gate.",
    source: "Elfwing et al. 2017, arXiv 1702.03118; Ramachandran et al. 2017 (Swish), arXiv 1710.05941",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl super::Mlp for Config {
    fn activation(&self) -> Activation {
        Activation::Silu
    }
}
