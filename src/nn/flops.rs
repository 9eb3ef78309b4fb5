//! Work per token, for the share of the machine's peak that a run reaches (MFU).

use super::{Model, ModelShape};

/// Floating-point operations of one training token, forward and backward: 6 N + 12 · n_layer · n_head · head_dim · seq_len
/// (Chowdhery et al. 2022, PaLM, appendix B). N counts the matrices that a token is multiplied with: `n_params` less
/// embedding tables that are only looked up. The attention term counts the whole square, as PaLM does, causal or not.
pub fn flops_per_token(shape: &ModelShape, n_matmul_params: usize) -> f64 {
    let attention = 12 * shape.n_layer * shape.n_head * shape.head_dim * shape.seq_len;
    6.0 * n_matmul_params as f64 + attention as f64
}

impl Model {
    /// Operations of one training token of this model.
    pub fn flops_per_token(&self) -> f64 {
        let lookups = self.lookup_params();
        flops_per_token(self.shape(), self.n_params() - lookups)
    }
}
