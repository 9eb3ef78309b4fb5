//! One optimizer update: gradients over the micro-batches, their norm, clipping, the step. The training loop, the overfit
//! check and the benchmark all update by this.

use crate::data::Batch;
use crate::methods::{Method, micro_step};
use crate::metrics::Readings;
use crate::nn::{ExpertLoad, Model, StepPosition};
use crate::optim::{UpdateRule, clip_scale};
use crate::probes::Probes;
use candle_core::Result;

/// Where an update stands in its run.
#[derive(Debug, Clone, Copy, Default)]
pub struct At {
    pub seed: u64,
    /// Number of its first micro-step.
    pub micro_step: u64,
}

/// How far an update goes.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    pub lr: f64,
    /// Global gradient norm above which gradients are scaled down; 0 is off.
    pub clip_norm: f64,
}

/// What the micro-batches of a step gave: the gradient is in the model.
#[derive(Debug, Clone, Default)]
pub struct Gradients {
    /// The method's loss over the whole step.
    pub loss: f64,
    pub readings: Readings,
    /// Global L2 norm before clipping.
    pub norm: f64,
    pub experts: Option<ExpertLoad>,
}

impl Gradients {
    /// Whether loss and norm are finite: what is not must not reach the weights.
    pub fn are_finite(&self) -> bool {
        self.loss.is_finite() && self.norm.is_finite()
    }
}

/// Sums the gradient over the micro-batches of a step. Each is divided by what the method's normalizer counts in all of
/// them, so that accumulation equals one large batch.
///
/// # Errors
/// A batch that the model or the method refuses.
pub fn gradients(
    method: &dyn Method,
    model: &mut Model,
    batches: &[Batch],
    at: At,
) -> Result<Gradients> {
    gradients_seen(method, model, batches, at, &mut Probes::default())
}

/// The same while `probes` look on.
///
/// # Errors
/// A batch that the model or the method refuses.
pub fn gradients_seen(
    method: &dyn Method,
    model: &mut Model,
    batches: &[Batch],
    at: At,
    probes: &mut Probes,
) -> Result<Gradients> {
    let normalizer = method.normalizer().count(batches).max(1) as f64;
    let mut found = Gradients::default();
    model.params_mut().zero_grads()?;
    for (micro, batch) in batches.iter().enumerate() {
        model.set_step_position(StepPosition {
            seed: at.seed,
            micro_step: at.micro_step + micro as u64,
            share: 1.0 / batches.len() as f64,
        });
        probes.before_micro(micro, model);
        let share = micro_step(method, model, batch, normalizer, &mut found.readings)?;
        found.loss += share;
        let own = method
            .normalizer()
            .count(std::slice::from_ref(batch))
            .max(1) as f64;
        probes.after_micro(micro, model, share * normalizer / own)?;
    }
    found.experts = model.expert_load();
    found.norm = model.params().grad_norm()?;
    Ok(found)
}

/// Clips and updates the weights by the gradient in the model; says whether it was clipped.
///
/// # Errors
/// Those of the optimizer.
pub fn apply(
    model: &mut Model,
    optimizer: &mut dyn UpdateRule,
    norm: f64,
    rates: Rates,
) -> Result<bool> {
    let scale = clip_scale(norm, rates.clip_norm);
    optimizer.step(model.params_mut(), rates.lr, scale)?;
    model.end_step()?;
    Ok(scale < 1.0)
}

/// One whole update. A loss or gradient that is not finite changes no weight: see [`Gradients::are_finite`].
///
/// # Errors
/// A batch that the model or the method refuses.
pub fn update(
    method: &dyn Method,
    model: &mut Model,
    optimizer: &mut dyn UpdateRule,
    batches: &[Batch],
    at: At,
    rates: Rates,
) -> Result<(Gradients, bool)> {
    optimizer.show_average(model.params_mut(), false)?;
    let found = gradients(method, model, batches, at)?;
    let clipped = found.are_finite() && apply(model, optimizer, found.norm, rates)?;
    Ok((found, clipped))
}
