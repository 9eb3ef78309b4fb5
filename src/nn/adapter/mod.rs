//! Low-rank adapters: small trainable matrices beside frozen ones. An adapter is part of the linear layer that it adapts;
//! `layout` says where its factors lie, `fused/linear` and `composite` compute it.

mod lora;

pub use lora::{Config as Lora, Target, Targets};

use super::{Fault, ModelConfig, Role};

/// What every kind of adapter has to say. An adapted layer computes y = W x (+ b) + scale · B (A · dropout(x)) with
/// A (rank, in) and B (out, rank); W and b are frozen.
pub trait Adapter {
    fn rank(&self) -> usize;
    /// What the low-rank product is multiplied by.
    fn scale(&self) -> f64;
    /// Probability that a feature is dropped on its way into A, in training.
    fn dropout(&self) -> f64;
    /// Whether a matrix of this role has an adapter.
    fn adapts(&self, role: Role) -> bool;
    /// What does not go with this model; keys are those of the adapter's own section.
    fn faults(&self, model: &ModelConfig) -> Vec<Fault>;
}

crate::base::registry! {
    /// Trainable low-rank factors on a frozen model.
    pub enum AdapterConfig: dyn Adapter { lora: Lora }
}
