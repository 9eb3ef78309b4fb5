//! A gate for each row: x · sigmoid(score), as on the output of a shared expert (Qwen2-MoE, arXiv 2407.10671).

use super::gate::{sigmoid, sigmoid_composite};
use super::math::sum2;
use super::threads;
use candle_core::{Result, Tensor};

/// `x` (N, D) times sigmoid(`scores` (N, 1)).
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite(x: &Tensor, scores: &Tensor) -> Result<Tensor> {
    x.broadcast_mul(&sigmoid_composite(scores)?)
}

/// `y` (N, D) = `residual` + sigmoid(`scores`) · `x`, row by row.
pub fn forward(scores: &[f32], x: &[f32], residual: Option<&[f32]>, y: &mut [f32]) {
    let d = y.len() / scores.len();
    threads::rows1(y, d, 2 * d, |first, y| {
        for (i, y) in y.chunks_exact_mut(d).enumerate() {
            let row = (first + i) * d..(first + i + 1) * d;
            let open = sigmoid(scores[first + i]);
            match residual {
                Some(residual) => y.copy_from_slice(&residual[row.clone()]),
                None => y.fill(0.0),
            }
            for (y, x) in y.iter_mut().zip(&x[row]) {
                *y += open * x;
            }
        }
    });
}

/// `dx` (N, D) and `dscores` (N) = the gradients with respect to both, for `dy`.
pub fn backward([scores, x, dy]: [&[f32]; 3], dx: &mut [f32], dscores: &mut [f32]) {
    let d = dy.len() / scores.len();
    threads::rows2((dx, d), (dscores, 1), 4 * d, |first, dx, dscores| {
        let rows = dx.chunks_exact_mut(d).zip(dscores).enumerate();
        for (i, (dx, dscore)) in rows {
            let row = (first + i) * d..(first + i + 1) * d;
            let (x, dy) = (&x[row.clone()], &dy[row]);
            let open = sigmoid(scores[first + i]);
            *dscore = open * (1.0 - open) * sum2(x, dy, |x, dy| x * dy);
            for (dx, dy) in dx.iter_mut().zip(dy) {
                *dx = open * dy;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, leaf, normal, oracle};

    #[test]
    fn gradients_agree_with_candle_in_f64() {
        for (rows, d) in [(1, 1), (7, 5), (300, 33)] {
            let (x, dy, residual) = (
                normal(rows * d, 0),
                normal(rows * d, 1),
                normal(rows * d, 2),
            );
            let mut scores: Vec<f32> = normal(rows, 3).iter().map(|x| 4.0 * x).collect();
            if let Some(closed) = scores.get_mut(5) {
                *closed = -800.0;
            }
            let (lx, ls) = (leaf(&x, &[rows, d]), leaf(&scores, &[rows, 1]));
            let (exact, grads) = oracle(&[&lx, &ls], &dy, || composite(&lx, &ls));
            let [mut y, mut sum, mut dx] = [(); 3].map(|()| vec![f32::NAN; rows * d]);
            forward(&scores, &x, None, &mut y);
            assert_close("y", &y, &exact, 2e-6);
            forward(&scores, &x, Some(&residual), &mut sum);
            let added = exact.iter().zip(&residual);
            let added: Vec<f64> = added.map(|(y, r)| y + f64::from(*r)).collect();
            assert_close("sum", &sum, &added, 2e-6);
            let mut dscores = vec![f32::NAN; rows];
            backward([&scores, &x, &dy], &mut dx, &mut dscores);
            assert_close("dx", &dx, &grads[0], 2e-6);
            assert_close("dscores", &dscores, &grads[1], 5e-6);
        }
    }
}
