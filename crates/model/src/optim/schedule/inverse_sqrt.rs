//! Warm-up, then the inverse square root of the step: independent of the length of the run.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "inverse_sqrt",
    title: "Inverse square root",
    summary: "Warm-up, then decay with 1/√step, independent of the run's length.",
    source: "Vaswani et al. 2017, arXiv 1706.03762",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Steps over which the learning rate rises linearly to its peak.
    pub warmup_steps: u64,
    /// Steps after the warm-up until the rate has fallen by √2. Default: the warm-up, or 10000 without
    /// one.
    #[schemars(range(min = 1))]
    pub timescale: Option<u64>,
    /// Minimum learning rate. Default: 0.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub min_lr: Option<f64>,
}

/// transformers' default without a warm-up.
const TIMESCALE: u64 = 10_000;

impl super::Schedule for Config {
    super::warm_up!();

    fn min_lr(&self) -> Option<f64> {
        self.min_lr
    }

    fn lr_at(&self, step: u64, _max_steps: u64, lr: f64) -> f64 {
        if let Some(factor) = super::warmup_factor(step, self.warmup_steps) {
            return lr * factor;
        }
        let of_warmup = if self.warmup_steps > 0 {
            self.warmup_steps
        } else {
            TIMESCALE
        };
        let timescale = self.timescale.unwrap_or(of_warmup) as f64;
        let since = (step - self.warmup_steps) as f64;
        (lr / (1.0 + since / timescale).sqrt()).max(self.min_lr.unwrap_or(0.0))
    }
}
