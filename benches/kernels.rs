//! The fused kernels at the sizes of the quickstart (S) and of a 10.8M model (M). `cargo bench --bench kernels`.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop")]

use candle_core::{Device, Tensor};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use llmtui::kernels::activation::Activation;
use llmtui::kernels::attention::{Heads, Saved};
use llmtui::kernels::mamba2::{self, Mamba2};
use llmtui::kernels::matmul::{Accumulation, ComputeDtype, Plus};
use llmtui::kernels::matrix::Matrix;
use llmtui::kernels::norm::NormKind;
use llmtui::kernels::numbers::{Values, ValuesMut};
use llmtui::kernels::positions::Positions;
use llmtui::kernels::rotary::{RotaryTable, Rotation, Turn};
use llmtui::kernels::{
    activation, adamw, attention, embedding, linear, logprob, norm, reduce, rotary, threads, update,
};
use std::time::Duration;

#[derive(Clone, Copy)]
struct Size {
    name: &'static str,
    batch_size: usize,
    seq_len: usize,
    d: usize,
    n_head: usize,
}

const SIZES: [Size; 2] = [
    Size {
        name: "S",
        batch_size: 12,
        seq_len: 64,
        d: 128,
        n_head: 4,
    },
    Size {
        name: "M",
        batch_size: 16,
        seq_len: 256,
        d: 384,
        n_head: 6,
    },
];

fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.7).sin()).collect()
}

/// Times `work` on a thread of the pool, as a training step runs it; entering the pool takes some microseconds.
fn bench(criterion: &mut Criterion, name: &str, size: Size, mut work: impl FnMut() + Send) {
    let mut group = criterion.benchmark_group(name);
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    group.bench_function(BenchmarkId::from_parameter(size.name), |bencher| {
        bencher.iter(|| threads::enter(&mut work));
    });
    group.finish();
}

fn kernels(criterion: &mut Criterion) {
    for size in SIZES {
        let rows = size.batch_size * size.seq_len;
        let d = size.d;
        let (x, wide) = (values(rows * d), values(rows * 4 * d));
        let weight = values(4 * d * d);
        let sizes = linear::Sizes {
            rows,
            d_in: d,
            d_out: 4 * d,
        };
        let mut y = values(rows * 4 * d);
        bench(criterion, "linear forward", size, || {
            let weight = Matrix::Dense(&weight);
            let (x, y) = (Values::F32(&x), ValuesMut::F32(&mut y));
            linear::forward(ComputeDtype::F32, sizes, x, weight, Plus::default(), y);
        });
        let mut dx = values(rows * d);
        bench(criterion, "linear backward input", size, || {
            linear::backward_input(
                ComputeDtype::F32,
                sizes,
                Values::F32(&wide),
                Matrix::Dense(&weight),
                ValuesMut::F32(&mut dx),
                Plus::default(),
            );
        });
        let mut dweight = values(4 * d * d);
        bench(criterion, "linear backward weight", size, || {
            linear::backward_weight(
                ComputeDtype::F32,
                sizes,
                Values::F32(&wide),
                Values::F32(&x),
                &mut dweight,
                Accumulation::Overwrite,
            );
        });
        let mut y = values(rows * 4 * d);
        bench(criterion, "gelu forward", size, || {
            let (x, y) = (Values::F32(&wide), ValuesMut::F32(&mut y));
            activation::forward(Activation::Gelu, 4 * d, x, y);
        });
        let mut dx = wide.clone();
        bench(
            criterion,
            "gelu backward, in place, and two copies",
            size,
            || {
                dx.copy_from_slice(&wide);
                y.copy_from_slice(&wide);
                let (x, dy) = (ValuesMut::F32(&mut dx), ValuesMut::F32(&mut y));
                activation::backward(Activation::Gelu, 4 * d, x, dy);
            },
        );
        let gain = values(d);
        let (mut y, mut stats) = (values(rows * d), values(rows * 2));
        bench(criterion, "layernorm forward", size, || {
            norm::forward(layer_norm(&gain), &x, ValuesMut::F32(&mut y), &mut stats);
        });
        around_products(criterion, size);
        state_space(criterion, size);
        attention_and_head(criterion, size);
    }
}

fn layer_norm(gain: &[f32]) -> norm::Norm<'_> {
    norm::Norm {
        kind: NormKind::Layer,
        gain,
        gain_offset: 0.0,
        bias: None,
        eps: 1e-5,
    }
}

/// What reads and writes memory more than it computes.
fn around_products(criterion: &mut Criterion, size: Size) {
    let (rows, d) = (size.batch_size * size.seq_len, size.d);
    let (x, dy, stats, gain) = (
        values(rows * d),
        values(rows * d),
        values(rows * 2),
        values(d),
    );
    let (mut dx, mut dgain, mut dbias) = (values(rows * d), values(d), values(d));
    bench(criterion, "layernorm backward", size, || {
        let saved = norm::Saved {
            x: &x,
            stats: &stats,
        };
        let params = norm::ParamGradients {
            gain: &mut dgain,
            bias: Some(&mut dbias),
            into: Accumulation::Overwrite,
        };
        let norm = layer_norm(&gain);
        norm::backward(norm, saved, &dy, (&mut dx, Accumulation::Add), Some(params));
    });
    bench(criterion, "column sums", size, || {
        reduce::column_sums(&mut dbias, &x, Accumulation::Overwrite);
    });
    let table = {
        let head_dim = d / size.n_head;
        let rotation = Rotation::plain(10_000.0, head_dim / 2);
        RotaryTable::new(rotation, head_dim, size.seq_len)
    };
    let mut turned = values(rows * d);
    bench(criterion, "rotary", size, || {
        let at = Positions::whole_rows(size.seq_len);
        rotary::apply(
            &table,
            ValuesMut::F32(&mut turned),
            d,
            size.n_head,
            at,
            Turn::Forward,
        );
    });
    let ids: Vec<u32> = (0..rows).map(|i| (i * 31 % 65) as u32).collect();
    let mut dtable = values(65 * d);
    bench(criterion, "embedding backward", size, || {
        embedding::backward(&ids, 1.0, &x, &mut dtable);
    });
    bench(criterion, "gradient norm", size, || {
        std::hint::black_box(reduce::l2_norm(&x));
    });
    let tensor = || Tensor::from_vec(values(12 * d * d), 12 * d * d, &Device::Cpu).unwrap();
    let [weights, grads, mean] = [tensor(), tensor(), tensor()];
    let square = mean.sqr().unwrap();
    let mut chunks = update::Chunks::new(vec![update::Part {
        weights: 0,
        grads: 0,
        len: 12 * d * d,
        lr_scale: 1.0,
        weight_decay: 0.1,
    }]);
    bench(criterion, "adamw of one block", size, || {
        let rule = adamw::Rule {
            lr: 1e-4,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            grad_scale: 0.5,
            step: 10,
        };
        let state = adamw::State {
            weights: &weights,
            grads: &grads,
            mean: &mean,
            square: &square,
        };
        adamw::update(&rule, &state, &mut chunks).unwrap();
    });
}

/// Mamba 2 twice as wide inside as the model, with a state of 64 features: beside the attention of the same size.
fn state_space(criterion: &mut Criterion, size: Size) {
    let rows = size.batch_size * size.seq_len;
    let sizes = mamba2::Sizes {
        n_head: 2 * size.d / 32,
        head_dim: 32,
        n_group: 1,
        state_dim: 64,
        conv_len: 4,
    };
    let wide = values(rows * sizes.wide());
    let conv = values(sizes.channels() * sizes.conv_len);
    let (of_heads, gain) = (values(sizes.n_head), values(sizes.inner()));
    let net = Mamba2 {
        sizes,
        conv: &conv,
        conv_bias: None,
        a_log: &of_heads,
        dt_bias: &of_heads,
        d: &of_heads,
        gain: &gain,
        eps: 1e-5,
        limits: [0.0, f32::INFINITY],
    };
    let positions = Positions::whole_rows(size.seq_len);
    let mut xbc = values(rows * sizes.channels());
    let (mut y, mut out) = (values(rows * sizes.inner()), values(rows * sizes.inner()));
    let mut states = values(sizes.kept(rows, size.seq_len));
    bench(criterion, "mamba 2 forward", size, || {
        let buffers = mamba2::Buffers {
            xbc: &mut xbc,
            y: &mut y,
            states: Some(&mut states),
        };
        let out = ValuesMut::F32(&mut out);
        mamba2::forward(net, positions, Values::F32(&wide), buffers, out);
    });
    let (dout, mut dwide) = (values(rows * sizes.inner()), values(wide.len()));
    let mut gradients = values(rows * sizes.gradient());
    bench(criterion, "mamba 2 backward", size, || {
        let kept = mamba2::Kept {
            y: &y,
            states: &states,
        };
        let params = mamba2::ParamGradients {
            conv: None,
            conv_bias: None,
            a_log: None,
            dt_bias: None,
            d: None,
            gain: None,
            into: Accumulation::Overwrite,
        };
        mamba2::backward(
            net,
            positions,
            (Values::F32(&wide), kept, Values::F32(&dout)),
            [&mut xbc, &mut gradients],
            ValuesMut::F32(&mut dwide),
            params,
        );
    });
}

fn attention_and_head(criterion: &mut Criterion, size: Size) {
    let rows = size.batch_size * size.seq_len;
    let d = size.d;
    let heads = Heads {
        n_head: size.n_head,
        n_kv_head: size.n_head,
        head_dim: d / size.n_head,
    };
    let (qkv, dout) = (values(rows * 3 * d), values(rows * d));
    let (mut out, mut lse) = (values(rows * d), values(rows * size.n_head));
    bench(criterion, "attention forward", size, || {
        attention::forward(
            ComputeDtype::F32,
            attention::Sizes::causal(heads, size.seq_len),
            Values::F32(&qkv),
            ValuesMut::F32(&mut out),
            &mut lse,
        );
    });
    let mut dqkv = values(rows * 3 * d);
    bench(criterion, "attention backward", size, || {
        let saved = Saved {
            qkv: Values::F32(&qkv),
            out: Values::F32(&out),
            lse: &lse,
        };
        attention::backward(
            ComputeDtype::F32,
            attention::Sizes::causal(heads, size.seq_len),
            saved,
            Values::F32(&dout),
            ValuesMut::F32(&mut dqkv),
        );
    });
    let table = values(65 * d);
    let targets: Vec<u32> = (0..rows).map(|i| (i % 65) as u32).collect();
    let mut outputs = logprob::Outputs::default();
    bench(criterion, "log-prob head forward", size, || {
        let inputs = logprob::Inputs {
            cap: None,
            hidden: &dout,
            table: Matrix::Dense(&table),
            targets: &targets,
        };
        logprob::forward(
            ComputeDtype::F32,
            logprob::Sizes::new(rows, d, 65),
            inputs,
            &mut outputs,
        );
    });
}

criterion_group!(benches, kernels);
criterion_main!(benches);
