//! Low-rank adapters: small trainable matrices added to frozen ones. An adapter is part of the linear layer that it adapts;
//! `layout` assigns its factors' positions, `fused/linear` and `composite` compute it.

mod lora;
mod patterns;

pub(in crate::nn) use lora::is_named;
pub use lora::{Config as Lora, ExpertMatrix, RankAlpha, Target, Targets, Whole};
pub use patterns::ByPattern;
pub(crate) use patterns::{MAX_COMPILED, differs_in_python};

use super::{Fault, ModelConfig, Role};

/// The interface of every kind of adapter. An adapted layer computes y = W x (+ b) + scale · B (A · dropout(x)) with
/// A (rank, in) and B (out, rank); W and b are frozen. With magnitudes m (out) it is
/// y = m / ‖W + scale · B A‖ · (W x + scale · B (A · dropout(x))) (+ b), where the norm is of each row and counts as a constant.
pub trait Adapter {
    /// The rank of the adapter of the matrix of this name (without `.weight`).
    fn rank(&self, module: &str) -> usize;
    /// The scale of its low-rank term.
    fn scale(&self, module: &str) -> f64;
    /// Dropout probability on the adapter's input, in training.
    fn dropout(&self) -> f64;
    /// Whether the matrix of this role and name (without `.weight`) has an adapter.
    fn adapts(&self, role: Role, name: &str) -> bool;
    /// Whether the matrices of a block's experts of this name have adapters: see [`ExpertMatrix`].
    fn adapts_experts(&self, name: &str) -> bool;
    /// Whether a parameter of this role trains in full next to the adapters.
    fn trains_whole(&self, role: Role) -> bool;
    /// Whether each output feature has its own magnitude.
    fn has_magnitudes(&self) -> bool;
    /// The learning rate of B over that of A.
    fn b_lr_ratio(&self) -> f64;
    /// Incompatibilities with this model; keys are those of the adapter's section.
    fn faults(&self, model: &ModelConfig) -> Vec<Fault>;
}

crate::base::registry! {
    /// Trainable low-rank factors on a frozen model.
    pub enum AdapterConfig: dyn Adapter { lora: Lora }
}

impl AdapterConfig {
    /// Whether it is on experts of this model.
    pub fn has_experts(&self, model: &ModelConfig) -> bool {
        let AdapterConfig::Lora(lora) = self;
        !lora.stacks_of(model).is_empty()
    }
}
