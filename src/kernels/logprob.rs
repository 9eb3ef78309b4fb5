//! The log-prob head: hidden states × vocabulary → log-probability of each target and entropy of each distribution.

use candle_core::{D, Result, Tensor};

/// `hidden` (N, D), `table` (V, D), `targets` (N) u32 → log-probability (N) of each target and entropy (N), both in nats.
pub fn composite(hidden: &Tensor, table: &Tensor, targets: &Tensor) -> Result<(Tensor, Tensor)> {
    let logits = hidden.matmul(&table.t()?)?;
    let logp = candle_nn::ops::log_softmax(&logits, D::Minus1)?;
    let entropy = (logp.exp()? * &logp)?.sum(D::Minus1)?.neg()?;
    let target = logp.gather(&targets.unsqueeze(1)?, 1)?.squeeze(1)?;
    Ok((target, entropy))
}
