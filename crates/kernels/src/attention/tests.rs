//! Attention against the composite in f64, under every mask.

use super::*;
use crate::check::{assert_close, leaf, normal, oracle};
use crate::matmul::ComputeDtype;
use crate::numbers::{Storage, Values, ValuesMut, bf16};

fn heads(n_head: usize, n_kv_head: usize, head_dim: usize) -> Heads {
    Heads {
        n_head,
        n_kv_head,
        head_dim,
    }
}

const CASES: [(usize, usize, usize, usize, usize); 8] = [
    // (n_head, n_kv_head, head_dim, B, T)
    (1, 1, 1, 1, 1),
    (4, 4, 8, 2, 13),
    (4, 2, 6, 2, 64),
    (3, 1, 16, 1, 65),
    (2, 2, 5, 3, 150),
    (2, 1, 32, 1, 300),
    (1, 1, 64, 2, 129),
    (2, 1, 80, 1, 70),
];

/// Documents of 1, 2, 3 … tokens in each sequence.
fn documents(batch_size: usize, seq_len: usize) -> Vec<u32> {
    let mut starts = vec![0];
    while starts.len() < batch_size * seq_len {
        let (at, len) = (starts.len(), 1 + starts.len() % 37);
        let start = if at % seq_len < len { 0 } else { at % seq_len };
        let rest = seq_len - at % seq_len;
        starts.extend(std::iter::repeat_n(start as u32, len.min(rest)));
    }
    starts.truncate(batch_size * seq_len);
    starts
}

/// The fused forms against candle in f64.
fn check(arithmetic: ComputeDtype, sizes: Sizes, batch_size: usize, tolerance: f64) {
    let Sizes {
        heads,
        seq_len,
        mask,
        scores,
    } = sizes;
    let rows = batch_size * seq_len;
    let qkv = normal(rows * heads.qkv_width(), 0);
    let dout = normal(rows * heads.q_width(), 1);
    let lq = leaf(&qkv, &[batch_size, seq_len, heads.qkv_width()]);
    let no_sinks = vec![f32::NEG_INFINITY; heads.n_head];
    let ls = leaf(scores.sinks.unwrap_or(&no_sinks), &[heads.n_head]);
    let sinks = scores.sinks.map(|_| ls.as_tensor());
    let leaves: Vec<_> = std::iter::once(&lq).chain(sinks.map(|_| &ls)).collect();
    let (exact, grads) = oracle(&leaves, &dout, || {
        let how = (mask, scores, sinks);
        Ok(composite_masked(heads, &lq, None, &None, how)?.0)
    });
    let mut out = vec![9.0; dout.len()];
    let mut lse = vec![9.0; rows * heads.n_head];
    let to = ValuesMut::F32(&mut out);
    forward(arithmetic, sizes, Values::F32(&qkv), to, &mut lse);
    assert_close("out", &out, &exact, 2.0 * tolerance);
    let mut dqkv = vec![f32::NAN; qkv.len()];
    let saved = Saved {
        qkv: Values::F32(&qkv),
        out: Values::F32(&out),
        lse: &lse,
    };
    let to = ValuesMut::F32(&mut dqkv);
    backward(arithmetic, sizes, saved, Values::F32(&dout), to);
    assert_close("dqkv", &dqkv, &grads[0], 5.0 * tolerance);
    if let Some(exact) = grads.get(1) {
        let mut dsinks = vec![f32::NAN; heads.n_head];
        let dout = Values::F32(&dout);
        backward_sinks(sizes, saved, dout, &mut dsinks, false);
        assert_close("dsinks", &dsinks, exact, 5.0 * tolerance);
        let once = dsinks.clone();
        backward_sinks(sizes, saved, dout, &mut dsinks, true);
        assert!(dsinks.iter().zip(once).all(|(two, one)| *two == one + one));
    }
}

/// Sinks below all scores, among them and far above.
static SINKS: [f32; 10] = [0.3, -2.0, 1.5, 4.0, 0.0, -30.0, 60.0, 2.0, 1.0, -1.0];

#[test]
fn gradients_with_sinks_agree_with_candle_in_f64() {
    for (n_head, n_kv_head, head_dim, batch_size, seq_len) in CASES {
        let documents = documents(batch_size, seq_len);
        for (softcap, window, packed) in [
            (None, None, false),
            (None, Some(17), true),
            (Some(2.0), Some(1), false),
        ] {
            let mut sizes = Sizes {
                mask: Mask {
                    window,
                    first: packed.then_some(documents.as_slice()),
                },
                ..Sizes::causal(heads(n_head, n_kv_head, head_dim), seq_len)
            };
            sizes.scores.softcap = softcap;
            sizes.scores.sinks = Some(&SINKS[..n_head]);
            check(ComputeDtype::F32, sizes, batch_size, 2e-6);
            check(ComputeDtype::Bf16, sizes, batch_size, 4e-3);
        }
    }
}

#[test]
fn a_sink_without_weight_changes_no_bit_and_one_far_above_takes_all() {
    let sizes = Sizes::causal(heads(2, 1, 16), 100);
    let qkv = normal(100 * sizes.heads.qkv_width(), 0);
    let run = |sinks: Option<&[f32]>| {
        let mut sizes = sizes;
        sizes.scores.sinks = sinks;
        let (mut out, mut lse) = (vec![0.0; 100 * 32], vec![0.0; 2 * 100]);
        let to = ValuesMut::F32(&mut out);
        forward(ComputeDtype::F32, sizes, Values::F32(&qkv), to, &mut lse);
        (out, lse)
    };
    assert!(run(None) == run(Some(&[f32::NEG_INFINITY; 2])));
    let (out, lse) = run(Some(&[1000.0; 2]));
    assert!(out.iter().all(|x| *x == 0.0) && lse.iter().all(|x| *x == 1000.0));
}

#[test]
fn gradients_agree_with_candle_in_f64_under_every_mask() {
    for (n_head, n_kv_head, head_dim, batch_size, seq_len) in CASES {
        let heads = heads(n_head, n_kv_head, head_dim);
        let documents = documents(batch_size, seq_len);
        for window in [None, Some(1), Some(17), Some(200)] {
            for first in [None, Some(documents.as_slice())] {
                let sizes = Sizes {
                    mask: Mask { window, first },
                    ..Sizes::causal(heads, seq_len)
                };
                check(ComputeDtype::F32, sizes, batch_size, 1e-6);
            }
        }
    }
}

#[test]
fn gradients_agree_with_candle_in_f64_under_every_score() {
    let slopes: Vec<f32> = (0..4).map(|h| 0.5 / (1 + h) as f32).collect();
    for (n_head, n_kv_head, head_dim, batch_size, seq_len) in CASES {
        let documents = documents(batch_size, seq_len);
        for (scale, softcap, tilted, window) in [
            (Some(0.7), None, false, None),
            (None, Some(2.0), false, Some(17)),
            (None, None, true, None),
            (Some(0.4), Some(3.0), true, Some(40)),
        ] {
            let sizes = Sizes {
                mask: Mask {
                    window,
                    first: (n_head > 2).then_some(documents.as_slice()),
                },
                scores: Scores {
                    scale,
                    softcap,
                    slopes: tilted.then_some(&slopes[..n_head]),
                    sinks: None,
                },
                ..Sizes::causal(heads(n_head, n_kv_head, head_dim), seq_len)
            };
            check(ComputeDtype::F32, sizes, batch_size, 2e-6);
        }
    }
}

#[test]
fn bf16_results_stay_within_the_rounding_of_their_inputs() {
    for (n_head, n_kv_head, head_dim, batch_size, seq_len) in CASES {
        let sizes = Sizes::causal(heads(n_head, n_kv_head, head_dim), seq_len);
        check(ComputeDtype::Bf16, sizes, batch_size, 4e-3);
    }
}

/// The same numbers, rounded when they are written.
#[test]
fn bf16_storage_gives_rounded_f32_values() {
    let halves = |x: &[f32]| x.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    for (n_head, n_kv_head, head_dim, batch_size, seq_len) in CASES {
        let sizes = Sizes::causal(heads(n_head, n_kv_head, head_dim), seq_len);
        let rows = batch_size * seq_len;
        let qkv = halves(&normal(rows * sizes.heads.qkv_width(), 2));
        let dout = halves(&normal(rows * sizes.heads.q_width(), 3));
        let [wide, dwide] = [&qkv, &dout].map(|x| Values::Bf16(x).as_f32());
        for arithmetic in [ComputeDtype::F32, ComputeDtype::Bf16] {
            let (mut out, mut lse) = (vec![bf16::NAN; dout.len()], vec![0.0; rows * n_head]);
            let to = ValuesMut::Bf16(&mut out);
            forward(arithmetic, sizes, Values::Bf16(&qkv), to, &mut lse);
            let mut exact = vec![f32::NAN; out.len()];
            let to = ValuesMut::F32(&mut exact);
            forward(arithmetic, sizes, Values::F32(&wide), to, &mut lse.clone());
            assert!(out == halves(&exact), "{head_dim} {arithmetic:?}");
            let kept = Values::Bf16(&out).as_f32();
            let saved = |qkv, out| Saved {
                qkv,
                out,
                lse: &lse,
            };
            let mut dqkv = vec![bf16::NAN; qkv.len()];
            let to = ValuesMut::Bf16(&mut dqkv);
            let of = saved(Values::Bf16(&qkv), Values::Bf16(&out));
            backward(arithmetic, sizes, of, Values::Bf16(&dout), to);
            let mut exact = vec![f32::NAN; dqkv.len()];
            let to = ValuesMut::F32(&mut exact);
            let of = saved(Values::F32(&wide), Values::F32(&kept));
            backward(arithmetic, sizes, of, Values::F32(&dwide), to);
            assert!(dqkv == halves(&exact), "{head_dim} {arithmetic:?}");
        }
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let sizes = Sizes::causal(heads(2, 1, 16), 400);
    let heads = sizes.heads;
    let (qkv, dout) = (normal(400 * heads.qkv_width(), 0), normal(400 * 32, 1));
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| {
            let (mut out, mut lse) = (vec![0.0; 400 * 32], vec![0.0; 2 * 400]);
            let to = ValuesMut::F32(&mut out);
            forward(ComputeDtype::F32, sizes, Values::F32(&qkv), to, &mut lse);
            let mut dqkv = vec![0.0; qkv.len()];
            let saved = Saved {
                qkv: Values::F32(&qkv),
                out: Values::F32(&out),
                lse: &lse,
            };
            let to = ValuesMut::F32(&mut dqkv);
            backward(ComputeDtype::F32, sizes, saved, Values::F32(&dout), to);
            (out, lse, dqkv)
        })
    };
    let one = run(1);
    assert!(one == run(2) && one == run(5));
}

#[test]
fn keys_outside_the_window_have_no_influence() {
    let mask = Mask {
        window: Some(10),
        first: None,
    };
    let sizes = Sizes {
        mask,
        ..Sizes::causal(heads(1, 1, 16), 300)
    };
    let run = |qkv: &[f32]| {
        let (mut out, mut lse) = (vec![0.0; 300 * 16], vec![0.0; 300]);
        let to = ValuesMut::F32(&mut out);
        forward(ComputeDtype::F32, sizes, Values::F32(qkv), to, &mut lse);
        out
    };
    let mut qkv = normal(300 * 48, 0);
    let before = run(&qkv);
    qkv[..200 * 48].fill(7.0);
    let after = run(&qkv);
    assert_eq!(before[209 * 16..], after[209 * 16..]);
    assert_ne!(before[208 * 16..209 * 16], after[208 * 16..209 * 16]);
}

#[test]
fn later_tokens_have_no_influence() {
    let heads = heads(2, 1, 4);
    let run = |qkv: &[f32]| {
        let (mut out, mut lse) = (vec![0.0; 70 * 8], vec![0.0; 2 * 70]);
        forward(
            ComputeDtype::F32,
            Sizes::causal(heads, 70),
            Values::F32(qkv),
            ValuesMut::F32(&mut out),
            &mut lse,
        );
        out
    };
    let mut qkv = normal(70 * heads.qkv_width(), 0);
    let before = run(&qkv);
    qkv[66 * heads.qkv_width()..].fill(5.0);
    let after = run(&qkv);
    assert_eq!(before[..66 * 8], after[..66 * 8]);
    assert_ne!(before[66 * 8..], after[66 * 8..]);
}

#[test]
fn cached_attention_equals_the_last_rows_of_full_attention() {
    let slopes = [0.5, 0.25, 0.1, 0.05];
    let plain = Sizes::causal(heads(4, 2, 4), 70);
    check_cached(plain);
    for window in [None, Some(1), Some(2), Some(30)] {
        let mask = Mask {
            window,
            first: None,
        };
        let scores = Scores {
            scale: Some(0.8),
            softcap: Some(2.0),
            slopes: Some(&slopes),
            sinks: None,
        };
        check_cached(Sizes { mask, ..plain });
        let scores_with_sinks = Scores {
            sinks: Some(&SINKS[..4]),
            ..Scores::default()
        };
        check_cached(Sizes {
            mask,
            scores: scores_with_sinks,
            ..plain
        });
        check_cached(Sizes {
            mask,
            scores,
            ..plain
        });
    }
}

/// A text of `sizes.seq_len` tokens: its cached keys and values, and attention's inputs.
struct Cached {
    sizes: Sizes<'static>,
    qkv: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    /// The dtype in which attention gets keys and values.
    storage: Storage,
}

/// Rows of the cache beyond the text's tokens.
const SPARE: usize = 10;

impl Cached {
    fn new(heads: Heads, total: usize) -> Self {
        Cached::of(heads, normal(total * heads.qkv_width(), 0))
    }

    /// The same with keys and values rounded to bf16, and stored so.
    fn rounded(heads: Heads, total: usize) -> Self {
        let mut qkv = normal(total * heads.qkv_width(), 0);
        for row in qkv.chunks_exact_mut(heads.qkv_width()) {
            let cached = &mut row[heads.q_width()..];
            cached
                .iter_mut()
                .for_each(|x| *x = bf16::from_f32(*x).to_f32());
        }
        Cached {
            storage: Storage::Bf16,
            ..Cached::of(heads, qkv)
        }
    }

    fn of(heads: Heads, qkv: Vec<f32>) -> Self {
        let total = qkv.len() / heads.qkv_width();
        let (d, capacity) = (heads.head_dim, total + SPARE);
        let held = |column: usize| {
            let mut rows = vec![9.0; heads.n_kv_head * capacity * d];
            for t in 0..total {
                for kv in 0..heads.n_kv_head {
                    let from = t * heads.qkv_width() + column + kv * d;
                    rows[(kv * capacity + t) * d..][..d].copy_from_slice(&qkv[from..from + d]);
                }
            }
            rows
        };
        Cached {
            sizes: Sizes::causal(heads, total),
            keys: held(heads.q_width()),
            values: held(heads.q_width() + heads.kv_width()),
            qkv,
            storage: Storage::F32,
        }
    }

    /// Keys and values in their dtype: two of them, as words.
    fn stored(&self) -> [Vec<f32>; 2] {
        [&self.keys, &self.values].map(|rows| {
            let mut words = vec![0.0; self.storage.words(rows.len())];
            let to = self.storage.view_mut(&mut words, rows.len());
            to.write_f32(|to| to.copy_from_slice(rows));
            words
        })
    }

    /// The last `new` tokens, behind the others.
    fn piece<'a>(&self, [keys, values]: &'a [Vec<f32>; 2], new: usize) -> Piece<'a> {
        let (total, n) = (self.sizes.seq_len, self.keys.len());
        Piece {
            new,
            past: total - new,
            keys: self.storage.view(keys, n),
            values: self.storage.view(values, n),
            capacity: total + SPARE,
        }
    }

    /// The outputs of the last tokens, as many as each of `pieces` says, in one pass.
    fn last(&self, sizes: Sizes, pieces: &[usize]) -> Vec<f32> {
        let (total, heads) = (self.sizes.seq_len, self.sizes.heads);
        let width = heads.qkv_width();
        let q = pieces
            .iter()
            .flat_map(|new| &self.qkv[(total - new) * width..]);
        let q: Vec<f32> = q.copied().collect();
        let mut out = vec![0.0; pieces.iter().sum::<usize>() * heads.q_width()];
        let stored = self.stored();
        let pieces = pieces.iter().map(|new| self.piece(&stored, *new));
        let pieces: Vec<Piece> = pieces.collect();
        forward_cached(ComputeDtype::F32, sizes, &pieces, (&q, width), &mut out);
        out
    }
}

/// Cached attention in both dtypes against attention over the whole text.
fn check_cached(sizes: Sizes) {
    let (heads, total) = (sizes.heads, sizes.seq_len);
    check_one(sizes, &Cached::new(heads, total));
    check_one(sizes, &Cached::rounded(heads, total));
}

fn check_one(sizes: Sizes, cached: &Cached) {
    let heads = sizes.heads;
    let (total, width) = (sizes.seq_len, heads.q_width());
    let (mut out, mut lse) = (vec![0.0; total * width], vec![0.0; heads.n_head * total]);
    let to = ValuesMut::F32(&mut out);
    forward(
        ComputeDtype::F32,
        sizes,
        Values::F32(&cached.qkv),
        to,
        &mut lse,
    );
    // One, few, and enough rows for matmuls; and several texts at once.
    for pieces in [&[1][..], &[3], &[9], &[2, 1, 9]] {
        let exact = pieces.iter().flat_map(|new| &out[(total - new) * width..]);
        let exact: Vec<f64> = exact.map(|&x| f64::from(x)).collect();
        // Both sides round in f32; without a fused multiply-add they are up to 1.1e-6 apart.
        assert_close("cached", &cached.last(sizes, pieces), &exact, 3e-6);
    }
}

#[test]
fn decode_agrees_with_full_attention_over_many_chunks_and_odd_head_sizes() {
    let slopes: Vec<f32> = (1..=10).map(|h| 0.02 * h as f32).collect();
    let scores = Scores {
        scale: Some(0.1),
        softcap: Some(2.0),
        slopes: Some(&slopes),
        sinks: Some(&SINKS),
    };
    let mask = Mask {
        window: Some(70),
        first: None,
    };
    let shapes = [
        (3, 1, 64, 300),
        (4, 2, 80, 129),
        (2, 2, 37, 65),
        (10, 2, 80, 129),
        (7, 1, 64, 100),
    ];
    for (n_head, n_kv_head, head_dim, total) in shapes {
        let plain = Sizes::causal(heads(n_head, n_kv_head, head_dim), total);
        check_cached(plain);
        check_cached(Sizes {
            mask,
            scores,
            ..plain
        });
    }
}

/// A short text and a long one, in both orders.
#[test]
fn texts_of_any_lengths_are_decoded_together() {
    let heads = heads(6, 2, 16);
    // Of one dtype each.
    let (long, short) = (Cached::rounded(heads, 1000), Cached::new(heads, 3));
    let (width, q_width) = (heads.qkv_width(), heads.q_width());
    for texts in [[&long, &short], [&short, &long]] {
        let last = |text: &Cached| text.qkv[text.qkv.len() - width..].to_vec();
        let q = texts.map(last).concat();
        let stored = texts.map(Cached::stored);
        let pieces = [0, 1].map(|at| texts[at].piece(&stored[at], 1));
        let mut out = vec![0.0; 2 * q_width];
        let sizes = long.sizes;
        forward_cached(ComputeDtype::F32, sizes, &pieces, (&q, width), &mut out);
        for (out, text) in out.chunks_exact(q_width).zip(texts) {
            assert_eq!(out, text.last(sizes, &[1]));
        }
    }
}

#[test]
fn a_decoded_token_has_the_same_bits_beside_others_and_on_any_number_of_threads() {
    for window in [None, Some(150)] {
        alone_and_beside_others(window, &Cached::new(heads(6, 2, 64), 400));
        alone_and_beside_others(window, &Cached::rounded(heads(6, 2, 64), 400));
    }
}

fn alone_and_beside_others(window: Option<usize>, cached: &Cached) {
    let mask = Mask {
        window,
        first: None,
    };
    let sizes = Sizes {
        mask,
        ..cached.sizes
    };
    let alone = cached.last(sizes, &[1]);
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let together = pool
            .build()
            .unwrap()
            .install(|| cached.last(sizes, &[3, 1, 20]));
        let width = sizes.heads.q_width();
        assert_eq!(together[2 * width..3 * width], alone, "{threads} threads");
        assert_eq!(together[3 * width..4 * width], alone, "{threads} threads");
    }
}

/// bf16 keys and values are those numbers: nothing else is rounded, and sums have the same order.
#[test]
fn bf16_keys_and_values_decode_to_the_bits_of_the_same_numbers_in_f32() {
    for (n_head, n_kv_head, head_dim, total) in [(9, 3, 64, 300), (2, 2, 37, 65), (7, 1, 80, 129)] {
        let stored = Cached::rounded(heads(n_head, n_kv_head, head_dim), total);
        let mut wide = Cached::rounded(heads(n_head, n_kv_head, head_dim), total);
        wide.storage = Storage::F32;
        for pieces in [&[1][..], &[4, 2]] {
            let [a, b] = [&stored, &wide].map(|cached| cached.last(cached.sizes, pieces));
            assert_eq!(a, b, "{n_head} {n_kv_head} {head_dim}");
        }
    }
}

/// With bf16 matmuls a long piece rounds keys and values anyway: both caches give the same bits.
#[test]
fn bf16_matmuls_give_the_same_bits_over_either_cache() {
    let heads = heads(4, 2, 64);
    let (total, new) = (200, 60);
    let mut cached = Cached::new(heads, total);
    let q = &cached.qkv[(total - new) * heads.qkv_width()..].to_vec();
    let mut outputs = Vec::new();
    for storage in [Storage::F32, Storage::Bf16] {
        cached.storage = storage;
        let stored = cached.stored();
        let piece = cached.piece(&stored, new);
        let mut out = vec![0.0; new * heads.q_width()];
        let q = (q.as_slice(), heads.qkv_width());
        forward_cached(ComputeDtype::Bf16, cached.sizes, &[piece], q, &mut out);
        outputs.push(out);
    }
    assert_eq!(outputs[0], outputs[1]);
}

#[test]
fn decode_keeps_nan_and_infinity_visible() {
    nan_and_infinity(Cached::new);
    nan_and_infinity(Cached::rounded);
}

fn nan_and_infinity(make: fn(Heads, usize) -> Cached) {
    let mut cached = make(heads(2, 2, 8), 100);
    cached.values[5 * 8] = f32::NAN;
    let out = cached.last(cached.sizes, &[1]);
    assert!(out[0].is_nan());
    assert!(out[1..].iter().all(|x| x.is_finite()));
    cached.keys[70 * 8] = f32::NAN;
    let out = cached.last(cached.sizes, &[1]);
    assert!(out[..8].iter().all(|x| x.is_nan()));
    assert!(out[8..].iter().all(|x| x.is_finite()));
    // The last chunk's keys all score −∞: they weigh nothing.
    let mut cached = make(heads(2, 2, 8), 100);
    let plain = cached.last(cached.sizes, &[1]);
    let q = &cached.qkv[99 * cached.sizes.heads.qkv_width()..][..8];
    let away: Vec<f32> = q.iter().map(|x| -x.signum() * f32::MAX).collect();
    for key in 96..100 {
        cached.keys[key * 8..][..8].copy_from_slice(&away);
    }
    let out = cached.last(cached.sizes, &[1]);
    assert!(out.iter().all(|x| x.is_finite()), "{out:?}");
    assert_ne!(out[..8], plain[..8]);
    assert_eq!(out[8..], plain[8..]);
}
