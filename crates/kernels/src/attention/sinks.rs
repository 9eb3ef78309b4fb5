//! The gradient of attention sinks. The passes over keys know a sink only by the log-sum-exp of each row.

use super::{Saved, Sizes};
use crate::math::{exp, sum2};
use crate::numbers::Values;
use crate::threads;

/// `dsinks` (n_head) = the gradient with respect to the sinks, or is added to it. With p = e^(sink − lse) the weight of a row's sink
/// and Δ = Σ dout · out of the row it is −Σ p Δ: its value is 0. Sums over rows run in order, in f64.
pub fn backward_sinks(sizes: Sizes, saved: Saved, dout: Values, dsinks: &mut [f32], add: bool) {
    let Some(sinks) = sizes.scores.sinks else {
        return;
    };
    let (heads, seq_len) = (sizes.heads, sizes.seq_len);
    let (n_head, d, width) = (heads.n_head, heads.head_dim, heads.q_width());
    assert_eq!(sinks.len(), n_head, "attention sinks");
    assert_eq!(dsinks.len(), n_head, "gradient of attention sinks");
    assert_eq!(dout.len(), saved.out.len(), "attention upstream gradient");
    let rows = saved.out.len() / width;
    assert_eq!(saved.lse.len(), rows * n_head, "attention lse");
    threads::rows1(dsinks, 1, 4 * rows * d, |first, dsinks| {
        for (i, dsink) in dsinks.iter_mut().enumerate() {
            let h = first + i;
            let mut sum = 0.0;
            for row in 0..rows {
                let at = row * width + h * d;
                let [out, dout] = [saved.out, dout].map(|x| x.range(at..at + d).as_f32());
                let delta = sum2(&out, &dout, |a, b| a * b);
                let lse = saved.lse[(row / seq_len * n_head + h) * seq_len + row % seq_len];
                sum -= f64::from(exp(sinks[h] - lse) * delta);
            }
            *dsink = sum as f32 + if add { *dsink } else { 0.0 };
        }
    });
}
