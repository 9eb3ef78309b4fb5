//! Rotary positions: queries and keys are rotated by angles that grow with the position, so that their product depends
//! on the distance alone. Halves are paired (feature j with j + head_dim/2), as Hugging Face does.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "rope",
    title: "Rotary positions (RoPE)",
    summary: "Rotates queries and keys by position, so attention sees distances; the Llama choice.",
    source: "Su et al. 2021, arXiv 2104.09864",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Base of the angles: feature pair j turns by position / theta^(2j / head_dim).
    #[schemars(range(min = 1.0))]
    pub theta: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config { theta: 10_000.0 }
    }
}

impl super::Position for Config {
    fn rotary_theta(&self) -> Option<f64> {
        Some(self.theta)
    }
    fn has_table(&self) -> bool {
        false
    }
}
