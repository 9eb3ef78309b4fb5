//! What the scan reads of the input: steps of time and decays, B and C of a group, x of a head.

use super::chunk::{Keys, Shape};
use super::conv::Source;
use super::{CHUNK, Mamba2, Part};
use crate::math::{exp, sigmoid, softplus};
use std::ops::Range;

/// Steps of time of a head in a chunk.
pub struct Steps {
    /// dt, within its limits; 0 beyond the last token.
    pub dt: [f32; CHUNK],
    /// Share of the state that remains; 1 beyond the last token.
    pub remains: [f32; CHUNK],
    /// The derivative of dt with respect to the input's.
    pub slope: [f32; CHUNK],
    /// A.
    pub rate: f32,
}

impl Source<'_> {
    /// The steps of head `head` at up to a chunk of rows.
    pub fn steps(&self, head: usize, rows: Range<usize>) -> Steps {
        let net = &self.net;
        let rate = -exp(net.a_log[head]);
        let mut steps = Steps {
            dt: [0.0; CHUNK],
            remains: [1.0; CHUNK],
            slope: [0.0; CHUNK],
            rate,
        };
        let [least, most] = net.limits;
        for (t, row) in rows.enumerate() {
            let dt = self.wide.get(self.step_at(head, row)) + net.dt_bias[head];
            let step = softplus(dt);
            // Comparisons, because clamp would panic for NaN limits and max would drop a NaN.
            let limited = match step {
                step if step < least => least,
                step if step > most => most,
                step => step,
            };
            steps.dt[t] = limited;
            steps.slope[t] = if limited == step { sigmoid(dt) } else { 0.0 };
            steps.remains[t] = match self.begins(row) {
                true => 0.0,
                false => exp(limited * rate),
            };
        }
        steps
    }

    /// Where dt of a row is in the input.
    pub fn step_at(&self, head: usize, row: usize) -> usize {
        let sizes = self.net.sizes;
        (row + 1) * sizes.wide() - sizes.n_head + head
    }

    /// Whether a document begins at `row`.
    fn begins(&self, row: usize) -> bool {
        self.tail.is_none() && self.positions.at(row) == 0
    }
}

/// What the convolution gives.
#[derive(Clone, Copy)]
pub struct Mixed<'a> {
    pub net: Mamba2<'a>,
    /// (rows, channels).
    pub xbc: &'a [f32],
}

impl Mixed<'_> {
    /// B and C of a part's group.
    pub fn load(&self, keys: &mut Keys, part: &Part, rows: Range<usize>) {
        let sizes = self.net.sizes;
        let n = sizes.state_dim;
        let b = sizes.inner() + part.group * n;
        let c = b + sizes.n_group * n;
        let of_rows = rows.map(|row| {
            let row = &self.xbc[row * sizes.channels()..][..sizes.channels()];
            [&row[b..b + n], &row[c..c + n]]
        });
        keys.load(sizes.shape(), n, of_rows);
    }

    /// x of a head in a row.
    pub fn x(&self, head: usize, row: usize) -> &[f32] {
        let sizes = self.net.sizes;
        let from = row * sizes.channels() + head * sizes.head_dim;
        &self.xbc[from..from + sizes.head_dim]
    }

    /// `u` (CHUNK, values) = dt x, and zeros.
    pub fn updates(&self, head: usize, rows: Range<usize>, steps: &Steps, u: &mut [f32]) {
        let Shape { values, .. } = self.net.sizes.shape();
        u[rows.len() * values..].fill(0.0);
        for ((row, u), dt) in rows.zip(u.chunks_exact_mut(values)).zip(steps.dt) {
            let x = self.x(head, row);
            for (u, &x) in u.iter_mut().zip(x) {
                *u = dt * x;
            }
            u[x.len()..].fill(0.0);
        }
    }
}
