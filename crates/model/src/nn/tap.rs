//! Observers of a training pass: read-only access to activations. A pass without one only checks once per place that there is
//! none.

use crate::kernels::attention;
use std::sync::{Arc, Mutex, PoisonError};

/// A place of a block whose values can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// A block's output: the residual stream, (rows, D).
    Block,
    /// The input of the second matmul of a feed-forward block: activations, times the gate where there is one,
    /// (rows, d_ff). Not in blocks of experts.
    FeedForward,
}

/// Values of one place, row-major, without padding.
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

/// Looks on. Forwards that only run again for the backward are not shown.
pub trait Tap: Send {
    fn activation(&mut self, _seen: &Activation<'_>) {}
    fn attention(&mut self, _seen: &AttentionInputs<'_>) {}
    /// Log-sum-exp of the logits of each token.
    fn logits(&mut self, _lse: &[f32]) {}
}

/// A tap that the pass and its owner both hold.
pub type SharedTap = Arc<Mutex<dyn Tap>>;

/// Calls a tap. One whose owner panicked is still whole: it only counts.
pub(crate) fn ask(tap: Option<&SharedTap>, look: impl FnOnce(&mut dyn Tap)) {
    if let Some(tap) = tap {
        look(&mut *tap.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
