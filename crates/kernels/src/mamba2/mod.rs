//! Mamba 2 (Dao & Gu 2024, arXiv 2405.21060) as Granite 4 has it. Per head, a matrix S (state_dim × head_dim) is carried from token to
//! token of a document:
//!
//! ```text
//! S ← exp(dt · A) S + dt · B xᵀ;  y = Sᵀ C + D x;  out = RMSNorm(y ∘ SiLU(z))
//! dt = softplus(dt + dt_bias) within limits,  A = −exp(A_log)
//! ```
//!
//! x, B, C are the input after a causal convolution and SiLU; heads of a group share B and C, and the norm is over each group.
//!
//! Three passes: the convolution (`conv`), the scan, up to [`CHUNK`] tokens at once by matmuls (`chunk`), and the norm (`norm`). Training
//! keeps S before every chunk and y; the backward recomputes the convolution.

mod backward;
mod chunk;
mod conv;
mod forward;
mod head;
mod norm;
#[cfg(test)]
mod tests;

pub use backward::{ParamGradients, backward};
pub use forward::{State, forward, forward_after};

use chunk::Shape;
use std::ops::Range;

/// Tokens of a chunk, at most; multiples of sixteen in fact.
pub const CHUNK: usize = 64;
/// Heads of a task, at most: they share the products of B and C, and the sums of their gradients.
const HEADS: usize = 8;

/// Heads and their sizes. A row of the input is z and x of all heads, then B and C of all groups, then dt (one per head).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub n_head: usize,
    pub head_dim: usize,
    /// Divides n_head: B and C of group i belong to as many heads in turn.
    pub n_group: usize,
    pub state_dim: usize,
    /// Tokens that the convolution reads, the current one included.
    pub conv_len: usize,
}

impl Sizes {
    /// Width of z, of x, and of the output.
    pub fn inner(&self) -> usize {
        self.n_head * self.head_dim
    }

    /// Channels of the convolution: x, B, C.
    pub fn channels(&self) -> usize {
        self.inner() + 2 * self.n_group * self.state_dim
    }

    /// Width of a row of the input.
    pub fn wide(&self) -> usize {
        self.inner() + self.channels() + self.n_head
    }

    /// Numbers of all heads' S: (n_head, state_dim, head_dim), the last two padded by zeros to whole lines.
    pub fn state(&self) -> usize {
        self.n_head * self.shape().state()
    }

    /// Numbers of the states that training keeps of `rows` tokens in sequences of `seq_len`.
    pub fn kept(&self, rows: usize, seq_len: usize) -> usize {
        rows / seq_len * seq_len.div_ceil(CHUNK) * self.state()
    }

    /// Width of a row of the gradient with respect to what the convolution gives: x, then B and C of each [`Part`].
    pub fn gradient(&self) -> usize {
        self.inner() + 2 * self.n_part() * self.state_dim
    }

    fn shape(&self) -> Shape {
        Shape::of(self.state_dim, self.head_dim)
    }

    /// Heads of a group.
    fn group(&self) -> usize {
        self.n_head / self.n_group
    }

    /// Parts of a group.
    fn parts(&self) -> usize {
        self.group().div_ceil(HEADS)
    }

    fn n_part(&self) -> usize {
        self.n_group * self.parts()
    }

    /// Part `at` of the heads. The partition does not depend on the number of threads.
    fn part(&self, at: usize) -> Part {
        let (parts, heads) = (self.parts(), self.group());
        let (group, at_group) = (at / parts, at % parts);
        let first = group * heads;
        Part {
            at,
            group,
            heads: first + heads * at_group / parts..first + heads * (at_group + 1) / parts,
        }
    }

    /// FLOPs of a token of the heads of a part.
    fn cost(&self) -> usize {
        self.group().min(HEADS) * 6 * self.shape().state()
    }
}

/// Heads of one group that a task computes.
#[derive(Debug, Clone)]
struct Part {
    at: usize,
    group: usize,
    heads: Range<usize>,
}

/// A fused mixer: its sizes and parameters.
#[derive(Debug, Clone, Copy)]
pub struct Mamba2<'a> {
    pub sizes: Sizes,
    /// Convolution (channels, conv_len): the last of a channel's multiplies the current token.
    pub conv: &'a [f32],
    /// (channels).
    pub conv_bias: Option<&'a [f32]>,
    /// (n_head).
    pub a_log: &'a [f32],
    /// (n_head).
    pub dt_bias: &'a [f32],
    /// The share of x in y, (n_head).
    pub d: &'a [f32],
    /// Gain of the norm, (inner).
    pub gain: &'a [f32],
    /// Added to the norm's mean square.
    pub eps: f32,
    /// The least and the largest dt.
    pub limits: [f32; 2],
}

impl Mamba2<'_> {
    /// Rejects inputs that do not fit together; returns the number of rows.
    fn check(&self, wide: usize) -> usize {
        let sizes = self.sizes;
        let (heads, channels) = (sizes.n_head, sizes.channels());
        assert_eq!(heads % sizes.n_group, 0, "heads per group");
        assert_eq!(
            self.conv.len(),
            channels * sizes.conv_len,
            "taps of Mamba 2"
        );
        assert!(
            self.conv_bias.is_none_or(|bias| bias.len() == channels),
            "bias of a convolution"
        );
        let of_heads = [self.a_log.len(), self.dt_bias.len(), self.d.len()];
        assert_eq!(of_heads, [heads; 3], "A_log, dt_bias and D");
        assert_eq!(self.gain.len(), sizes.inner(), "gain of Mamba 2");
        assert_eq!(wide % sizes.wide(), 0, "input of Mamba 2");
        wide / sizes.wide()
    }
}

/// What the passes hand to each other, and training keeps of it.
#[derive(Debug)]
pub struct Buffers<'a> {
    /// What the convolution gives after SiLU, (rows, channels).
    pub xbc: &'a mut [f32],
    /// (rows, inner).
    pub y: &'a mut [f32],
    /// S before every chunk of each sequence, see [`Sizes::kept`]; for a backward.
    pub states: Option<&'a mut [f32]>,
}

/// What a training forward keeps for the backward.
#[derive(Debug, Clone, Copy)]
pub struct Kept<'a> {
    pub y: &'a [f32],
    pub states: &'a [f32],
}
