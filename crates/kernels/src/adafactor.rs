//! One Adafactor update of one tensor (Shazeer and Stern 2018, arXiv 1804.04235, in transformers' order of operations): the
//! second moment of a matrix is factored into row and column means.

use super::tensors::rms;
use super::update::Part;

/// The hyperparameters of one update.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub lr: f64,
    /// Decay of the squares' running means at this step: 1 − t^(−0.8).
    pub beta2: f64,
    /// Added to squared gradients.
    pub eps: f64,
    /// Root mean square that an update is scaled down to.
    pub clip_threshold: f64,
    /// Lower bound on a tensor's RMS where the learning rate is relative to it.
    pub least_size: Option<f64>,
    /// Scale of every gradient (clipping).
    pub grad_scale: f64,
}

/// Number of state values for a tensor of this shape.
pub fn state_len(shape: &[usize]) -> usize {
    match shape {
        [rows, cols] => rows + cols,
        other => other.iter().product(),
    }
}

/// Updates weights and state in place. `state` has [`state_len`] values: row means, then column means; for a vector, all squares.
pub fn update(
    rule: &Rule,
    (part, shape): (&Part, &[usize]),
    weights: &mut [f32],
    grads: &[f32],
    state: &mut [f32],
    scratch: &mut Vec<f32>,
) {
    let (keep, gain) = (rule.beta2 as f32, (1.0 - rule.beta2) as f32);
    let (scale, eps) = (rule.grad_scale as f32, rule.eps as f32);
    scratch.clear();
    match *shape {
        [n_rows, n_cols] => {
            let (rows, cols) = state.split_at_mut(n_rows);
            cols.iter_mut().for_each(|c| *c *= keep);
            let (per_row, per_col) = (gain / n_cols as f32, gain / n_rows as f32);
            for (row, grads) in rows.iter_mut().zip(grads.chunks(n_cols)) {
                let mut sum = 0.0;
                for (col, g) in cols.iter_mut().zip(grads) {
                    let square = (g * scale) * (g * scale) + eps;
                    sum += square;
                    *col += per_col * square;
                }
                *row = *row * keep + per_row * sum;
            }
            let mean = rows.iter().sum::<f32>() / n_rows as f32;
            let by_col: Vec<f32> = cols.iter().map(|c| 1.0 / c.sqrt()).collect();
            for (row, grads) in rows.iter().zip(grads.chunks(n_cols)) {
                let by_row = scale / (row / mean).sqrt();
                scratch.extend(grads.iter().zip(&by_col).map(|(g, c)| g * by_row * c));
            }
        }
        _ => scratch.extend(grads.iter().zip(state).map(|(g, square)| {
            let g = g * scale;
            *square = *square * keep + gain * (g * g + eps);
            g / square.sqrt()
        })),
    }
    let mut lr = part.lr(rule.lr);
    if let Some(least) = rule.least_size {
        lr *= f64::from(rms(weights)).max(least);
    }
    let clip = (f64::from(rms(scratch)) / rule.clip_threshold).max(1.0);
    let step = (lr / clip) as f32;
    let keep = (1.0 - lr * part.weight_decay) as f32;
    for (w, u) in weights.iter_mut().zip(scratch) {
        *w = *w * keep - step * *u;
    }
}
