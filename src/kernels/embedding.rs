//! Token embedding, with learned positions added where the model has them.

use candle_core::{IndexOp, Result, Tensor};

/// `ids` (B, T) u32, `table` (V, D), `positions` (≥ start + T, D) → (B, T, D). Token t stands at position `start + t`.
pub fn composite(
    ids: &Tensor,
    table: &Tensor,
    positions: Option<&Tensor>,
    start: usize,
) -> Result<Tensor> {
    let (batch_size, seq_len) = ids.dims2()?;
    let rows = table.index_select(&ids.flatten_all()?, 0)?;
    let x = rows.reshape((batch_size, seq_len, table.dim(1)?))?;
    match positions {
        Some(positions) => x.broadcast_add(&positions.i(start..start + seq_len)?),
        None => Ok(x),
    }
}
