//! Warm-up, then half a cosine from the peak down to `min_lr`.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "cosine",
    title: "Cosine",
    summary: "Warm-up, then cosine decay to min_lr.",
    source: "Loshchilov and Hutter 2016, arXiv 1608.03983",
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
            min_lr + 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()) * (lr - min_lr)
        })
    }
}
