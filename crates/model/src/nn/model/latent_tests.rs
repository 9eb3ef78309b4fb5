//! Latent attention. What holds for every option is tested with the others, in `option_tests`; here is what its cache and its adapters
//! add.

use super::option_tests::{VOCAB, compare, model, texts, with};
use super::*;
use crate::nn::adapter::{Lora, Targets};
use crate::nn::generate::rows_tests::assert_same_beside_others;
use crate::nn::kv_cache::CHUNK;
use serde_json::{Value, json};

fn latent(mla: Value, more: Value) -> Value {
    let mut says = json!({"n_kv_head": null, "mla": mla});
    for (key, value) in more.as_object().unwrap() {
        says[key] = value.clone();
    }
    says
}

/// The settings of each kind on top of the base, by name.
pub(super) fn latents() -> Vec<(&'static str, Value)> {
    let narrow = json!({"kv_rank": 10, "nope_dim": 6, "rope_dim": 4, "v_dim": 5});
    let wide = json!({"kv_rank": 7, "q_rank": 9, "nope_dim": 3, "rope_dim": 2, "v_dim": 8, "norm_eps": 0.01});
    let even = json!({"kv_rank": 12, "q_rank": 16, "nope_dim": 6, "rope_dim": 4, "v_dim": 10});
    let yarn = json!({"factor": 3.0, "original_len": 4, "mscale": 0.5, "mscale_all_dim": 0.8});
    vec![
        ("latent", latent(narrow.clone(), json!({}))),
        ("latent queries", latent(wide.clone(), json!({}))),
        (
            "latent with experts in groups",
            latent(
                even.clone(),
                json!({
                    "moe": {
                        "n_expert": 6, "top_k": 2, "d_ff": 8, "shared_d_ff": 16, "dense_blocks": [0], "n_group": 3,
                        "top_group": 2, "scoring": "sigmoid", "gate_scale": 1.5, "balancing": {"bias": {"rate": 0.0}},
                    },
                    "position": {"rope": {"theta": 100.0, "scaling": {"yarn": yarn}}},
                }),
            ),
        ),
        (
            "latent, dropout and post",
            latent(
                narrow,
                json!({"dropout": 0.3, "norm_placement": "post", "attention_softcap": 0.9}),
            ),
        ),
        (
            "latent, parallel",
            latent(
                wide,
                json!({
                    "parallel_residual": true, "attention_scale": 0.4, "moe": {"n_expert": 4, "top_k": 2, "n_group": 2, "top_group": 1},
                    "position": {"rope": {"nope_every": 2}}, "norm": {"rmsnorm": {"unit_offset": true}},
                }),
            ),
        ),
        (
            "latent, both, residual scale",
            latent(
                even,
                json!({"norm_placement": "both", "residual_scale": 0.22, "value_head": true}),
            ),
        ),
    ]
}

/// A model with a context of several chunks.
fn long(says: Value) -> Model {
    let mut config = with(says);
    config.seq_len = 3 * CHUNK;
    let mut model = Model::new(&config, VOCAB, &Device::Cpu).unwrap();
    model.init(7).unwrap();
    // Large weights, so that the choice of tokens is far from ties.
    let grow = |weights: &mut [f32]| weights.iter_mut().for_each(|w| *w *= 6.0);
    model.params_mut().write_weights(grow).unwrap();
    model
}

#[test]
fn texts_in_rows_have_the_same_bits_alone_and_beside_others() {
    for (name, says) in latents() {
        assert_same_beside_others(&mut long(says), name);
    }
}

#[test]
fn packed_documents_equal_documents_alone() {
    let texts = texts(18);
    let starts = [0_u32, 4, 5];
    let first: Vec<u32> = (0..18)
        .map(|at| *starts.iter().rfind(|start| **start <= at % 9).unwrap())
        .collect();
    for (name, says) in latents() {
        for backend in [Backend::Fused, Backend::Composite] {
            let mut model = model(&with(says.clone()), backend);
            let batch = TokenBatch {
                first: Some(&first),
                ..TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9)
            };
            let all = model.score(&batch).unwrap().logp.flatten_all().unwrap();
            let all: Vec<f32> = all.to_vec1().unwrap();
            for (from, to) in [(0, 4), (4, 5), (5, 9)] {
                let part = from..to;
                let (inputs, targets) = (&texts.inputs[part.clone()], &texts.targets[part.clone()]);
                let alone = TokenBatch::plain(inputs, targets, 1, to - from);
                let alone = model.score(&alone).unwrap().logp.flatten_all().unwrap();
                let alone = alone.to_dtype(candle_core::DType::F64).unwrap();
                compare(name, &all[part], &alone.to_vec1().unwrap(), 1e-3);
            }
        }
    }
}

/// The matrix that keys and values come from is never applied as a whole there, and neither is its adapter.
#[test]
fn incremental_forward_with_adapters_equals_a_full_forward() {
    for (name, says) in latents() {
        for dora in [false, true] {
            let mut model = model(&with(says.clone()), Backend::Fused);
            let adapter = AdapterConfig::Lora(Lora {
                rank: 3,
                targets: Targets::AttentionOnly,
                dora,
                ..Lora::default()
            });
            model.adapt(&adapter).unwrap();
            model.init_magnitudes().unwrap();
            let adapters = model.params().adapters().to_vec();
            let mut rng = Rng::new(4, Stream::Test, 0, 0);
            let fill = |w: &mut [f32]| {
                for info in &adapters {
                    let part = &mut w[info.offset..info.offset + info.len];
                    part.iter_mut().for_each(|x| *x += 0.3 * rng.normal());
                }
            };
            model.params_mut().write_weights(fill).unwrap();
            let ids = texts(9).inputs;
            let whole = model.logits(&ids, 1, 9).unwrap().squeeze(0).unwrap();
            let whole: Vec<Vec<f32>> = whole.to_vec2().unwrap();
            let (mut rows, pieces) = (Vec::new(), [0..6, 6..7, 7..9]);
            model
                .decode(|append_tokens| {
                    for piece in &pieces {
                        let mut logits = Vec::new();
                        append_tokens(&ids[piece.clone()], &mut logits)?;
                        rows.push(logits);
                    }
                    Ok(())
                })
                .unwrap();
            for (row, piece) in rows.iter().zip(&pieces) {
                let exact: Vec<f64> = whole[piece.end - 1].iter().map(|&x| f64::from(x)).collect();
                compare(&format!("{name}, dora {dora}"), row, &exact, 0.1);
            }
        }
    }
}

#[test]
fn a_text_keeps_the_latent_vector_and_the_shared_key_of_each_token() {
    let (_, says) = latents().remove(0);
    let model = long(says);
    // Three blocks, 10 + 4 numbers.
    assert_eq!(model.context_bytes(), 3 * CHUNK as u64 * 3 * 14 * 4);
}
