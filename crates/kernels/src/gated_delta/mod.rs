//! The gated delta rule (Yang, Kautz, Hatamizadeh 2024, arXiv 2412.06464) as Qwen 3.5 has it. Per value head, a matrix S (keys ×
//! values) is carried from token to token of a document:
//!
//! ```text
//! S ← exp(g) S;  u = β (v − Sᵀ k);  S ← S + k uᵀ;  o = Sᵀ q;  out = RMSNorm(o) ∘ SiLU(z)
//! g = −exp(A_log) · softplus(a + dt_bias),  β = sigmoid(b)
//! ```
//!
//! q, k, v are the input after a causal convolution and SiLU; q and k have length 1, and q is divided by √key_dim.
//!
//! The fused form computes sixteen tokens at once (see `chunk`). Training keeps S at the start of every [`SEGMENT`]
//! tokens and each token's u; the backward recomputes the rest.

mod backward;
mod block;
mod chunk;
mod forward;
#[cfg(test)]
mod tests;

pub use backward::{ParamGradients, backward};
pub use forward::{State, forward, forward_after};

use chunk::Shape;

/// Tokens from one kept state to the next.
pub const SEGMENT: usize = 64;
/// Added to the squared length of a query or key.
const LENGTH_EPS: f32 = 1e-6;

/// Heads and their sizes. A row of the input is q, k, v of all heads, then z (as wide as v), then b and a (one per value head).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub n_key_head: usize,
    /// A multiple of n_key_head: key head i belongs to as many value heads in turn.
    pub n_value_head: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    /// Tokens that the convolution reads, the current one included.
    pub conv_len: usize,
}

impl Sizes {
    /// Width of all queries, or of all keys.
    pub fn keys(&self) -> usize {
        self.n_key_head * self.key_dim
    }

    /// Width of all values, and of the output.
    pub fn values(&self) -> usize {
        self.n_value_head * self.value_dim
    }

    /// Channels of the convolution: q, k, v.
    pub fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    /// Width of a row of the input.
    pub fn wide(&self) -> usize {
        self.channels() + self.values() + 2 * self.n_value_head
    }

    /// Numbers of all heads' S: (n_value_head, key_dim, value_dim).
    pub fn state(&self) -> usize {
        self.n_value_head * self.key_dim * self.value_dim
    }

    /// Numbers that training keeps of `rows` tokens in sequences of `seq_len`: of [`Kept::states`] and of [`Kept::updates`].
    pub fn kept(&self, rows: usize, seq_len: usize) -> [usize; 2] {
        let segments = rows / seq_len * seq_len.div_ceil(SEGMENT);
        let per_segment = self.n_value_head * self.shape().state();
        [segments * per_segment, rows * self.values()]
    }

    /// Value heads per key head.
    fn group(&self) -> usize {
        self.n_value_head / self.n_key_head
    }

    fn shape(&self) -> Shape {
        Shape::of(self.key_dim, self.value_dim)
    }

    /// FLOPs of a token of all value heads of a key head.
    fn cost(&self) -> usize {
        self.group() * 6 * self.key_dim * self.value_dim
    }
}

/// A fused mixer: its sizes and parameters.
#[derive(Debug, Clone, Copy)]
pub struct GatedDelta<'a> {
    pub sizes: Sizes,
    /// Convolution (channels, conv_len): the last of a channel's multiplies the current token.
    pub conv: &'a [f32],
    /// (n_value_head).
    pub a_log: &'a [f32],
    /// (n_value_head).
    pub dt_bias: &'a [f32],
    /// Gain of the norm, (value_dim).
    pub gain: &'a [f32],
    /// Added to the norm's mean square.
    pub eps: f32,
}

impl GatedDelta<'_> {
    /// Rejects inputs that do not fit together; returns the number of rows.
    fn check(&self, wide: usize) -> usize {
        let sizes = self.sizes;
        assert_eq!(
            sizes.n_value_head % sizes.n_key_head,
            0,
            "value heads per key head"
        );
        assert_eq!(
            self.conv.len(),
            sizes.channels() * sizes.conv_len,
            "taps of a gated delta net"
        );
        assert_eq!(self.a_log.len(), sizes.n_value_head, "A_log");
        assert_eq!(self.dt_bias.len(), sizes.n_value_head, "dt_bias");
        assert_eq!(
            self.gain.len(),
            sizes.value_dim,
            "gain of a gated delta net"
        );
        assert_eq!(wide % sizes.wide(), 0, "input of a gated delta net");
        wide / sizes.wide()
    }
}

/// What a training forward keeps for the backward; see [`Sizes::kept`].
#[derive(Debug)]
pub struct Keep<'a> {
    /// S before every [`SEGMENT`] tokens of each sequence.
    pub states: &'a mut [f32],
    /// u of each token, (rows, values).
    pub updates: &'a mut [f32],
}

/// The same to read.
#[derive(Debug, Clone, Copy)]
pub struct Kept<'a> {
    pub states: &'a [f32],
    pub updates: &'a [f32],
}
