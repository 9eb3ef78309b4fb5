//! Two linear layers with a leaky rectifier in between: x, or slope · x below 0.

use crate::base::registry::Entry;
use crate::kernels::activation::Activation;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "leaky_relu",
    title: "Leaky ReLU",
    summary: "Two linear layers with max(x, slope · x) in between: no dead units.",
    source: "Maas et al. 2013, Rectifier nonlinearities improve neural network acoustic models",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Slope for values below 0.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub slope: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config { slope: 0.01 }
    }
}

impl super::Mlp for Config {
    fn activation(&self) -> Activation {
        Activation::LeakyRelu(self.slope as f32)
    }
}
