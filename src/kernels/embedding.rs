//! Token embedding, with learned positions added where the model has them.

use super::threads;
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

/// `x` (B · T, D): row (b, t) = `table`[ids[b, t]] + `positions`[start + t].
pub fn forward(
    ids: &[u32],
    seq_len: usize,
    table: &[f32],
    positions: Option<&[f32]>,
    start: usize,
    x: &mut [f32],
) {
    let d = x.len() / ids.len();
    threads::rows1(x, d, d, |first, x| {
        for (i, row) in x.chunks_exact_mut(d).enumerate() {
            let token = first + i;
            row.copy_from_slice(&table[ids[token] as usize * d..][..d]);
            if let Some(positions) = positions {
                let position = start + token % seq_len;
                for (x, p) in row.iter_mut().zip(&positions[position * d..]) {
                    *x += p;
                }
            }
        }
    });
}

/// `dtable` += the rows of `dx` (B · T, D) that used it. One thread: rows may meet in one place, and the work is a small
/// part of a step.
pub fn backward(ids: &[u32], dx: &[f32], dtable: &mut [f32]) {
    let d = dx.len() / ids.len();
    for (&id, row) in ids.iter().zip(dx.chunks_exact(d)) {
        for (sum, x) in dtable[id as usize * d..][..d].iter_mut().zip(row) {
            *sum += x;
        }
    }
}

/// `dpositions` (≥ T, D) += Σ over sequences of `dx` (B · T, D).
pub fn backward_positions(seq_len: usize, d: usize, dx: &[f32], dpositions: &mut [f32]) {
    for sequence in dx.chunks_exact(seq_len * d) {
        for (sum, x) in dpositions.iter_mut().zip(sequence) {
            *sum += x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{assert_close, leaf, normal, oracle};
    use candle_core::Device;

    #[test]
    fn gradients_agree_with_candle_in_f64_where_tokens_repeat() {
        let (vocab, d, seq_len) = (7, 5, 3);
        let ids = [1_u32, 6, 1, 0, 1, 6];
        let table = normal(vocab * d, 0);
        let positions = normal(4 * d, 1);
        let dy = normal(ids.len() * d, 2);
        let (lt, lp) = (leaf(&table, &[vocab, d]), leaf(&positions, &[4, d]));
        let (exact, grads) = oracle(&[&lt, &lp], &dy, || {
            let ids = Tensor::from_slice(&ids, (2, 3), &Device::Cpu)?;
            composite(&ids, &lt, Some(&lp), 0)
        });
        let mut x = vec![9.0; ids.len() * d];
        forward(&ids, seq_len, &table, Some(&positions), 0, &mut x);
        assert_close("x", &x, &exact, 1e-6);
        let (mut dtable, mut dpositions) = (vec![0.0; vocab * d], vec![0.0; 4 * d]);
        backward(&ids, &dy, &mut dtable);
        backward_positions(seq_len, d, &dy, &mut dpositions);
        assert_close("dtable", &dtable, &grads[0], 1e-6);
        assert_close("dpositions", &dpositions, &grads[1], 1e-6);
    }

    #[test]
    fn positions_begin_where_the_text_goes_on() {
        let positions = [0.0, 10.0, 20.0, 30.0];
        let mut x = [0.0; 2];
        forward(&[0, 1], 2, &[1.0, 2.0], Some(&positions), 2, &mut x);
        assert_eq!(x, [21.0, 32.0]);
    }
}
