//! Models with experts. What holds for every option is tested with the others, in `option_tests`; here is what a shared expert, dense
//! blocks and sigmoid scores add.

use super::option_tests::{VOCAB, model, texts, with};
use super::*;
use crate::nn::adapter::{Lora, Targets};
use crate::nn::freeze::is_frozen;
use serde_json::{Value, json};

/// The settings of each mixture on top of the base, by name.
pub(super) fn mixtures() -> Vec<(&'static str, Value)> {
    let moe = |settings: Value| json!({"moe": settings});
    vec![
        (
            "shared expert",
            moe(json!({"n_expert": 3, "d_ff": 12, "shared_d_ff": 28})),
        ),
        (
            "gated shared expert",
            moe(
                json!({"n_expert": 4, "d_ff": 12, "shared_d_ff": 10, "shared_gate": true, "norm_topk": false}),
            ),
        ),
        (
            "shared expert, dense blocks",
            moe(
                json!({"n_expert": 3, "d_ff": 8, "shared_d_ff": 16, "shared_gate": true, "dense_blocks": [0]}),
            ),
        ),
        (
            "shared expert, scaled, dropout",
            json!({
                "moe": {"n_expert": 3, "shared_d_ff": 16, "shared_gate": true}, "residual_scale": 0.22, "dropout": 0.3,
            }),
        ),
        (
            "plain shared expert, post",
            json!({
                "moe": {"n_expert": 3, "shared_d_ff": 16, "shared_gate": true}, "norm_placement": "post",
                "norm": {"layernorm": {}}, "mlp": {"gelu": {}}, "bias": true,
            }),
        ),
        (
            "shared expert, both, parallel off",
            json!({"moe": {"n_expert": 3, "shared_d_ff": 16}, "norm_placement": "both"}),
        ),
        (
            "shared expert, parallel",
            json!({"moe": {"n_expert": 3, "shared_d_ff": 16, "shared_gate": true}, "parallel_residual": true}),
        ),
        (
            "shared expert beside delta nets",
            json!({
                "moe": {"n_expert": 3, "shared_d_ff": 16, "shared_gate": true}, "attention_gate": true, "qk_norm": true,
                "mixer": {"gated_delta_net": {"n_key_head": 2, "key_dim": 4, "value_dim": 3}}, "attention_every": 3,
                "norm": {"rmsnorm": {"eps": 0.01}},
            }),
        ),
        (
            "experts with biases",
            moe(
                json!({"n_expert": 3, "bias": true, "shared_d_ff": 16, "balancing": {"bias": {"rate": 0.0}}}),
            ),
        ),
        (
            "as gpt-oss",
            json!({
                "moe": {"n_expert": 4, "d_ff": 12, "bias": true}, "mlp": {"clamped_swiglu": {"limit": 0.6}},
                "attention_sinks": true, "attention_bias": "all", "sliding_window": 3, "global_every": 2, "head_dim": 10,
            }),
        ),
        (
            "sigmoid scores",
            moe(json!({"n_expert": 4, "scoring": "sigmoid"})),
        ),
        (
            "scaled sigmoid scores, fixed biases",
            json!({
                "moe": {
                    "n_expert": 5, "top_k": 3, "scoring": "sigmoid", "norm_topk": false, "gate_scale": 1.5,
                    "balancing": {"bias": {"rate": 0.0}}, "dense_blocks": [0, 1],
                },
                "mixer": {"short_conv": {}}, "attention_blocks": [2],
            }),
        ),
        (
            "scaled softmax scores",
            moe(json!({"n_expert": 4, "gate_scale": 2.5})),
        ),
    ]
}

fn batch(texts: &super::option_tests::Texts) -> TokenBatch<'_> {
    TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9)
}

fn weights(model: &Model) -> Vec<f32> {
    model.params().read_weights(<[f32]>::to_vec).unwrap()
}

/// A rate of 0 keeps the biases of a file; they choose experts, so they are part of the model.
#[test]
fn biases_with_a_rate_of_zero_choose_experts_and_stay_as_they_are() {
    let bias = |rate: f64| {
        with(
            json!({"moe": {"n_expert": 4, "top_k": 1, "scoring": "sigmoid", "balancing": {"bias": {"rate": rate}}}}),
        )
    };
    let texts = texts(18);
    let after = |rate: f64| {
        let mut model = model(&bias(rate), Backend::Fused);
        let before = weights(&model);
        model.accumulate(&batch(&texts), |_, _| Ok(())).unwrap();
        model.end_step().unwrap();
        (before, weights(&model))
    };
    let (before, fixed) = after(0.0);
    assert_eq!(before, fixed);
    let (before, moved) = after(0.5);
    assert_ne!(before, moved);
    // Both backends choose by them.
    for backend in [Backend::Fused, Backend::Composite] {
        let mut model = model(&bias(0.0), backend);
        let plain = model.score(&batch(&texts)).unwrap().logp;
        let infos = model.params().infos().to_vec();
        let biases: Vec<_> = infos
            .iter()
            .filter(|info| info.is_balancing_bias())
            .collect();
        assert_eq!(biases.len(), 3);
        let prefer = |w: &mut [f32]| biases.iter().for_each(|info| w[info.offset + 1] += 2.0);
        model.params_mut().write_weights(prefer).unwrap();
        let other = model.score(&batch(&texts)).unwrap().logp;
        let [plain, other] =
            [plain, other].map(|t| t.flatten_all().unwrap().to_vec1::<f32>().unwrap());
        assert_ne!(plain, other, "{backend:?}");
    }
}

/// Every token passes a shared expert and a dense block, so both have adapters; experts have none.
#[test]
fn adapters_are_on_shared_experts_and_dense_blocks_and_on_no_other() {
    let config = with(
        json!({"moe": {"n_expert": 3, "shared_d_ff": 16, "shared_gate": true, "dense_blocks": [1]}}),
    );
    let mut model = Model::new(&config, VOCAB, &Device::Cpu).unwrap();
    model
        .adapt(&AdapterConfig::Lora(Lora {
            targets: Targets::FfnOnly,
            ..Lora::default()
        }))
        .unwrap();
    let names: Vec<String> = model
        .params()
        .adapters()
        .iter()
        .map(|info| info.name.clone())
        .collect();
    assert_eq!(names.len(), 3 * 3 * 2);
    let is_own =
        |name: &&String| name.contains("shared_expert.") || name.starts_with("model.layers.1.mlp.");
    assert!(names.iter().all(|name| is_own(&name)), "{names:?}");
    assert!(names.contains(&"model.layers.2.mlp.shared_expert.down_proj.lora_B.weight".into()));
}

/// The parts of a block that each name of `train.freeze` selects.
#[test]
fn a_shared_expert_is_frozen_with_feed_forward_blocks_and_its_gate_with_routers() {
    let config = with(json!({"moe": {"n_expert": 3, "shared_d_ff": 16, "shared_gate": true}}));
    let model = Model::new(&config, VOCAB, &Device::Cpu).unwrap();
    let of = |name: &str| -> Vec<String> {
        let infos = model.params().infos().iter();
        let frozen = infos.filter(|info| is_frozen(info, &[name.to_string()]));
        let first = frozen.filter_map(|info| info.name.strip_prefix("model.layers.0.mlp."));
        first.map(String::from).collect()
    };
    assert_eq!(
        of("mlp"),
        ["gate_proj", "up_proj", "down_proj"].map(|part| format!("shared_expert.{part}.weight"))
    );
    assert_eq!(of("router"), ["gate.weight", "shared_expert_gate.weight"]);
    assert_eq!(of("experts").len(), 9);
}

/// Active parameters are those that a token is multiplied with: what it is not routed to is idle, a shared expert is not.
#[test]
fn a_shared_expert_is_always_active() {
    let says = |shared: Value| {
        let mut moe = json!({"n_expert": 4, "top_k": 1, "d_ff": 8, "dense_blocks": [0]});
        moe["shared_d_ff"] = shared;
        Model::new(&with(json!({"moe": moe})), VOCAB, &Device::Cpu).unwrap()
    };
    let (without, with_one) = (says(Value::Null), says(json!(16)));
    // Two blocks with experts, of each three idle ones.
    assert_eq!(without.idle_params(), 2 * 3 * 3 * 24 * 8);
    assert_eq!(with_one.idle_params(), without.idle_params());
    let more = 2 * 3 * 24 * 16;
    assert_eq!(with_one.n_params(), without.n_params() + more);
    let flops = with_one.flops_per_token() - without.flops_per_token();
    assert_eq!(flops, 6.0 * more as f64);
}
