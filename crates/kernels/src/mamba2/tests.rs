//! The fused forms against the composite in f64.

use super::*;
use crate::causal_conv;
use crate::check::{assert_close, leaf, normal, oracle};
use crate::matmul::Accumulation;
use crate::numbers::{Values, bf16};
use crate::positions::Positions;
use candle_core::{D, Result, Tensor, Var};

const EPS: f32 = 1e-5;

/// `wide` (B, T, [`Sizes::wide`]) → (B, T, inner), token by token. Leaves: the input, then the parameters of [`Mamba2`] in order.
fn composite(case: &Case, leaves: &[Var], positions: Positions) -> Result<Tensor> {
    let [wide, conv, conv_bias, a_log, dt_bias, d, gain] = leaves else {
        unreachable!("seven leaves")
    };
    let (sizes, (batch_size, seq_len)) = (case.sizes, (case.batch_size, case.seq_len));
    let (heads, groups, inner) = (sizes.n_head, sizes.n_group, sizes.inner());
    let (dim, n) = (sizes.head_dim, sizes.state_dim);
    let z = wide.narrow(D::Minus1, 0, inner)?;
    let mixed = wide.narrow(D::Minus1, inner, sizes.channels())?;
    let mixed = causal_conv::composite(&mixed, conv, positions)?.broadcast_add(conv_bias)?;
    let mixed = silu(&mixed)?;
    let x = mixed.narrow(D::Minus1, 0, inner)?;
    let x = x.reshape((batch_size, seq_len, heads, dim))?;
    let of_group = |at: usize| {
        let part = mixed.narrow(D::Minus1, inner + at * groups * n, groups * n)?;
        part.reshape((batch_size, seq_len, groups, 1, n))?
            .broadcast_as((batch_size, seq_len, groups, heads / groups, n))?
            .reshape((batch_size, seq_len, heads, n))
    };
    let (b, c) = (of_group(0)?, of_group(1)?);
    let dt = wide.narrow(D::Minus1, inner + sizes.channels(), heads)?;
    let dt = softplus(&dt.broadcast_add(dt_bias)?)?;
    let [least, most] = case.limits.map(f64::from);
    let dt = dt.maximum(least)?.minimum(most)?;
    let remains = dt.broadcast_mul(&a_log.exp()?.neg()?)?.exp()?;
    let mut state = Tensor::zeros((batch_size, heads, n, dim), wide.dtype(), wide.device())?;
    let mut rows = Vec::with_capacity(seq_len);
    for t in 0..seq_len {
        let at = |x: &Tensor| x.narrow(1, t, 1)?.squeeze(1);
        let goes_on = (0..batch_size).map(|b| match positions.first {
            Some(first) => f64::from(first[b * seq_len + t] as usize != t),
            None => 1.0,
        });
        let goes_on = Tensor::from_vec(goes_on.collect(), (batch_size, 1, 1, 1), wide.device())?;
        let scalar = |x: &Tensor| at(x)?.reshape((batch_size, heads, 1, 1));
        state = state
            .broadcast_mul(&goes_on)?
            .broadcast_mul(&scalar(&remains)?)?;
        let new = at(&b)?
            .unsqueeze(3)?
            .broadcast_mul(&at(&x)?.unsqueeze(2)?)?;
        state = (state + new.broadcast_mul(&scalar(&dt)?)?)?;
        rows.push(state.broadcast_mul(&at(&c)?.unsqueeze(3)?)?.sum(2)?);
    }
    let y = (Tensor::stack(&rows, 1)? + x.broadcast_mul(&d.unsqueeze(1)?)?)?;
    let y = (y.reshape((batch_size, seq_len, inner))? * silu(&z)?)?;
    let grouped = y.reshape((batch_size, seq_len, groups, inner / groups))?;
    let scale = (grouped.sqr()?.mean_keepdim(D::Minus1)? + f64::from(EPS))?.sqrt()?;
    let y = grouped.broadcast_div(&scale)?;
    y.reshape((batch_size, seq_len, inner))?.broadcast_mul(gain)
}

fn silu(x: &Tensor) -> Result<Tensor> {
    x * (x.neg()?.exp()? + 1.0)?.recip()?
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
    /// Added to dt: large ones forget at once.
    shift: f32,
    limits: [f32; 2],
}

fn sizes(heads: (usize, usize), dims: (usize, usize), conv_len: usize) -> Sizes {
    Sizes {
        n_group: heads.0,
        n_head: heads.1,
        state_dim: dims.0,
        head_dim: dims.1,
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
        limits: [0.0, f32::INFINITY],
    }
}

/// Input and parameters, in the order of the leaves; the output's gradient; starts of documents.
struct Inputs {
    leaves: [Vec<f32>; 7],
    dout: Vec<f32>,
    first: Option<Vec<u32>>,
}

impl Case {
    fn shapes(&self) -> [Vec<usize>; 7] {
        let (sizes, heads) = (self.sizes, vec![self.sizes.n_head]);
        [
            vec![self.batch_size, self.seq_len, sizes.wide()],
            vec![sizes.channels(), sizes.conv_len],
            vec![sizes.channels()],
            heads.clone(),
            heads.clone(),
            heads,
            vec![sizes.inner()],
        ]
    }

    fn inputs(&self) -> Inputs {
        let (sizes, rows) = (self.sizes, self.batch_size * self.seq_len);
        let mut lane = 0;
        let mut leaves = self.shapes().map(|shape| {
            lane += 1;
            normal(shape.iter().product(), lane)
        });
        for row in leaves[0].chunks_exact_mut(sizes.wide()) {
            let dt = row.len() - sizes.n_head;
            row[dt..].iter_mut().for_each(|dt| *dt += self.shift);
        }
        leaves[1].iter_mut().for_each(|tap| *tap *= 0.7);
        leaves[3].iter_mut().for_each(|a| *a -= 1.0);
        Inputs {
            leaves,
            dout: normal(rows * sizes.inner(), 8),
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
    fn net(&self, case: &Case) -> Mamba2<'_> {
        let [_, conv, conv_bias, a_log, dt_bias, d, gain] = &self.leaves;
        Mamba2 {
            sizes: case.sizes,
            conv,
            conv_bias: Some(conv_bias),
            a_log,
            dt_bias,
            d,
            gain,
            eps: EPS,
            limits: case.limits,
        }
    }

    fn positions(&self, seq_len: usize) -> Positions<'_> {
        Positions {
            first: self.first.as_deref(),
            ..Positions::whole_rows(seq_len)
        }
    }
}

/// Buffers of a pass.
struct Room {
    xbc: Vec<f32>,
    y: Vec<f32>,
    states: Vec<f32>,
    gradients: Vec<f32>,
}

impl Room {
    fn of(case: &Case) -> Room {
        let (sizes, rows) = (case.sizes, case.batch_size * case.seq_len);
        let nan = |n: usize| vec![f32::NAN; n];
        Room {
            xbc: nan(rows * sizes.channels()),
            y: nan(rows * sizes.inner()),
            states: nan(sizes.kept(rows, case.seq_len)),
            gradients: nan(rows * sizes.gradient()),
        }
    }

    fn buffers(&mut self, keeps: bool) -> Buffers<'_> {
        Buffers {
            xbc: &mut self.xbc,
            y: &mut self.y,
            states: keeps.then_some(&mut self.states),
        }
    }
}

/// Output, and the gradients of the leaves, accumulated twice but for the input's if `twice`; the parameters' only if `trains`.
fn fused(case: &Case, inputs: &Inputs, twice: bool, trains: bool) -> (Vec<f32>, [Vec<f32>; 7]) {
    let (net, positions) = (inputs.net(case), inputs.positions(case.seq_len));
    let wide = Values::F32(&inputs.leaves[0]);
    let mut room = Room::of(case);
    let mut out = vec![f32::NAN; inputs.dout.len()];
    forward(
        net,
        positions,
        wide,
        room.buffers(true),
        (&mut out[..]).into(),
    );
    room.xbc.fill(f32::NAN);
    let mut grads = inputs.leaves.each_ref().map(|of| vec![f32::NAN; of.len()]);
    for into in [Accumulation::Overwrite, Accumulation::Add] {
        if into == Accumulation::Add && !twice {
            break;
        }
        let [dwide, conv, conv_bias, a_log, dt_bias, d, gain] = &mut grads;
        let of = |gradient| Some(gradient).filter(|_| trains);
        let params = ParamGradients {
            conv: of(conv).map(|x| &mut x[..]),
            conv_bias: of(conv_bias).map(|x| &mut x[..]),
            a_log: of(a_log).map(|x| &mut x[..]),
            dt_bias: of(dt_bias).map(|x| &mut x[..]),
            d: of(d).map(|x| &mut x[..]),
            gain: of(gain).map(|x| &mut x[..]),
            into,
        };
        let kept = Kept {
            y: &room.y,
            states: &room.states,
        };
        let scratch = [&mut room.xbc[..], &mut room.gradients[..]];
        let saved = (wide, kept, Values::F32(&inputs.dout));
        backward(
            net,
            positions,
            saved,
            scratch,
            (&mut dwide[..]).into(),
            params,
        );
    }
    (out, grads)
}

fn check(case: &Case) {
    let (inputs, shapes) = (case.inputs(), case.shapes());
    let leaves: Vec<Var> = inputs
        .leaves
        .iter()
        .zip(&shapes)
        .map(|(values, shape)| leaf(values, shape))
        .collect();
    let of: Vec<&Var> = leaves.iter().collect();
    let (exact, exact_grads) = oracle(&of, &inputs.dout, || {
        composite(case, &leaves, inputs.positions(case.seq_len))
    });
    let names = ["wide", "conv", "conv_bias", "a_log", "dt_bias", "d", "gain"];
    for times in [1.0, 2.0] {
        let (out, grads) = fused(case, &inputs, times == 2.0, true);
        assert_close("out", &out, &exact, 1e-5);
        for ((what, values), exact) in names.iter().zip(&grads).zip(&exact_grads) {
            let times = if *what == "wide" { 1.0 } else { times };
            let exact: Vec<f64> = exact.iter().map(|x| times * x).collect();
            assert_close(what, values, &exact, 3e-5);
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
    check(&case(sizes((1, 3), (7, 40), 4), 1, 90, true));
}

/// More heads than a task has.
#[test]
fn gradients_agree_with_candle_in_f64_for_many_heads_and_for_large_ones() {
    check(&case(sizes((1, 11), (4, 3), 4), 2, 20, true));
    check(&case(sizes((2, 18), (3, 2), 2), 1, 70, false));
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
fn steps_beyond_their_limits_have_no_gradient() {
    check(&Case {
        limits: [0.4, 1.1],
        ..case(sizes((1, 3), (6, 5), 4), 1, 50, true)
    });
}

#[test]
fn a_text_in_pieces_agrees_with_the_whole() {
    for dims in [(16, 32), (9, 21)] {
        let sizes = sizes((2, 4), dims, 4);
        let case = case(sizes, 1, 83, false);
        let inputs = case.inputs();
        let net = inputs.net(&case);
        let (whole, _) = fused(&case, &inputs, false, true);
        let exact: Vec<f64> = whole.iter().map(|&x| f64::from(x)).collect();
        for pieces in [vec![83], vec![1; 83], vec![2, 1, 64, 3, 6, 7]] {
            let mut conv = vec![0.0; 3 * sizes.channels()];
            let mut heads = vec![0.0; sizes.state()];
            let (mut out, mut at) = (vec![f32::NAN; whole.len()], 0);
            for n in pieces {
                let wide = &inputs.leaves[0][at * sizes.wide()..(at + n) * sizes.wide()];
                let to = &mut out[at * sizes.inner()..(at + n) * sizes.inner()];
                let state = State {
                    conv: &mut conv,
                    heads: &mut heads,
                };
                let buffers = Buffers {
                    xbc: &mut vec![f32::NAN; n * sizes.channels()],
                    y: &mut vec![f32::NAN; n * sizes.inner()],
                    states: None,
                };
                forward_after(net, state, Values::F32(wide), buffers, to.into());
                at += n;
            }
            assert_close("out", &out, &exact, 5e-6);
            for (i, kept) in conv.chunks_exact(sizes.channels()).enumerate() {
                let row = &inputs.leaves[0][(80 + i) * sizes.wide() + sizes.inner()..];
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
    let before = fused(&case, &inputs, false, true);
    let first = inputs.first.clone().unwrap();
    let at = (1..50).rfind(|&t| first[t] as usize == t).unwrap();
    let changed = at * sizes.wide();
    inputs.leaves[0][changed..]
        .iter_mut()
        .for_each(|x| *x += 1.0);
    let after = fused(&case, &inputs, false, true);
    assert!(after.0[..at * sizes.inner()] == before.0[..at * sizes.inner()]);
    assert!(after.1[0][..changed] == before.1[0][..changed]);
    assert!(after.0[at * sizes.inner()..] != before.0[at * sizes.inner()..]);
}

#[test]
fn frozen_parameters_and_thread_counts_change_nothing() {
    let case = case(sizes((2, 20), (32, 32), 4), 3, 150, true);
    let inputs = case.inputs();
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| fused(&case, &inputs, true, true))
    };
    let (one, many) = (run(1), run(3));
    assert!(one == many);
    let frozen = fused(&case, &inputs, false, false);
    assert!(frozen.0 == one.0 && frozen.1[0] == one.1[0]);
    // Nothing kept: the same outputs.
    let mut plain = vec![0.0; one.0.len()];
    let (net, wide) = (inputs.net(&case), Values::F32(&inputs.leaves[0]));
    let mut room = Room::of(&case);
    let to = (&mut plain[..]).into();
    forward(net, inputs.positions(150), wide, room.buffers(false), to);
    assert!(one.0 == plain);
}

#[test]
fn bf16_storage_gives_rounded_f32_values() {
    let halves = |x: &[f32]| x.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    let case = case(sizes((2, 4), (16, 12), 4), 1, 30, true);
    let mut inputs = case.inputs();
    let (wide, dout) = (halves(&inputs.leaves[0]), halves(&inputs.dout));
    inputs.leaves[0] = Values::Bf16(&wide).as_f32().into_owned();
    inputs.dout = Values::Bf16(&dout).as_f32().into_owned();
    let (exact, grads) = fused(&case, &inputs, false, true);
    let (net, positions) = (inputs.net(&case), inputs.positions(30));
    let mut room = Room::of(&case);
    let mut out = vec![bf16::NAN; exact.len()];
    let of_wide = Values::Bf16(&wide);
    forward(
        net,
        positions,
        of_wide,
        room.buffers(true),
        (&mut out[..]).into(),
    );
    assert!(out == halves(&exact));
    let mut dwide = vec![bf16::NAN; wide.len()];
    let mut dconv = vec![0.0; inputs.leaves[1].len()];
    let params = ParamGradients {
        conv: Some(&mut dconv),
        conv_bias: None,
        a_log: None,
        dt_bias: None,
        d: None,
        gain: None,
        into: Accumulation::Overwrite,
    };
    let kept = Kept {
        y: &room.y,
        states: &room.states,
    };
    let scratch = [&mut room.xbc[..], &mut room.gradients[..]];
    let saved = (of_wide, kept, Values::Bf16(&dout));
    backward(
        net,
        positions,
        saved,
        scratch,
        (&mut dwide[..]).into(),
        params,
    );
    assert!(dwide == halves(&grads[0]) && dconv == grads[1]);
}
