//! Activation functions between the two linear layers of a feed-forward block.

use super::fetch::{self, RUN};
use super::math::{normal_cdf_pdf, sigmoid};
use super::numbers::{Number, Values, ValuesMut};
use super::simd::multiversion;
use super::threads;
use candle_core::{D, Result, Tensor};

/// Which activation.
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
    /// silu(gate) · up (Shazeer 2020); the input of gated ones holds gate and up side by side.
    SwiGlu,
    /// gelu(gate) · up.
    GeGlu,
    /// The same with GPT-2's form.
    GeGluTanh,
}

impl Activation {
    /// Whether one half of the input gates the other.
    pub fn gated(self) -> bool {
        matches!(
            self,
            Activation::SwiGlu | Activation::GeGlu | Activation::GeGluTanh
        )
    }

    /// Width of the input for an output of width `d_ff`.
    pub fn input_width(self, d_ff: usize) -> usize {
        if self.gated() { 2 * d_ff } else { d_ff }
    }
}

/// `x` (…, d_ff), or (…, 2 · d_ff) with the gate first for gated ones → (…, d_ff).
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

/// FLOPs per element, for the choice of thread count.
const COST: usize = 24;

/// `x` (rows, input width) → `y` (rows, d_ff), both kept alike.
pub fn forward(kind: Activation, d_ff: usize, x: Values, y: ValuesMut) {
    match (x, y) {
        (Values::F32(x), ValuesMut::F32(y)) => forward_of(kind, d_ff, x, y),
        (Values::Bf16(x), ValuesMut::Bf16(y)) => forward_of(kind, d_ff, x, y),
        _ => unreachable!("an activation's input and output are kept alike"),
    }
}

/// Replaces `x` (rows, input width) by the gradient with respect to it, and `dy` (rows, d_ff) by the activation's output:
/// the backward of the next linear layer needs both, and in place no memory is touched twice. Both are kept alike.
pub fn backward(kind: Activation, d_ff: usize, x: ValuesMut, dy: ValuesMut) {
    match (x, dy) {
        (ValuesMut::F32(x), ValuesMut::F32(dy)) => backward_of(kind, d_ff, x, dy),
        (ValuesMut::Bf16(x), ValuesMut::Bf16(dy)) => backward_of(kind, d_ff, x, dy),
        _ => unreachable!("an activation's input and gradient are kept alike"),
    }
}

fn forward_of<N: Number>(kind: Activation, d_ff: usize, x: &[N], y: &mut [N]) {
    let width = kind.input_width(d_ff);
    threads::rows1(y, d_ff, COST * d_ff, |first, y| {
        let rows = y.len() / d_ff;
        let x = &x[first * width..][..rows * width];
        match kind {
            Activation::Relu => leaky_relu(x, y, 0.0),
            Activation::LeakyRelu(slope) => leaky_relu(x, y, slope),
            Activation::Silu => silu(x, y),
            Activation::Gelu => gelu(x, y),
            Activation::GeluTanh => gelu_tanh(x, y),
            Activation::SwiGlu => swiglu(x, y, d_ff),
            Activation::GeGlu => geglu(x, y, d_ff),
            Activation::GeGluTanh => geglu_tanh(x, y, d_ff),
        }
    });
}

fn backward_of<N: Number>(kind: Activation, d_ff: usize, x: &mut [N], dy: &mut [N]) {
    let width = kind.input_width(d_ff);
    threads::rows2(
        (x, width),
        (dy, d_ff),
        COST * width,
        |_, x, dy| match kind {
            Activation::Relu => leaky_relu_backward(x, dy, 0.0),
            Activation::LeakyRelu(slope) => leaky_relu_backward(x, dy, slope),
            Activation::Silu => silu_backward(x, dy),
            Activation::Gelu => gelu_backward(x, dy),
            Activation::GeluTanh => gelu_tanh_backward(x, dy),
            Activation::SwiGlu => swiglu_backward(x, dy, d_ff),
            Activation::GeGlu => geglu_backward(x, dy, d_ff),
            Activation::GeGluTanh => geglu_tanh_backward(x, dy, d_ff),
        },
    );
}

multiversion! {
    fn leaky_relu<N: Number>(x: &[N], y: &mut [N], slope: f32) {
        for (y, x) in y.iter_mut().zip(x) {
            let x = x.wide();
            *y = N::narrow(if x < 0.0 { x * slope } else { x });
        }
    }
}

multiversion! {
    fn leaky_relu_backward<N: Number>(x: &mut [N], dy: &mut [N], slope: f32) {
        for (to_x, to_y) in x.iter_mut().zip(dy) {
            let (x, dy) = (to_x.wide(), to_y.wide());
            *to_x = N::narrow(if x > 0.0 { dy } else { dy * slope });
            *to_y = N::narrow(if x < 0.0 { x * slope } else { x });
        }
    }
}

/// silu(x) and its derivative.
#[inline(always)]
fn silu_and_slope(x: f32) -> (f32, f32) {
    let s = sigmoid(x);
    (x * s, s * (1.0 + x * (1.0 - s)))
}

/// gelu(x) and its derivative.
#[inline(always)]
fn gelu_and_slope(x: f32) -> (f32, f32) {
    let (cdf, pdf) = normal_cdf_pdf(x);
    (x * cdf, cdf + x * pdf)
}

/// 2 √(2/π): 0.5 (1 + tanh u) is the logistic function of 2 u.
const SLOPE: f32 = 1.595_769;
const CUBIC: f32 = 0.044_715;

#[inline(always)]
fn gelu_tanh_and_slope(x: f32) -> (f32, f32) {
    let s = sigmoid(SLOPE * (x + CUBIC * x * x * x));
    let slope = SLOPE * (1.0 + 3.0 * CUBIC * x * x);
    (x * s, s + x * s * (1.0 - s) * slope)
}

/// Builds a forward and a backward from a function and its derivative.
macro_rules! plain {
    ($forward:ident, $backward:ident, $function:ident) => {
        multiversion! {
            fn $forward<N: Number>(x: &[N], y: &mut [N]) {
                let [mut from, mut to] = [[0.0; RUN]; 2];
                for (y, x) in y.chunks_mut(RUN).zip(x.chunks(RUN)) {
                    fetch::ahead(x);
                    fetch::ahead_mut(y);
                    let values = N::room(y, &mut to).iter_mut();
                    for (value, &x) in values.zip(N::read(x, &mut from)) {
                        *value = $function(x).0;
                    }
                    N::put(&to, y);
                }
            }
        }

        multiversion! {
            fn $backward<N: Number>(x: &mut [N], dy: &mut [N]) {
                let [mut own, mut next] = [[0.0; RUN]; 2];
                for (x, dy) in x.chunks_mut(RUN).zip(dy.chunks_mut(RUN)) {
                    fetch::ahead_mut(x);
                    fetch::ahead_mut(dy);
                    let inputs = N::open(x, &mut own).iter_mut();
                    for (x, dy) in inputs.zip(N::open(dy, &mut next)) {
                        let (value, slope) = $function(*x);
                        *x = *dy * slope;
                        *dy = value;
                    }
                    N::put(&own, x);
                    N::put(&next, dy);
                }
            }
        }
    };
}

plain!(silu, silu_backward, silu_and_slope);
plain!(gelu, gelu_backward, gelu_and_slope);
plain!(gelu_tanh, gelu_tanh_backward, gelu_tanh_and_slope);

/// Builds a gated forward and backward from the gate's function and its derivative.
macro_rules! gated {
    ($forward:ident, $backward:ident, $gate:ident) => {
        multiversion! {
            fn $forward<N: Number>(x: &[N], y: &mut [N], d_ff: usize) {
                let [mut gates, mut ups, mut to] = [[0.0; RUN]; 3];
                for (y, x) in y.chunks_exact_mut(d_ff).zip(x.chunks_exact(2 * d_ff)) {
                    let (gate, up) = x.split_at(d_ff);
                    let inputs = gate.chunks(RUN).zip(up.chunks(RUN));
                    for (y, (gate, up)) in y.chunks_mut(RUN).zip(inputs) {
                        fetch::ahead(gate);
                        fetch::ahead(up);
                        fetch::ahead_mut(y);
                        let (gate, up) = (N::read(gate, &mut gates), N::read(up, &mut ups));
                        let values = N::room(y, &mut to).iter_mut();
                        for ((value, &g), &u) in values.zip(gate).zip(up) {
                            *value = $gate(g).0 * u;
                        }
                        N::put(&to, y);
                    }
                }
            }
        }

        multiversion! {
            fn $backward<N: Number>(x: &mut [N], dy: &mut [N], d_ff: usize) {
                /// One run. For three separate arguments the compiler knows that they do not alias, for two halves it does not; and it
                /// fails to vectorize a zip of three that are written.
                #[inline(always)]
                fn row(gate: &mut [f32], up: &mut [f32], dy: &mut [f32]) {
                    let n = gate.len();
                    let (up, dy) = (&mut up[..n], &mut dy[..n]);
                    for i in 0..n {
                        let (value, slope) = $gate(gate[i]);
                        let (d, u) = (dy[i], up[i]);
                        gate[i] = d * u * slope;
                        up[i] = d * value;
                        dy[i] = value * u;
                    }
                }
                let [mut gates, mut ups, mut next] = [[0.0; RUN]; 3];
                for (x, dy) in x.chunks_exact_mut(2 * d_ff).zip(dy.chunks_exact_mut(d_ff)) {
                    let (gate, up) = x.split_at_mut(d_ff);
                    let halves = gate.chunks_mut(RUN).zip(up.chunks_mut(RUN));
                    for ((gate, up), dy) in halves.zip(dy.chunks_mut(RUN)) {
                        fetch::ahead_mut(gate);
                        fetch::ahead_mut(up);
                        fetch::ahead_mut(dy);
                        row(
                            N::open(gate, &mut gates),
                            N::open(up, &mut ups),
                            N::open(dy, &mut next),
                        );
                        N::put(&gates, gate);
                        N::put(&ups, up);
                        N::put(&next, dy);
                    }
                }
            }
        }
    };
}

gated!(swiglu, swiglu_backward, silu_and_slope);
gated!(geglu, geglu_backward, gelu_and_slope);
gated!(geglu_tanh, geglu_tanh_backward, gelu_tanh_and_slope);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, leaf, normal, oracle};
    use crate::numbers::bf16;

    const ALL: [Activation; 8] = [
        Activation::Relu,
        Activation::LeakyRelu(0.1),
        Activation::Silu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::SwiGlu,
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
                forward_of(kind, d_ff, &x, &mut y);
                assert_close("y", &y, &exact, 1e-6);
                let (mut dx, mut again) = (x, dy);
                backward_of(kind, d_ff, &mut dx, &mut again);
                assert_close("dx", &dx, &grads[0], 2e-6);
                assert!(again == y, "{kind:?}: recomputed");
            }
        }
    }

    #[test]
    fn bf16_in_memory_gives_the_rounded_values_of_f32() {
        let halves = |x: &[f32]| x.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
        for kind in ALL {
            let (rows, d_ff) = (3, 77);
            let width = kind.input_width(d_ff);
            let mut x = halves(&normal(rows * width, 2));
            let mut dy = halves(&normal(rows * d_ff, 3));
            let [mut wide, mut dwide] = [&x, &dy].map(|x| Values::Bf16(x).as_f32().into_owned());
            let (mut y, mut exact) = (vec![bf16::NAN; dy.len()], vec![f32::NAN; dy.len()]);
            forward_of(kind, d_ff, &x, &mut y);
            forward_of(kind, d_ff, &wide, &mut exact);
            assert!(y == halves(&exact), "{kind:?}");
            backward_of(kind, d_ff, &mut x, &mut dy);
            backward_of(kind, d_ff, &mut wide, &mut dwide);
            assert!(x == halves(&wide) && dy == halves(&dwide), "{kind:?}");
        }
    }

    #[test]
    fn far_ends_are_the_identity_and_zero() {
        for kind in [Activation::Gelu, Activation::GeluTanh] {
            let mut y = [0.0; 2];
            forward_of(kind, 2, &[30.0_f32, -30.0], &mut y);
            assert_eq!(y[0], 30.0);
            assert!(y[1].abs() < 1e-30);
        }
    }
}
