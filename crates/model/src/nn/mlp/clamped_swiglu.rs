//! A gated block within limits: down(g · sigmoid(slope · g) · (u + 1)), with g = min(gate(x), limit) and u = up(x) within ±limit.

use crate::base::registry::Entry;
use crate::kernels::activation::Activation;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "clamped_swiglu",
    title: "Clamped SwiGLU",
    summary: "SwiGLU whose inputs stay within limits and whose up projection is about 1; the gpt-oss choice.",
    source: "OpenAI 2025, gpt-oss-120b & gpt-oss-20b model card, arXiv 2508.10925",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Largest gate, and largest absolute value of the up projection.
    #[schemars(range(min = 0.01, max = 1000000.0))]
    pub limit: f64,
    /// Factor inside the sigmoid.
    #[schemars(range(min = 0.01, max = 100.0))]
    pub slope: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            limit: 7.0,
            slope: 1.702,
        }
    }
}

impl super::Mlp for Config {
    fn activation(&self) -> Activation {
        Activation::ClampedSwiGlu {
            limit: self.limit as f32,
            slope: self.slope as f32,
        }
    }
}
