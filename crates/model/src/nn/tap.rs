//! Observers of a training pass: read-only access to activations. A pass without one only tests for it at each site.

use crate::kernels::attention;
use std::sync::{Arc, Mutex, PoisonError};

/// A site in a block whose values can be observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// A block's output: the residual stream, (rows, D).
    Block,
    /// The input of the second matmul of a feed-forward block: activations, times the gate where there is one,
    /// (rows, d_ff). Not in blocks of experts.
    FeedForward,
}

/// Values of one site, row-major, without padding.
#[derive(Debug, Clone, Copy)]
pub struct Activation<'a> {
    pub site: Site,
    /// Counted from 0.
    pub layer: usize,
    pub values: &'a [f32],
    /// Features of a row.
    pub width: usize,
}

/// The inputs of a block's attention.
#[derive(Debug, Clone, Copy)]
pub struct AttentionInputs<'a> {
    pub layer: usize,
    pub sizes: attention::Sizes<'a>,
    /// Tokens of the first row that are not padding.
    pub first_row: usize,
    /// (B · T, qkv_width), rotated.
    pub qkv: &'a [f32],
}

/// An observer. Forwards that are recomputed for the backward are not observed.
pub trait Tap: Send {
    fn activation(&mut self, _seen: &Activation<'_>) {}
    fn attention(&mut self, _seen: &AttentionInputs<'_>) {}
    /// Log-sum-exp of the logits of each token.
    fn logits(&mut self, _lse: &[f32]) {}
}

/// A tap that the pass and its owner both hold.
pub type SharedTap = Arc<Mutex<dyn Tap>>;

/// Calls a tap. If its owner panicked while holding it, it is still consistent: it only counts.
pub(crate) fn observe(tap: Option<&SharedTap>, look: impl FnOnce(&mut dyn Tap)) {
    if let Some(tap) = tap {
        look(&mut *tap.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
