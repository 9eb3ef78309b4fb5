//! A linear layer: y = x Wᵀ (+ b), weights stored (out, in).

use candle_core::{Result, Tensor};

/// `x` (…, in), `weight` (out, in), `bias` (out) → (…, out).
pub fn composite(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let y = x.broadcast_matmul(&weight.t()?)?;
    match bias {
        Some(bias) => y.broadcast_add(bias),
        None => Ok(y),
    }
}
