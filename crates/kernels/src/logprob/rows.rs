//! Per-row computation on logits: the outputs of a row, and its gradient in place.
#![allow(unsafe_code)]

use crate::lanes::{Lanes, Vector, widest};
use crate::math::exp;
use crate::simd::multiversion;
use crate::softcap;

/// Outputs of a row: log-probability, entropy, log-sum-exp, and whether the target was the top-1 token.
pub(super) const ANSWERS: usize = 4;

/// The [`ANSWERS`] of each row of `logits` (rows, vocab), side by side.
pub(super) fn answer(logits: &[f32], vocab: usize, targets: &[u32], answers: &mut [f32]) {
    // SAFETY: needs nothing but the instructions that it picks.
    unsafe { row_answers(false, logits, vocab, targets, answers) }
}

/// Inputs of a row's gradient.
#[derive(Debug, Clone, Copy)]
pub(super) struct Constants {
    pub target: usize,
    pub lse: f32,
    pub entropy: f32,
    pub dlogp: f32,
    /// What of it all logits get by their probability: dlogp, and more of it where log-sum-exps are pulled to zero.
    pub spread: f32,
    pub dentropy: f32,
}

/// Replaces a row of logits by the gradient with respect to them (before the soft cap, if there is one).
pub(super) fn turn(row: &mut [f32], of: Constants, cap: Option<f32>) {
    let constants = [of.lse, of.entropy, of.spread, of.dentropy];
    let Some(cap) = cap else {
        // SAFETY: needs nothing but the instructions that it picks.
        unsafe { logits_to_gradient(false, row, constants) };
        row[of.target] += of.dlogp;
        return;
    };
    let slope = softcap::slope(row[of.target], 1.0 / cap);
    capped_logits_to_gradient(row, constants, 1.0 / cap);
    row[of.target] += of.dlogp * slope;
}

widest! {
    /// The [`ANSWERS`] of each row.
    fn row_answers(
        pairs,
        logits: &[f32],
        vocab: usize,
        targets: &[u32],
        answers: &mut [f32],
    ) = row_answers_with
}

/// Two passes over a row, which stays in the cache: the maximum; then both sums relative to it.
#[inline(always)]
unsafe fn row_answers_with<V: Vector>(
    logits: &[f32],
    vocab: usize,
    targets: &[u32],
    answers: &mut [f32],
) {
    let rows = logits.chunks_exact(vocab).zip(targets);
    for ((row, &target), answer) in rows.zip(answers.chunks_exact_mut(ANSWERS)) {
        // SAFETY: loads stay within the row; the instructions are the caller's.
        let (top, sum, weighted) = unsafe {
            let mut tops = Lanes::<V>::all(f32::NEG_INFINITY);
            for at in (0..vocab).step_by(V::LANES) {
                let x = V::load_first(row.as_ptr().add(at), vocab - at);
                let x = x.keep_first(vocab - at, f32::NEG_INFINITY);
                *tops.at(at) = x.greater(*tops.at(at));
            }
            let top = tops.greatest();
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
        answer[0] = row[target as usize] - top - log_sum;
        // H = lse − Σ p x, with x taken from the top.
        answer[1] = log_sum - weighted / sum;
        answer[2] = top + log_sum;
        answer[3] = f32::from(u8::from(row[target as usize] >= top));
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
        // SAFETY: loads and stores stay within the row; the instructions are the caller's.
        unsafe {
            let to = row.as_mut_ptr().add(at);
            let log_p = V::load_first(to, left).minus(V::all(lse));
            let slope = log_p.plus(V::all(entropy));
            let slope = slope.fused(V::all(dentropy), V::all(dlogp));
            let gradient = V::all(-1.0).times(log_p.exp_to_one()).times(slope).normal();
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
