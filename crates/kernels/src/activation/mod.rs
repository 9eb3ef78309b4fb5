//! Activation functions between the two linear layers of a feed-forward block.
#![allow(unsafe_code)]

mod functions;
mod passes;

use super::numbers::{Values, ValuesMut};
use super::threads;
use candle_core::{D, Result, Tensor};

/// The activation function.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// max(x, 0).
    Relu,
    /// x, or slope · x below 0.
    LeakyRelu(f32),
    /// x · sigmoid(x) (Elfwing et al. 2017).
    Silu,
    /// x Φ(x), the exact form (Hendrycks and Gimpel 2016).
    Gelu,
    /// 0.5 x (1 + tanh(√(2/π)(x + 0.044715 x³))), GPT-2's form.
    GeluTanh,
    /// silu(gate) · up (Shazeer 2020); gated inputs hold gate and up side by side.
    SwiGlu,
    /// g · sigmoid(slope · g) · (u + 1), with g = min(gate, limit) and u the up half within ±limit (gpt-oss, arXiv 2508.10925).
    ClampedSwiGlu { limit: f32, slope: f32 },
    /// gelu(gate) · up.
    GeGlu,
    /// The same with GPT-2's tanh form.
    GeGluTanh,
}

impl Activation {
    /// Whether one half of the input gates the other.
    pub fn gated(self) -> bool {
        matches!(
            self,
            Activation::SwiGlu
                | Activation::ClampedSwiGlu { .. }
                | Activation::GeGlu
                | Activation::GeGluTanh
        )
    }

    /// Width of the input for an output of width `d_ff`.
    pub fn input_width(self, d_ff: usize) -> usize {
        if self.gated() { 2 * d_ff } else { d_ff }
    }
}

/// `x` (…, d_ff), or (…, 2 · d_ff) with the gate first for gated ones → (…, d_ff).
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite(kind: Activation, x: &Tensor) -> Result<Tensor> {
    let split = |x: &Tensor| -> Result<(Tensor, Tensor)> {
        let d_ff = x.dim(D::Minus1)? / 2;
        Ok((
            x.narrow(D::Minus1, 0, d_ff)?,
            x.narrow(D::Minus1, d_ff, d_ff)?,
        ))
    };
    match kind {
        Activation::Relu => x.relu(),
        // From two rectifiers, because a maximum has no gradient with respect to its second argument.
        Activation::LeakyRelu(slope) => x.relu()? - (x.neg()?.relu()? * f64::from(slope))?,
        Activation::Silu => x / (x.neg()?.exp()? + 1.0)?,
        // Based on erf: candle's own gelu_erf has a derivative accurate to six digits only.
        Activation::Gelu => {
            let phi = (((x * std::f64::consts::FRAC_1_SQRT_2)?.erf()? + 1.0)? * 0.5)?;
            x * phi
        }
        Activation::GeluTanh => {
            let inner = (x + (x.sqr()? * x)? * 0.044_715)?;
            let u = (inner * (2.0 / std::f64::consts::PI).sqrt())?;
            (x * 0.5)? * (u.tanh()? + 1.0)?
        }
        Activation::SwiGlu => {
            let (gate, up) = split(x)?;
            composite(Activation::Silu, &gate)? * up
        }
        // From rectifiers, as above: min(x, c) is c − relu(c − x).
        Activation::ClampedSwiGlu { limit, slope } => {
            let (limit, slope) = (f64::from(limit), f64::from(slope));
            let (gate, up) = split(x)?;
            let below = |x: &Tensor, most: f64| (x.neg()? + most)?.relu()?.neg()? + most;
            let gate = below(&gate, limit)?;
            let up = (below(&(up + limit)?.relu()?, 2.0 * limit)? - (limit - 1.0))?;
            let swish = (&gate / ((&gate * -slope)?.exp()? + 1.0)?)?;
            swish * up
        }
        Activation::GeGlu => {
            let (gate, up) = split(x)?;
            composite(Activation::Gelu, &gate)? * up
        }
        Activation::GeGluTanh => {
            let (gate, up) = split(x)?;
            composite(Activation::GeluTanh, &gate)? * up
        }
    }
}

/// FLOPs per element, for choosing the thread count.
const COST: usize = 24;

/// `x` (rows, input width) → `y` (rows, d_ff), both in the same storage dtype.
pub fn forward(kind: Activation, d_ff: usize, x: Values, y: ValuesMut) {
    match y {
        ValuesMut::F32(y) => forward_of(kind, d_ff, x, y),
        ValuesMut::Bf16(y) => forward_of(kind, d_ff, x, y),
    }
}

/// Replaces `x` (rows, input width) by the gradient with respect to it, and `dy` (rows, d_ff) by the activation's output:
/// the backward of the next linear layer needs both, and in place no memory is touched twice. Both have the same storage dtype.
pub fn backward(kind: Activation, d_ff: usize, x: ValuesMut, dy: ValuesMut) {
    match (x, dy) {
        (ValuesMut::F32(x), ValuesMut::F32(dy)) => backward_of(kind, d_ff, x, dy),
        (ValuesMut::Bf16(x), ValuesMut::Bf16(dy)) => backward_of(kind, d_ff, x, dy),
        _ => unreachable!("an activation's input and gradient are kept alike"),
    }
}

fn forward_of<N: Send + Sync>(kind: Activation, d_ff: usize, x: Values, y: &mut [N])
where
    for<'a> ValuesMut<'a>: From<&'a mut [N]>,
{
    let width = kind.input_width(d_ff);
    threads::rows1(y, d_ff, COST * d_ff, |first, y| {
        let is_bf16 = matches!(x, Values::Bf16(_));
        // SAFETY: the dispatch picks only instructions that the machine has.
        unsafe { passes::forward(is_bf16, kind, d_ff, x.from(first * width), y.into()) }
    });
}

fn backward_of<N: Send + Sync>(kind: Activation, d_ff: usize, x: &mut [N], dy: &mut [N])
where
    for<'a> ValuesMut<'a>: From<&'a mut [N]>,
{
    let width = kind.input_width(d_ff);
    threads::rows2((x, width), (dy, d_ff), COST * width, |_, x, dy| {
        let (x, dy) = (ValuesMut::from(x), ValuesMut::from(dy));
        let is_bf16 = matches!(x, ValuesMut::Bf16(_));
        // SAFETY: as above.
        unsafe { passes::backward(is_bf16, kind, d_ff, x, dy) }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, leaf, normal, oracle};
    use crate::numbers::bf16;

    const ALL: [Activation; 10] = [
        Activation::Relu,
        Activation::LeakyRelu(0.1),
        Activation::Silu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::SwiGlu,
        Activation::ClampedSwiGlu {
            limit: 7.0,
            slope: 1.702,
        },
        // Half of the values are beyond it.
        Activation::ClampedSwiGlu {
            limit: 2.0,
            slope: 1.0,
        },
        Activation::GeGlu,
        Activation::GeGluTanh,
    ];

    #[test]
    fn gradients_agree_with_candle_in_f64() {
        for kind in ALL {
            for (rows, d_ff) in [(1, 1), (3, 17), (70, 64)] {
                let width = kind.input_width(d_ff);
                let x: Vec<f32> = normal(rows * width, 0).iter().map(|x| 3.0 * x).collect();
                let dy = normal(rows * d_ff, 1);
                let lx = leaf(&x, &[rows, width]);
                let (exact, grads) = oracle(&[&lx], &dy, || composite(kind, &lx));
                let mut y = vec![9.0; rows * d_ff];
                forward_of(kind, d_ff, (&x[..]).into(), &mut y[..]);
                assert_close("y", &y, &exact, 1e-6);
                let (mut dx, mut again) = (x, dy);
                backward_of(kind, d_ff, &mut dx[..], &mut again[..]);
                assert_close("dx", &dx, &grads[0], 2e-6);
                assert!(again == y, "{kind:?}: recomputed");
            }
        }
    }

    #[test]
    fn bf16_storage_gives_rounded_f32_values() {
        let halves = |x: &[f32]| x.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
        for kind in ALL {
            let (rows, d_ff) = (3, 77);
            let width = kind.input_width(d_ff);
            let mut x = halves(&normal(rows * width, 2));
            let mut dy = halves(&normal(rows * d_ff, 3));
            let [mut wide, mut dwide] = [&x, &dy].map(|x| Values::Bf16(x).as_f32().into_owned());
            let (mut y, mut exact) = (vec![bf16::NAN; dy.len()], vec![f32::NAN; dy.len()]);
            forward_of(kind, d_ff, (&x[..]).into(), &mut y[..]);
            forward_of(kind, d_ff, Values::F32(&wide), &mut exact[..]);
            assert!(y == halves(&exact), "{kind:?}");
            backward_of(kind, d_ff, &mut x[..], &mut dy[..]);
            backward_of(kind, d_ff, &mut wide[..], &mut dwide[..]);
            assert!(x == halves(&wide) && dy == halves(&dwide), "{kind:?}");
        }
    }

    #[test]
    fn far_from_zero_activations_are_the_identity_or_zero() {
        for kind in [Activation::Gelu, Activation::GeluTanh] {
            let mut y = [0.0; 2];
            forward_of(kind, 2, Values::F32(&[30.0, -30.0]), &mut y[..]);
            assert_eq!(y[0], 30.0);
            assert!(y[1].abs() < 1e-30);
        }
    }
}
