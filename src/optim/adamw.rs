//! AdamW: Adam with decoupled weight decay.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "adamw",
    title: "AdamW",
    summary: "Adam with decoupled weight decay: the robust default.",
    source: "Loshchilov and Hutter 2019, arXiv 1711.05101",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Peak learning rate.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub lr: f64,
    /// Decay of the gradient's running mean.
    #[schemars(range(min = 0.0, max = 0.999999))]
    pub beta1: f64,
    /// Decay of the squared gradient's running mean.
    #[schemars(range(min = 0.0, max = 0.999999))]
    pub beta2: f64,
    /// Added to the denominator.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub eps: f64,
    /// Decoupled weight decay, applied to matrices and embeddings; never to norms and biases.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub weight_decay: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            lr: 3e-4,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.1,
        }
    }
}

impl super::Optimizer for Config {
    fn lr(&self) -> f64 {
        self.lr
    }
}
