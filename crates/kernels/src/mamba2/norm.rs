//! RMSNorm of y ∘ SiLU(z) over the features of each group, and its backward.

use super::Mamba2;
use crate::causal_conv::widened;
use crate::causal_conv::{copy, store};
use crate::lanes::scratch::{Carver, with_scratch};
use crate::math::{EXP_END, exp, sum1, sum2};
use crate::matmul::Accumulation;
use crate::numbers::{Number, Values};
use crate::reduce::{join, over_rows};
use crate::simd::multiversion;
use crate::threads::{self, SharedSlice};
use std::ops::Range;

/// FLOPs of a feature.
const COST: usize = 24;

/// `out` (rows, inner) from `y` (rows, inner) and z, the first columns of `wide`.
pub fn forward<N: Number>(net: Mamba2, wide: Values, y: &[f32], out: &mut [N]) {
    let (inner, group) = (net.sizes.inner(), net.sizes.inner() / net.sizes.n_group);
    threads::rows1(out, inner, COST * inner, |first, out| {
        let lens = [inner, group];
        with_scratch(Carver::room(&lens), |mut carver| {
            let [own, gated] = lens.map(|len| carver.take(len));
            for (i, out) in out.chunks_exact_mut(inner).enumerate() {
                let row = first + i;
                let z = row * net.sizes.wide();
                let z = widened(wide, z..z + inner, own);
                let y = &y[row * inner..][..inner];
                let groups = out.chunks_exact_mut(group).zip(z.chunks_exact(group));
                let others = y.chunks_exact(group).zip(net.gain.chunks_exact(group));
                for ((out, z), (y, gain)) in groups.zip(others) {
                    normalize(out, y, z, gain, net.eps, gated);
                }
            }
        });
    });
}

/// The first columns of `gradients`, rows as wide as [`super::Sizes::gradient`] says, = the gradient with respect to `y`; z's own
/// columns of `dwide`; and in the same pass the gradient with respect to the gain.
pub fn backward<N: Number>(
    net: Mamba2,
    (wide, y, dout): (Values, &[f32], Values),
    gradients: &mut [f32],
    dwide: &SharedSlice<N>,
    (dgain, into): (Option<&mut [f32]>, Accumulation),
) {
    let sizes = net.sizes;
    let (inner, group, stride) = (
        sizes.inner(),
        sizes.inner() / sizes.n_group,
        sizes.gradient(),
    );
    let rows = y.len() / inner;
    let gradients = SharedSlice::new(gradients);
    let work = |part: Range<usize>, sums: &mut [f32]| {
        let lens = [inner; 3];
        with_scratch(Carver::room(&lens), |mut carver| {
            let [z, own, no_sums] = lens.map(|len| carver.take(len));
            // Where no gain trains, its gradient goes nowhere.
            let sums = if sums.is_empty() { no_sums } else { sums };
            for row in part {
                let from = row * sizes.wide();
                copy(wide, from..from + inner, z);
                let dout = widened(dout, row * inner..(row + 1) * inner, own);
                #[allow(unsafe_code)]
                // SAFETY: each task has its own rows, here and below.
                let dy = unsafe { gradients.range(row * stride..row * stride + inner) };
                for at in (0..inner).step_by(group) {
                    let own = at..at + group;
                    normalize_backward(
                        &mut dy[own.clone()],
                        &y[row * inner..][own.clone()],
                        &mut z[own.clone()],
                        &net.gain[own.clone()],
                        net.eps,
                        &dout[own.clone()],
                        &mut sums[own],
                    );
                }
                #[allow(unsafe_code)]
                // SAFETY: as above.
                store(unsafe { dwide.range(from..from + inner) }, z);
            }
        });
    };
    let width = if dgain.is_some() { inner } else { 0 };
    over_rows(rows, width, 2 * COST * inner, work, |sums| {
        if let Some(dgain) = dgain {
            join(dgain, sums, into);
        }
    });
}

multiversion! {
    fn normalize<N: Number>(out: &mut [N], y: &[f32], z: &[f32], gain: &[f32], eps: f32, gated: &mut [f32]) {
        for ((gated, &y), &z) in gated.iter_mut().zip(y).zip(z) {
            *gated = y * (z / (1.0 + exp(-z)));
        }
        let scale = 1.0 / (sum1(gated, |x| x * x) / gated.len() as f32 + eps).sqrt();
        for ((out, &gated), &gain) in out.iter_mut().zip(&*gated).zip(gain) {
            *out = N::narrow(gated * scale * gain);
        }
    }
}

multiversion! {
    /// `dy` = the gradient with respect to `y`, for `dout`; adds that of the gain to `dgain` and replaces `z` by its own.
    fn normalize_backward(
        dy: &mut [f32],
        y: &[f32],
        z: &mut [f32],
        gain: &[f32],
        eps: f32,
        dout: &[f32],
        dgain: &mut [f32],
    ) {
        let n = y.len() as f32;
        for ((gated, &y), &z) in dy.iter_mut().zip(y).zip(&*z) {
            *gated = y * (z / (1.0 + exp(-z)));
        }
        let scale = 1.0 / (sum1(dy, |x| x * x) / n + eps).sqrt();
        for ((&gated, dgain), &dout) in dy.iter().zip(&mut *dgain).zip(dout) {
            *dgain += dout * gated * scale;
        }
        // Σ dout · gain · gated, over what the norm divides by.
        let mut along = 0.0;
        for ((dy, dout), gain) in dy.chunks(16).zip(dout.chunks(16)).zip(gain.chunks(16)) {
            let mut weighted = [0.0; 16];
            for ((to, &dout), &gain) in weighted.iter_mut().zip(dout).zip(gain) {
                *to = dout * gain;
            }
            along += sum2(&weighted[..dy.len()], dy, |a, b| a * b);
        }
        let along = along * scale * scale / n;
        let all = dy.iter_mut().zip(y).zip(z.iter_mut().zip(gain));
        for (((dy, &y), (z, &gain)), &dout) in all.zip(dout) {
            let e = 1.0 + exp(-*z);
            let value = *z / e;
            let s = if *z < EXP_END { 0.0 } else { 1.0 / e };
            let dgated = scale * (dout * gain - *dy * along);
            *dy = dgated * value;
            *z = dgated * y * (s + value * (1.0 - s));
        }
    }
}
