//! Warm-up, then a power of the remaining fraction of the run, from the peak down to `min_lr`.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "polynomial",
    title: "Polynomial",
    summary: "Warm-up, then polynomial decay to min_lr.",
    source: "Chen et al. 2016, arXiv 1606.00915",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Steps over which the learning rate rises linearly to its peak.
    pub warmup_steps: u64,
    /// Learning rate at the end. Default: a tenth of the peak.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub min_lr: Option<f64>,
    /// Exponent of the decay; 1 is linear.
    #[schemars(range(min = 0.1, max = 10.0))]
    pub power: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            warmup_steps: 0,
            min_lr: None,
            power: 2.0,
        }
    }
}

impl super::Schedule for Config {
    super::warm_up!();

    fn min_lr(&self) -> Option<f64> {
        self.min_lr
    }

    fn lr_at(&self, step: u64, max_steps: u64, lr: f64) -> f64 {
        let at = (step, self.warmup_steps, max_steps);
        super::decay(at, lr, self.min_lr, |lr, min_lr, progress| {
            min_lr + (lr - min_lr) * (1.0 - progress).powf(self.power)
        })
    }
}
