//! Normalization layers.

use crate::kernels::norm::NormKind;

mod layernorm;
mod rmsnorm;

pub use layernorm::Config as LayerNormConfig;
pub use rmsnorm::Config as RmsNormConfig;

/// The interface of every normalization.
pub trait Norm {
    /// The operation that computes it.
    fn kind(&self) -> NormKind;
    /// Added to the variance (or mean square) before the square root.
    fn eps(&self) -> f64;
    /// Whether it has a bias vector, where the kind has one; `None`: as the linear layers.
    fn bias(&self) -> Option<bool> {
        None
    }
    /// Offset added to a stored gain before it is used.
    fn gain_offset(&self) -> f64 {
        0.0
    }
}

crate::base::registry! {
    /// Normalization in front of each sub-layer.
    pub enum NormConfig: dyn Norm { layernorm: LayerNorm, rmsnorm: RmsNorm }
}
