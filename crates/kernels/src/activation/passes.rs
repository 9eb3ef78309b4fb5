//! The passes over rows: loaded, computed and stored register by register.
#![allow(unsafe_code)]

use super::Activation;
use super::functions::{ClampedSilu, Function, Gelu, GeluTanh, LeakyRelu, Silu};
use crate::fetch::{self, AHEAD, RUN};
use crate::lanes::{InLanes, LINE, Vector, widest};
use crate::numbers::{Values, ValuesMut, bf16};

widest! {
    /// `x` (rows, input width) → `y` (rows, d_ff).
    pub fn forward(pairs, kind: Activation, d_ff: usize, x: Values<'_>, y: ValuesMut<'_>) = forward_with
}
widest! {
    /// Overwrites `x` with the gradient with respect to it, and `dy` (rows, d_ff) with the output.
    pub fn backward(pairs, kind: Activation, d_ff: usize, x: ValuesMut<'_>, dy: ValuesMut<'_>) = backward_with
}

#[inline(always)]
unsafe fn forward_with<V: Vector>(kind: Activation, d_ff: usize, x: Values<'_>, y: ValuesMut<'_>) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (x, y) {
            (Values::F32(x), ValuesMut::F32(y)) => forward_of::<V, f32>(kind, d_ff, x, y),
            (Values::Bf16(x), ValuesMut::Bf16(y)) => forward_of::<V, bf16>(kind, d_ff, x, y),
            _ => unreachable!("an activation's input and output are kept alike"),
        }
    }
}

#[inline(always)]
unsafe fn backward_with<V: Vector>(
    kind: Activation,
    d_ff: usize,
    x: ValuesMut<'_>,
    dy: ValuesMut<'_>,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (x, dy) {
            (ValuesMut::F32(x), ValuesMut::F32(dy)) => backward_of::<V, f32>(kind, d_ff, x, dy),
            (ValuesMut::Bf16(x), ValuesMut::Bf16(dy)) => backward_of::<V, bf16>(kind, d_ff, x, dy),
            _ => unreachable!("an activation's input and gradient are kept alike"),
        }
    }
}

/// What a pass computes with the activation, on one register of elements from each of K arrays.
trait Step<const K: usize>: Copy {
    /// Index of the first array that is written; so are all after it.
    const WRITTEN: usize;

    /// # Safety
    /// The machine must have V's instructions; the pointers are valid for LANES numbers, from WRITTEN on also for writing.
    unsafe fn at<V: Vector, N: InLanes>(self, arrays: [*mut N; K]);
}

/// x → y.
#[derive(Clone, Copy)]
struct Forward<F>(F);

impl<F: Function> Step<2> for Forward<F> {
    const WRITTEN: usize = 1;

    #[inline(always)]
    unsafe fn at<V: Vector, N: InLanes>(self, [x, y]: [*mut N; 2]) {
        // SAFETY: guaranteed by the caller.
        unsafe { N::store(self.0.value_and_slope::<V>(N::load(x)).0, y) }
    }
}

/// x, dy → dx, y.
#[derive(Clone, Copy)]
struct Backward<F>(F);

impl<F: Function> Step<2> for Backward<F> {
    const WRITTEN: usize = 0;

    #[inline(always)]
    unsafe fn at<V: Vector, N: InLanes>(self, [x, dy]: [*mut N; 2]) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (value, slope) = self.0.value_and_slope::<V>(N::load(x));
            N::store(N::load::<V>(dy).times(slope), x);
            N::store(value, dy);
        }
    }
}

/// gate, up → y.
#[derive(Clone, Copy)]
struct GatedForward<F>(F);

impl<F: Function> Step<3> for GatedForward<F> {
    const WRITTEN: usize = 2;

    #[inline(always)]
    unsafe fn at<V: Vector, N: InLanes>(self, [gate, up, y]: [*mut N; 3]) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (value, _) = self.0.value_and_slope::<V>(N::load(gate));
            N::store(value.times(self.0.factor(N::load(up))), y);
        }
    }
}

/// gate, up, dy → their gradients, y.
#[derive(Clone, Copy)]
struct GatedBackward<F>(F);

impl<F: Function> Step<3> for GatedBackward<F> {
    const WRITTEN: usize = 0;

    #[inline(always)]
    unsafe fn at<V: Vector, N: InLanes>(self, [gate, up, dy]: [*mut N; 3]) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (value, slope) = self.0.value_and_slope::<V>(N::load(gate));
            let (d, u) = (N::load::<V>(dy), N::load::<V>(up));
            let factor = self.0.factor(u);
            N::store(d.times(factor).times(slope), gate);
            N::store(self.0.factor_back(u, d.times(value)), up);
            N::store(value.times(factor), dy);
        }
    }
}

/// Runs `step` over all `n` elements, with prefetching; the last few elements are computed in a buffer.
///
/// # Safety
/// The machine must have V's instructions; the arrays are valid for n numbers, from WRITTEN on also for writing.
#[inline(always)]
unsafe fn all<V: Vector, N: InLanes, const K: usize, S: Step<K>>(
    step: S,
    arrays: [*mut N; K],
    n: usize,
) {
    let whole = n - n % V::LANES;
    for run in (0..whole).step_by(RUN) {
        for (i, array) in arrays.iter().enumerate() {
            let ahead = array.wrapping_add(run).wrapping_byte_add(AHEAD);
            match i >= S::WRITTEN {
                true => fetch::write(ahead, RUN),
                false => fetch::at(ahead, RUN),
            }
        }
        for at in (run..whole.min(run + RUN)).step_by(V::LANES) {
            // SAFETY: within the arrays.
            unsafe { step.at::<V, N>(arrays.map(|array| array.add(at))) }
        }
    }
    let rest = n - whole;
    if rest > 0 {
        let mut lines = [[N::narrow(0.0); LINE]; K];
        // SAFETY: the last elements of the arrays, and buffers large enough for a register.
        unsafe {
            for (line, array) in lines.iter_mut().zip(arrays) {
                array
                    .add(whole)
                    .copy_to_nonoverlapping(line.as_mut_ptr(), rest);
            }
            step.at::<V, N>(lines.each_mut().map(|line| line.as_mut_ptr()));
            for (line, array) in lines.iter().zip(arrays).skip(S::WRITTEN) {
                line.as_ptr().copy_to_nonoverlapping(array.add(whole), rest);
            }
        }
    }
}

/// Calls `$pass::<V, N, …>(function, …)` with the function of the activation, or of its gate.
macro_rules! by_function {
    ($kind:expr, $pass:ident, $v:ty, $n:ty, $($arg:expr),*) => {
        match $kind {
            Activation::Relu => $pass::<$v, $n, _>(LeakyRelu(0.0), $($arg),*),
            Activation::LeakyRelu(slope) => $pass::<$v, $n, _>(LeakyRelu(slope), $($arg),*),
            Activation::Silu | Activation::SwiGlu => $pass::<$v, $n, _>(Silu, $($arg),*),
            Activation::ClampedSwiGlu { limit, slope } => {
                $pass::<$v, $n, _>(ClampedSilu { limit, slope }, $($arg),*)
            }
            Activation::Gelu | Activation::GeGlu => $pass::<$v, $n, _>(Gelu, $($arg),*),
            Activation::GeluTanh | Activation::GeGluTanh => {
                $pass::<$v, $n, _>(GeluTanh, $($arg),*)
            }
        }
    };
}

#[inline(always)]
unsafe fn forward_of<V: Vector, N: InLanes>(kind: Activation, d_ff: usize, x: &[N], y: &mut [N]) {
    #[inline(always)]
    unsafe fn pass<V: Vector, N: InLanes, F: Function>(
        function: F,
        is_gated: bool,
        d_ff: usize,
        x: &[N],
        y: &mut [N],
    ) {
        // Read-only arrays are not written through these pointers.
        let start = x.as_ptr().cast_mut();
        // SAFETY: within the rows of both slices, which have the same number of rows.
        unsafe {
            if !is_gated {
                let n = x.len().min(y.len());
                return all::<V, N, 2, _>(Forward(function), [start, y.as_mut_ptr()], n);
            }
            let rows = x.chunks_exact(2 * d_ff).zip(y.chunks_exact_mut(d_ff));
            for (x, y) in rows {
                let gate = x.as_ptr().cast_mut();
                let arrays = [gate, gate.add(d_ff), y.as_mut_ptr()];
                all::<V, N, 3, _>(GatedForward(function), arrays, d_ff);
            }
        }
    }
    // SAFETY: guaranteed by the caller.
    unsafe { by_function!(kind, pass, V, N, kind.gated(), d_ff, x, y) }
}

#[inline(always)]
unsafe fn backward_of<V: Vector, N: InLanes>(
    kind: Activation,
    d_ff: usize,
    x: &mut [N],
    dy: &mut [N],
) {
    #[inline(always)]
    unsafe fn pass<V: Vector, N: InLanes, F: Function>(
        function: F,
        is_gated: bool,
        d_ff: usize,
        x: &mut [N],
        dy: &mut [N],
    ) {
        // SAFETY: as above.
        unsafe {
            if !is_gated {
                let n = x.len().min(dy.len());
                let arrays = [x.as_mut_ptr(), dy.as_mut_ptr()];
                return all::<V, N, 2, _>(Backward(function), arrays, n);
            }
            let rows = x.chunks_exact_mut(2 * d_ff).zip(dy.chunks_exact_mut(d_ff));
            for (x, dy) in rows {
                let gate = x.as_mut_ptr();
                let arrays = [gate, gate.add(d_ff), dy.as_mut_ptr()];
                all::<V, N, 3, _>(GatedBackward(function), arrays, d_ff);
            }
        }
    }
    // SAFETY: guaranteed by the caller.
    unsafe { by_function!(kind, pass, V, N, kind.gated(), d_ff, x, dy) }
}
