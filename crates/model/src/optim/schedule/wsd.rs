//! Warm-up, a long stretch at the peak, and a short decay to `min_lr` at the end.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "wsd",
    title: "Warm-up, stable, decay",
    summary: "Warm-up, the peak for most of the run, then a short decay: a run can be extended from the peak.",
    source: "Hu et al. 2024, arXiv 2404.06395; Hägele et al. 2024, arXiv 2405.18392",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Steps over which the learning rate rises linearly to its peak.
    pub warmup_steps: u64,
    /// Learning rate at the end. Default: a tenth of the peak.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub min_lr: Option<f64>,
    /// Fraction of the steps used for the decay.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub decay_fraction: f64,
    /// Shape of the decay.
    pub shape: Shape,
}

/// The factor on the peak over the decay's progress p from 0 to 1.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// 1 − p
    #[default]
    Linear,
    /// (1 + cos πp) / 2
    Cosine,
    /// 1 − √p
    Sqrt,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            warmup_steps: 0,
            min_lr: None,
            decay_fraction: 0.1,
            shape: Shape::Linear,
        }
    }
}

impl super::Schedule for Config {
    super::warm_up!();

    fn min_lr(&self) -> Option<f64> {
        self.min_lr
    }

    fn lr_at(&self, step: u64, max_steps: u64, lr: f64) -> f64 {
        let decay_steps = (max_steps as f64 * self.decay_fraction).round() as u64;
        let begin = max_steps.saturating_sub(decay_steps).max(self.warmup_steps);
        if (self.warmup_steps..begin).contains(&step) {
            return lr;
        }
        if let Some(factor) = super::warmup_factor(step, self.warmup_steps) {
            return lr * factor;
        }
        super::decay(
            (step, begin, max_steps),
            lr,
            self.min_lr,
            |lr, min_lr, p| {
                let left = match self.shape {
                    Shape::Linear => 1.0 - p,
                    Shape::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * p).cos()),
                    Shape::Sqrt => 1.0 - p.sqrt(),
                };
                min_lr + (lr - min_lr) * left
            },
        )
    }
}
