//! Multi-head latent attention besides its matmuls with whole matrices (DeepSeek-V2, arXiv 2405.04434): queries, keys and values of
//! all heads in the layout of `attention`, and the form for decode, in which the latent vectors themselves are keys and values.
//!
//! A head is its rotated features first, so that RoPE turns them as those of any model, then the others, then zeros: queries, keys and
//! values have one width in `attention`. The rows of matrices are as in DeepSeek's files: the features that RoPE pairs are neighbours
//! there, and are taken apart here.
#![allow(unsafe_code)]

use super::attention::Heads;
use super::matmul::{Accumulation, Compute, ComputeDtype, Destination, Mat, matmul_into};
use super::matrix::Matrix;
use super::numbers::{Number, Values, ValuesMut};
use super::threads::{self, Shared};
use std::cell::RefCell;
use std::ops::Range;

/// Widths of a block's heads and of its latent vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub n_head: usize,
    pub kv_rank: usize,
    pub nope_dim: usize,
    pub rope_dim: usize,
    pub v_dim: usize,
}

impl Sizes {
    /// Features of a query or key head.
    pub fn qk_dim(&self) -> usize {
        self.nope_dim + self.rope_dim
    }

    /// Those of a head in `attention`.
    pub fn head_dim(&self) -> usize {
        self.qk_dim().max(self.v_dim)
    }

    /// Width of all queries.
    pub fn queries(&self) -> usize {
        self.n_head * self.qk_dim()
    }

    /// Width of what the latent vectors become: of each head its key without the rotated part, then its value.
    pub fn keys_and_values(&self) -> usize {
        self.n_head * self.per_head()
    }

    /// Width of all values.
    pub fn values(&self) -> usize {
        self.n_head * self.v_dim
    }

    fn per_head(&self) -> usize {
        self.nope_dim + self.v_dim
    }

    /// Heads over latent vectors: one key of rotated features and a latent vector, which is also the value.
    pub fn latent_heads(&self) -> Heads {
        Heads {
            n_head: self.n_head,
            n_kv_head: 1,
            head_dim: self.rope_dim + self.kv_rank,
        }
    }
}

/// Columns of a larger matrix, from `first` on.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    pub first: usize,
    pub width: usize,
    /// Width of the larger matrix.
    pub stride: usize,
}

/// `to` (rows, width) = the columns of `from` (rows, stride).
pub fn gather(columns: Columns, from: &[f32], to: &mut [f32]) {
    let Columns {
        first,
        width,
        stride,
    } = columns;
    threads::rows1(to, width, width, |row, to| {
        for (i, to) in to.chunks_exact_mut(width).enumerate() {
            to.copy_from_slice(&from[(row + i) * stride + first..][..width]);
        }
    });
}

/// The columns of `to` (rows, stride) = `from` (rows, width).
pub fn scatter(columns: Columns, from: &[f32], to: &mut [f32]) {
    let Columns {
        first,
        width,
        stride,
    } = columns;
    threads::rows1(to, stride, width, |row, to| {
        for (i, to) in to.chunks_exact_mut(stride).enumerate() {
            to[first..first + width].copy_from_slice(&from[(row + i) * width..][..width]);
        }
    });
}

fn put<N: Number>(from: &[f32], to: &mut [N]) {
    for (to, x) in to.iter_mut().zip(from) {
        *to = N::narrow(*x);
    }
}

fn take<N: Number>(from: &[N], to: &mut [f32]) {
    for (to, x) in to.iter_mut().zip(from) {
        *to = x.wide();
    }
}

/// Features that are paired with their neighbour → firsts of all pairs, then seconds.
fn put_pairs<N: Number>(from: &[f32], to: &mut [N]) {
    let (first, second) = to.split_at_mut(from.len() / 2);
    for ((a, b), pair) in first.iter_mut().zip(second).zip(from.chunks_exact(2)) {
        (*a, *b) = (N::narrow(pair[0]), N::narrow(pair[1]));
    }
}

/// The inverse, added to `to`.
fn add_pairs<N: Number>(from: &[N], to: &mut [f32]) {
    let (first, second) = from.split_at(from.len() / 2);
    for ((a, b), pair) in first.iter().zip(second).zip(to.chunks_exact_mut(2)) {
        pair[0] += a.wide();
        pair[1] += b.wide();
    }
}

fn clear<N: Number>(to: &mut [N]) {
    to.iter_mut().for_each(|x| *x = N::narrow(0.0));
}

/// What is joined to rows of queries, keys and values.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// Queries, of each head the features without position first, in columns of a larger matrix.
    pub q: &'a [f32],
    pub q_columns: Columns,
    /// (rows, keys and values).
    pub kv: &'a [f32],
    /// The keys that all heads share, likewise.
    pub key: &'a [f32],
    pub key_columns: Columns,
}

/// `qkv` (rows, 3 · n_head · head_dim), not rotated yet.
pub fn join(sizes: Sizes, parts: Parts, qkv: ValuesMut) {
    match qkv {
        ValuesMut::F32(qkv) => join_to(sizes, parts, qkv),
        ValuesMut::Bf16(qkv) => join_to(sizes, parts, qkv),
    }
}

fn join_to<N: Number>(sizes: Sizes, parts: Parts, qkv: &mut [N]) {
    let (d, qk) = (sizes.head_dim(), sizes.qk_dim());
    let (nope, rope) = (sizes.nope_dim, sizes.rope_dim);
    let width = sizes.n_head * d;
    threads::rows1(qkv, 3 * width, 6 * width, |first, qkv| {
        for (i, row) in qkv.chunks_exact_mut(3 * width).enumerate() {
            let at = |columns: Columns| (first + i) * columns.stride + columns.first;
            let q = &parts.q[at(parts.q_columns)..][..sizes.queries()];
            let key = &parts.key[at(parts.key_columns)..][..rope];
            let kv = &parts.kv[(first + i) * sizes.keys_and_values()..][..sizes.keys_and_values()];
            let (q_row, rest) = row.split_at_mut(width);
            let (k_row, v_row) = rest.split_at_mut(width);
            for (to, q) in q_row.chunks_exact_mut(d).zip(q.chunks_exact(qk)) {
                put_pairs(&q[nope..], &mut to[..rope]);
                put(&q[..nope], &mut to[rope..qk]);
                clear(&mut to[qk..]);
            }
            let of_heads = kv.chunks_exact(sizes.per_head());
            let rows = k_row.chunks_exact_mut(d).zip(v_row.chunks_exact_mut(d));
            for ((k, v), kv) in rows.zip(of_heads) {
                put_pairs(key, &mut k[..rope]);
                put(&kv[..nope], &mut k[rope..qk]);
                clear(&mut k[qk..]);
                put(&kv[nope..], &mut v[..sizes.v_dim]);
                clear(&mut v[sizes.v_dim..]);
            }
        }
    });
}

/// The gradient with respect to the queries, in columns of `dq`, from that of [`join`]'s output.
pub fn split_queries(sizes: Sizes, dqkv: Values, (dq, columns): (&mut [f32], Columns)) {
    match dqkv {
        Values::F32(dqkv) => queries_of(sizes, dqkv, dq, columns),
        Values::Bf16(dqkv) => queries_of(sizes, dqkv, dq, columns),
    }
}

fn queries_of<N: Number>(sizes: Sizes, dqkv: &[N], dq: &mut [f32], columns: Columns) {
    let (d, qk) = (sizes.head_dim(), sizes.qk_dim());
    let (nope, rope) = (sizes.nope_dim, sizes.rope_dim);
    let width = sizes.n_head * d;
    threads::rows1(dq, columns.stride, 2 * width, |first, dq| {
        for (i, row) in dq.chunks_exact_mut(columns.stride).enumerate() {
            let row = &mut row[columns.first..][..sizes.queries()];
            let from = dqkv[(first + i) * 3 * width..][..width].chunks_exact(d);
            for (to, from) in row.chunks_exact_mut(qk).zip(from) {
                to[nope..].fill(0.0);
                add_pairs(&from[..rope], &mut to[nope..]);
                take(&from[rope..qk], &mut to[..nope]);
            }
        }
    });
}

/// The gradients with respect to keys and values, and to the keys that all heads share, in columns of `dkey`: sums over the heads.
pub fn split_keys(sizes: Sizes, dqkv: Values, dkv: &mut [f32], dkey: (&mut [f32], Columns)) {
    match dqkv {
        Values::F32(dqkv) => keys_of(sizes, dqkv, dkv, dkey),
        Values::Bf16(dqkv) => keys_of(sizes, dqkv, dkv, dkey),
    }
}

fn keys_of<N: Number>(
    sizes: Sizes,
    dqkv: &[N],
    dkv: &mut [f32],
    (dkey, columns): (&mut [f32], Columns),
) {
    let (d, qk) = (sizes.head_dim(), sizes.qk_dim());
    let (nope, rope) = (sizes.nope_dim, sizes.rope_dim);
    let width = sizes.n_head * d;
    let (a, b) = ((dkv, sizes.keys_and_values()), (dkey, columns.stride));
    threads::rows2(a, b, 4 * width, |first, dkv, dkey| {
        let rows = dkv.chunks_exact_mut(sizes.keys_and_values());
        for (i, (dkv, dkey)) in rows.zip(dkey.chunks_exact_mut(columns.stride)).enumerate() {
            let from = &dqkv[(first + i) * 3 * width + width..][..2 * width];
            let (dk, dv) = from.split_at(width);
            let shared = &mut dkey[columns.first..][..rope];
            shared.fill(0.0);
            let heads = dk.chunks_exact(d).zip(dv.chunks_exact(d));
            for (to, (dk, dv)) in dkv.chunks_exact_mut(sizes.per_head()).zip(heads) {
                take(&dk[rope..qk], &mut to[..nope]);
                take(&dv[..sizes.v_dim], &mut to[nope..]);
                add_pairs(&dk[..rope], shared);
            }
        }
    });
}

/// `y` (rows, n_head · v_dim) = the features of `out` (rows, n_head · head_dim) that are values. Both have one dtype.
pub fn values(sizes: Sizes, out: Values, y: ValuesMut) {
    match (out, y) {
        (Values::F32(out), ValuesMut::F32(y)) => values_of(sizes, out, y),
        (Values::Bf16(out), ValuesMut::Bf16(y)) => values_of(sizes, out, y),
        _ => unreachable!("attention's output and its features have one dtype"),
    }
}

fn values_of<N: Number>(sizes: Sizes, out: &[N], y: &mut [N]) {
    let (d, v, width) = (sizes.head_dim(), sizes.v_dim, sizes.values());
    threads::rows1(y, width, width, |first, y| {
        let from = out[first * sizes.n_head * d..].chunks_exact(d);
        for (y, out) in y.chunks_exact_mut(v).zip(from) {
            y.copy_from_slice(&out[..v]);
        }
    });
}

/// The gradient with respect to `out` of [`values`].
pub fn values_backward(sizes: Sizes, dy: &[f32], dout: &mut [f32]) {
    let (d, v) = (sizes.head_dim(), sizes.v_dim);
    let width = sizes.n_head * d;
    threads::rows1(dout, width, width, |first, dout| {
        let from = dy[first * sizes.values()..].chunks_exact(v);
        for (dout, dy) in dout.chunks_exact_mut(d).zip(from) {
            dout[..v].copy_from_slice(dy);
            dout[v..].fill(0.0);
        }
    });
}

/// The matrix that keys and values come from, (keys and values, kv_rank), with its adapter.
#[derive(Debug, Clone, Copy)]
pub struct Up<'a> {
    pub matrix: Matrix<'a>,
    pub adapter: Option<UpAdapter<'a>>,
}

/// W becomes s ∘ (W + scale · B A), s a factor of each row.
#[derive(Debug, Clone, Copy)]
pub struct UpAdapter<'a> {
    /// (rank, kv_rank).
    pub a: &'a [f32],
    /// (keys and values, rank).
    pub b: &'a [f32],
    pub scale: f32,
    /// DoRA's; empty without.
    pub row_scales: &'a [f32],
}

thread_local! {
    /// Some rows of a matrix, of one head.
    static ROWS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl Up<'_> {
    /// Calls `f` with rows of the matrix as f32; those of a plain one are read in place.
    fn with_rows<R>(&self, rows: Range<usize>, cols: usize, f: impl FnOnce(&[f32]) -> R) -> R {
        if let (Matrix::Dense(values), None) = (self.matrix, self.adapter) {
            return f(&values[rows.start * cols..rows.end * cols]);
        }
        ROWS.with_borrow_mut(|to| {
            to.resize(rows.len() * cols, 0.0);
            for (row, to) in rows.zip(to.chunks_exact_mut(cols)) {
                self.matrix.row(row, to);
                if let Some(adapter) = &self.adapter {
                    adapter.apply(row, to);
                }
            }
            f(to)
        })
    }
}

impl UpAdapter<'_> {
    fn apply(&self, row: usize, to: &mut [f32]) {
        let rank = self.a.len() / to.len();
        let b = &self.b[row * rank..][..rank];
        for (b, a) in b.iter().zip(self.a.chunks_exact(to.len())) {
            let factor = self.scale * b;
            for (to, a) in to.iter_mut().zip(a) {
                *to += factor * a;
            }
        }
        if let Some(scale) = self.row_scales.get(row) {
            to.iter_mut().for_each(|x| *x *= scale);
        }
    }
}

/// Queries and keys over latent vectors, `out` (rows, (n_head + 1) · (rope_dim + kv_rank)), not rotated yet: q_nope · k_nope is (q_nope
/// W_k) · c, so each head has its rotated features and q_nope W_k; last come the shared key and the latent vector itself, of
/// `latents` (rows, kv_rank).
pub fn absorb(arithmetic: ComputeDtype, sizes: Sizes, parts: Parts, up: Up, out: &mut [f32]) {
    let heads = sizes.latent_heads();
    let (d, nope, rope, qk) = (
        heads.head_dim,
        sizes.nope_dim,
        sizes.rope_dim,
        sizes.qk_dim(),
    );
    let width = (sizes.n_head + 1) * d;
    threads::rows1(out, width, width, |first, out| {
        for (i, row) in out.chunks_exact_mut(width).enumerate() {
            let at = |columns: Columns| (first + i) * columns.stride + columns.first;
            let q = &parts.q[at(parts.q_columns)..][..sizes.queries()];
            let (queries, key) = row.split_at_mut(heads.q_width());
            for (to, q) in queries.chunks_exact_mut(d).zip(q.chunks_exact(qk)) {
                put_pairs(&q[nope..], &mut to[..rope]);
            }
            put_pairs(
                &parts.key[at(parts.key_columns)..][..rope],
                &mut key[..rope],
            );
            key[rope..].copy_from_slice(&parts.kv[(first + i) * sizes.kv_rank..][..sizes.kv_rank]);
        }
    });
    let rows = out.len() / width;
    let to = Shared(out.as_mut_ptr());
    let (columns, rank) = (parts.q_columns, sizes.kv_rank);
    threads::tasks(sizes.n_head, 2 * rows * nope * rank, |h| {
        let from = h * sizes.per_head();
        up.with_rows(from..from + nope, rank, |weight| {
            let q = &parts.q[columns.first + h * qk..];
            let q = Mat::strided(q, rows, nope, columns.stride);
            // SAFETY: the task owns these columns of head h, of rows that the output has.
            unsafe {
                let to = Destination {
                    start: to.at(h * d + rope),
                    row_stride: width,
                    into: Accumulation::Overwrite,
                };
                let weight = Mat::new(weight, nope, rank);
                matmul_into(to, q, weight, 1.0, Compute::one(arithmetic));
            }
        });
    });
}

/// `y` (rows, n_head · v_dim) from the means of latent vectors that attention gives, (rows, n_head · (rope_dim + kv_rank)): of each
/// head W_v of its latent part. What lies before it, a mean of rotated keys, is not read.
pub fn expand(arithmetic: ComputeDtype, sizes: Sizes, means: &[f32], up: Up, y: &mut [f32]) {
    let heads = sizes.latent_heads();
    let (d, stride, v) = (heads.head_dim, heads.q_width(), sizes.v_dim);
    let rows = means.len() / stride;
    assert_eq!(y.len(), rows * sizes.values(), "values of latent vectors");
    let to = Shared(y.as_mut_ptr());
    let rank = sizes.kv_rank;
    threads::tasks(sizes.n_head, 2 * rows * v * rank, |h| {
        let from = h * sizes.per_head() + sizes.nope_dim;
        up.with_rows(from..from + v, rank, |weight| {
            let means = &means[h * d + sizes.rope_dim..];
            let means = Mat::strided(means, rows, rank, stride);
            // SAFETY: the task owns the columns of head h of the output, whose size was checked.
            unsafe {
                let to = Destination {
                    start: to.at(h * v),
                    row_stride: sizes.values(),
                    into: Accumulation::Overwrite,
                };
                let weight = Mat::new(weight, v, rank);
                matmul_into(to, means, weight.t(), 1.0, Compute::one(arithmetic));
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_close, normal};

    const SIZES: [Sizes; 2] = [
        Sizes {
            n_head: 3,
            kv_rank: 5,
            nope_dim: 4,
            rope_dim: 2,
            v_dim: 3,
        },
        Sizes {
            n_head: 2,
            kv_rank: 7,
            nope_dim: 3,
            rope_dim: 4,
            v_dim: 9,
        },
    ];
    const ROWS: usize = 6;

    /// The backward passes are the transposes of the forward ones: ⟨F x, y⟩ = ⟨x, Fᵀ y⟩.
    #[test]
    fn splitting_is_the_transpose_of_joining() {
        for sizes in SIZES {
            let (q_columns, key_columns) = (
                Columns {
                    first: 0,
                    width: sizes.queries(),
                    stride: sizes.queries(),
                },
                Columns {
                    first: 3,
                    width: sizes.rope_dim,
                    stride: sizes.rope_dim + 3,
                },
            );
            let q = normal(ROWS * sizes.queries(), 0);
            let kv = normal(ROWS * sizes.keys_and_values(), 1);
            let mut key = normal(ROWS * key_columns.stride, 2);
            for row in key.chunks_exact_mut(key_columns.stride) {
                row[..3].fill(0.0);
            }
            let width = 3 * sizes.n_head * sizes.head_dim();
            let up = normal(ROWS * width, 3);
            let parts = Parts {
                q: &q,
                q_columns,
                kv: &kv,
                key: &key,
                key_columns,
            };
            let mut qkv = vec![f32::NAN; ROWS * width];
            join(sizes, parts, ValuesMut::F32(&mut qkv));
            let dot = |a: &[f32], b: &[f32]| -> f64 {
                a.iter()
                    .zip(b)
                    .map(|(a, b)| f64::from(*a) * f64::from(*b))
                    .sum()
            };
            let (mut dq, mut dkv, mut dkey) = (q.clone(), kv.clone(), vec![0.0; key.len()]);
            split_queries(sizes, Values::F32(&up), (&mut dq, q_columns));
            split_keys(sizes, Values::F32(&up), &mut dkv, (&mut dkey, key_columns));
            let apart = dot(&q, &dq) + dot(&kv, &dkv) + dot(&key, &dkey);
            assert!((dot(&qkv, &up) - apart).abs() < 1e-3, "{sizes:?}");
            let out = normal(ROWS * sizes.n_head * sizes.head_dim(), 4);
            let dy = normal(ROWS * sizes.values(), 5);
            let (mut y, mut dout) = (dy.clone(), out.clone());
            values(sizes, Values::F32(&out), ValuesMut::F32(&mut y));
            values_backward(sizes, &dy, &mut dout);
            assert!((dot(&y, &dy) - dot(&out, &dout)).abs() < 1e-4);
        }
    }

    /// Scores over latent vectors are those of the keys that come from them, with an adapter too.
    #[test]
    fn absorbed_queries_give_the_scores_of_keys_and_values_of_latents() {
        for sizes in SIZES {
            let Sizes {
                n_head,
                kv_rank,
                nope_dim,
                rope_dim,
                v_dim,
            } = sizes;
            let rank = 2;
            let weight = normal(sizes.keys_and_values() * kv_rank, 0);
            let (a, b) = (
                normal(rank * kv_rank, 1),
                normal(sizes.keys_and_values() * rank, 2),
            );
            let row_scales = normal(sizes.keys_and_values(), 3);
            let adapter = UpAdapter {
                a: &a,
                b: &b,
                scale: 0.5,
                row_scales: &row_scales,
            };
            for adapter in [None, Some(adapter)] {
                let up = Up {
                    matrix: Matrix::Dense(&weight),
                    adapter,
                };
                let whole: Vec<f64> = up.with_rows(0..sizes.keys_and_values(), kv_rank, |rows| {
                    rows.iter().map(|x| f64::from(*x)).collect()
                });
                let (q, c) = (normal(ROWS * sizes.queries(), 4), normal(ROWS * kv_rank, 5));
                let key = normal(ROWS * rope_dim, 6);
                let columns = |width| Columns {
                    first: 0,
                    width,
                    stride: width,
                };
                let parts = Parts {
                    q: &q,
                    q_columns: columns(sizes.queries()),
                    kv: &c,
                    key: &key,
                    key_columns: columns(rope_dim),
                };
                let d = rope_dim + kv_rank;
                let mut out = vec![f32::NAN; ROWS * (n_head + 1) * d];
                absorb(ComputeDtype::F32, sizes, parts, up, &mut out);
                let (mut found, mut exact) = (Vec::new(), Vec::new());
                for row in 0..ROWS {
                    let out = &out[row * (n_head + 1) * d..][..(n_head + 1) * d];
                    for h in 0..n_head {
                        let (query, own) = (&out[h * d..][..d], &out[n_head * d..]);
                        found.push(query.iter().zip(own).map(|(a, b)| a * b).sum::<f32>());
                        let q = &q[row * sizes.queries() + h * sizes.qk_dim()..][..sizes.qk_dim()];
                        let mut score: f64 = (0..rope_dim)
                            .map(|i| {
                                f64::from(q[nope_dim + i]) * f64::from(key[row * rope_dim + i])
                            })
                            .sum();
                        for i in 0..nope_dim {
                            let weight =
                                &whole[(h * (nope_dim + v_dim) + i) * kv_rank..][..kv_rank];
                            let k: f64 = (weight.iter().zip(&c[row * kv_rank..]))
                                .map(|(w, c)| w * f64::from(*c))
                                .sum();
                            score += f64::from(q[i]) * k;
                        }
                        exact.push(score);
                    }
                }
                assert_close("scores", &found, &exact, 1e-5);
                let means = normal(ROWS * n_head * d, 7);
                let mut y = vec![f32::NAN; ROWS * sizes.values()];
                expand(ComputeDtype::F32, sizes, &means, up, &mut y);
                let mut exact = Vec::new();
                for row in means.chunks_exact(n_head * d) {
                    for (h, mean) in row.chunks_exact(d).enumerate() {
                        exact.extend((0..v_dim).map(|i| {
                            let at = h * (nope_dim + v_dim) + nope_dim + i;
                            let weight = whole[at * kv_rank..][..kv_rank].iter();
                            let latent = &mean[rope_dim..];
                            weight
                                .zip(latent)
                                .map(|(w, x)| w * f64::from(*x))
                                .sum::<f64>()
                        }));
                    }
                }
                assert_close("values", &y, &exact, 1e-5);
            }
        }
    }
}
