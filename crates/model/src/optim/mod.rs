//! Optimizers, learning-rate schedules and gradient clipping.

use crate::kernels::matmul::ComputeDtype;
pub use crate::kernels::update::Norms as TensorNorms;
use crate::nn::{ParamInfo, Params};
pub use about::{Beside, Epsilon, RateScale};
pub use average::Averaged;
use candle_core::Result;
pub use groups::{Group, by_decay};
pub use muon::Scale as MuonScale;

mod about;
mod adafactor;
mod adamw;
mod adamw8bit;
mod average;
mod groups;
mod held;
mod lion;
mod muon;
pub mod schedule;
mod schedule_free;
mod soap;
mod sophia;
#[cfg(test)]
mod tests;

/// What every optimizer's settings have in common.
pub trait Optimizer {
    /// Peak learning rate, before the schedule.
    fn lr(&self) -> f64;
    /// Decoupled weight decay of matrices and embeddings.
    fn weight_decay(&self) -> f64;
    /// Bytes of state that the rule keeps for those of the parameters that train.
    fn state_bytes(&self, infos: &[ParamInfo]) -> u64;
    /// What it keeps from step to step, in words.
    fn keeps(&self) -> &'static str;
    /// What it adds to what it divides by; `None` where it divides by nothing that gradients make small.
    fn epsilon(&self) -> Option<Epsilon>;
    /// β1 and β2 of a rule that is Adam but for how it keeps its moments.
    fn adam_betas(&self) -> Option<(f64, f64)>;
    fn rate_scale(&self) -> RateScale;
    /// Whether ranks of PyTorch have it (`engine: torch`): by β1, β2 and ε.
    fn on_torch(&self) -> bool {
        false
    }
    /// Whether its state has blocks with a scale each, which do not end where tensors are cut into shares.
    fn has_blocks(&self) -> bool {
        false
    }
    /// Whether the rule asks for gradients on labels that the model draws itself, which a language model alone can give.
    fn needs_curvature(&self) -> bool {
        false
    }
    /// The rule with fresh state for these parameters; every one that trains stands in one group.
    ///
    /// # Errors
    /// Groups that leave one out, name one twice, or name one that is frozen.
    fn build_grouped(&self, params: &Params, groups: &[Group]) -> Result<Box<dyn UpdateRule>>;
    /// The same for the usual groups.
    ///
    /// # Errors
    /// As [`Optimizer::build_grouped`].
    fn build(&self, params: &Params) -> Result<Box<dyn UpdateRule>> {
        self.build_grouped(params, &by_decay(params, self.weight_decay()))
    }
}

/// Changes weights by their gradients.
pub trait UpdateRule: Send {
    /// One update with learning rate `lr`, on gradients multiplied by `grad_scale` (the clipping factor). The gradients
    /// are left as they are.
    ///
    /// # Errors
    /// Parameters that it was not built for; weights that are not trained; those of candle.
    fn step(&mut self, params: &mut Params, lr: f64, grad_scale: f64) -> Result<()>;
    /// Compute dtype of the rule's own matmuls (Muon, SOAP), if it can use one; default f32.
    fn set_compute_dtype(&mut self, _arithmetic: ComputeDtype) {}
    /// Norms of the gradient, change and weights (before it) of what trains in the last update, in the order of
    /// [`Params::trainable`]. Empty
    /// before the first update, and where the update does not measure them (accelerators).
    fn last_norms(&self) -> &[TensorNorms];
    /// Brings the average of the weights into the model, where the rule keeps one, or (`false`) back what it trains.
    /// Evaluations, samples, checkpoints and exports see the average. Twice is once.
    ///
    /// # Errors
    /// As [`UpdateRule::step`].
    fn show_average(&mut self, _params: &mut Params, _show: bool) -> Result<()> {
        Ok(())
    }
    /// Whether the next update comes after a look at the curvature: see [`UpdateRule::take_curvature`].
    fn wants_curvature(&mut self) -> bool {
        false
    }
    /// Takes in the mean gradient over `labels` labels that the model drew itself; it lies where gradients do.
    ///
    /// # Errors
    /// As [`UpdateRule::step`].
    fn take_curvature(&mut self, _params: &Params, _labels: f64) -> Result<()> {
        Ok(())
    }
    /// The running mean of each element's squared gradient, once the rule has one.
    fn mean_square(&self) -> Option<MeanSquare> {
        None
    }
    /// The state part that holds the running mean of past gradients, element by element as the gradient lies; `None` for a rule
    /// without one, or with one in another basis.
    fn mean_gradient(&self) -> Option<&'static str> {
        None
    }
    /// Names and lengths of everything that the next step depends on besides weights and gradients.
    fn state(&self) -> Vec<StatePart>;
    /// Hands one part's values to `read`, without a copy where they lie in host memory.
    ///
    /// # Errors
    /// Its state has no part of this name; a copy from an accelerator that fails.
    fn read_state(&self, name: &str, read: &mut dyn FnMut(&[f32])) -> Result<()>;
    /// Lets `write` fill one part in place.
    ///
    /// # Errors
    /// Its state has no part of this name; values that are no count where it counts; a copy to an accelerator that fails.
    fn write_state(&mut self, name: &str, write: &mut dyn FnMut(&mut [f32])) -> Result<()>;
}

/// Where an update rule keeps each element's mean squared gradient, flat like the gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanSquare {
    /// Of its state.
    pub part: &'static str,
    /// What divides it to take its bias towards 0 away.
    pub correction: f64,
}

/// One part of an update rule's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatePart {
    pub name: &'static str,
    /// Number of f32 values.
    pub len: usize,
}

/// The factor that brings a gradient of global norm `norm` down to `clip_norm`, as torch's `clip_grad_norm_` computes it;
/// 1 where nothing is to be clipped or `clip_norm` is 0 (off). A norm of NaN gives NaN and an infinite one 0: the
/// caller has to look at the norm itself.
pub fn clip_scale(norm: f64, clip_norm: f64) -> f64 {
    if clip_norm <= 0.0 || norm <= clip_norm {
        1.0
    } else {
        clip_norm / (norm + 1e-6)
    }
}

crate::base::registry! {
    /// The update rule.
    pub enum OptimizerConfig: dyn Optimizer {
        adamw: AdamW,
        muon: Muon,
        lion: Lion,
        soap: Soap,
        sophia: Sophia,
        schedule_free: ScheduleFree = "schedule_free",
        adafactor: Adafactor,
        adamw8bit: AdamW8bit,
    }
}
