//! Two linear layers with a rectifier in between: max(x, 0).

use crate::base::registry::Entry;
use crate::kernels::activation::Activation;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "relu",
    title: "ReLU",
    summary: "Two linear layers with max(x, 0) in between; the original transformer.",
    source: "Nair and Hinton 2010; Vaswani et al. 2017, arXiv 1706.03762",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl super::Mlp for Config {
    fn activation(&self) -> Activation {
        Activation::Relu
    }
}
