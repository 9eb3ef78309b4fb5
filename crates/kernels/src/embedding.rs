//! Token embedding, plus learned positions if the model has them.

use super::matrix::Matrix;
use super::positions::Positions;
use super::threads;
use candle_core::{IndexOp, Result, Tensor};
use llmtui_base::rng::{Rng, Stream};

/// `ids` (B, T) u32, `table` (V, D), whose rows are scaled by `scale`, `vectors` (a row per position, D)
/// → (B, T, D).
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite(
    ids: &Tensor,
    (table, scale): (&Tensor, f64),
    vectors: Option<&Tensor>,
    positions: Positions,
) -> Result<Tensor> {
    let (batch_size, seq_len) = ids.dims2()?;
    let rows = table.index_select(&ids.flatten_all()?, 0)?;
    let x = (rows.reshape((batch_size, seq_len, table.dim(1)?))? * scale)?;
    let Some(vectors) = vectors else {
        return Ok(x);
    };
    match positions.by_document() {
        None => x.broadcast_add(&vectors.i(positions.start..positions.start + seq_len)?),
        Some(at) => {
            let at = Tensor::from_vec(at, batch_size * seq_len, ids.device())?;
            &x + vectors.index_select(&at, 0)?.reshape(x.shape())?
        }
    }
}

/// Uniform noise on embeddings in training (NEFTune, Jain et al. 2023, arXiv 2310.05914).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    pub seed: u64,
    /// Counted over the whole run.
    pub micro_step: u64,
    /// Noise is uniform in ± this: α / √(T · D).
    pub size: f32,
}

/// Adds noise to `x` (rows, `width`): a function of seed, micro-step, row and feature, on any number of threads.
pub fn add_noise(noise: &Noise, width: usize, x: &mut [f32]) {
    /// Approximate FLOPs per element.
    const COST: usize = 20;
    threads::rows1(x, width, COST * width, |first, x| {
        for (i, row) in x.chunks_exact_mut(width).enumerate() {
            let lane = (first + i) as u32;
            let mut rng = Rng::new(noise.seed, Stream::Noise, noise.micro_step, lane);
            for x in row {
                *x += noise.size * (2.0 * rng.uniform() - 1.0);
            }
        }
    });
}

/// `x` (B · T, D): row i is `scale` times the `table` row of id i plus the `vectors` row of its position.
pub fn forward(
    ids: &[u32],
    (table, scale): (Matrix, f32),
    vectors: Option<&[f32]>,
    positions: Positions,
    x: &mut [f32],
) {
    let d = x.len() / ids.len();
    threads::rows1(x, d, d, |first, x| {
        for (i, row) in x.chunks_exact_mut(d).enumerate() {
            let token = first + i;
            table.row(ids[token] as usize, row);
            if scale != 1.0 {
                row.iter_mut().for_each(|x| *x *= scale);
            }
            if let Some(vectors) = vectors {
                for (x, p) in row.iter_mut().zip(&vectors[positions.at(token) * d..]) {
                    *x += p;
                }
            }
        }
    });
}

/// `dtable` += `scale` times the rows of `dx` (B · T, D), scattered by token. Single-threaded: rows may collide, and the work is a small
/// part of a step.
pub fn backward(ids: &[u32], scale: f32, dx: &[f32], dtable: &mut [f32]) {
    let d = dx.len() / ids.len();
    for (&id, row) in ids.iter().zip(dx.chunks_exact(d)) {
        for (sum, x) in dtable[id as usize * d..][..d].iter_mut().zip(row) {
            *sum += scale * x;
        }
    }
}

/// `dvectors` (a row per position, D) += the rows of `dx` (B · T, D), scattered by position.
pub fn backward_positions(positions: Positions, d: usize, dx: &[f32], dvectors: &mut [f32]) {
    for (token, row) in dx.chunks_exact(d).enumerate() {
        let sums = &mut dvectors[positions.at(token) * d..][..d];
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, leaf, normal, oracle};
    use candle_core::Device;

    #[test]
    fn gradients_agree_with_candle_in_f64_where_tokens_repeat() {
        let whole = Positions::whole_rows(3);
        let first = Some([0, 1, 1, 0, 0, 2].as_slice());
        for places in [whole, Positions { first, ..whole }] {
            check(places);
        }
    }

    fn check(places: Positions) {
        let (vocab, d) = (7, 5);
        let ids = [1_u32, 6, 1, 0, 1, 6];
        let table = normal(vocab * d, 0);
        let positions = normal(4 * d, 1);
        let dy = normal(ids.len() * d, 2);
        let (lt, lp) = (leaf(&table, &[vocab, d]), leaf(&positions, &[4, d]));
        let (exact, grads) = oracle(&[&lt, &lp], &dy, || {
            let ids = Tensor::from_slice(&ids, (2, 3), &Device::Cpu)?;
            composite(&ids, (&lt, 1.5), Some(&lp), places)
        });
        let mut x = vec![9.0; ids.len() * d];
        forward(
            &ids,
            (Matrix::Dense(&table), 1.5),
            Some(&positions),
            places,
            &mut x,
        );
        assert_close("x", &x, &exact, 1e-6);
        let (mut dtable, mut dpositions) = (vec![0.0; vocab * d], vec![0.0; 4 * d]);
        backward(&ids, 1.5, &dy, &mut dtable);
        backward_positions(places, d, &dy, &mut dpositions);
        assert_close("dtable", &dtable, &grads[0], 1e-6);
        assert_close("dpositions", &dpositions, &grads[1], 1e-6);
    }

    #[test]
    fn positions_continue_after_the_cached_text() {
        let positions = [0.0, 10.0, 20.0, 30.0];
        let mut x = [0.0; 2];
        let places = Positions {
            start: 2,
            ..Positions::whole_rows(2)
        };
        let table = Matrix::Dense(&[1.0, 2.0]);
        forward(&[0, 1], (table, 1.0), Some(&positions), places, &mut x);
        assert_eq!(x, [21.0, 32.0]);
    }
}
