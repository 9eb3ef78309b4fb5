//! Models whose blocks do not all have attention. What holds for every option is tested with the others, in `option_tests`; here
//! is what states add.

use super::option_tests::{VOCAB, compare, model, texts, with};
use super::*;
use crate::base::sampling::Sampling;
use crate::nn::generate::rows_tests::{Extras, assert_same_beside_others, generate_on};
use crate::nn::generate::{Continuing, Rows, Step, WhenFull, generate};
use crate::nn::oracle;
use serde_json::{Value, json};
use std::ops::ControlFlow;

/// The settings of each mixer on top of the base, by name.
pub(super) fn hybrids() -> Vec<(&'static str, Value)> {
    let conv = |settings: Value| json!({"short_conv": settings});
    let net = |settings: Value| json!({"gated_delta_net": settings});
    let mamba = |settings: Value| json!({"mamba2": settings});
    vec![
        (
            "short conv",
            json!({"mixer": conv(json!({})), "attention_every": 2}),
        ),
        (
            "short conv alone",
            json!({"mixer": conv(json!({"conv_len": 4, "bias": true})), "position": {"none": {}}}),
        ),
        (
            "short conv, all between",
            json!({
                "mixer": conv(json!({"conv_len": 1})), "attention_blocks": [0], "norm_placement": "both",
                "dropout": 0.3, "sliding_window": 4, "moe": {"n_expert": 3},
            }),
        ),
        (
            "short conv, parallel",
            json!({
                "mixer": conv(json!({"conv_len": 12})), "attention_blocks": [1], "parallel_residual": true,
                "norm": {"layernorm": {}}, "bias": true, "position": {"learned": {}},
            }),
        ),
        (
            "gated delta net",
            json!({"mixer": net(json!({})), "attention_every": 2}),
        ),
        (
            "gated delta net alone",
            json!({
                "mixer": net(json!({"n_key_head": 1, "n_value_head": 3, "key_dim": 5, "value_dim": 7, "conv_len": 1})),
                "position": {"none": {}}, "norm": {"rmsnorm": {"unit_offset": true}}, "norm_placement": "post",
            }),
        ),
        (
            "gated delta net, all between",
            json!({
                "mixer": net(json!({"n_key_head": 2, "key_dim": 4, "value_dim": 3})), "attention_blocks": [0],
                "dropout": 0.3, "attention_gate": true, "moe": {"n_expert": 3},
                // Small outputs of heads are not enlarged, and neither are errors of f32.
                "norm": {"rmsnorm": {"eps": 0.01}},
            }),
        ),
        (
            "mamba 2",
            json!({"mixer": mamba(json!({})), "attention_every": 2}),
        ),
        (
            "mamba 2 alone",
            json!({
                "mixer": mamba(json!({"n_head": 6, "head_dim": 5, "state_dim": 7, "n_group": 3, "conv_len": 1, "bias": true, "dt_min": 0.01, "dt_max": 0.05})),
                "position": {"none": {}}, "norm": {"rmsnorm": {"unit_offset": true}}, "norm_placement": "post",
            }),
        ),
        (
            "mamba 2, all between",
            json!({
                "mixer": mamba(json!({"n_head": 4, "head_dim": 3, "state_dim": 4, "conv_bias": false})), "attention_blocks": [0],
                "dropout": 0.3, "moe": {"n_expert": 3, "shared_d_ff": 16}, "residual_scale": 0.3, "norm": {"rmsnorm": {"eps": 0.01}},
            }),
        ),
        (
            "attention gate",
            json!({"attention_gate": true, "qk_norm": true, "attention_bias": "qkv", "head_dim": 10}),
        ),
        (
            "attention gate beside short conv",
            json!({"attention_gate": true, "mixer": conv(json!({})), "attention_blocks": [1, 2]}),
        ),
    ]
}

fn mixed() -> Vec<(&'static str, ModelConfig)> {
    let all = hybrids().into_iter().map(|(name, says)| (name, with(says)));
    all.filter(|(_, config)| config.mixer.is_some()).collect()
}

/// Documents of a packed row do not read one another: log-probabilities are those of each alone, and gradients those of the oracle.
#[test]
fn packed_documents_equal_documents_alone() {
    let texts = texts(18);
    let starts = [0_u32, 4, 5];
    let first: Vec<u32> = (0..18)
        .map(|at| *starts.iter().rfind(|start| **start <= at % 9).unwrap())
        .collect();
    for (name, config) in mixed() {
        let config = ModelConfig {
            dropout: 0.0,
            ..config
        };
        for backend in [Backend::Fused, Backend::Composite] {
            let mut model = model(&config, backend);
            let batch = TokenBatch {
                first: Some(&first),
                ..TokenBatch::plain(&texts.inputs, &texts.targets, 2, 9)
            };
            let exact = oracle::exact(&model, &batch, &texts.dlogp, &texts.dentropy).unwrap();
            let outputs = model.forward(&batch).unwrap();
            let logp: Vec<f32> = outputs.logp.flatten_all().unwrap().to_vec1().unwrap();
            compare(name, &logp, &exact.logp, 1e-3);
            let [dlogp, dentropy] =
                [&texts.dlogp, &texts.dentropy].map(|x| super::option_tests::upstream(x));
            model.backward(&dlogp, Some(&dentropy)).unwrap();
            let grads = model.params().read_grads(<[f32]>::to_vec).unwrap();
            let largest = exact.grads.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
            compare(name, &grads, &exact.grads, 0.3 * largest);
            for row in [0, 9] {
                for (from, to) in [(0, 4), (4, 5), (5, 9)] {
                    let part = row + from..row + to;
                    let (inputs, targets) =
                        (&texts.inputs[part.clone()], &texts.targets[part.clone()]);
                    let alone = TokenBatch::plain(inputs, targets, 1, to - from);
                    let alone = model.score(&alone).unwrap().logp.flatten_all().unwrap();
                    let alone: Vec<f64> = alone
                        .to_dtype(candle_core::DType::F64)
                        .unwrap()
                        .to_vec1()
                        .unwrap();
                    compare(&format!("{name} alone"), &logp[part], &alone, 1e-3);
                }
            }
        }
    }
}

/// A model with a context of several chunks.
fn long(says: Value) -> Model {
    let mut config = with(says);
    config.seq_len = 3 * crate::nn::kv_cache::CHUNK;
    let mut model = Model::new(&config, VOCAB, &Device::Cpu).unwrap();
    model.init(7).unwrap();
    // Large weights, so that the choice of tokens is far from ties.
    let grow = |weights: &mut [f32]| weights.iter_mut().for_each(|w| *w *= 6.0);
    model.params_mut().write_weights(grow).unwrap();
    model
}

fn greedy(max_new_tokens: usize) -> Sampling {
    Sampling {
        temperature: 0.0,
        max_new_tokens,
        ..Default::default()
    }
}

/// A conversation: every text goes on from the prompt before, after an answer that is as it was written or another one.
#[test]
fn a_conversation_reuses_the_prompt_before_and_equals_one_computed_afresh() {
    for (name, says) in hybrids() {
        let mut model = long(says);
        let mut rng = Rng::new(5, Stream::Test, 0, 0);
        let mut kept = Rows::new(1);
        let mut ids =
            |n: usize| -> Vec<u32> { (0..n).map(|_| rng.below(VOCAB as u64) as u32).collect() };
        let mut text = ids(600);
        let mut prompt = 0;
        for turn in 0..6 {
            let sampling = greedy(5);
            let how = Continuing {
                sampling: &sampling,
                ends: &[],
                when_full: WhenFull::Stop,
            };
            let mut reused = 0;
            let on = generate_on(
                &mut model,
                &mut kept,
                &text,
                how,
                Extras::default(),
                &mut |step| {
                    if let Step::Read { kept, .. } = step {
                        reused = kept;
                    }
                    ControlFlow::Continue(())
                },
            );
            let on = on.unwrap();
            let fresh = generate(&mut model, &text, how, &mut |_| ControlFlow::Continue(()));
            assert_eq!(on, fresh.unwrap(), "{name}, turn {turn}");
            // Where the answer is another one, what is known of the prompt is reused but for its last token, or what attention keeps.
            match turn {
                0 => assert_eq!(reused, 0),
                // The last new token was sampled and never computed.
                1 => assert_eq!(reused, prompt + 4, "{name}"),
                _ if model.config().mixer.is_some() => assert_eq!(reused, prompt - 1, "{name}"),
                _ => assert!(reused >= prompt - 1, "{name}"),
            }
            prompt = text.len();
            match turn {
                0 => text.extend(&on.tokens),
                // Asked again.
                1 => continue,
                _ => text.extend(on.tokens[..2].iter().map(|id| (id + 1) % VOCAB as u32)),
            }
            text.extend(ids(20));
        }
    }
}

#[test]
fn texts_in_rows_have_the_same_bits_alone_and_beside_others() {
    for (name, says) in hybrids() {
        assert_same_beside_others(&mut long(says), name);
    }
}

/// Before the first snapshot there is no state to go back to.
#[test]
fn a_text_that_differs_within_the_prompt_is_computed_afresh() {
    let mut model = long(json!({"mixer": {"short_conv": {}}, "attention_every": 2}));
    let (mut kept, sampling) = (Rows::new(1), greedy(2));
    let how = Continuing {
        sampling: &sampling,
        ends: &[],
        when_full: WhenFull::Stop,
    };
    let mut read = |text: &[u32]| {
        let mut reused = 0;
        let text = generate_on(
            &mut model,
            &mut kept,
            text,
            how,
            Extras::default(),
            &mut |step| {
                if let Step::Read { kept, .. } = step {
                    reused = kept;
                }
                ControlFlow::Continue(())
            },
        );
        (reused, text.unwrap().tokens)
    };
    let text: Vec<u32> = (0..40).map(|i| i * 7 % 13).collect();
    let (reused, tokens) = read(&text);
    assert_eq!(reused, 0);
    // The state is that of 39 tokens, of which this text would reuse 38.
    assert_eq!(read(&text[..39]).0, 0);
    let (reused, again) = read(&text);
    assert!(reused >= 38);
    assert_eq!(again, tokens);
    assert_eq!(read(&text[..20]).0, 0);
    assert_eq!(read(&text).1, tokens);
}

/// A template's marks behind the last message, which the next turn does not repeat, or a question in other words: the states shortly
/// before the prompt's end are there, and those of the prompt before.
#[test]
fn a_prompt_with_another_end_reuses_all_but_its_last_tokens() {
    let says = || json!({"mixer": {"gated_delta_net": {}}, "attention_every": 2});
    let (mut model, mut other) = (long(says()), long(says()));
    let (mut kept, sampling) = (Rows::new(1), greedy(4));
    let how = Continuing {
        sampling: &sampling,
        ends: &[],
        when_full: WhenFull::Stop,
    };
    let text: Vec<u32> = (0..300).map(|i| i * i % 11).collect();
    let changed = |from: &[u32], shared: usize, len: usize| -> Vec<u32> {
        let new = (shared..len).map(|at| (from.get(at).copied().unwrap_or(0) + 1) % 11);
        from[..shared].iter().copied().chain(new).collect()
    };
    let marks = changed(&text, 290, 400);
    let question = changed(&marks, 340, 420);
    let long_question = changed(&question, 345, 500);
    let all_new = changed(&long_question, 200, 500);
    let turns = [
        (&text, 0),
        (&marks, 299 - 64),
        (&question, 399 - 64),
        // Those of the prompt before, the oldest of three.
        (&long_question, 399 - 64),
        (&all_new, 0),
    ];
    for (text, expected) in turns {
        let mut reused = None;
        let on = generate_on(
            &mut model,
            &mut kept,
            text,
            how,
            Extras::default(),
            &mut |step| {
                if let Step::Read { kept, .. } = step {
                    reused = Some(kept);
                }
                ControlFlow::Continue(())
            },
        );
        let on = on.unwrap();
        let fresh = generate(&mut other, text, how, &mut |_| ControlFlow::Continue(()));
        assert_eq!(on.tokens, fresh.unwrap().tokens);
        assert_eq!(reused, Some(expected), "{} tokens", text.len());
    }
}

/// Several texts in a batch, of which some share a prompt, equal texts alone.
#[test]
fn batched_texts_equal_texts_alone() {
    use crate::nn::generate::{Prompt, generate_batch};
    for (name, says) in hybrids() {
        let mut model = long(says);
        let prompts: [&[u32]; 5] = [&[1, 2, 3], &[1, 2, 3], &[4], &[5, 6, 7, 8, 9, 10], &[4]];
        let sampling = greedy(6);
        let how = Continuing {
            sampling: &sampling,
            ends: &[],
            when_full: WhenFull::Stop,
        };
        let numbered = prompts.iter().enumerate().map(|(i, tokens)| Prompt {
            tokens,
            number: i as u32,
        });
        let numbered: Vec<Prompt> = numbered.collect();
        let mut go = |_, _| ControlFlow::Continue(());
        let together = generate_batch(&mut model, &numbered, how, &mut go).unwrap();
        for (together, prompt) in together.iter().zip(prompts) {
            let alone = generate(&mut model, prompt, how, &mut |_| ControlFlow::Continue(()));
            assert_eq!(*together, alone.unwrap(), "{name} {prompt:?}");
        }
    }
}

#[test]
fn a_model_without_attention_has_no_parameters_of_it_and_names_those_of_transformers() {
    let config = with(json!({"mixer": {"short_conv": {"bias": true}}, "n_layer": 1}));
    let names: Vec<String> = Model::parameters(&config, VOCAB)
        .unwrap()
        .into_iter()
        .filter_map(|info| {
            info.name
                .strip_prefix("model.layers.0.conv.")
                .map(String::from)
        })
        .collect();
    assert_eq!(
        names,
        [
            "in_proj.weight",
            "in_proj.bias",
            "conv.weight",
            "conv.bias",
            "out_proj.weight",
            "out_proj.bias"
        ]
    );
    let config = with(
        json!({"mixer": {"gated_delta_net": {}}, "attention_every": 3, "attention_gate": true}),
    );
    let infos = crate::nn::param_infos(&config, VOCAB);
    let shapes = |layer: &str| -> Vec<(String, Vec<usize>)> {
        let of = infos
            .iter()
            .filter_map(|info| Some((info.name.strip_prefix(layer)?.into(), info.shape.clone())));
        of.collect()
    };
    assert_eq!(
        shapes("model.layers.1.linear_attn."),
        [
            ("in_proj_qkv.weight".into(), vec![384, 24]),
            ("in_proj_z.weight".into(), vec![128, 24]),
            ("in_proj_b.weight".into(), vec![4, 24]),
            ("in_proj_a.weight".into(), vec![4, 24]),
            ("conv1d.weight".into(), vec![384, 4]),
            ("dt_bias".into(), vec![4]),
            ("A_log".into(), vec![4]),
            ("norm.weight".into(), vec![32]),
            ("out_proj.weight".into(), vec![24, 128]),
        ]
    );
    let mamba = with(json!({"mixer": {"mamba2": {"bias": true}}, "attention_every": 3}));
    let of_mamba: Vec<(String, Vec<usize>)> = crate::nn::param_infos(&mamba, VOCAB)
        .into_iter()
        .filter_map(|info| {
            let name = info.name.strip_prefix("model.layers.1.mamba.")?;
            Some((name.to_string(), info.shape))
        })
        .collect();
    let expected: [(&str, &[usize]); 10] = [
        ("in_proj.weight", &[648, 24]),
        ("in_proj.bias", &[648]),
        ("conv1d.weight", &[384, 4]),
        ("conv1d.bias", &[384]),
        ("dt_bias", &[8]),
        ("A_log", &[8]),
        ("D", &[8]),
        ("norm.weight", &[256]),
        ("out_proj.weight", &[24, 256]),
        ("out_proj.bias", &[24]),
    ];
    assert_eq!(
        of_mamba,
        expected.map(|(name, shape)| (name.to_string(), shape.to_vec()))
    );
    let gate = ("q_gate_proj.weight".to_string(), vec![24, 24]);
    assert!(shapes("model.layers.2.self_attn.").contains(&gate));
    assert!(shapes("model.layers.2.linear_attn.").is_empty());
}
