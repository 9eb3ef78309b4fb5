//! Warm-up, then the peak learning rate to the end.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "constant",
    title: "Constant",
    summary: "Warm-up, then the peak learning rate to the end.",
    source: "Goyal et al. 2017, arXiv 1706.02677 (warm-up)",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Steps over which the learning rate rises linearly to its peak.
    pub warmup_steps: u64,
}

impl super::Schedule for Config {
    super::warm_up!();

    fn lr_at(&self, step: u64, _max_steps: u64, lr: f64) -> f64 {
        lr * super::warmup_factor(step, self.warmup_steps).unwrap_or(1.0)
    }
}
