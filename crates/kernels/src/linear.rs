//! A linear layer: y = x Wᵀ (+ b), weights stored (out, in).

use super::matmul::{Accumulation, Compute, ComputeDtype, Mat, Plus, matmul};
use super::matrix::Matrix;
use super::numbers::{Values, ValuesMut};
use super::reduce;
use candle_core::{Result, Tensor};

/// `x` (…, in), `weight` (out, in), `bias` (out) → (…, out).
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let y = x.broadcast_matmul(&weight.t()?)?;
    match bias {
        Some(bias) => y.broadcast_add(bias),
        None => Ok(y),
    }
}

/// Dimensions of a fused linear layer: `rows` vectors of `d_in` features become `d_out` features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub rows: usize,
    pub d_in: usize,
    pub d_out: usize,
}

/// `y` (rows, d_out) = `x` (rows, d_in) · `weight` (d_out, d_in)ᵀ + addends.
pub fn forward(
    arithmetic: ComputeDtype,
    sizes: Sizes,
    x: Values,
    weight: Matrix,
    plus: Plus,
    y: ValuesMut,
) {
    let Sizes { rows, d_in, d_out } = sizes;
    let compute = Compute::pool(arithmetic);
    weight.product(y, Mat::of(x, rows, d_in), d_out, plus, compute);
}

/// `dx` (rows, d_in) = `dy` (rows, d_out) · `weight` + addends.
pub fn backward_input(
    arithmetic: ComputeDtype,
    sizes: Sizes,
    dy: Values,
    weight: Matrix,
    dx: ValuesMut,
    plus: Plus,
) {
    let Sizes { rows, d_in, d_out } = sizes;
    let dy = Mat::of(dy, rows, d_out);
    weight.input_gradient(dx, dy, d_in, plus, Compute::pool(arithmetic));
}

/// `dweight` (d_out, d_in) = (or +=) `dy`ᵀ · `x`.
pub fn backward_weight(
    arithmetic: ComputeDtype,
    sizes: Sizes,
    dy: Values,
    x: Values,
    dweight: &mut [f32],
    into: Accumulation,
) {
    let Sizes { rows, d_in, d_out } = sizes;
    let (dy, x) = (Mat::of(dy, rows, d_out), Mat::of(x, rows, d_in));
    matmul(dweight, dy.t(), x, 1.0, into, Compute::pool(arithmetic));
}

/// `dbias` (d_out) = (or +=) Σ over rows of `dy`.
pub fn backward_bias(dy: Values, dbias: &mut [f32], into: Accumulation) {
    match dy {
        Values::F32(dy) => reduce::column_sums(dbias, dy, into),
        Values::Bf16(dy) => reduce::column_sums(dbias, dy, into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, leaf, normal, oracle};

    #[test]
    fn gradients_agree_with_candle_in_f64() {
        for (rows, d_in, d_out) in [(1, 1, 1), (5, 7, 3), (33, 40, 65), (64, 128, 96)] {
            let sizes = Sizes { rows, d_in, d_out };
            let x = normal(rows * d_in, 0);
            let weight = normal(d_out * d_in, 1);
            let bias = normal(d_out, 2);
            let residual = normal(rows * d_out, 3);
            let dy = normal(rows * d_out, 4);
            let leaves = [
                leaf(&x, &[rows, d_in]),
                leaf(&weight, &[d_out, d_in]),
                leaf(&bias, &[d_out]),
            ];
            let [lx, lw, lb] = &leaves;
            let (exact, grads) = oracle(&[lx, lw, lb], &dy, || {
                let y = composite(lx, lw, Some(lb))?;
                y + leaf(&residual, &[rows, d_out]).as_tensor()
            });
            let mut y = vec![9.0; rows * d_out];
            forward(
                ComputeDtype::F32,
                sizes,
                Values::F32(&x),
                Matrix::Dense(&weight),
                Plus {
                    residual: Some(&residual),
                    bias: Some(&bias),
                    ..Plus::default()
                },
                ValuesMut::F32(&mut y),
            );
            assert_close("y", &y, &exact, 1e-6);
            let mut dx = vec![9.0; rows * d_in];
            backward_input(
                ComputeDtype::F32,
                sizes,
                Values::F32(&dy),
                Matrix::Dense(&weight),
                ValuesMut::F32(&mut dx),
                Plus::default(),
            );
            assert_close("dx", &dx, &grads[0], 1e-6);
            let mut dweight = vec![f32::NAN; d_out * d_in];
            let mut dbias = vec![f32::NAN; d_out];
            for (times, into) in [(1.0, Accumulation::Overwrite), (2.0, Accumulation::Add)] {
                let exact = |i: usize| grads[i].iter().map(|x| times * x).collect::<Vec<_>>();
                let (dy, x) = (Values::F32(&dy), Values::F32(&x));
                backward_weight(ComputeDtype::F32, sizes, dy, x, &mut dweight, into);
                assert_close("dweight", &dweight, &exact(1), 1e-6);
                backward_bias(dy, &mut dbias, into);
                assert_close("dbias", &dbias, &exact(2), 1e-6);
            }
        }
    }
}
