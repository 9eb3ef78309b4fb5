//! Every option of a model, alone and together: gradients against f64, both backends, checkpointing, memory, incremental
//! forward. Combinations of the registries' members are in tests/gradients.rs.

use super::*;
use crate::nn::{footprint, oracle};
use serde_json::{Value, json};

pub(super) const VOCAB: usize = 13;

fn base() -> Value {
    json!({
        "n_layer": 3, "n_head": 4, "n_kv_head": 2, "d_model": 24, "d_ff": 20, "seq_len": 9,
        "position": {"rope": {}}, "norm": {"rmsnorm": {}}, "mlp": {"swiglu": {}},
    })
}

/// The settings of each option on top of the base, by name.
pub(super) fn options() -> Vec<(&'static str, ModelConfig)> {
    let rope = |settings: Value| json!({"position": {"rope": settings}});
    let scaled = |scaling: Value| rope(json!({"theta": 100.0, "scaling": scaling}));
    let moe = |settings: Value| json!({"moe": settings});
    let all: Vec<(&'static str, Value)> = vec![
        ("value head", json!({"value_head": true})),
        ("head_dim", json!({"head_dim": 10})),
        ("qkv bias", json!({"attention_bias": "qkv"})),
        ("all bias", json!({"attention_bias": "all"})),
        ("linear", scaled(json!({"linear": {"factor": 3.0}}))),
        ("ntk", scaled(json!({"ntk": {"factor": 3.0}}))),
        (
            "yarn",
            scaled(json!({"yarn": {"factor": 3.0, "beta_fast": 2.0, "beta_slow": 0.1}})),
        ),
        (
            "llama3",
            scaled(json!({"llama3": {"factor": 3.0, "original_len": 8}})),
        ),
        ("partial", rope(json!({"fraction": 0.34}))),
        ("nope", rope(json!({"theta": 10.0, "nope_every": 2}))),
        (
            "nope, some windows",
            json!({"sliding_window": 3, "global_every": 2, "position": {"rope": {"local_theta": 50.0, "nope_every": 3}}}),
        ),
        ("qk_norm", json!({"qk_norm": true})),
        (
            "unit offset",
            json!({"qk_norm": true, "norm": {"rmsnorm": {"unit_offset": true}}}),
        ),
        (
            "qk_norm over all heads",
            json!({"qk_norm": true, "qk_norm_over": "all_heads", "head_dim": 10}),
        ),
        ("window", json!({"sliding_window": 3})),
        (
            "some windows",
            json!({"sliding_window": 3, "global_every": 2, "position": {"rope": {"local_theta": 50.0}}}),
        ),
        (
            "sinks",
            json!({"attention_sinks": true, "attention_bias": "all"}),
        ),
        (
            "sinks, cap, some windows",
            json!({
                "attention_sinks": true, "attention_softcap": 0.7, "qk_norm": true, "attention_gate": true,
                "sliding_window": 3, "global_every": 2,
            }),
        ),
        (
            "clamped swiglu",
            json!({"mlp": {"clamped_swiglu": {"limit": 0.4, "slope": 1.2}}, "bias": true}),
        ),
        (
            "yarn between pairs",
            scaled(
                json!({"yarn": {"factor": 3.0, "beta_fast": 2.0, "beta_slow": 0.1, "truncate": false}}),
            ),
        ),
        ("scale", json!({"attention_scale": 0.9})),
        ("attention cap", json!({"attention_softcap": 0.7})),
        ("logit cap", json!({"logit_softcap": 1.5})),
        ("embedding scale", json!({"embedding_scale": 4.9})),
        ("residual scale", json!({"residual_scale": 0.22})),
        (
            "residual scale, post",
            json!({"residual_scale": 0.22, "norm_placement": "post"}),
        ),
        (
            "residual scale, both",
            json!({"residual_scale": 0.22, "norm_placement": "both"}),
        ),
        (
            "residual scale, dropout",
            json!({"residual_scale": 0.22, "dropout": 0.3}),
        ),
        (
            "residual scale, experts",
            json!({"residual_scale": 0.22, "dropout": 0.3, "moe": {"n_expert": 3}}),
        ),
        ("logit scale", json!({"logit_scale": 0.125})),
        (
            "logit scale and cap",
            json!({"logit_scale": 1.7, "logit_softcap": 1.5, "value_head": true}),
        ),
        (
            "granite",
            json!({
                "attention_scale": 0.1, "embedding_scale": 12.0, "residual_scale": 0.22, "logit_scale": 0.125,
            }),
        ),
        ("post", json!({"norm_placement": "post"})),
        ("both", json!({"norm_placement": "both"})),
        ("reordered", json!({"norm_placement": "reordered"})),
        (
            "post layernorm",
            json!({"norm_placement": "post", "norm": {"layernorm": {}}, "bias": true}),
        ),
        (
            "neo",
            json!({
                "n_kv_head": 4, "position": {"learned": {}}, "norm": {"layernorm": {}}, "mlp": {"gelu": {}}, "bias": true,
                "attention_bias": "output", "attention_scale": 1.0, "sliding_window": 3, "global_every": 2,
                "global_first": true,
            }),
        ),
        ("norm bias", json!({"norm": {"layernorm": {"bias": true}}})),
        ("relu", json!({"mlp": {"relu": {}}})),
        ("silu", json!({"mlp": {"silu": {}}})),
        ("leaky", json!({"mlp": {"leaky_relu": {"slope": 0.2}}})),
        ("geglu", json!({"mlp": {"geglu": {"approximate": "tanh"}}})),
        (
            "sinusoidal",
            json!({"position": {"sinusoidal": {}}, "embedding_scale": 2.0}),
        ),
        ("alibi", json!({"position": {"alibi": {}}})),
        (
            "alibi in a window",
            json!({"position": {"alibi": {}}, "sliding_window": 4}),
        ),
        ("none", json!({"position": {"none": {}}})),
        (
            "experts",
            moe(json!({"n_expert": 4, "top_k": 2, "d_ff": 12})),
        ),
        (
            "experts of all",
            moe(json!({"n_expert": 3, "top_k": 3, "norm_topk": false})),
        ),
        (
            "one expert of many",
            moe(json!({"n_expert": 5, "top_k": 1, "norm_topk": false})),
        ),
        (
            "some experts",
            moe(json!({"n_expert": 4, "top_k": 2, "every": 2})),
        ),
        (
            "plain experts",
            json!({"moe": {"n_expert": 3, "top_k": 2}, "mlp": {"gelu": {}}, "bias": true}),
        ),
        (
            "experts, post",
            json!({"moe": {"n_expert": 3}, "norm_placement": "post", "norm": {"layernorm": {}}}),
        ),
        (
            "experts, both",
            json!({"moe": {"n_expert": 3}, "norm_placement": "both"}),
        ),
        ("parallel", json!({"parallel_residual": true})),
        (
            "neox",
            json!({
                "parallel_residual": true, "n_kv_head": 4, "norm": {"layernorm": {}}, "bias": true,
                "mlp": {"gelu": {}}, "position": {"rope": {"fraction": 0.34}},
            }),
        ),
        (
            "parallel experts",
            json!({"parallel_residual": true, "moe": {"n_expert": 3}}),
        ),
        (
            "dropout, parallel",
            json!({"dropout": 0.3, "parallel_residual": true}),
        ),
        (
            "dropout, parallel experts",
            json!({"dropout": 0.3, "parallel_residual": true, "moe": {"n_expert": 3, "every": 2}}),
        ),
        (
            "experts, reordered",
            json!({"moe": {"n_expert": 3}, "norm_placement": "reordered"}),
        ),
        ("dropout", json!({"dropout": 0.3})),
        (
            "dropout, post",
            json!({"dropout": 0.3, "norm_placement": "post"}),
        ),
        (
            "dropout, both",
            json!({"dropout": 0.3, "norm_placement": "both"}),
        ),
        (
            "dropout, reordered",
            json!({"dropout": 0.3, "norm_placement": "reordered", "norm": {"layernorm": {}}, "bias": true}),
        ),
        (
            "dropout, experts",
            json!({"dropout": 0.3, "moe": {"n_expert": 3}}),
        ),
        (
            "dropout, experts, post",
            json!({"dropout": 0.3, "moe": {"n_expert": 3}, "norm_placement": "post"}),
        ),
        (
            "first gemma",
            json!({
                "head_dim": 8, "norm": {"rmsnorm": {"unit_offset": true}}, "embedding_scale": 4.9,
                "mlp": {"geglu": {"approximate": "tanh"}},
            }),
        ),
        (
            "starcoder2",
            json!({
                "norm": {"layernorm": {}}, "mlp": {"gelu": {"approximate": "tanh"}}, "bias": true,
                "sliding_window": 4,
            }),
        ),
        (
            "gemma",
            json!({
                "head_dim": 8, "qk_norm": true, "norm": {"rmsnorm": {"unit_offset": true}},
                "norm_placement": "both", "sliding_window": 4, "global_every": 3,
                "position": {"rope": {"theta": 1000.0, "local_theta": 10.0, "scaling": {"linear": {"factor": 8.0}}}},
                "attention_scale": 0.25, "attention_softcap": 5.0, "logit_softcap": 3.0,
                "embedding_scale": 4.9, "mlp": {"geglu": {"approximate": "tanh"}},
            }),
        ),
        (
            "olmo3",
            json!({
                "qk_norm": true, "qk_norm_over": "all_heads", "norm_placement": "reordered",
                "sliding_window": 4, "global_every": 3,
                "position": {"rope": {"theta": 100.0, "local_theta": 100.0,
                    "scaling": {"yarn": {"factor": 3.0, "original_len": 4}}}},
            }),
        ),
    ];
    let hybrids = super::hybrid_tests::hybrids();
    let mixtures = super::expert_tests::mixtures();
    all.into_iter()
        .chain(hybrids)
        .chain(mixtures)
        .chain(super::latent_tests::latents())
        .map(|(name, says)| (name, with(says)))
        .collect()
}

pub(super) fn with(says: Value) -> ModelConfig {
    let mut whole = base();
    for (key, value) in says.as_object().unwrap() {
        whole[key] = value.clone();
    }
    serde_json::from_value(whole).unwrap()
}

pub(super) fn model(config: &ModelConfig, backend: Backend) -> Model {
    let mut model = Model::with_backend(config, VOCAB, &Device::Cpu, backend).unwrap();
    let mut rng = Rng::new(1, Stream::Test, 0, 0);
    let offset = config.norm.gain_offset() as f32;
    let infos = model.params().infos().to_vec();
    let fill = |weights: &mut [f32]| {
        for info in &infos {
            let base = if info.name.contains("norm") {
                1.0 - offset
            } else {
                0.0
            };
            for w in &mut weights[info.offset..info.offset + info.len] {
                *w = base + 0.2 * rng.normal();
            }
        }
    };
    model.params_mut().write_weights(fill).unwrap();
    model.set_step_position(StepPosition {
        seed: 3,
        micro_step: 7,
        first_token: 0,
        share: 0.5,
    });
    model
}

pub(super) struct Texts {
    pub inputs: Vec<u32>,
    pub targets: Vec<u32>,
    pub dlogp: Vec<f64>,
    pub dentropy: Vec<f64>,
}

pub(super) fn texts(n: usize) -> Texts {
    let mut rng = Rng::new(2, Stream::Test, n as u64, 0);
    let mut ids = || -> Vec<u32> { (0..n).map(|_| rng.below(VOCAB as u64) as u32).collect() };
    let (inputs, targets) = (ids(), ids());
    let mut normals = || -> Vec<f64> { (0..n).map(|_| f64::from(rng.normal())).collect() };
    Texts {
        inputs,
        targets,
        dlogp: normals(),
        dentropy: normals(),
    }
}

pub(super) fn compare(what: &str, values: &[f32], exact: &[f64], floor: f64) {
    let scale = exact.iter().fold(floor, |max, x| max.max(x.abs()));
    for (i, (&x, e)) in values.iter().zip(exact).enumerate() {
        let error = (f64::from(x) - e).abs();
        assert!(
            error <= 2e-5 * scale,
            "{what}[{i}]: {x} is not {e} ({scale})"
        );
    }
}

pub(super) fn upstream(values: &[f64]) -> Tensor {
    let values: Vec<f32> = values.iter().map(|&x| x as f32).collect();
    Tensor::from_vec(values, (2, 9), &Device::Cpu).unwrap()
}

fn check(name: &str, config: &ModelConfig, backend: Backend) {
    let texts = texts(18);
    let batch = TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9);
    let mut model = model(config, backend);
    let exact = oracle::exact(&model, &batch, &texts.dlogp, &texts.dentropy).unwrap();
    let outputs = model.forward(&batch).unwrap();
    let (dlogp, dentropy) = (upstream(&texts.dlogp), upstream(&texts.dentropy));
    model.backward(&dlogp, Some(&dentropy)).unwrap();
    let flat = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let what = |part: &str| format!("{part} of {name} on {backend:?}");
    compare(&what("logp"), &flat(&outputs.logp), &exact.logp, 1e-3);
    compare(
        &what("entropy"),
        &flat(&outputs.entropy),
        &exact.entropy,
        1e-3,
    );
    let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
    let largest = exact.grads.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
    for info in model.params().infos() {
        let range = info.offset..info.offset + info.len;
        let part = what(&format!("gradient of {}", info.name));
        compare(
            &part,
            &grads[range.clone()],
            &exact.grads[range],
            0.05 * largest,
        );
    }
}

#[test]
fn every_option_has_exact_gradients_on_both_backends() {
    for (name, config) in options() {
        check(name, &config, Backend::Fused);
        check(name, &config, Backend::Composite);
    }
}

/// The composites' own gradients, against finite differences of their loss in f64.
#[test]
fn gradients_match_finite_differences() {
    for (name, config) in options() {
        let texts = texts(18);
        let batch = TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9);
        let mut model = model(&config, Backend::Fused);
        let exact = oracle::exact(&model, &batch, &texts.dlogp, &texts.dentropy).unwrap();
        let mut rng = Rng::new(9, Stream::Test, 0, 0);
        let n = model.n_params();
        let direction: Vec<f32> = (0..n).map(|_| rng.normal()).collect();
        let start = model.params().read_weights(<[f32]>::to_vec).unwrap();
        let step = 2.0_f32.powi(-18);
        let mut loss_at = |sign: f32| {
            let write = |weights: &mut [f32]| {
                for (w, (s, d)) in weights.iter_mut().zip(start.iter().zip(&direction)) {
                    *w = s + sign * step * d;
                }
            };
            model.params_mut().write_weights(write).unwrap();
            let there = oracle::exact(&model, &batch, &texts.dlogp, &texts.dentropy).unwrap();
            let moved = model.params().read_weights(<[f32]>::to_vec).unwrap();
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let value = dot(&there.logp, &texts.dlogp) + dot(&there.entropy, &texts.dentropy);
            (value + there.balance, moved)
        };
        let (above, up) = loss_at(1.0);
        let (below, down) = loss_at(-1.0);
        // Along the rounded direction: weights are f32.
        let way = up.iter().zip(&down).map(|(a, b)| f64::from(a - b));
        let along: f64 = way.zip(&exact.grads).map(|(w, g)| w * g).sum();
        let found = above - below;
        // Apart from kinks of rectifiers and expert choices, the error is of third order.
        let scale = found.abs().max(1e-3);
        assert!(
            (found - along).abs() < 0.02 * scale,
            "{name}: {found} {along}"
        );
    }
}

pub(super) fn policies() -> [ActivationCheckpointing; 4] {
    [
        ActivationCheckpointing::None {},
        ActivationCheckpointing::EveryN { n: 1 },
        ActivationCheckpointing::EveryN { n: 2 },
        ActivationCheckpointing::Full {},
    ]
}

#[test]
fn checkpointing_is_bit_identical_for_all_options_and_its_memory_is_predicted() {
    let texts = texts(18);
    let batch = TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9);
    let (dlogp, dentropy) = (upstream(&texts.dlogp), upstream(&texts.dentropy));
    let both = [ComputeDtype::F32, ComputeDtype::Bf16];
    let options = options().into_iter();
    for ((name, config), arithmetic) in options.flat_map(|option| both.map(|x| (option.clone(), x)))
    {
        let run = |policy| {
            let mut model = model(&config, Backend::Fused);
            model.set_checkpointing(policy);
            model.set_compute_dtype(arithmetic).unwrap();
            let bytes = [(); 2].map(|()| {
                model.forward(&batch).unwrap();
                model.backward(&dlogp, Some(&dentropy)).unwrap();
                model.score(&batch).unwrap();
                model.footprints()
            });
            let bits = |g: &[f32]| g.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            (model.params().read_grads(bits).unwrap(), bytes)
        };
        let kept = run(ActivationCheckpointing::None {});
        for policy in policies() {
            let (grads, bytes) = run(policy);
            assert!(grads == kept.0, "{name}: {policy:?}: gradients differ");
            let shape = config.shape(VOCAB);
            let of = footprint::Subject {
                config: &config,
                shape: &shape,
                trained: Default::default(),
                is_packed: false,
                arithmetic,
            };
            let predicted = (
                footprint::training(of, (2, 9), policy),
                footprint::evaluation(of, (2, 9)),
            );
            assert_eq!(bytes, [predicted; 2], "{name}: {policy:?} {arithmetic:?}");
        }
    }
}

#[test]
fn incremental_forward_equals_a_full_forward() {
    for (name, config) in options() {
        for backend in [Backend::Fused, Backend::Composite] {
            let mut model = model(&config, backend);
            let ids = texts(9).inputs;
            let whole = model.logits(&ids, 1, 9).unwrap().squeeze(0).unwrap();
            let whole: Vec<Vec<f32>> = whole.to_vec2().unwrap();
            let mut rows = Vec::new();
            model
                .decode(|append_tokens| {
                    for piece in [&ids[..4], &ids[4..5], &ids[5..7], &ids[7..8], &ids[8..]] {
                        let mut logits = Vec::new();
                        append_tokens(piece, &mut logits)?;
                        rows.push(logits);
                    }
                    Ok(())
                })
                .unwrap();
            for (row, at) in rows.iter().zip([3, 4, 6, 7, 8]) {
                let exact: Vec<f64> = whole[at].iter().map(|&x| f64::from(x)).collect();
                compare(
                    &format!("{name} on {backend:?}, token {at}"),
                    row,
                    &exact,
                    0.1,
                );
            }
        }
    }
}

#[test]
fn evaluation_has_no_dropout_and_training_depends_on_the_step() {
    let config = with(json!({"dropout": 0.5}));
    let texts = texts(18);
    let batch = TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9);
    let mut plain = model(&with(json!({})), Backend::Fused);
    let mut model = model(&config, Backend::Fused);
    let flat = |t: Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let expected = flat(plain.score(&batch).unwrap().logp);
    assert_eq!(flat(model.score(&batch).unwrap().logp), expected);
    let mut at = |micro_step| {
        let step_position = StepPosition {
            seed: 3,
            micro_step,
            first_token: 0,
            share: 1.0,
        };
        model.set_step_position(step_position);
        flat(model.forward(&batch).unwrap().logp)
    };
    let first = at(1);
    assert_ne!(first, expected);
    assert_ne!(first, at(2));
    assert_eq!(first, at(1));
}

#[test]
fn balancing_biases_even_out_the_load_of_experts() {
    let config = with(json!({
        "moe": {"n_expert": 4, "top_k": 1, "aux_loss_coef": 0.0, "balancing": {"bias": {"rate": 0.02}}},
    }));
    let mut model = model(&config, Backend::Fused);
    let texts = texts(180);
    let batch = TokenBatch::plain(&texts.inputs, &texts.targets, 20, 9);
    let mut loads = Vec::new();
    for _ in 0..60 {
        model.accumulate(&batch, |_, _| Ok(())).unwrap();
        loads.push(model.expert_load().unwrap().busiest);
        model.end_step().unwrap();
    }
    assert!(loads[59] < 0.8 * loads[0], "{loads:?}");
    let info = model.params().infos().iter();
    let bias = info
        .clone()
        .find(|i| i.name.ends_with("e_score_correction_bias"));
    let bias = bias.unwrap();
    assert!(!bias.decay);
    assert_eq!(
        model.params().grad(bias).unwrap().to_vec1::<f32>().unwrap(),
        [0.0; 4]
    );
}

#[test]
fn balancing_losses_even_out_the_load() {
    let config =
        with(json!({"moe": {"n_expert": 4, "top_k": 1, "aux_loss_coef": 1.0, "z_loss_coef": 0.0}}));
    let mut model = model(&config, Backend::Fused);
    let texts = texts(180);
    let batch = TokenBatch::plain(&texts.inputs, &texts.targets, 20, 9);
    let mut aux = Vec::new();
    for _ in 0..40 {
        model.params_mut().zero_grads().unwrap();
        model.accumulate(&batch, |_, _| Ok(())).unwrap();
        aux.push(model.expert_load().unwrap().aux_loss);
        let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
        let descend = |weights: &mut [f32]| {
            for (w, g) in weights.iter_mut().zip(&grads) {
                *w -= 0.3 * g;
            }
        };
        model.params_mut().write_weights(descend).unwrap();
        model.end_step().unwrap();
    }
    assert!(aux[39] < aux[0] && aux[39] < 1.1, "{aux:?}");
}

/// Rows of 9 and 5 tokens, padded to 9: gradients of the balancing losses and the load equal those of the 14 tokens alone.
#[test]
fn padding_does_not_count_in_expert_balancing() {
    let config = with(json!({"moe": {"n_expert": 4, "top_k": 2, "aux_loss_coef": 1.0}}));
    let mut texts = texts(18);
    texts.inputs[14..].fill(0);
    let first: Vec<u32> = (0..18).map(|at| if at < 14 { 0 } else { at - 9 }).collect();
    for backend in [Backend::Fused, Backend::Composite] {
        let mut model = model(&config, backend);
        let mut of = |batch: &TokenBatch| {
            model.begin_step().unwrap();
            model.accumulate(batch, |_, _| Ok(())).unwrap();
            let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
            (grads, model.expert_load())
        };
        let padded = TokenBatch {
            inputs: &texts.inputs,
            targets: &texts.targets,
            batch_size: 2,
            seq_len: 9,
            first: Some(&first),
            filled: Some(&[9, 5]),
            temperature: 1.0,
        };
        let (padded, load) = of(&padded);
        // The same 14 tokens in a packed row without padding.
        let documents: Vec<u32> = (0..14).map(|at| if at < 9 { 0 } else { 9 }).collect();
        let packed = TokenBatch {
            inputs: &texts.inputs[..14],
            targets: &texts.targets[..14],
            batch_size: 1,
            seq_len: 14,
            first: Some(&documents),
            temperature: 1.0,
            filled: None,
        };
        let (packed, expected) = of(&packed);
        let apart = padded.iter().zip(&packed).map(|(a, b)| (a - b).abs());
        assert!(apart.fold(0.0, f32::max) < 1e-6, "{backend:?}");
        assert!(packed.iter().any(|g| g.abs() > 1e-3));
        if let (Some(load), Some(expected)) = (load, expected) {
            assert!((load.aux_loss - expected.aux_loss).abs() < 1e-6);
            assert!((load.z_loss - expected.z_loss).abs() < 1e-6);
            assert_eq!(load.busiest, expected.busiest);
        }
    }
}

/// A failed loss has no effect: no gradient, and no token in the load of the experts.
#[test]
fn a_failed_loss_does_not_count_tokens_of_experts() {
    let texts = texts(18);
    let batch = TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9);
    let config = with(json!({"moe": {"n_expert": 4, "top_k": 2}}));
    let mut model = model(&config, Backend::Fused);
    model.begin_step().unwrap();
    let failed = model.accumulate(&batch, |_, _| -> candle_core::Result<()> {
        candle_core::bail!("no loss")
    });
    assert!(failed.is_err());
    assert_eq!(model.expert_load(), None);
    model.accumulate(&batch, |_, _| Ok(())).unwrap();
    assert!(model.expert_load().is_some());
}

/// Observers get only tokens, no padding.
#[test]
fn observers_do_not_see_padding() {
    use crate::nn::tap::{Activation, AttentionInputs, SharedTap, Tap};
    use std::sync::{Arc, Mutex};

    #[derive(Default)]
    struct Seen {
        rows: Vec<usize>,
        logits: usize,
        first_row: usize,
    }
    impl Tap for Seen {
        fn activation(&mut self, seen: &Activation<'_>) {
            self.rows.push(seen.values.len() / seen.width);
        }
        fn attention(&mut self, seen: &AttentionInputs<'_>) {
            self.first_row = seen.first_row;
        }
        fn logits(&mut self, lse: &[f32]) {
            self.logits = lse.len();
        }
    }
    let texts = texts(18);
    let mut model = model(&with(json!({})), Backend::Fused);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let tap: SharedTap = seen.clone();
    model.set_tap(Some(tap));
    let plain = TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9);
    for (filled, tokens, first_row) in [(None, 18, 9), (Some(&[5_u32, 8][..]), 13, 5)] {
        let batch = TokenBatch { filled, ..plain };
        seen.lock().unwrap().rows.clear();
        model.accumulate(&batch, |_, _| Ok(())).unwrap();
        let seen = seen.lock().unwrap();
        assert!(!seen.rows.is_empty() && seen.rows.iter().all(|n| *n == tokens));
        assert_eq!((seen.logits, seen.first_row), (tokens, first_row));
    }
}
