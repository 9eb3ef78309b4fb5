//! Divergences between the distributions of a teacher, q, and a student, p, over one vocabulary: a row of logits each.
//!
//! Generalized knowledge distillation (Agarwal et al. 2024, arXiv 2306.13649) has with m = β q + (1 − β) p
//!
//! ```text
//! D = β KL(q ‖ m) + (1 − β) KL(p ‖ m)    for 0 < β < 1 (Jensen-Shannon),
//!     KL(q ‖ p)                          for β = 0 (forward KL: covers all that the teacher does),
//!     KL(p ‖ q)                          for β = 1 (reverse KL: seeks its modes; MiniLLM, arXiv 2306.08543).
//! ```
//!
//! Both distributions are softmax(logits / T) (Hinton et al. 2015, arXiv 1503.02531), and D is not multiplied by T², as in TRL. With
//! respect to the student's logits z
//!
//! ```text
//! dD/dz = (1 − β) p (ln(p / m) − KL(p ‖ m)) / T,    (p − q) / T,    p (ln(p / q) − KL(p ‖ q)) / T.
//! ```

use crate::math::{self, exp, flush_subnormal, ln};
use crate::simd::multiversion;
use candle_core::{D, Result, Tensor};

/// Which divergence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Divergence {
    /// From 0, KL(teacher ‖ student), to 1, KL(student ‖ teacher); Jensen-Shannon between.
    pub beta: f32,
    /// Both models' logits are divided by it.
    pub temperature: f32,
}

/// Numbers of [`Compared`].
pub(super) const SUMS: usize = 5;

/// What the two rows come to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Compared {
    /// D, nats.
    pub divergence: f32,
    /// Entropy of q, nats.
    pub teacher_entropy: f32,
    /// 1 where both have the same top-1 token.
    pub agrees: f32,
    /// Log-sum-exp of the student's logits / T.
    lse: f32,
    /// The mean under p of what the gradient multiplies p by.
    mean: f32,
}

impl Compared {
    pub fn to_array(self) -> [f32; SUMS] {
        let Compared {
            divergence,
            teacher_entropy,
            agrees,
            lse,
            mean,
        } = self;
        [divergence, teacher_entropy, agrees, lse, mean]
    }

    /// Of the numbers that [`Compared::to_array`] gave.
    pub fn from_array(of: &[f32]) -> Compared {
        Compared {
            divergence: of[0],
            teacher_entropy: of[1],
            agrees: of[2],
            lse: of[3],
            mean: of[4],
        }
    }
}

impl Divergence {
    /// Compares two rows of logits of one length; the teacher's become ln q.
    pub(super) fn compare(self, student: &[f32], teacher: &mut [f32]) -> Compared {
        let share = 1.0 / self.temperature;
        let (own_top, top) = (largest(student), largest(teacher));
        // The first of the teacher's most probable tokens.
        let at = teacher.iter().position(|x| *x == top).unwrap_or_default();
        let agrees = f32::from(u8::from(student[at] >= own_top));
        let lse = own_top * share + sum_exp(student, own_top, share).ln();
        let teacher_lse = top * share + sum_exp(teacher, top, share).ln();
        let teacher_entropy = to_log_probs(teacher, share, teacher_lse);
        let teacher = &*teacher;
        let (divergence, mean) = match self.beta {
            0.0 => (forward_kl(student, teacher, share, lse), 0.0),
            1.0 => {
                let kl = reverse_kl(student, teacher, share, lse);
                (kl, kl)
            }
            beta => {
                let [of_teacher, of_student] = to_mixture(student, teacher, [share, lse, beta]);
                let sum = beta * of_teacher + (1.0 - beta) * of_student;
                (sum, of_student)
            }
        };
        Compared {
            // Rounding may leave a little below 0, and a NaN stays one.
            divergence: if divergence < 0.0 { 0.0 } else { divergence },
            teacher_entropy,
            agrees,
            lse,
            mean,
        }
    }

    /// Overwrites ln q by `weight` · dD/dz.
    pub(super) fn gradient(self, student: &[f32], log_q: &mut [f32], of: &Compared, weight: f32) {
        let share = 1.0 / self.temperature;
        let weight = weight * share;
        match self.beta {
            0.0 => forward_gradient(student, log_q, [share, of.lse, weight]),
            1.0 => reverse_gradient(student, log_q, [share, of.lse, weight, of.mean]),
            beta => {
                let weight = weight * (1.0 - beta);
                mixture_gradient(student, log_q, [share, of.lse, weight, of.mean, beta]);
            }
        }
    }

    /// The same in plain candle: logits (N, V) of both → divergence (N).
    ///
    /// # Errors
    /// candle's own: shapes that do not match.
    pub fn composite(self, student: &Tensor, teacher: &Tensor) -> Result<Tensor> {
        let beta = f64::from(self.beta);
        let log_probs = |logits: &Tensor| {
            crate::softmax::log_composite(&(logits / f64::from(self.temperature))?)
        };
        let (p, q) = (log_probs(student)?, log_probs(teacher)?);
        let kl = |a: &Tensor, b: &Tensor| (a.exp()? * (a - b)?)?.sum(D::Minus1);
        match self.beta {
            0.0 => kl(&q, &p),
            1.0 => kl(&p, &q),
            _ => {
                let m = ((q.exp()? * beta)? + (p.exp()? * (1.0 - beta))?)?.log()?;
                (kl(&q, &m)? * beta)? + (kl(&p, &m)? * (1.0 - beta))?
            }
        }
    }
}

multiversion! {
    fn largest(row: &[f32]) -> f32 {
        math::max(row)
    }
}

multiversion! {
    /// Σ e^((x − top) · share).
    fn sum_exp(row: &[f32], top: f32, share: f32) -> f32 {
        math::sum1(row, |x| exp((x - top) * share))
    }
}

multiversion! {
    /// Logits become log-probabilities; returns the entropy.
    fn to_log_probs(row: &mut [f32], share: f32, lse: f32) -> f32 {
        for x in row.iter_mut() {
            *x = *x * share - lse;
        }
        -math::sum1(row, |log_q| exp(log_q) * log_q)
    }
}

multiversion! {
    /// KL(q ‖ p).
    fn forward_kl(student: &[f32], log_q: &[f32], share: f32, lse: f32) -> f32 {
        math::sum2(student, log_q, |z, log_q| exp(log_q) * (log_q - (z * share - lse)))
    }
}

multiversion! {
    /// KL(p ‖ q).
    fn reverse_kl(student: &[f32], log_q: &[f32], share: f32, lse: f32) -> f32 {
        math::sum2(student, log_q, |z, log_q| {
            let log_p = z * share - lse;
            exp(log_p) * (log_p - log_q)
        })
    }
}

multiversion! {
    /// KL(q ‖ m) and KL(p ‖ m). The constants are 1 / T, the student's log-sum-exp and β.
    fn to_mixture(student: &[f32], log_q: &[f32], of: [f32; 3]) -> [f32; 2] {
        let [share, lse, beta] = of;
        math::sums2(student, log_q, |z, log_q| {
            let log_p = z * share - lse;
            let (p, q) = (exp(log_p), exp(log_q));
            // Where both underflow neither term counts.
            let log_m = ln(beta * q + (1.0 - beta) * p);
            [q * (log_q - log_m), p * (log_p - log_m)]
        })
    }
}

multiversion! {
    /// ln q ← w (p − q).
    fn forward_gradient(student: &[f32], log_q: &mut [f32], of: [f32; 3]) {
        let [share, lse, weight] = of;
        for (z, to) in student.iter().zip(log_q) {
            *to = flush_subnormal(weight * (exp(z * share - lse) - exp(*to)));
        }
    }
}

multiversion! {
    /// ln q ← w p (ln(p / q) − KL(p ‖ q)).
    fn reverse_gradient(student: &[f32], log_q: &mut [f32], of: [f32; 4]) {
        let [share, lse, weight, mean] = of;
        for (z, to) in student.iter().zip(log_q) {
            let log_p = z * share - lse;
            *to = flush_subnormal(weight * exp(log_p) * (log_p - *to - mean));
        }
    }
}

multiversion! {
    /// ln q ← w p (ln(p / m) − KL(p ‖ m)).
    fn mixture_gradient(
        student: &[f32],
        log_q: &mut [f32],
        of: [f32; 5],
    ) {
        let [share, lse, weight, mean, beta] = of;
        for (z, to) in student.iter().zip(log_q) {
            let log_p = z * share - lse;
            let p = exp(log_p);
            let log_m = ln(beta * exp(*to) + (1.0 - beta) * p);
            *to = flush_subnormal(weight * p * (log_p - log_m - mean));
        }
    }
}

multiversion! {
    /// x ← x + y.
    pub(super) fn add(x: &mut [f32], y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }
}
