//! Feed-forward blocks.

use crate::kernels::activation::Activation;

mod gelu;
mod swiglu;

pub use gelu::Approximate;

/// What a feed-forward block has to tell.
pub trait Mlp {
    /// True when the block has a gate and an up projection of width d_ff each.
    fn gated(&self) -> bool {
        self.activation() == Activation::SwiGlu
    }
    /// What stands between the projections in and out.
    fn activation(&self) -> Activation;
}

crate::registry! {
    /// The feed-forward block.
    pub enum MlpConfig: dyn Mlp { gelu: Gelu, swiglu: SwiGlu }
}
