//! Training methods: what a loss is. Each is a function of per-token log-probabilities and entropies, written in plain
//! candle on small (B, T) tensors; the tape carries its gradient through the model.

mod pretrain;

/// A training method.
pub trait Method {}

crate::registry! {
    /// What the model learns from.
    pub enum MethodConfig: dyn Method { pretrain: Pretrain }
}
