//! The causal convolution of x, B and C with SiLU, row by row, and its backward.

use super::{Mamba2, Sizes};
use crate::causal_conv::{
    Ring, Taps, begin, copy, join_taps, later, reach, silu, silu_backward, store, with_taps,
};
use crate::lanes::scratch::{Carver, with_scratch};
use crate::matmul::Accumulation;
use crate::numbers::{Number, Values};
use crate::positions::Positions;
use crate::reduce::{add_part, join, over_rows};
use crate::threads::{self, SharedSlice};
use std::ops::Range;

/// Where the convolution reads.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub net: Mamba2<'a>,
    pub wide: Values<'a>,
    pub positions: Positions<'a>,
    /// (conv_len − 1, channels): what precedes the rows, of one text.
    pub tail: Option<&'a [f32]>,
}

impl Source<'_> {
    fn sizes(&self) -> Sizes {
        self.net.sizes
    }

    /// FLOPs of a row.
    fn cost(&self) -> usize {
        (2 * self.sizes().conv_len + 16) * self.sizes().channels()
    }

    /// Tokens before `row` that the convolution reads.
    fn reach(&self, row: usize) -> usize {
        match self.tail {
            Some(_) => self.sizes().conv_len - 1,
            None => reach(self.positions, self.sizes().conv_len, row),
        }
    }

    /// The values of row `at − kept` of the input, of which the first `kept` are the state's, into the ring.
    fn load(&self, at: usize, ring: &mut Ring) {
        let (kept, channels) = (self.sizes().conv_len - 1, self.sizes().channels());
        let to = ring.at_mut(at);
        match self.tail {
            Some(tail) if at < kept => to.copy_from_slice(&tail[at * channels..][..channels]),
            _ => copy(self.wide, self.columns(at - kept), to),
        }
    }

    /// Where the channels of a row are.
    fn columns(&self, row: usize) -> Range<usize> {
        let from = row * self.sizes().wide() + self.sizes().inner();
        from..from + self.sizes().channels()
    }

    /// `sum` = the convolution at row `at − kept`.
    fn sum(&self, taps: Taps, ring: &Ring, at: usize, sum: &mut [f32]) {
        begin(self.net.conv_bias, sum);
        let row = at + 1 - self.sizes().conv_len;
        taps.add(ring, at, self.reach(row), sum);
    }
}

/// `xbc` (rows, channels).
pub fn forward(source: Source, xbc: &mut [f32]) {
    let (len, channels) = (source.sizes().conv_len, source.sizes().channels());
    let kept = len - 1;
    with_taps(source.net.conv, len, |taps| {
        threads::rows1(xbc, channels, source.cost(), |first, xbc| {
            let lens = [len * channels, channels];
            with_scratch(Carver::room(&lens), |mut carver| {
                let [ring, sum] = lens.map(|len| carver.take(len));
                let mut ring = Ring::new(ring, len, channels);
                for back in (1..=source.reach(first)).rev() {
                    source.load(first + kept - back, &mut ring);
                }
                for (i, y) in xbc.chunks_exact_mut(channels).enumerate() {
                    let at = first + i + kept;
                    source.load(at, &mut ring);
                    source.sum(taps, &ring, at, sum);
                    silu(y, sum);
                }
            });
        });
    });
}

/// The columns of the channels in `dwide`, from the gradients with respect to what the forward gives, whose rows are as
/// [`Sizes::gradient`] says; and in the same pass the gradients with respect to weights and biases.
pub fn backward<N: Number>(
    source: Source,
    gradients: &[f32],
    dwide: &SharedSlice<N>,
    (dconv, dbias, into): (Option<&mut [f32]>, Option<&mut [f32]>, Accumulation),
) {
    let (len, channels) = (source.sizes().conv_len, source.sizes().channels());
    let rows = gradients.len() / source.sizes().gradient();
    let of_taps = len * channels;
    let width = match (&dconv, &dbias) {
        (None, None) => 0,
        _ => of_taps + channels,
    };
    with_taps(source.net.conv, len, |taps| {
        let work = |part: Range<usize>, sums: &mut [f32]| {
            let task = Backward {
                source,
                taps,
                gradients,
                dwide,
                rows,
            };
            task.run(part, sums);
        };
        over_rows(rows, width, 3 * source.cost(), work, |sums| {
            if let Some(dconv) = dconv {
                join_taps(dconv, &sums[..of_taps], len, into);
            }
            if let Some(dbias) = dbias {
                join(dbias, &sums[of_taps..], into);
            }
        });
    });
}

struct Backward<'a, N> {
    source: Source<'a>,
    taps: Taps<'a>,
    gradients: &'a [f32],
    dwide: &'a SharedSlice<N>,
    /// Of the whole input.
    rows: usize,
}

impl<N: Number> Backward<'_, N> {
    /// Some rows; `sums`, (k, channels) of the taps and (channels) of the bias, may be empty.
    fn run(&self, part: Range<usize>, sums: &mut [f32]) {
        let source = &self.source;
        let (len, channels) = (source.sizes().conv_len, source.sizes().channels());
        let kept = len - 1;
        // A row's gradient is that of the sums of the rows that read it, each of which is computed once more.
        let reads = 2 * len - 1;
        let lens = [reads * channels, len * channels, channels, channels];
        with_scratch(Carver::room(&lens), |mut carver| {
            let [values, dsums, sum, other] = lens.map(|len| carver.take(len));
            let mut values = Ring::new(values, reads, channels);
            let mut dsums = Ring::new(dsums, len, channels);
            for back in (1..=source.reach(part.start)).rev() {
                source.load(part.start + kept - back, &mut values);
            }
            let mut next = part.start;
            for row in part {
                let later = later(source.positions, len, row, self.rows);
                for row in next..=row + later {
                    source.load(row + kept, &mut values);
                    source.sum(self.taps, &values, row + kept, sum);
                    self.gradient(row, other);
                    silu_backward(dsums.at_mut(row), other, sum);
                }
                next = next.max(row + later + 1);
                self.taps.backward(&dsums, row, later, sum);
                let columns = source.columns(row);
                #[allow(unsafe_code)]
                // SAFETY: each task has its own rows.
                store(unsafe { self.dwide.range(columns) }, sum);
                if !sums.is_empty() {
                    let (dtaps, dbias) = sums.split_at_mut(len * channels);
                    let (reach, dsum) = (source.reach(row), dsums.at(row));
                    self.taps
                        .add_gradient(&values, row + kept, reach, dsum, dtaps);
                    add_part(dbias, dsum);
                }
            }
        });
    }

    /// The gradient with respect to what the forward gives of a row: sums over the parts of each group.
    fn gradient(&self, row: usize, to: &mut [f32]) {
        let sizes = self.source.sizes();
        let (inner, n) = (sizes.inner(), sizes.state_dim);
        let from = &self.gradients[row * sizes.gradient()..][..sizes.gradient()];
        let (dx, parts) = from.split_at(inner);
        let (to_x, to) = to.split_at_mut(inner);
        to_x.copy_from_slice(dx);
        let (db, dc) = to.split_at_mut(sizes.n_group * n);
        let groups = parts.chunks_exact(2 * sizes.parts() * n);
        for (parts, (db, dc)) in groups.zip(db.chunks_exact_mut(n).zip(dc.chunks_exact_mut(n))) {
            db.fill(0.0);
            dc.fill(0.0);
            for part in parts.chunks_exact(2 * n) {
                add_part(db, &part[..n]);
                add_part(dc, &part[n..]);
            }
        }
    }
}
