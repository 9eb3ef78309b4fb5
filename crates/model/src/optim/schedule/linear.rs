//! Warm-up, then a straight line from the peak down to `min_lr`.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "linear",
    title: "Linear",
    summary: "Warm-up, then linear decay to min_lr.",
    source: "Goyal et al. 2017, arXiv 1706.02677 (warm-up)",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Steps over which the learning rate rises linearly to its peak.
    pub warmup_steps: u64,
    /// Learning rate at the end. Default: a tenth of the peak.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub min_lr: Option<f64>,
}

impl super::Schedule for Config {
    super::warm_up!();

    fn min_lr(&self) -> Option<f64> {
        self.min_lr
    }

    fn lr_at(&self, step: u64, max_steps: u64, lr: f64) -> f64 {
        let at = (step, self.warmup_steps, max_steps);
        super::decay(at, lr, self.min_lr, |lr, min_lr, progress| {
            lr + (min_lr - lr) * progress
        })
    }
}
