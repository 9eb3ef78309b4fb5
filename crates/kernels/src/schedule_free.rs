//! One schedule-free AdamW update over flat buffers (Defazio et al. 2024, arXiv 2405.15682), norms as by-products. The
//! weights hold y, where gradients are evaluated; z is the AdamW iterate; x, the average of z, is the one that is evaluated.
#![allow(unsafe_code)]

use super::lanes::{Vector, widest};
use super::threads;
use super::update::{self, Chunks, Elementwise, Part, Piece};

/// The hyperparameters of one update.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub lr: f64,
    /// Weight of x in y.
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    /// Scale of every gradient (clipping).
    pub grad_scale: f64,
    /// Index of this update, from 1.
    pub step: u64,
    /// Weight of the new z in x.
    pub share: f64,
}

/// Updates weights, z, x and mean squares in place. The last three have the gradients' layout.
pub fn update(
    rule: &Rule,
    [weights, z, x, square]: [&mut [f32]; 4],
    grads: &[f32],
    chunks: &mut Chunks,
) {
    threads::enter(|| {
        chunks.update(weights, grads, [z, x, square], |part, piece| {
            // SAFETY: a piece has as many weights and state values as gradients.
            unsafe { apply(false, Coefficients::of(rule, part), piece) }
        });
    });
}

#[derive(Clone, Copy)]
struct Coefficients {
    lr: f32,
    weight_decay: f32,
    grad_scale: f32,
    beta1: f32,
    gain1: f32,
    beta2: f32,
    gain2: f32,
    /// 1 / (1 − beta2^t)
    correction: f32,
    eps: f32,
    share: f32,
    rest: f32,
}

impl Coefficients {
    fn of(rule: &Rule, part: &Part) -> Self {
        Coefficients {
            lr: part.lr(rule.lr) as f32,
            weight_decay: part.weight_decay as f32,
            grad_scale: rule.grad_scale as f32,
            beta1: rule.beta1 as f32,
            gain1: (1.0 - rule.beta1) as f32,
            beta2: rule.beta2 as f32,
            gain2: (1.0 - rule.beta2) as f32,
            correction: (1.0 / (1.0 - rule.beta2.powf(rule.step as f64))) as f32,
            eps: rule.eps as f32,
            share: rule.share as f32,
            rest: (1.0 - rule.share) as f32,
        }
    }
}

widest! {
    fn apply(pairs, rule: Coefficients, piece: Piece<3>) = apply_with
}

/// # Safety
/// As [`update::apply`].
#[inline(always)]
unsafe fn apply_with<V: Vector>(rule: Coefficients, piece: Piece<3>) {
    // SAFETY: guaranteed by the caller.
    unsafe { update::apply::<V, 3>(&rule, piece) }
}

impl Elementwise<3> for Coefficients {
    #[inline(always)]
    unsafe fn next<V: Vector>(&self, grad: V, y: V, [z, x, square]: [V; 3]) -> (V, [V; 3]) {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            let g = grad.times(V::all(self.grad_scale));
            let kept = square.times(V::all(self.beta2));
            let square = kept.plus(g.times(g).times(V::all(self.gain2)));
            let root = square.times(V::all(self.correction)).sqrt();
            let step = g.divide(root.plus(V::all(self.eps)));
            let step = step.plus(y.times(V::all(self.weight_decay)));
            let z = z.minus(step.times(V::all(self.lr)));
            let x = x.times(V::all(self.rest)).plus(z.times(V::all(self.share)));
            let y = x
                .times(V::all(self.beta1))
                .plus(z.times(V::all(self.gain1)));
            (y, [z, x, square])
        }
    }
}
