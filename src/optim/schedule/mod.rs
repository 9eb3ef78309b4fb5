//! Learning-rate schedules: the factor on the peak learning rate as a function of the step. A function of the step alone,
//! so a resumed run needs no schedule state.

mod constant;
mod cosine;
mod linear;

/// A learning-rate schedule.
pub trait Schedule {
    /// Steps of linear warm-up.
    fn warmup_steps(&self) -> u64;
    /// The learning rate of update number `step` (from 0) in a run of `max_steps` with peak `lr`.
    fn lr_at(&self, step: u64, max_steps: u64, lr: f64) -> f64;
}

crate::base::registry! {
    /// How the learning rate changes over the run.
    pub enum ScheduleConfig: dyn Schedule { cosine: Cosine, linear: Linear, constant: Constant }
}

/// The fraction of warm-up reached at `step`, nanoGPT's convention: (step + 1) / (warmup + 1), so that the first update
/// is not wasted on a rate of zero. `None` once warm-up is over.
fn warmup_factor(step: u64, warmup_steps: u64) -> Option<f64> {
    (step < warmup_steps).then(|| (step + 1) as f64 / (warmup_steps + 1) as f64)
}

/// Warm-up, then `shape(lr, min_lr, progress)` with progress in [0, 1]. `min_lr` defaults to a tenth of the peak `lr`.
fn decay(
    (step, warmup_steps, max_steps): (u64, u64, u64),
    lr: f64,
    min_lr: Option<f64>,
    shape: impl Fn(f64, f64, f64) -> f64,
) -> f64 {
    if let Some(factor) = warmup_factor(step, warmup_steps) {
        return lr * factor;
    }
    let span = max_steps.saturating_sub(warmup_steps).max(1) as f64;
    let progress = ((step - warmup_steps) as f64 / span).min(1.0);
    shape(lr, min_lr.unwrap_or(lr / 10.0), progress)
}
