//! Token mixers: what blocks without attention have in its place. Between tokens they carry a state of constant size, so a
//! long text costs as much per token as a short one.

mod gated_delta_net;
mod mamba2;
mod pattern;
mod short_conv;

pub use gated_delta_net::Config as GatedDeltaNetConfig;
pub use mamba2::Config as Mamba2Config;
pub use pattern::{MAX_BLOCKS, attention_keys};
pub use short_conv::Config as ShortConvConfig;

/// The interface of token mixers.
pub trait Mixer {
    /// Channels of the causal convolution, for a model of this width.
    fn conv_channels(&self, d_model: usize) -> usize;
    /// Tokens that the causal convolution reads, the current one included.
    fn conv_len(&self) -> usize;
    /// Elements of the state after a token, besides the inputs of the convolution.
    fn state_len(&self) -> usize {
        0
    }
    /// FLOPs of a token's forward with the state.
    fn state_flops(&self) -> usize {
        0
    }
}

crate::base::registry! {
    /// The token mixer.
    pub enum MixerConfig: dyn Mixer {
        short_conv: ShortConv = "short_conv",
        gated_delta_net: GatedDeltaNet = "gated_delta_net",
        mamba2: Mamba2 = "mamba2",
    }
}
