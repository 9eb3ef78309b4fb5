//! Optimizers, learning-rate schedules and gradient clipping.

use crate::kernels::matmul::ComputeDtype;
pub use crate::kernels::update::Norms as TensorNorms;
use crate::nn::{ParamInfo, Params};
pub use about::{Epsilon, EpsilonTerm, RateScale};
pub use average::{Averaged, BEGUN as EMA_BEGUN, OTHER as EMA_OTHER};
use candle_core::Result;
pub use groups::{Group, by_decay};
pub use muon::Scale as MuonScale;

mod about;
mod adafactor;
mod adamw;
mod adamw8bit;
mod average;
mod groups;
mod host_state;
mod lion;
mod muon;
pub mod schedule;
mod schedule_free;
mod soap;
mod sophia;
#[cfg(test)]
mod tests;

/// The interface of every optimizer's settings.
pub trait Optimizer {
    /// Peak learning rate, before the schedule.
    fn lr(&self) -> f64;
    /// Decoupled weight decay of matrices and embeddings.
    fn weight_decay(&self) -> f64;
    /// Bytes of state for the trainable ones of these parameters.
    fn state_bytes(&self, infos: &[ParamInfo]) -> u64;
    /// Bytes of the same in a checkpoint.
    fn saved_bytes(&self, infos: &[ParamInfo]) -> u64 {
        self.state_bytes(infos)
    }
    /// A short description of its state.
    fn state_summary(&self) -> &'static str;
    /// The term added to its divisor; `None` if it has no divisor that small gradients make small.
    fn epsilon(&self) -> Option<Epsilon> {
        None
    }
    /// β1 and β2 of a rule that equals Adam except for the storage of its moments.
    fn adam_betas(&self) -> Option<(f64, f64)> {
        None
    }
    fn rate_scale(&self) -> RateScale;
    /// The learning rate with which it changes a model about as fast as AdamW does at 1.
    fn over_adamw(&self) -> f64 {
        1.0
    }
    /// Whether PyTorch ranks support it (`engine: torch`): by β1, β2 and ε, or by what [`Optimizer::for_ranks`] gives.
    fn on_torch(&self) -> bool {
        false
    }
    /// Its settings for ranks, where β1, β2 and ε of Adam are not all.
    fn for_ranks(&self) -> Option<serde_json::Map<String, serde_json::Value>> {
        None
    }
    /// How many matrices of one shape a parameter stacks that it orthogonalizes each; `None` of others.
    fn blocks(&self, _: &ParamInfo) -> Option<usize> {
        None
    }
    /// Whether its state has blocks with a scale each, which do not align with shards of tensors.
    fn has_blocks(&self) -> bool {
        false
    }
    /// Whether the rule needs gradients on labels sampled from the model, which only a language model can give.
    fn needs_curvature(&self) -> bool {
        false
    }
    /// The rule with fresh state for these parameters; every trainable one is in exactly one group.
    ///
    /// # Errors
    /// Groups that omit a parameter, contain one twice, or contain a frozen one.
    fn build_grouped(&self, params: &Params, groups: &[Group]) -> Result<Box<dyn UpdateRule>>;
    /// The same with the default groups.
    ///
    /// # Errors
    /// As [`Optimizer::build_grouped`].
    fn build(&self, params: &Params) -> Result<Box<dyn UpdateRule>> {
        self.build_grouped(params, &by_decay(params, self.weight_decay()))
    }
}

/// An update rule with its state.
pub trait UpdateRule: Send {
    /// One update with learning rate `lr`, on gradients multiplied by `grad_scale` (the clipping factor). The gradients
    /// are not modified.
    ///
    /// # Errors
    /// Parameters that it was not built for; weights that do not train; candle's own.
    fn step(&mut self, params: &mut Params, lr: f64, grad_scale: f64) -> Result<()>;
    /// Compute dtype of the rule's own matmuls (Muon, SOAP), if it can use one; default f32.
    fn set_compute_dtype(&mut self, _arithmetic: ComputeDtype) {}
    /// Norms of the gradient, change and weights (before it) of the trainable parameters in the last update, in the order of
    /// [`Params::trainable`]. Empty before the first update, and if the update does not measure them (accelerators).
    fn last_norms(&self) -> &[TensorNorms];
    /// Swaps the average of the weights into the model, if the rule keeps one, or (`false`) the training weights back.
    /// Evaluations, samples, checkpoints and exports use the average. Idempotent.
    ///
    /// # Errors
    /// As [`UpdateRule::step`].
    fn show_average(&mut self, _params: &mut Params, _show: bool) -> Result<()> {
        Ok(())
    }
    /// Whether the next update should be preceded by a curvature estimate: see [`UpdateRule::take_curvature`].
    fn wants_curvature(&mut self) -> bool {
        false
    }
    /// Accumulates the mean gradient over `labels` labels sampled from the model; it is in the model's flat gradients.
    ///
    /// # Errors
    /// As [`UpdateRule::step`].
    fn take_curvature(&mut self, _params: &Params, _labels: f64) -> Result<()> {
        Ok(())
    }
    /// The share of elements whose change the last update did not clip; `None` of a rule that clips none, and before the first.
    fn unclipped(&self) -> Option<f64> {
        None
    }
    /// The running mean of each element's squared gradient, once the rule has one.
    fn mean_square(&self) -> Option<MeanSquare> {
        None
    }
    /// The state part with the running mean of past gradients, in the gradients' layout; `None` for a rule
    /// without one, or with one in another basis.
    fn mean_gradient(&self) -> Option<&'static str> {
        None
    }
    /// Names and lengths of everything that the next step depends on besides weights and gradients.
    fn state(&self) -> Vec<StatePart>;
    /// Passes one part's values to `read`, without a copy if they are in host memory.
    ///
    /// # Errors
    /// There is no part of this name; a copy from an accelerator that fails.
    fn read_state(&self, name: &str, read: &mut dyn FnMut(&[f32])) -> Result<()>;
    /// Calls `write` to fill one part in place.
    ///
    /// # Errors
    /// There is no part of this name; an invalid count; a copy to an accelerator that fails.
    fn write_state(&mut self, name: &str, write: &mut dyn FnMut(&mut [f32])) -> Result<()>;
}

/// Where an update rule keeps each element's mean squared gradient, in the gradients' layout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanSquare {
    /// Name of its state part.
    pub part: &'static str,
    /// Divisor that corrects its bias towards 0.
    pub correction: f64,
}

/// One part of an update rule's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatePart {
    pub name: &'static str,
    /// Number of f32 values.
    pub len: usize,
}

/// The factor that scales a gradient of global norm `norm` down to `clip_norm`, as torch's `clip_grad_norm_` computes it;
/// 1 if nothing is clipped or `clip_norm` is 0 (off). A norm of NaN gives NaN and an infinite one 0: the
/// caller must check the norm itself.
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
