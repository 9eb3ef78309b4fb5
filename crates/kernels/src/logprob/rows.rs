//! Per-row computation on logits: the outputs of a row, and its gradient in place.
#![allow(unsafe_code)]

use crate::lanes::{Lanes, Vector, widest};
use crate::math::exp;
use crate::simd::multiversion;
use crate::softcap;

/// Outputs of a row: log-probability, entropy, log-sum-exp, and whether the target was the top-1 token.
pub(super) const OUTPUTS: usize = 4;

/// The [`OUTPUTS`] of each row of `logits` (rows, vocab), side by side.
pub(super) fn fill_outputs(logits: &[f32], vocab: usize, targets: &[u32], row_outputs: &mut [f32]) {
    // SAFETY: the dispatch picks only instructions that the machine has.
    unsafe { all_outputs(false, logits, vocab, targets, row_outputs) }
}

/// Inputs of a row's gradient.
#[derive(Debug, Clone, Copy)]
pub(super) struct Constants {
    pub target: usize,
    pub lse: f32,
    pub entropy: f32,
    pub dlogp: f32,
    /// Coefficient of every logit's probability: dlogp, plus the z-loss term that pulls log-sum-exps to zero.
    pub spread: f32,
    pub dentropy: f32,
}

/// Replaces a row of logits by the gradient with respect to them (before the soft cap, if there is one).
pub(super) fn row_to_gradient(row: &mut [f32], of: Constants, cap: Option<f32>) {
    let constants = [of.lse, of.entropy, of.spread, of.dentropy];
    let Some(cap) = cap else {
        // SAFETY: as in `fill_outputs`.
        unsafe { logits_to_gradient(false, row, constants) };
        row[of.target] += of.dlogp;
        return;
    };
    let slope = softcap::slope(row[of.target], 1.0 / cap);
    capped_logits_to_gradient(row, constants, 1.0 / cap);
    row[of.target] += of.dlogp * slope;
}

widest! {
    /// The [`OUTPUTS`] of each row.
    fn all_outputs(
        pairs,
        logits: &[f32],
        vocab: usize,
        targets: &[u32],
        row_outputs: &mut [f32],
    ) = all_outputs_with
}

/// Two passes over a row, which stays in the cache: the maximum; then both sums relative to it.
#[inline(always)]
unsafe fn all_outputs_with<V: Vector>(
    logits: &[f32],
    vocab: usize,
    targets: &[u32],
    row_outputs: &mut [f32],
) {
    let rows = logits.chunks_exact(vocab).zip(targets);
    for ((row, &target), output) in rows.zip(row_outputs.chunks_exact_mut(OUTPUTS)) {
        // SAFETY: loads stay within the row; the caller guarantees the instructions.
        let (top, sum, weighted) = unsafe {
            let mut tops = Lanes::<V>::all(f32::NEG_INFINITY);
            for at in (0..vocab).step_by(V::LANES) {
                let x = V::load_first(row.as_ptr().add(at), vocab - at);
                let x = x.keep_first(vocab - at, f32::NEG_INFINITY);
                *tops.at(at) = x.max(*tops.at(at));
            }
            let top = tops.max_lane();
            let (mut sums, mut weighted) = (Lanes::<V>::all(0.0), Lanes::<V>::all(0.0));
            for at in (0..vocab).step_by(V::LANES) {
                let x = V::load_first(row.as_ptr().add(at), vocab - at);
                let x = x.minus(V::all(top));
                let p = x.exp_to_one().keep_first(vocab - at, 0.0);
                *sums.at(at) = sums.at(at).plus(p);
                *weighted.at(at) = p.fused(x, *weighted.at(at));
            }
            (top, sums.total(), weighted.total())
        };
        let log_sum = sum.ln();
        output[0] = row[target as usize] - top - log_sum;
        // H = lse − Σ p x, with x relative to the maximum.
        output[1] = log_sum - weighted / sum;
        output[2] = top + log_sum;
        output[3] = f32::from(u8::from(row[target as usize] >= top));
    }
}

widest! {
    /// x ← −p (dlogp + dentropy (ln p + H)), the gradient with respect to the logits except for the target's own +dlogp. The
    /// constants are the row's log-sum-exp, H, dlogp and dentropy.
    fn logits_to_gradient(pairs, row: &mut [f32], constants: [f32; 4]) = logits_to_gradient_with
}

#[inline(always)]
unsafe fn logits_to_gradient_with<V: Vector>(
    row: &mut [f32],
    [lse, entropy, dlogp, dentropy]: [f32; 4],
) {
    for at in (0..row.len()).step_by(V::LANES) {
        let left = row.len() - at;
        // SAFETY: loads and stores stay within the row; the caller guarantees the instructions.
        unsafe {
            let to = row.as_mut_ptr().add(at);
            let log_p = V::load_first(to, left).minus(V::all(lse));
            let slope = log_p.plus(V::all(entropy));
            let slope = slope.fused(V::all(dentropy), V::all(dlogp));
            let gradient = V::all(-1.0)
                .times(log_p.exp_to_one())
                .times(slope)
                .flush_subnormal();
            gradient.store_first(to, left);
        }
    }
}

multiversion! {
    /// The same with respect to the logits before the cap.
    fn capped_logits_to_gradient(row: &mut [f32], constants: [f32; 4], share: f32) {
        let [lse, entropy, dlogp, dentropy] = constants;
        for x in row {
            let log_p = *x - lse;
            let by_capped = -exp(log_p) * ((log_p + entropy) * dentropy + dlogp);
            *x = by_capped * softcap::slope(*x, share);
        }
    }
}
