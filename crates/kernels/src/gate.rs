//! A gate: x ∘ sigmoid(gate), as on attention's output (Qiu et al. 2025, arXiv 2505.06708).

use super::math::exp;
use super::simd::multiversion;
use super::threads;
use candle_core::{Result, Tensor};

/// `x` ∘ sigmoid(`gate`), of equal shapes.
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite(x: &Tensor, gate: &Tensor) -> Result<Tensor> {
    x * sigmoid_composite(gate)?
}

/// Where exp(−x) is far from overflow yet: below, its gradient would be 0 · ∞.
const LOWEST: f64 = -80.0;

/// 1 / (1 + exp(−x)), to its last digits also where it is small; constant below [`LOWEST`], where it is less than 1e-34.
///
/// # Errors
/// candle's own.
pub fn sigmoid_composite(x: &Tensor) -> Result<Tensor> {
    (x.maximum(LOWEST)?.neg()?.exp()? + 1.0)?.recip()
}

/// FLOPs per element, for choosing the thread count.
const COST: usize = 16;

/// `y` = `x` ∘ sigmoid(`gate`), each (rows, `width`).
pub fn forward(width: usize, x: &[f32], gate: &[f32], y: &mut [f32]) {
    threads::rows1(y, width, COST * width, |first, y| {
        let part = first * width..first * width + y.len();
        forward_part(&x[part.clone()], &gate[part], y);
    });
}

/// `dx` and `dgate` = the gradients with respect to both, for `dy`.
pub fn backward(width: usize, [x, gate, dy]: [&[f32]; 3], dx: &mut [f32], dgate: &mut [f32]) {
    threads::rows2(
        (dx, width),
        (dgate, width),
        2 * COST * width,
        |first, dx, dgate| {
            let part = first * width..first * width + dx.len();
            backward_part([x, gate, dy].map(|of| &of[part.clone()]), dx, dgate);
        },
    );
}

#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

multiversion! {
    fn forward_part(x: &[f32], gate: &[f32], y: &mut [f32]) {
        for ((y, &x), &gate) in y.iter_mut().zip(x).zip(gate) {
            *y = x * sigmoid(gate);
        }
    }
}

multiversion! {
    fn backward_part(saved: [&[f32]; 3], dx: &mut [f32], dgate: &mut [f32]) {
        let [x, gate, dy] = saved;
        let gradients = dx.iter_mut().zip(dgate);
        for (((&x, &gate), &dy), (dx, dgate)) in x.iter().zip(gate).zip(dy).zip(gradients) {
            let open = sigmoid(gate);
            *dx = dy * open;
            *dgate = dy * x * open * (1.0 - open);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, leaf, normal, oracle};

    #[test]
    fn gradients_agree_with_candle_in_f64() {
        for (rows, width) in [(1, 1), (7, 5), (300, 33)] {
            let n = rows * width;
            let [x, gate, dy] = [0, 1, 2].map(|seed| normal(n, seed));
            let mut gate: Vec<f32> = gate.iter().map(|x| 4.0 * x).collect();
            // Where exp(−x) is ∞, also in f64: the gradient was not a number.
            gate[0] = -800.0;
            let (lx, lgate) = (leaf(&x, &[n]), leaf(&gate, &[n]));
            let (exact, grads) = oracle(&[&lx, &lgate], &dy, || composite(&lx, &lgate));
            let [mut y, mut dx, mut dgate] = [(); 3].map(|()| vec![f32::NAN; n]);
            forward(width, &x, &gate, &mut y);
            backward(width, [&x, &gate, &dy], &mut dx, &mut dgate);
            assert_close("y", &y, &exact, 1e-6);
            assert_close("dx", &dx, &grads[0], 1e-6);
            assert_close("dgate", &dgate, &grads[1], 1e-6);
        }
    }
}
