//! Feed-forward blocks.

mod gelu;
mod swiglu;

/// What a feed-forward block has to tell.
pub trait Mlp {
    /// True when the block has a gate and an up projection of width d_ff each.
    fn gated(&self) -> bool;
}

crate::registry! {
    /// The feed-forward block.
    pub enum MlpConfig: dyn Mlp { gelu: Gelu, swiglu: SwiGlu }
}
