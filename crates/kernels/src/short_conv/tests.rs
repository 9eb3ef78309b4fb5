//! The fused forms against the composite in f64.

use super::*;
use crate::causal_conv;
use crate::check::{assert_close, leaf, normal, oracle};
use crate::numbers::bf16;
use candle_core::{D, Result, Tensor};

/// `wide` (B, T, 3C), `weight` (C, k), `bias` (C) → (B, T, C); the columns of `wide` are b, then c, then x.
fn composite(
    wide: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    positions: Positions,
) -> Result<Tensor> {
    let channels = weight.dim(0)?;
    let part = |at: usize| wide.narrow(D::Minus1, at * channels, channels);
    let mut sum = causal_conv::composite(&(part(0)? * part(2)?)?, weight, positions)?;
    if let Some(bias) = bias {
        sum = sum.broadcast_add(bias)?;
    }
    part(1)? * sum
}

/// Documents in two rows of seven: one that ends with its row, some shorter than the convolution.
const FIRST: [u32; 14] = [0, 0, 2, 2, 2, 2, 6, 0, 1, 2, 2, 2, 2, 2];

struct Case {
    batch_size: usize,
    seq_len: usize,
    channels: usize,
    len: usize,
    bias: bool,
    first: Option<&'static [u32]>,
}

const CASES: [Case; 6] = [
    Case::new(1, 1, 1, 1),
    Case::new(2, 7, 5, 3).with_documents(),
    Case::new(2, 7, 33, 4).with_documents().with_bias(),
    Case::new(3, 2, 4, 5).with_bias(),
    Case::new(2, 300, 40, 3),
    Case::new(1, 700, 16, 4).with_bias(),
];

impl Case {
    const fn new(batch_size: usize, seq_len: usize, channels: usize, len: usize) -> Case {
        Case {
            batch_size,
            seq_len,
            channels,
            len,
            bias: false,
            first: None,
        }
    }

    const fn with_bias(self) -> Case {
        Case { bias: true, ..self }
    }

    const fn with_documents(self) -> Case {
        Case {
            first: Some(&FIRST),
            ..self
        }
    }

    fn positions(&self) -> Positions<'static> {
        Positions {
            first: self.first,
            ..Positions::whole_rows(self.seq_len)
        }
    }

    fn rows(&self) -> usize {
        self.batch_size * self.seq_len
    }
}

#[test]
fn gradients_agree_with_candle_in_f64() {
    for case in CASES {
        let Case { channels, len, .. } = case;
        let rows = case.rows();
        let (wide, weight) = (normal(rows * 3 * channels, 0), normal(channels * len, 1));
        let (bias, dout) = (normal(channels, 2), normal(rows * channels, 3));
        let lwide = leaf(&wide, &[case.batch_size, case.seq_len, 3 * channels]);
        let (lw, lb) = (leaf(&weight, &[channels, len]), leaf(&bias, &[channels]));
        let leaves = [&lwide, &lw, &lb];
        let (exact, grads) = oracle(&leaves[..2 + usize::from(case.bias)], &dout, || {
            composite(&lwide, &lw, case.bias.then_some(&lb), case.positions())
        });
        let conv = ShortConv {
            weight: &weight,
            bias: case.bias.then_some(&bias),
            len,
        };
        let mut out = vec![f32::NAN; rows * channels];
        let of_wide = Values::F32(&wide);
        forward(conv, case.positions(), of_wide, (&mut out[..]).into());
        assert_close("out", &out, &exact, 1e-6);
        let mut dwide = vec![f32::NAN; wide.len()];
        let (mut dweight, mut dbias) = (vec![f32::NAN; weight.len()], vec![f32::NAN; channels]);
        for (times, into) in [(1.0, Accumulation::Overwrite), (2.0, Accumulation::Add)] {
            let params = ParamGradients {
                weight: Some(&mut dweight),
                bias: case.bias.then_some(&mut dbias),
                into,
            };
            let (dout, to) = (Values::F32(&dout), (&mut dwide[..]).into());
            backward(conv, case.positions(), of_wide, dout, to, params);
            assert_close("dwide", &dwide, &grads[0], 1e-6);
            let twice = |x: &[f64]| x.iter().map(|x| times * x).collect::<Vec<_>>();
            assert_close("dweight", &dweight, &twice(&grads[1]), 2e-6);
            if case.bias {
                assert_close("dbias", &dbias, &twice(&grads[2]), 2e-6);
            }
        }
        // Frozen parameters do not change the rest.
        let mut frozen = vec![f32::NAN; wide.len()];
        let params = ParamGradients {
            weight: None,
            bias: None,
            into: Accumulation::Overwrite,
        };
        let (dout, to) = (Values::F32(&dout), (&mut frozen[..]).into());
        backward(conv, case.positions(), of_wide, dout, to, params);
        assert_eq!(frozen, dwide);
    }
}

/// By hand: two taps, the second document of the row begins at its third token.
#[test]
fn taps_end_at_documents_and_the_last_is_the_current_tokens() {
    let conv = ShortConv {
        weight: &[10.0, 1.0],
        bias: Some(&[0.5]),
        len: 2,
    };
    let wide = [1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0, 4.0];
    let positions = Positions {
        first: Some(&[0, 0, 2, 2]),
        ..Positions::whole_rows(4)
    };
    let mut out = [0.0; 4];
    forward(conv, positions, Values::F32(&wide), (&mut out[..]).into());
    assert_eq!(out, [1.5, 12.5, 7.0, 38.5]);
}

#[test]
fn a_text_in_pieces_gives_the_same_bits() {
    for len in [1, 3, 4] {
        let (rows, channels) = (23, 9);
        let (wide, weight) = (normal(rows * 3 * channels, 0), normal(channels * len, 1));
        let conv = ShortConv {
            weight: &weight,
            bias: None,
            len,
        };
        let mut whole = vec![f32::NAN; rows * channels];
        let positions = Positions::whole_rows(rows);
        forward(conv, positions, Values::F32(&wide), (&mut whole[..]).into());
        for pieces in [vec![23], vec![1; 23], vec![2, 1, 7, 1, 12]] {
            let mut state = vec![0.0; (len - 1) * channels];
            let (mut out, mut at) = (vec![f32::NAN; whole.len()], 0);
            for n in pieces {
                let part = Values::F32(&wide[at * 3 * channels..(at + n) * 3 * channels]);
                let to = &mut out[at * channels..(at + n) * channels];
                forward_after(conv, &mut state, part, to.into());
                at += n;
            }
            assert_eq!(out, whole);
            let mut last = vec![0.0; channels];
            let mut buffer = vec![0.0; 3 * channels];
            for (i, state) in state.chunks_exact(channels).enumerate() {
                let row = rows - (len - 1) + i;
                gated(Values::F32(&wide), row, channels, &mut buffer, &mut last);
                assert_eq!(state, last);
            }
        }
    }
}

#[test]
fn bf16_storage_gives_rounded_f32_values() {
    let halves = |x: &[f32]| x.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    let (rows, channels, len) = (14, 37, 4);
    let wide = halves(&normal(rows * 3 * channels, 0));
    let (weight, dout) = (
        normal(channels * len, 1),
        halves(&normal(rows * channels, 2)),
    );
    let [as_f32, dout_f32] = [&wide, &dout].map(|x| Values::Bf16(x).as_f32().into_owned());
    let conv = ShortConv {
        weight: &weight,
        bias: None,
        len,
    };
    let positions = CASES[1].positions();
    let (mut out, mut exact) = (vec![bf16::NAN; dout.len()], vec![f32::NAN; dout.len()]);
    forward(conv, positions, Values::Bf16(&wide), (&mut out[..]).into());
    forward(
        conv,
        positions,
        Values::F32(&as_f32),
        (&mut exact[..]).into(),
    );
    assert!(out == halves(&exact));
    let (mut dwide, mut exact) = (vec![bf16::NAN; wide.len()], vec![f32::NAN; wide.len()]);
    let (mut dweight, mut exact_dweight) = (vec![0.0; weight.len()], vec![0.0; weight.len()]);
    let params = |weight| ParamGradients {
        weight: Some(weight),
        bias: None,
        into: Accumulation::Overwrite,
    };
    let stored = [Values::Bf16(&wide), Values::Bf16(&dout)];
    let to = (&mut dwide[..]).into();
    backward(
        conv,
        positions,
        stored[0],
        stored[1],
        to,
        params(&mut dweight),
    );
    let stored = [Values::F32(&as_f32), Values::F32(&dout_f32)];
    let to = (&mut exact[..]).into();
    backward(
        conv,
        positions,
        stored[0],
        stored[1],
        to,
        params(&mut exact_dweight),
    );
    assert!(dwide == halves(&exact) && dweight == exact_dweight);
}

#[test]
fn results_do_not_depend_on_the_thread_count() {
    let (rows, channels, len) = (900, 64, 3);
    let (wide, weight) = (normal(rows * 3 * channels, 0), normal(channels * len, 1));
    let dout = normal(rows * channels, 2);
    let conv = ShortConv {
        weight: &weight,
        bias: None,
        len,
    };
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| {
            let positions = Positions::whole_rows(300);
            let (wide, dout) = (Values::F32(&wide), Values::F32(&dout));
            let mut out = vec![0.0; rows * channels];
            forward(conv, positions, wide, (&mut out[..]).into());
            let (mut dwide, mut dweight) = (vec![0.0; wide.len()], vec![0.0; weight.len()]);
            let params = ParamGradients {
                weight: Some(&mut dweight),
                bias: None,
                into: Accumulation::Overwrite,
            };
            backward(conv, positions, wide, dout, (&mut dwide[..]).into(), params);
            (out, dwide, dweight)
        })
    };
    assert!(run(1) == run(3));
}
