//! Adapters and frozen weights: trainable parameters have the same gradient as if all were trained, frozen ones
//! have none and do not change, and every option of a model works with both.

use super::option_tests::{Texts, VOCAB, compare, model, options, policies, texts, upstream, with};
use super::*;
use crate::nn::adapter::{Lora, RankAlpha, Targets, Whole};
use crate::nn::role::{AdapterRole, Role};
use crate::nn::{TrainableSet, footprint, oracle};
use serde_json::json;

fn lora(targets: Targets, dropout: f64) -> AdapterConfig {
    AdapterConfig::Lora(Lora {
        rank: 3,
        alpha: 6.0,
        dropout,
        targets,
        ..Lora::default()
    })
}

/// The same with magnitudes, at √rank.
fn dora(targets: Targets, dropout: f64) -> AdapterConfig {
    let AdapterConfig::Lora(lora) = lora(targets, dropout);
    AdapterConfig::Lora(Lora {
        dora: true,
        rslora: true,
        ..lora
    })
}

/// On every layer that supports it.
fn targets(config: &ModelConfig) -> Targets {
    match config.has_common_mlp() {
        false => Targets::AttentionOnly,
        true => Targets::All,
    }
}

fn widest(config: &ModelConfig, dropout: f64) -> AdapterConfig {
    lora(targets(config), dropout)
}

fn gpt2() -> ModelConfig {
    let says = json!({"n_layer": 2, "n_head": 2, "d_model": 12, "seq_len": 9, "bias": true});
    serde_json::from_value(says).unwrap()
}

/// A model whose adapters are no longer zero.
fn adapted(config: &ModelConfig, adapter: &AdapterConfig, backend: Backend) -> Model {
    let mut model = model(config, backend);
    model.adapt(adapter).unwrap();
    model.init_magnitudes().unwrap();
    let adapters = model.params().adapters().to_vec();
    let mut rng = Rng::new(4, Stream::Test, 0, 0);
    let fill = |w: &mut [f32]| {
        for info in &adapters {
            let part = &mut w[info.offset..info.offset + info.len];
            // Factors start at 0.
            part.iter_mut().for_each(|x| *x += 0.1 * rng.normal());
        }
    };
    model.params_mut().write_weights(fill).unwrap();
    model
}

fn batch(texts: &Texts) -> TokenBatch<'_> {
    TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9)
}

/// Log-probabilities and gradients of a micro-step.
fn step(model: &mut Model, texts: &Texts) -> (Vec<f32>, Vec<f32>) {
    model.params_mut().zero_grads().unwrap();
    let outputs = model.forward(&batch(texts)).unwrap();
    let (dlogp, dentropy) = (upstream(&texts.dlogp), upstream(&texts.dentropy));
    model.backward(&dlogp, Some(&dentropy)).unwrap();
    let logp = outputs.logp.flatten_all().unwrap().to_vec1().unwrap();
    (logp, model.params().read_grads(<[f32]>::to_vec).unwrap())
}

fn score(model: &mut Model, texts: &Texts) -> Vec<f32> {
    let outputs = model.score(&batch(texts)).unwrap();
    outputs.logp.flatten_all().unwrap().to_vec1().unwrap()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn adapters_on_every_option_have_exact_gradients_on_both_backends() {
    let mut cases = options();
    cases.push(("gpt2", gpt2()));
    let texts = texts(18);
    for (name, config) in cases {
        type Kind = fn(Targets, f64) -> AdapterConfig;
        for (kind, dropout, backend) in [
            (lora as Kind, 0.0, Backend::Fused),
            (lora, 0.4, Backend::Fused),
            (lora, 0.4, Backend::Composite),
            (dora, 0.0, Backend::Fused),
            (dora, 0.4, Backend::Fused),
            (dora, 0.4, Backend::Composite),
        ] {
            let mut model = adapted(&config, &kind(targets(&config), dropout), backend);
            let exact = oracle::exact(&model, &batch(&texts), &texts.dlogp, &texts.dentropy);
            let exact = exact.unwrap();
            let (logp, grads) = step(&mut model, &texts);
            let what = |part: &str| format!("{part} of {name}, {dropout} on {backend:?}");
            compare(&what("logp"), &logp, &exact.logp, 1e-3);
            let largest = exact.grads.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
            assert!(largest > 1e-3, "{name}");
            compare(&what("gradients"), &grads, &exact.grads, 0.3 * largest);
        }
    }
}

#[test]
fn parts_of_a_fused_matmul_can_have_their_own_adapters() {
    let texts = texts(18);
    for (targets, n) in [
        (Targets::Minimal, 2),
        (Targets::AttentionOnly, 4),
        (Targets::FfnOnly, 3),
        (Targets::All, 7),
    ] {
        let config = with(json!({}));
        let mut model = adapted(&config, &lora(targets, 0.0), Backend::Fused);
        assert_eq!(model.params().adapters().len(), 2 * n * 3, "{targets:?}");
        let exact = oracle::exact(&model, &batch(&texts), &texts.dlogp, &texts.dentropy);
        let exact = exact.unwrap();
        let (_, grads) = step(&mut model, &texts);
        let largest = exact.grads.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
        compare(&format!("{targets:?}"), &grads, &exact.grads, 0.1 * largest);
    }
}

/// Queries, keys and values are one matmul here: its parts may have any ranks and scales.
#[test]
fn modules_can_have_their_own_ranks_and_alphas() {
    let texts = texts(18);
    let config = with(json!({}));
    type Kind = fn(Targets, f64) -> AdapterConfig;
    for (kind, backend) in [
        (lora as Kind, Backend::Fused),
        (lora, Backend::Composite),
        (dora, Backend::Fused),
        (dora, Backend::Composite),
    ] {
        let AdapterConfig::Lora(plain) = kind(Targets::All, 0.3);
        let own = [
            ("model.layers.0.self_attn.q_proj", 5, 2.0),
            ("model.layers.0.self_attn.v_proj", 1, 7.0),
            ("model.layers.1.mlp.up_proj", 3, 1.0),
            ("model.layers.1.mlp.down_proj", 4, 6.0),
        ];
        let own = own.map(|(name, rank, alpha)| (name.to_string(), RankAlpha { rank, alpha }));
        let lora = Lora {
            modules: own.into_iter().collect(),
            ..plain
        };
        let mut model = adapted(&config, &AdapterConfig::Lora(lora.clone()), backend);
        for info in model.params().adapters() {
            if let Some(module) = info.name.strip_suffix(".lora_B.weight") {
                assert_eq!(info.shape[1], lora.size_of(module).rank, "{module}");
            }
        }
        let exact = oracle::exact(&model, &batch(&texts), &texts.dlogp, &texts.dentropy).unwrap();
        let (logp, grads) = step(&mut model, &texts);
        compare("logp", &logp, &exact.logp, 1e-3);
        let largest = exact.grads.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
        compare("gradients", &grads, &exact.grads, 0.3 * largest);
    }
}

#[test]
fn fresh_adapters_change_no_bit_and_only_b_has_a_gradient() {
    let texts = texts(18);
    for config in [with(json!({})), gpt2()] {
        for backend in [Backend::Fused, Backend::Composite] {
            let mut model = model(&config, backend);
            let base = score(&mut model, &texts);
            model.adapt(&widest(&config, 0.0)).unwrap();
            model.init_adapters(3).unwrap();
            assert_eq!(bits(&score(&mut model, &texts)), bits(&base));
            let (logp, _) = step(&mut model, &texts);
            assert_eq!(bits(&logp), bits(&base));
            let params = model.params();
            assert!(params.trainable().count() > 0);
            for info in params.trainable() {
                let grad = params.grad(info).unwrap().flatten_all().unwrap();
                let is_zero = grad.to_vec1::<f32>().unwrap().iter().all(|g| *g == 0.0);
                let is_a = info.role == Role::Adapter(AdapterRole::A);
                assert_eq!(is_zero, is_a, "{}", info.name);
            }
            let infos = params.adapters().iter();
            for info in infos.filter(|i| i.role == Role::Adapter(AdapterRole::A)) {
                let bound = 1.0 / (info.shape[1] as f32).sqrt();
                let a = params.weight(info).unwrap().flatten_all().unwrap();
                let a = a.to_vec1::<f32>().unwrap();
                assert!(a.iter().all(|x| x.abs() <= bound), "{}", info.name);
                assert!(a.iter().any(|x| x.abs() > 0.5 * bound), "{}", info.name);
            }
        }
    }
}

#[test]
fn magnitudes_start_as_the_norms_of_the_rows_without_effect() {
    let texts = texts(18);
    for config in [with(json!({})), gpt2()] {
        for backend in [Backend::Fused, Backend::Composite] {
            let mut model = model(&config, backend);
            let base = score(&mut model, &texts);
            let base: Vec<f64> = base.iter().map(|x| f64::from(*x)).collect();
            model.adapt(&dora(Targets::All, 0.0)).unwrap();
            model.init_adapters(3).unwrap();
            compare("fresh", &score(&mut model, &texts), &base, 0.1);
            let params = model.params();
            let of = |name: &str| {
                let info = params.infos().iter().find(|i| i.name == name).unwrap();
                let values = params.weight(info).unwrap().flatten_all().unwrap();
                (values.to_vec1::<f32>().unwrap(), info.shape.clone())
            };
            let magnitudes = params.adapters().iter().map(|i| i.name.clone());
            let magnitudes = magnitudes.filter(|name| name.contains("magnitude"));
            let mut seen = 0;
            for name in magnitudes {
                let (lengths, _) = of(&name);
                let weight = name.replace("lora_magnitude_vector", "weight");
                let (values, shape) = of(&weight);
                for (length, row) in lengths.iter().zip(values.chunks_exact(shape[1])) {
                    let exact = row.iter().map(|x| x * x).sum::<f32>().sqrt();
                    assert!((length - exact).abs() < 1e-5 * exact.max(1.0), "{name}");
                }
                seen += lengths.len();
            }
            assert!(seen > 0);
        }
    }
}

#[test]
fn tables_train_in_full_next_to_adapters_and_are_removed_with_them() {
    let texts = texts(18);
    let config = with(json!({"tie_embeddings": false}));
    let AdapterConfig::Lora(plain) = lora(Targets::Minimal, 0.0);
    let adapter = AdapterConfig::Lora(Lora {
        modules_to_save: vec![Whole::Embeddings, Whole::Head],
        ..plain
    });
    let mut model = adapted(&config, &adapter, Backend::Fused);
    assert!(!model.is_its_own_reference());
    let exact = oracle::exact(&model, &batch(&texts), &texts.dlogp, &texts.dentropy).unwrap();
    let (_, grads) = step(&mut model, &texts);
    let largest = exact.grads.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
    compare("gradients", &grads, &exact.grads, 0.1 * largest);
    let whole: Vec<Role> = model
        .params()
        .trainable()
        .map(|i| i.role)
        .filter(|r| !r.is_adapter())
        .collect();
    assert_eq!(whole, [Role::Embedding, Role::Head]);
    let tied = ModelConfig {
        tie_embeddings: true,
        ..config
    };
    assert!(adapter.faults(&tied)[0].what.contains("tied"));
}

#[test]
fn patterns_match_modules_by_suffix() {
    let config = with(json!({}));
    let adapted = |patterns: &[&str]| {
        let AdapterConfig::Lora(plain) = lora(Targets::Pattern, 0.0);
        let adapter = AdapterConfig::Lora(Lora {
            patterns: patterns.iter().map(ToString::to_string).collect(),
            ..plain
        });
        let mut model = model(&config, Backend::Fused);
        model.adapt(&adapter)?;
        let names = model.params().adapters().iter();
        let names = names.filter_map(|i| i.name.strip_suffix(".lora_A.weight").map(String::from));
        Ok::<_, candle_core::Error>(names.collect::<Vec<_>>())
    };
    assert_eq!(adapted(&["q_proj"]).unwrap().len(), config.n_layer);
    assert_eq!(
        adapted(&["layers.1.self_attn.*_proj"]).unwrap(),
        ["q", "k", "v", "o"].map(|x| format!("model.layers.1.self_attn.{x}_proj"))
    );
    assert_eq!(
        adapted(&["*.0.mlp.down_proj", "layers.2.*"]).unwrap().len(),
        1 + 7 * usize::from(config.n_layer > 2)
    );
    let none = adapted(&["proj"]).unwrap_err().to_string();
    assert!(none.contains("no linear layer"), "{none}");
}

#[test]
fn b_has_its_own_learning_rate() {
    use crate::optim::by_decay;
    let AdapterConfig::Lora(plain) = dora(Targets::All, 0.0);
    let adapter = AdapterConfig::Lora(Lora {
        b_lr_ratio: 16.0,
        ..plain
    });
    let model = adapted(&gpt2(), &adapter, Backend::Fused);
    let groups = by_decay(model.params(), 0.1);
    let infos = model.params().infos();
    let mut seen = 0;
    for group in &groups {
        for &index in &group.params {
            let is_a = infos[index].role == Role::Adapter(AdapterRole::A);
            assert_eq!(
                group.lr_scale,
                if is_a { 1.0 } else { 16.0 },
                "{}",
                infos[index].name
            );
            seen += 1;
        }
    }
    assert_eq!(
        (seen, groups.len()),
        (model.params().trainable().count(), 3)
    );
}

#[test]
fn without_its_adapters_a_model_is_its_base_to_the_bit_and_does_not_train() {
    let texts = texts(18);
    let config = with(json!({}));
    for backend in [Backend::Fused, Backend::Composite] {
        let base = score(&mut model(&config, backend), &texts);
        let mut model = adapted(&config, &lora(Targets::All, 0.1), backend);
        let with_adapters = score(&mut model, &texts);
        assert_ne!(with_adapters, base);
        model.set_adapters(false);
        assert_eq!(bits(&score(&mut model, &texts)), bits(&base));
        let refused = model.forward(&batch(&texts)).unwrap_err().to_string();
        assert!(refused.contains("set_adapters"), "{refused}");
        assert!(model.accumulate(&batch(&texts), |_, _| Ok(())).is_err());
        model.set_adapters(true);
        assert_eq!(bits(&score(&mut model, &texts)), bits(&with_adapters));
    }
}

/// Decides whether a parameter trains.
type Trains = fn(&ParamInfo) -> bool;

#[test]
fn frozen_weights_have_no_gradient_and_do_not_affect_the_others() {
    let texts = texts(18);
    let mut cases = options();
    cases.push(("gpt2", gpt2()));
    for (name, config) in cases {
        let mut whole = model(&config, Backend::Fused);
        let (logp, exact) = step(&mut whole, &texts);
        let trains: [(&str, Trains); 4] = [
            ("blocks", |info| info.layer.is_some()),
            ("tables", |info| info.layer.is_none()),
            ("attention", |info| {
                matches!(info.role, Role::Attention(_) | Role::Norm)
                    || matches!(info.role, Role::Bias(_))
            }),
            ("the last block", |info| info.layer == Some(1)),
        ];
        for backend in [Backend::Fused, Backend::Composite] {
            for (set, trains) in trains {
                let what = format!("{set} of {name} on {backend:?}");
                let mut model = model(&config, backend);
                if let Err(e) = model.train_only(trains) {
                    // Biases of norms and of linear layers, whose gain or weights are frozen.
                    assert!(e.to_string().contains("together"), "{what}: {e}");
                    continue;
                }
                let (same, grads) = step(&mut model, &texts);
                assert_eq!(grads.len(), model.params().n_trainable());
                for (info, other) in model.params().infos().iter().zip(whole.params().infos()) {
                    assert_eq!(info.trains(), trains(info), "{what}");
                    let Some(from) = info.grad else {
                        assert!(model.params().grad(info).is_err());
                        continue;
                    };
                    let (found, exact) = (
                        &grads[from..from + info.len],
                        &exact[other.offset..other.offset + other.len],
                    );
                    if backend == Backend::Fused {
                        assert_eq!(bits(found), bits(exact), "{what}: {}", info.name);
                    }
                }
                if backend == Backend::Fused {
                    assert_eq!(bits(&same), bits(&logp), "{what}");
                }
            }
        }
    }
}

#[test]
fn parameters_of_one_matmul_train_together_or_not_at_all() {
    let mut model = model(&with(json!({})), Backend::Fused);
    let queries = Role::Attention(crate::nn::role::AttentionRole::Query);
    let refused = model.train_only(|info| info.role == queries).unwrap_err();
    let refused = refused.to_string();
    assert!(
        refused.contains("model.layers.0.self_attn.k_proj.weight"),
        "{refused}"
    );
    // A rejected call has changed nothing.
    assert_eq!(model.params().n_trainable(), model.n_params());
}

#[test]
fn checkpointing_packed_rows_and_bf16_work_with_adapters() {
    let texts = texts(18);
    let (config, adapter) = (with(json!({"dropout": 0.2})), lora(Targets::All, 0.3));
    let run = |policy, arithmetic| {
        let mut model = adapted(&config, &adapter, Backend::Fused);
        model.set_checkpointing(policy);
        model.set_compute_dtype(arithmetic).unwrap();
        let first: Vec<u32> = (0..18).map(|i| if i % 9 < 4 { 0 } else { 4 }).collect();
        let batch = TokenBatch {
            first: Some(&first),
            ..batch(&texts)
        };
        let mut all = Vec::new();
        for _ in 0..2 {
            model.forward(&batch).unwrap();
            model.backward(&upstream(&texts.dlogp), None).unwrap();
            model.score(&batch).unwrap();
            all.push(model.footprints());
        }
        let shape = config.shape(VOCAB);
        let of = footprint::Subject {
            config: &config,
            shape: &shape,
            trained: TrainableSet::with(Some(&adapter)),
            is_packed: false,
            arithmetic,
        };
        let predicted = (
            footprint::training(of, (2, 9), policy),
            footprint::evaluation(of, (2, 9)),
        );
        assert_eq!(all, [predicted; 2], "{policy:?}");
        model.params().read_grads(<[f32]>::to_vec).unwrap()
    };
    let none = ActivationCheckpointing::None {};
    let kept = run(none, ComputeDtype::F32);
    for policy in policies() {
        assert_eq!(
            bits(&run(policy, ComputeDtype::F32)),
            bits(&kept),
            "{policy:?}"
        );
    }
    let largest = kept.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
    let rounded = run(none, ComputeDtype::Bf16);
    assert_ne!(bits(&rounded), bits(&kept));
    for (a, b) in rounded.iter().zip(&kept) {
        assert!((a - b).abs() < 0.05 * largest, "{a} {b} of {largest}");
    }
}

#[test]
fn incremental_forward_uses_the_adapters() {
    for config in [with(json!({})), gpt2()] {
        for backend in [Backend::Fused, Backend::Composite] {
            let mut model = adapted(&config, &widest(&config, 0.4), backend);
            let ids = texts(9).inputs;
            let whole = model.logits(&ids, 1, 9).unwrap().squeeze(0).unwrap();
            let whole: Vec<Vec<f32>> = whole.to_vec2().unwrap();
            let mut logits = Vec::new();
            model
                .decode(|append_tokens| {
                    append_tokens(&ids[..5], &mut logits)?;
                    append_tokens(&ids[5..], &mut logits)
                })
                .unwrap();
            let exact: Vec<f64> = whole[8].iter().map(|x| f64::from(*x)).collect();
            compare(&format!("{backend:?}"), &logits, &exact, 0.1);
        }
    }
}

#[test]
fn dropout_of_adapters_depends_on_the_step_and_on_nothing_else() {
    let texts = texts(18);
    let mut model = adapted(&gpt2(), &lora(Targets::All, 0.5), Backend::Fused);
    let evaluated = score(&mut model, &texts);
    let mut at = |micro_step| {
        model.set_step_position(StepPosition {
            micro_step,
            ..StepPosition::default()
        });
        step(&mut model, &texts)
    };
    let first = at(1);
    assert_ne!(first.0, evaluated);
    assert_ne!(first, at(2));
    assert_eq!(first, at(1));
}

#[test]
fn balancing_biases_do_not_change_under_adapters() {
    let bias = json!({"moe": {"n_expert": 3, "top_k": 1, "balancing": {"bias": {"rate": 0.5}}}});
    let config = with(bias);
    let texts = texts(18);
    let mut model = adapted(&config, &widest(&config, 0.0), Backend::Fused);
    let before = model.params().read_weights(<[f32]>::to_vec).unwrap();
    model.accumulate(&batch(&texts), |_, _| Ok(())).unwrap();
    model.end_step().unwrap();
    assert!(model.params().read_weights(|w| w == before).unwrap());
}

#[test]
fn adapters_incompatible_with_a_model_are_rejected_with_a_fix() {
    let refused = |config: &ModelConfig, targets| {
        let mut model = model(config, Backend::Fused);
        model.adapt(&lora(targets, 0.0)).unwrap_err().to_string()
    };
    let minimal = refused(&gpt2(), Targets::Minimal);
    assert!(
        minimal.contains("c_attn") && minimal.contains("attention_only"),
        "{minimal}"
    );
    let experts = refused(&with(json!({"moe": {"n_expert": 3}})), Targets::All);
    assert!(experts.contains("experts"), "{experts}");
    let mut twice = adapted(&gpt2(), &lora(Targets::All, 0.0), Backend::Fused);
    assert!(twice.adapt(&lora(Targets::All, 0.0)).is_err());
}

/// The initialization of a critic: the trunk with the adapter that the policy has learned, and a different head.
#[test]
fn adapters_are_copied_to_a_model_with_another_head() {
    let adapter = lora(Targets::All, 0.0);
    let policy = adapted(&gpt2(), &adapter, Backend::Fused);
    let config = ModelConfig {
        head: HeadKind::Score,
        ..gpt2()
    };
    let mut critic = adapted(&config, &adapter, Backend::Fused);
    let of = |model: &Model| -> Vec<(String, Vec<f32>)> {
        let infos = model.params().adapters().to_vec();
        let named = infos.iter().map(|info| {
            let weight = model.params().weight(info).unwrap();
            let values = weight.flatten_all().unwrap().to_vec1().unwrap();
            (info.name.clone(), values)
        });
        named.collect()
    };
    critic.copy_trunk(&policy).unwrap();
    critic.init_adapters(99).unwrap();
    assert_ne!(of(&critic), of(&policy));
    critic.copy_adapters(&policy).unwrap();
    assert_eq!(of(&critic), of(&policy));
}

/// Of a position table a shorter context uses the first rows.
#[test]
fn a_trunk_is_copied_to_a_shorter_context() {
    let base = model(&gpt2(), Backend::Fused);
    let config = ModelConfig {
        seq_len: gpt2().seq_len - 2,
        head: HeadKind::Score,
        ..gpt2()
    };
    let mut shorter = model(&config, Backend::Fused);
    shorter.copy_trunk(&base).unwrap();
    let table = |model: &Model| -> Vec<f32> {
        let infos = model.params().base();
        let info = infos.iter().find(|i| i.role == Role::Position).unwrap();
        let weight = model.params().weight(info).unwrap();
        weight.flatten_all().unwrap().to_vec1().unwrap()
    };
    let (all, first) = (table(&base), table(&shorter));
    assert!(first.len() < all.len() && all[..first.len()] == first[..]);
    let mut longer = model(&gpt2(), Backend::Fused);
    assert!(longer.copy_trunk(&shorter).is_err());
}

fn on_experts(rank: usize) -> AdapterConfig {
    let AdapterConfig::Lora(plain) = lora(Targets::AllAndExperts, 0.0);
    AdapterConfig::Lora(Lora { rank, ..plain })
}

#[test]
fn adapters_of_experts_have_exact_gradients_on_both_backends() {
    let texts = texts(18);
    let cases = options()
        .into_iter()
        .filter(|(_, config)| config.moe.is_some());
    let mut seen = 0;
    for (name, config) in cases {
        // Ranks of narrow and of packed matmuls.
        for (rank, backend) in [
            (3, Backend::Fused),
            (12, Backend::Fused),
            (3, Backend::Composite),
        ] {
            let mut model = adapted(&config, &on_experts(rank), backend);
            let of_experts = |info: &&ParamInfo| info.name.contains(".experts.");
            let n = model.params().adapters().iter().filter(of_experts).count();
            assert_eq!(n, 4 * config.expert_blocks(), "{name}");
            let exact = oracle::exact(&model, &batch(&texts), &texts.dlogp, &texts.dentropy);
            let exact = exact.unwrap();
            let (logp, grads) = step(&mut model, &texts);
            let what = |part: &str| format!("{part} of {name}, rank {rank} on {backend:?}");
            compare(&what("logp"), &logp, &exact.logp, 1e-3);
            let largest = exact.grads.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
            compare(&what("gradients"), &grads, &exact.grads, 0.3 * largest);
            // A second micro-step adds to the first.
            let again = |model: &mut Model| {
                model.forward(&batch(&texts)).unwrap();
                let (dlogp, dentropy) = (upstream(&texts.dlogp), upstream(&texts.dentropy));
                model.backward(&dlogp, Some(&dentropy)).unwrap();
                model.params().read_grads(<[f32]>::to_vec).unwrap()
            };
            let twice: Vec<f64> = exact.grads.iter().map(|x| 2.0 * x).collect();
            compare(&what("both"), &again(&mut model), &twice, 0.6 * largest);
        }
        seen += 1;
    }
    assert!(seen > 8, "{seen}");
}

#[test]
fn adapters_of_experts_start_without_effect_and_are_turned_off() {
    let texts = texts(18);
    let config = with(json!({"moe": {"n_expert": 4}}));
    for backend in [Backend::Fused, Backend::Composite] {
        let mut plain = model(&config, backend);
        let base = bits(&score(&mut plain, &texts));
        plain.adapt(&on_experts(3)).unwrap();
        plain.init_adapters(3).unwrap();
        assert_eq!(bits(&score(&mut plain, &texts)), base);
        let mut model = adapted(&config, &on_experts(3), backend);
        assert_ne!(bits(&score(&mut model, &texts)), base);
        model.set_adapters(false);
        assert_eq!(bits(&score(&mut model, &texts)), base);
    }
}

#[test]
fn recomputed_blocks_with_adapters_of_experts_use_the_predicted_memory() {
    let config = with(json!({"n_layer": 4, "moe": {"n_expert": 4, "shared_d_ff": 16}}));
    let (texts, adapter) = (texts(18), on_experts(5));
    let run = |policy: ActivationCheckpointing| {
        let mut model = adapted(&config, &adapter, Backend::Fused);
        model.set_checkpointing(policy);
        let batch = batch(&texts);
        let mut all = Vec::new();
        for _ in 0..2 {
            model.forward(&batch).unwrap();
            model.backward(&upstream(&texts.dlogp), None).unwrap();
            model.score(&batch).unwrap();
            all.push(model.footprints());
        }
        let shape = config.shape(VOCAB);
        let of = footprint::Subject {
            config: &config,
            shape: &shape,
            trained: TrainableSet::with(Some(&adapter)),
            is_packed: false,
            arithmetic: ComputeDtype::F32,
        };
        let predicted = (
            footprint::training(of, (2, 9), policy),
            footprint::evaluation(of, (2, 9)),
        );
        assert_eq!(all, [predicted; 2], "{policy:?}");
        model.params().read_grads(<[f32]>::to_vec).unwrap()
    };
    let kept = run(ActivationCheckpointing::None {});
    for policy in policies() {
        assert_eq!(bits(&run(policy)), bits(&kept), "{policy:?}");
    }
}
