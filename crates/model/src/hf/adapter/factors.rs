//! The two factors of a matrix's adapter, and its magnitudes.

use crate::nn::adapter::RankAlpha;

/// The factors of one matrix of a model.
pub(super) struct Change {
    /// The matrix, without `.weight`.
    pub module: String,
    pub offset: usize,
    /// (out, in)
    pub shape: (usize, usize),
    pub factors: Factors,
}

/// Factors as stored in a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Factors {
    pub size: RankAlpha,
    /// (rank, in)
    pub a: Vec<f32>,
    /// (out, rank)
    pub b: Vec<f32>,
    /// (out)
    pub magnitude: Option<Vec<f32>>,
}
