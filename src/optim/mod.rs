//! Optimizers, learning-rate schedules and gradient clipping.

mod adamw;
pub mod schedule;

/// What every optimizer's settings have in common.
pub trait Optimizer {
    /// Peak learning rate, before the schedule.
    fn lr(&self) -> f64;
}

crate::registry! {
    /// The update rule.
    pub enum OptimizerConfig: dyn Optimizer { adamw: AdamW }
}
