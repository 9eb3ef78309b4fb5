//! One Sophia update (Liu et al. 2023, arXiv 2305.14342): the gradient's moving average divided by an estimate of the
//! diagonal Hessian, clipped element by element; and the update of the estimate.

use super::update::Part;

/// The hyperparameters of one update.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub lr: f64,
    pub beta1: f64,
    /// The mean is divided by this times the curvature.
    pub rho: f64,
    /// Scale of every gradient (clipping).
    pub grad_scale: f64,
}

/// Updates one tensor and its mean in place: w ← w (1 − ηλ) − η · clip(m / (ρ h), ±1). Returns the unclipped count.
pub fn update(
    rule: &Rule,
    part: &Part,
    weights: &mut [f32],
    grads: &[f32],
    (mean, curvature): (&mut [f32], &[f32]),
) -> usize {
    /// Lower bound on ρ h: without curvature, the update is the sign of the mean.
    const LEAST: f32 = 1e-15;
    let (beta1, gain) = (rule.beta1 as f32, (1.0 - rule.beta1) as f32);
    let (lr, keep) = (part.lr(rule.lr) as f32, part.keep(rule.lr) as f32);
    let (scale, rho) = (rule.grad_scale as f32, rule.rho as f32);
    let mut free = 0;
    let state = mean.iter_mut().zip(curvature);
    for ((w, g), (m, h)) in weights.iter_mut().zip(grads).zip(state) {
        *m = beta1 * *m + gain * (g * scale);
        let ratio = *m / (rho * h).max(LEAST);
        free += usize::from(ratio.abs() < 1.0);
        *w = *w * keep - lr * ratio.clamp(-1.0, 1.0);
    }
    free
}

/// h ← β₂ h + (1 − β₂) n ĝ²: ĝ is the mean gradient over `n` labels sampled from the model.
pub fn follow(beta2: f64, n: f64, grads: &[f32], curvature: &mut [f32]) {
    let (keep, gain) = (beta2 as f32, ((1.0 - beta2) * n) as f32);
    for (h, g) in curvature.iter_mut().zip(grads) {
        *h = keep * *h + gain * g * g;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(h: f32) -> (f32, usize) {
        let rule = Rule {
            lr: 0.1,
            beta1: 0.5,
            rho: 0.04,
            grad_scale: 1.0,
        };
        let part = Part {
            weights: 0,
            grads: 0,
            len: 1,
            lr_scale: 1.0,
            weight_decay: 1.0,
        };
        let (mut w, mut m) = ([2.0], [0.0]);
        let free = update(&rule, &part, &mut w, &[-3.0], (&mut m, &[h]));
        assert_eq!(m, [-1.5]);
        (w[0], free)
    }

    #[test]
    fn without_curvature_updates_are_signs_and_with_high_curvature_ratios() {
        assert_eq!(step(0.0), (1.8 + 0.1, 0));
        let (w, free) = step(150.0);
        assert!((w - (1.8 + 0.1 * 1.5 / 6.0)).abs() < 1e-6, "{w}");
        assert_eq!(free, 1);
    }

    #[test]
    fn the_curvature_is_a_mean_of_squares_times_the_label_count() {
        let mut h = [1.0, 0.0];
        follow(0.9, 100.0, &[0.0, 0.2], &mut h);
        assert!(
            (h[0] - 0.9).abs() < 1e-6 && (h[1] - 0.4).abs() < 1e-6,
            "{h:?}"
        );
    }
}
