//! One optimizer step of the four standard sizes. `cargo bench --bench step -- S`.
#![allow(clippy::unwrap_used, reason = "a benchmark may stop")]

use candle_core::{Device, Tensor};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use llmtui::nn::mlp::MlpConfig;
use llmtui::nn::norm::NormConfig;
use llmtui::nn::position::PositionConfig;
use llmtui::nn::{Model, ModelConfig, TokenBatch};
use llmtui::optim::{OptimizerConfig, clip_scale};
use std::time::Duration;

struct Size {
    name: &'static str,
    config: ModelConfig,
    vocab_size: usize,
    batch_size: usize,
}

fn gpt2(n_layer: usize, d_model: usize, n_head: usize, seq_len: usize) -> ModelConfig {
    ModelConfig {
        n_layer,
        n_head,
        d_model,
        seq_len,
        ..Default::default()
    }
}

fn sizes() -> Vec<Size> {
    let llama = ModelConfig {
        n_kv_head: Some(4),
        d_ff: Some(1408),
        position: PositionConfig::Rope(Default::default()),
        norm: NormConfig::RmsNorm(Default::default()),
        mlp: MlpConfig::SwiGlu(Default::default()),
        ..gpt2(8, 512, 8, 512)
    };
    let size = |name, config, vocab_size, batch_size| Size {
        name,
        config,
        vocab_size,
        batch_size,
    };
    vec![
        size("S", gpt2(4, 128, 4, 64), 65, 12),
        size("M", gpt2(6, 384, 6, 256), 65, 16),
        size("L", llama, 8192, 4),
        size("XL", gpt2(12, 768, 12, 64), 50257, 4),
    ]
}

fn step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("step");
    group.sample_size(10).warm_up_time(Duration::from_secs(1));
    for size in sizes() {
        let tokens = size.batch_size * size.config.seq_len;
        group.throughput(Throughput::Elements(tokens as u64));
        group.bench_function(BenchmarkId::from_parameter(size.name), |bencher| {
            let mut model = Model::new(&size.config, size.vocab_size, &Device::Cpu).unwrap();
            model.init(1).unwrap();
            let optimizer = OptimizerConfig::AdamW(Default::default());
            let mut rule = optimizer.build(model.params()).unwrap();
            let ids: Vec<u32> = (0..=tokens)
                .map(|i| (i * 31 % size.vocab_size) as u32)
                .collect();
            let batch = TokenBatch {
                inputs: &ids[..tokens],
                targets: &ids[1..],
                batch_size: size.batch_size,
                seq_len: size.config.seq_len,
                first: None,
                temperature: 1.0,
                filled: None,
            };
            bencher.iter(|| {
                model.params_mut().zero_grads().unwrap();
                let logp = model.forward(&batch).unwrap().logp;
                let dlogp = Tensor::full(-1.0 / tokens as f32, logp.shape(), &Device::Cpu).unwrap();
                model.backward(&dlogp, None).unwrap();
                let scale = clip_scale(model.params().grad_norm().unwrap(), 1.0);
                rule.step(model.params_mut(), 1e-4, scale).unwrap();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, step);
criterion_main!(benches);
