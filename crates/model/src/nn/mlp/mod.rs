//! Feed-forward blocks.

use crate::kernels::activation::Activation;

mod clamped_swiglu;
mod geglu;
mod gelu;
mod leaky_relu;
mod relu;
mod silu;
mod swiglu;

pub use clamped_swiglu::Config as ClampedSwiGluConfig;
pub use geglu::Config as GeGluConfig;
pub use gelu::{Approximate, Config as GeluConfig};
pub use relu::Config as ReluConfig;

/// The interface of every feed-forward block.
pub trait Mlp {
    /// True when the block has a gate and an up projection of width d_ff each.
    fn gated(&self) -> bool {
        self.activation().gated()
    }
    /// The function between the two projections.
    fn activation(&self) -> Activation;
}

crate::base::registry! {
    /// The feed-forward block.
    pub enum MlpConfig: dyn Mlp {
        gelu: Gelu,
        swiglu: SwiGlu,
        relu: Relu,
        silu: Silu,
        leaky_relu: LeakyRelu = "leaky_relu",
        geglu: GeGlu,
        clamped_swiglu: ClampedSwiGlu = "clamped_swiglu",
    }
}
