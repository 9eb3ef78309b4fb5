//! The fused forms against the composite in f64.

use super::*;
use crate::causal_conv;
use crate::check::{assert_close, leaf, normal, oracle};
use crate::matmul::Accumulation;
use crate::numbers::{Values, bf16};
use crate::positions::Positions;
use candle_core::{D, Result, Tensor};

/// The parameters of the composite, shaped as in [`GatedDelta`].
#[derive(Debug, Clone, Copy)]
struct Params<'a> {
    conv: &'a Tensor,
    a_log: &'a Tensor,
    dt_bias: &'a Tensor,
    gain: &'a Tensor,
    eps: f64,
}

/// `wide` (B, T, [`Sizes::wide`]) → (B, T, values), token by token.
fn composite(sizes: Sizes, params: Params, wide: &Tensor, positions: Positions) -> Result<Tensor> {
    let (batch_size, seq_len, _) = wide.dims3()?;
    let (keys, values, heads) = (sizes.keys(), sizes.values(), sizes.n_value_head);
    let (dk, dv) = (sizes.key_dim, sizes.value_dim);
    let mixed = wide.narrow(D::Minus1, 0, sizes.channels())?;
    let mixed = causal_conv::composite(&mixed, params.conv, positions)?;
    let mixed = silu(&mixed)?;
    let key_heads = |from: usize| {
        let x = mixed.narrow(D::Minus1, from, keys)?;
        let x = x.reshape((batch_size, seq_len, sizes.n_key_head, 1, dk))?;
        let squares = x.sqr()?.sum_keepdim(D::Minus1)?;
        let x = x.broadcast_div(&(squares + f64::from(LENGTH_EPS))?.sqrt()?)?;
        x.broadcast_as((batch_size, seq_len, sizes.n_key_head, sizes.group(), dk))?
            .reshape((batch_size, seq_len, heads, dk))
    };
    let (q, k) = ((key_heads(0)? / (dk as f64).sqrt())?, key_heads(keys)?);
    let per_head = |x: Tensor| x.reshape((batch_size, seq_len, heads, dv));
    let v = per_head(mixed.narrow(D::Minus1, 2 * keys, values)?)?;
    let z = per_head(wide.narrow(D::Minus1, sizes.channels(), values)?)?;
    let from = sizes.channels() + values;
    let beta = sigmoid(&wide.narrow(D::Minus1, from, heads)?)?;
    let a = wide.narrow(D::Minus1, from + heads, heads)?;
    let rate = softplus(&a.broadcast_add(params.dt_bias)?)?;
    let decay = rate.broadcast_mul(&params.a_log.exp()?)?.neg()?.exp()?;
    let first = |t: usize| -> Result<Tensor> {
        let goes_on = (0..batch_size).map(|b| match positions.first {
            Some(first) => f64::from(first[b * seq_len + t] as usize != t),
            None => 1.0,
        });
        Tensor::from_vec(
            goes_on.collect::<Vec<f64>>(),
            (batch_size, 1, 1, 1),
            wide.device(),
        )?
        .to_dtype(wide.dtype())
    };
    let mut state = Tensor::zeros((batch_size, heads, dk, dv), wide.dtype(), wide.device())?;
    let mut rows = Vec::with_capacity(seq_len);
    for t in 0..seq_len {
        let at = |x: &Tensor| x.narrow(1, t, 1)?.squeeze(1);
        let scalar = |x: &Tensor| at(x)?.reshape((batch_size, heads, 1, 1));
        state = state
            .broadcast_mul(&first(t)?)?
            .broadcast_mul(&scalar(&decay)?)?;
        let column = |x: &Tensor| at(x)?.unsqueeze(3);
        let (q, k) = (column(&q)?, column(&k)?);
        let held = state.broadcast_mul(&k)?.sum_keepdim(2)?;
        let update = (at(&v)?.unsqueeze(2)? - held)?.broadcast_mul(&scalar(&beta)?)?;
        state = (state + k.broadcast_mul(&update)?)?;
        rows.push(state.broadcast_mul(&q)?.sum(2)?);
    }
    let o = Tensor::stack(&rows, 1)?;
    let scale = (o.sqr()?.mean_keepdim(D::Minus1)? + params.eps)?.sqrt()?;
    let o = o.broadcast_div(&scale)?.broadcast_mul(params.gain)?;
    (o * silu(&z)?)?.reshape((batch_size, seq_len, values))
}

fn sigmoid(x: &Tensor) -> Result<Tensor> {
    (x.neg()?.exp()? + 1.0)?.recip()
}

fn silu(x: &Tensor) -> Result<Tensor> {
    x * sigmoid(x)?
}

/// ln(1 + e^x) = max(x, 0) + ln(1 + e^−|x|).
fn softplus(x: &Tensor) -> Result<Tensor> {
    x.relu()? + (x.abs()?.neg()?.exp()? + 1.0)?.log()?
}

struct Case {
    sizes: Sizes,
    batch_size: usize,
    seq_len: usize,
    documents: bool,
    /// Added to a: large ones forget at once, see `decays_of_any_strength`.
    shift: f32,
}

fn sizes(heads: (usize, usize), dims: (usize, usize), conv_len: usize) -> Sizes {
    Sizes {
        n_key_head: heads.0,
        n_value_head: heads.1,
        key_dim: dims.0,
        value_dim: dims.1,
        conv_len,
    }
}

fn case(sizes: Sizes, batch_size: usize, seq_len: usize, documents: bool) -> Case {
    Case {
        sizes,
        batch_size,
        seq_len,
        documents,
        shift: 0.0,
    }
}

/// Inputs and parameters.
struct Inputs {
    wide: Vec<f32>,
    conv: Vec<f32>,
    a_log: Vec<f32>,
    dt_bias: Vec<f32>,
    gain: Vec<f32>,
    dout: Vec<f32>,
    first: Option<Vec<u32>>,
}

const EPS: f32 = 1e-6;

impl Case {
    fn inputs(&self) -> Inputs {
        let (sizes, rows) = (self.sizes, self.batch_size * self.seq_len);
        let mut wide = normal(rows * sizes.wide(), 0);
        for row in wide.chunks_exact_mut(sizes.wide()) {
            let a = row.len() - sizes.n_value_head;
            row[a..].iter_mut().for_each(|a| *a += self.shift);
        }
        let scaled = |n, lane, scale: f32| normal(n, lane).iter().map(|x| scale * x).collect();
        Inputs {
            wide,
            conv: scaled(sizes.channels() * sizes.conv_len, 1, 0.7),
            a_log: normal(sizes.n_value_head, 2)
                .iter()
                .map(|x| x - 1.0)
                .collect(),
            dt_bias: normal(sizes.n_value_head, 3),
            gain: normal(sizes.value_dim, 4),
            dout: normal(rows * sizes.values(), 5),
            first: self
                .documents
                .then(|| documents(self.batch_size, self.seq_len)),
        }
    }
}

/// Documents of 1, 2, 5, 10, 17 … tokens in each sequence.
fn documents(batch_size: usize, seq_len: usize) -> Vec<u32> {
    let mut starts = Vec::new();
    for b in 0..batch_size {
        let (mut from, mut n) = (0, b);
        for t in 0..seq_len {
            if t >= from + 1 + n * n {
                (from, n) = (t, n + 1);
            }
            starts.push(from as u32);
        }
    }
    starts
}

impl Inputs {
    fn net(&self, sizes: Sizes) -> GatedDelta<'_> {
        GatedDelta {
            sizes,
            conv: &self.conv,
            a_log: &self.a_log,
            dt_bias: &self.dt_bias,
            gain: &self.gain,
            eps: EPS,
        }
    }

    fn positions(&self, seq_len: usize) -> Positions<'_> {
        Positions {
            first: self.first.as_deref(),
            ..Positions::whole_rows(seq_len)
        }
    }
}

/// Gradients with respect to the input and the parameters.
#[derive(Debug, PartialEq)]
struct Grads {
    wide: Vec<f32>,
    conv: Vec<f32>,
    a_log: Vec<f32>,
    dt_bias: Vec<f32>,
    gain: Vec<f32>,
}

/// Output and gradients of the fused form; parameter gradients are accumulated twice if `twice`.
fn fused(case: &Case, inputs: &Inputs, twice: bool) -> (Vec<f32>, Grads) {
    let (sizes, seq_len) = (case.sizes, case.seq_len);
    let (net, positions) = (inputs.net(sizes), inputs.positions(seq_len));
    let wide = Values::F32(&inputs.wide);
    let rows = case.batch_size * seq_len;
    let [mut states, mut updates] = sizes.kept(rows, seq_len).map(|n| vec![f32::NAN; n]);
    let mut out = vec![f32::NAN; rows * sizes.values()];
    let keep = Keep {
        states: &mut states,
        updates: &mut updates,
    };
    forward(net, positions, wide, (&mut out[..]).into(), Some(keep));
    let nan = |of: &[f32]| vec![f32::NAN; of.len()];
    let mut grads = Grads {
        wide: nan(&inputs.wide),
        conv: nan(&inputs.conv),
        a_log: nan(&inputs.a_log),
        dt_bias: nan(&inputs.dt_bias),
        gain: nan(&inputs.gain),
    };
    for into in [Accumulation::Overwrite, Accumulation::Add] {
        if into == Accumulation::Add && !twice {
            break;
        }
        let params = ParamGradients {
            conv: Some(&mut grads.conv),
            a_log: Some(&mut grads.a_log),
            dt_bias: Some(&mut grads.dt_bias),
            gain: Some(&mut grads.gain),
            into,
        };
        let kept = Kept {
            states: &states,
            updates: &updates,
        };
        let dwide = (&mut grads.wide[..]).into();
        backward(
            net,
            positions,
            wide,
            kept,
            Values::F32(&inputs.dout),
            dwide,
            params,
        );
    }
    (out, grads)
}

fn check(case: &Case) {
    let (sizes, inputs) = (case.sizes, case.inputs());
    let wide = leaf(&inputs.wide, &[case.batch_size, case.seq_len, sizes.wide()]);
    let conv = leaf(&inputs.conv, &[sizes.channels(), sizes.conv_len]);
    let a_log = leaf(&inputs.a_log, &[sizes.n_value_head]);
    let dt_bias = leaf(&inputs.dt_bias, &[sizes.n_value_head]);
    let gain = leaf(&inputs.gain, &[sizes.value_dim]);
    let params = Params {
        conv: &conv,
        a_log: &a_log,
        dt_bias: &dt_bias,
        gain: &gain,
        eps: f64::from(EPS),
    };
    let leaves = [&wide, &conv, &a_log, &dt_bias, &gain];
    let (exact, exact_grads) = oracle(&leaves, &inputs.dout, || {
        composite(sizes, params, &wide, inputs.positions(case.seq_len))
    });
    for times in [1.0, 2.0] {
        let (out, grads) = fused(case, &inputs, times == 2.0);
        assert_close("out", &out, &exact, 1e-5);
        assert_close("wide", &grads.wide, &exact_grads[0], 2e-5);
        for (what, values, exact) in [
            ("conv", &grads.conv, &exact_grads[1]),
            ("a_log", &grads.a_log, &exact_grads[2]),
            ("dt_bias", &grads.dt_bias, &exact_grads[3]),
            ("gain", &grads.gain, &exact_grads[4]),
        ] {
            let exact: Vec<f64> = exact.iter().map(|x| times * x).collect();
            assert_close(what, values, &exact, 2e-5);
        }
    }
}

#[test]
fn gradients_agree_with_candle_in_f64() {
    check(&case(sizes((1, 1), (3, 2), 1), 1, 1, false));
    check(&case(sizes((1, 2), (5, 3), 4), 2, 7, false));
    check(&case(sizes((2, 2), (16, 32), 4), 2, 16, true));
    check(&case(sizes((2, 6), (20, 17), 3), 2, 37, true));
    check(&case(sizes((1, 1), (8, 8), 2), 1, 130, false));
    check(&case(sizes((1, 3), (7, 40), 4), 1, 70, true));
}

#[test]
fn gradients_agree_with_candle_in_f64_for_large_heads() {
    check(&case(sizes((1, 2), (64, 128), 4), 1, 40, false));
    check(&case(sizes((1, 1), (128, 64), 4), 1, 35, true));
}

#[test]
fn decays_of_any_strength_are_exact_and_finite() {
    for shift in [-30.0, -3.0, 8.0, 60.0, 1e4] {
        let sizes = sizes((1, 2), (6, 5), 4);
        check(&Case {
            shift,
            ..case(sizes, 1, 41, false)
        });
    }
}

#[test]
fn a_text_in_pieces_agrees_with_the_whole() {
    for dims in [(16, 32), (9, 21)] {
        let sizes = sizes((2, 4), dims, 4);
        let case = case(sizes, 1, 83, false);
        let inputs = case.inputs();
        let net = inputs.net(sizes);
        let (whole, _) = fused(&case, &inputs, false);
        let exact: Vec<f64> = whole.iter().map(|&x| f64::from(x)).collect();
        for pieces in [vec![83], vec![1; 83], vec![2, 1, 64, 3, 6, 7]] {
            let mut conv = vec![0.0; 3 * sizes.channels()];
            let mut heads = vec![0.0; sizes.state()];
            let (mut out, mut at) = (vec![f32::NAN; whole.len()], 0);
            for n in pieces {
                let wide = &inputs.wide[at * sizes.wide()..(at + n) * sizes.wide()];
                let to = &mut out[at * sizes.values()..(at + n) * sizes.values()];
                let state = State {
                    conv: &mut conv,
                    heads: &mut heads,
                };
                forward_after(net, state, Values::F32(wide), to.into());
                at += n;
            }
            assert_close("out", &out, &exact, 3e-6);
            for (i, kept) in conv.chunks_exact(sizes.channels()).enumerate() {
                let row = &inputs.wide[(80 + i) * sizes.wide()..];
                assert_eq!(kept, &row[..sizes.channels()]);
            }
        }
    }
}

#[test]
fn documents_do_not_see_each_other() {
    let sizes = sizes((1, 2), (8, 6), 4);
    let case = case(sizes, 1, 50, true);
    let mut inputs = case.inputs();
    let before = fused(&case, &inputs, false);
    let first = inputs.first.clone().unwrap();
    let at = (1..50).rfind(|&t| first[t] as usize == t).unwrap();
    let changed = at * sizes.wide();
    inputs.wide[changed..].iter_mut().for_each(|x| *x += 1.0);
    let after = fused(&case, &inputs, false);
    assert!(after.0[..at * sizes.values()] == before.0[..at * sizes.values()]);
    assert!(after.1.wide[..changed] == before.1.wide[..changed]);
    assert!(after.0[at * sizes.values()..] != before.0[at * sizes.values()..]);
}

#[test]
fn frozen_parameters_and_thread_counts_change_nothing() {
    let sizes = sizes((2, 6), (32, 32), 4);
    let case = case(sizes, 2, 150, true);
    let inputs = case.inputs();
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| fused(&case, &inputs, false))
    };
    let (one, many) = (run(1), run(3));
    assert!(one == many);
    let (net, positions) = (inputs.net(sizes), inputs.positions(150));
    let [mut states, mut updates] = sizes.kept(300, 150).map(|n| vec![0.0; n]);
    let wide = Values::F32(&inputs.wide);
    let mut out = vec![0.0; one.0.len()];
    let keep = Keep {
        states: &mut states,
        updates: &mut updates,
    };
    forward(net, positions, wide, (&mut out[..]).into(), Some(keep));
    // Nothing kept: the same outputs.
    let mut plain = vec![0.0; one.0.len()];
    forward(net, positions, wide, (&mut plain[..]).into(), None);
    assert!(out == plain);
    let mut dwide = vec![f32::NAN; inputs.wide.len()];
    let frozen = ParamGradients {
        conv: None,
        a_log: None,
        dt_bias: None,
        gain: None,
        into: Accumulation::Overwrite,
    };
    let kept = Kept {
        states: &states,
        updates: &updates,
    };
    let to = (&mut dwide[..]).into();
    backward(
        net,
        positions,
        wide,
        kept,
        Values::F32(&inputs.dout),
        to,
        frozen,
    );
    assert!(dwide == one.1.wide);
}

/// So many columns and sequences that their sums are distributed.
#[test]
fn sums_over_sequences_do_not_depend_on_the_number_of_threads() {
    let case = case(sizes((16, 16), (32, 32), 4), 16, 2, false);
    let inputs = case.inputs();
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| fused(&case, &inputs, true))
    };
    let one = run(1);
    assert!(one.1.conv.iter().any(|x| *x != 0.0));
    assert!(one == run(3));
}

#[test]
fn bf16_storage_gives_rounded_f32_values() {
    let halves = |x: &[f32]| x.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    let sizes = sizes((2, 4), (16, 12), 4);
    let case = case(sizes, 1, 30, true);
    let mut inputs = case.inputs();
    let (wide, dout) = (halves(&inputs.wide), halves(&inputs.dout));
    inputs.wide = Values::Bf16(&wide).as_f32().into_owned();
    inputs.dout = Values::Bf16(&dout).as_f32().into_owned();
    let (exact, grads) = fused(&case, &inputs, false);
    let (net, positions) = (inputs.net(sizes), inputs.positions(30));
    let [mut states, mut updates] = sizes.kept(30, 30).map(|n| vec![0.0; n]);
    let mut out = vec![bf16::NAN; exact.len()];
    let keep = Keep {
        states: &mut states,
        updates: &mut updates,
    };
    let of_wide = Values::Bf16(&wide);
    forward(net, positions, of_wide, (&mut out[..]).into(), Some(keep));
    assert!(out == halves(&exact));
    let mut dwide = vec![bf16::NAN; wide.len()];
    let mut dconv = vec![0.0; inputs.conv.len()];
    let params = ParamGradients {
        conv: Some(&mut dconv),
        a_log: None,
        dt_bias: None,
        gain: None,
        into: Accumulation::Overwrite,
    };
    let kept = Kept {
        states: &states,
        updates: &updates,
    };
    let to = (&mut dwide[..]).into();
    backward(
        net,
        positions,
        of_wide,
        kept,
        Values::Bf16(&dout),
        to,
        params,
    );
    assert!(dwide == halves(&grads.wide) && dconv == grads.conv);
}
