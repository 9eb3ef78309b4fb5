//! Generation with a KV cache against generation without one, alone and in batches.

use super::rows::tests::{Extras, generate_on};
use super::*;
use crate::nn::kv_cache::CHUNK;
use crate::nn::position::{PositionConfig, RopeConfig};
use crate::nn::{Backend, KvPrecision, ModelConfig};
use candle_core::Device;

pub(super) fn greedy(max_new_tokens: usize) -> Sampling {
    Sampling {
        temperature: 0.0,
        max_new_tokens,
        ..Default::default()
    }
}

fn positions() -> [PositionConfig; 6] {
    let some_rotate = RopeConfig {
        nope_every: Some(2),
        ..RopeConfig::default()
    };
    [
        PositionConfig::Rope(some_rotate),
        PositionConfig::Learned(Default::default()),
        PositionConfig::Rope(Default::default()),
        PositionConfig::Sinusoidal(Default::default()),
        PositionConfig::Alibi(Default::default()),
        PositionConfig::None(Default::default()),
    ]
}

fn model(position: &PositionConfig, n_kv_head: usize, backend: Backend) -> Model {
    let config = ModelConfig {
        n_layer: 2,
        n_head: 4,
        n_kv_head: Some(n_kv_head),
        d_model: 16,
        seq_len: 12,
        position: position.clone(),
        // Large weights, so that the choice of tokens is far from ties.
        init_std: 0.4,
        ..Default::default()
    };
    let mut model = Model::with_backend(&config, 29, &Device::Cpu, backend).unwrap();
    model.init(5).unwrap();
    model
}

pub(super) fn rolling(sampling: &Sampling) -> Continuing<'_> {
    Continuing {
        sampling,
        ends: &[],
        when_full: WhenFull::Roll,
    }
}

/// Every token recomputed from the whole window.
fn without_cache(model: &mut Model, prompt: &[u32], n: usize) -> Vec<u32> {
    let limit = model.shape().seq_len;
    let mut window = prompt[prompt.len().saturating_sub(limit)..].to_vec();
    let mut tokens = Vec::new();
    for _ in 0..n {
        let len = window.len();
        let logits = model.logits(&window, 1, len).unwrap();
        let row: Vec<Vec<f32>> = logits.squeeze(0).unwrap().to_vec2().unwrap();
        let last = &row[len - 1];
        let id = (0..last.len())
            .max_by(|&a, &b| last[a].total_cmp(&last[b]))
            .unwrap() as u32;
        tokens.push(id);
        window.push(id);
        if window.len() > limit {
            window.drain(..window.len() - limit.div_ceil(2));
        }
    }
    tokens
}

#[test]
fn greedy_with_cache_equals_greedy_without_even_beyond_the_context() {
    let positions = positions();
    for position in &positions {
        for n_kv_head in [4, 2, 1] {
            for backend in [Backend::Fused, Backend::Composite] {
                let mut model = model(position, n_kv_head, backend);
                let prompt = [3, 1, 4, 1, 5];
                let expected = without_cache(&mut model, &prompt, 30);
                let mut seen = Vec::new();
                let generated = generate(&mut model, &prompt, rolling(&greedy(30)), &mut |t| {
                    seen.push(t.id);
                    ControlFlow::Continue(())
                });
                let generated = generated.unwrap();
                assert_eq!(
                    generated.tokens, expected,
                    "{position:?} {n_kv_head} {backend:?}"
                );
                assert_eq!(generated.finish, Finish::Length);
                assert_eq!(seen, expected);
            }
        }
    }
}

pub(super) fn fused() -> Model {
    let position = PositionConfig::Learned(Default::default());
    model(&position, 4, Backend::Fused)
}

#[test]
fn a_prompt_longer_than_the_context_keeps_its_last_tokens() {
    let mut model = fused();
    let prompt: Vec<u32> = (0..40).map(|i| i % 29).collect();
    let mut run = |prompt: &[u32]| {
        let go = &mut |_| ControlFlow::Continue(());
        generate(&mut model, prompt, rolling(&greedy(5)), go).unwrap()
    };
    assert_eq!(run(&prompt), run(&prompt[28..]));
}

#[test]
fn the_end_token_and_the_callback_end_a_text() {
    let mut model = fused();
    let mut go = |_| ControlFlow::Continue(());
    let sampling = greedy(4);
    let how = rolling(&sampling);
    let all = generate(&mut model, &[1], how, &mut go).unwrap();
    let ends = [28, all.tokens[2]];
    let cut = all.tokens.iter().position(|id| ends.contains(id)).unwrap();
    let ending = Continuing { ends: &ends, ..how };
    let ended = generate(&mut model, &[1], ending, &mut go).unwrap();
    assert_eq!(ended.finish, Finish::Eos);
    assert_eq!(ended.tokens, all.tokens[..cut]);
    let mut stop = |_| ControlFlow::Break(());
    let stopped = generate(&mut model, &[1], how, &mut stop).unwrap();
    assert_eq!(stopped.finish, Finish::Stopped);
    assert_eq!(stopped.tokens, all.tokens[..1]);
    assert!(generate(&mut model, &[], how, &mut go).is_err());
}

#[test]
fn a_full_context_ends_a_text_that_does_not_roll() {
    let mut model = fused();
    let sampling = greedy(40);
    let how = Continuing {
        when_full: WhenFull::Stop,
        ..rolling(&sampling)
    };
    let mut go = |_| ControlFlow::Continue(());
    let full = generate(&mut model, &[3, 1, 4], how, &mut go).unwrap();
    // Twelve tokens are processed; the prediction after the last of them is the tenth new one.
    assert_eq!((full.finish, full.tokens.len()), (Finish::Context, 10));
    let rolled = generate(&mut model, &[3, 1, 4], rolling(&sampling), &mut go).unwrap();
    assert_eq!(rolled.tokens[..10], full.tokens);
    let long = generate(&mut model, &[1; 13], how, &mut go).unwrap_err();
    assert!(long.to_string().contains("context of 12 tokens"), "{long}");
}

/// Prompts of several lengths, some ending early, some beyond the context: each equals its result alone.
#[test]
fn batched_texts_equal_texts_generated_alone() {
    let positions = positions();
    let prompts: [&[u32]; 4] = [&[3, 1, 4, 1, 5, 9], &[2], &[6; 17], &[5, 3, 5]];
    for position in &positions {
        for backend in [Backend::Fused, Backend::Composite] {
            let mut model = model(position, 2, backend);
            for temperature in [0.0, 1.0] {
                let sampling = Sampling {
                    temperature,
                    ..greedy(25)
                };
                let how = Continuing {
                    ends: &[7, 8],
                    ..rolling(&sampling)
                };
                let number = |(i, tokens)| Prompt {
                    tokens,
                    number: 10 + i as u32,
                };
                let batch: Vec<Prompt> = prompts.into_iter().enumerate().map(number).collect();
                let mut steps = vec![Vec::new(); 4];
                let together = generate_batch(&mut model, &batch, how, &mut |i, t| {
                    steps[i].push(t.id);
                    ControlFlow::Continue(())
                });
                let together = together.unwrap();
                for (i, text) in together.iter().enumerate() {
                    let mut go = |_, _| ControlFlow::Continue(());
                    let alone = generate_batch(&mut model, &batch[i..=i], how, &mut go).unwrap();
                    // Log-probabilities of the last token may differ by rounding.
                    let said = |t: &Generated| (t.tokens.clone(), t.finish, t.end.map(|t| t.id));
                    assert_eq!(
                        said(text),
                        said(&alone[0]),
                        "{position:?} {backend:?} {temperature} {i}"
                    );
                    assert_eq!(steps[i], text.tokens);
                }
            }
        }
    }
}

/// More than one chunk, with pieces that end in different ones.
#[test]
fn long_prompts_are_prefilled_in_chunks() {
    use crate::nn::kv_cache::CHUNK;
    let config = ModelConfig {
        seq_len: 3 * CHUNK,
        n_layer: 1,
        n_head: 2,
        d_model: 8,
        position: PositionConfig::Rope(Default::default()),
        init_std: 0.4,
        ..Default::default()
    };
    let mut model = Model::new(&config, 29, &Device::Cpu).unwrap();
    model.init(5).unwrap();
    let text = |n: usize| (0..n as u32).map(|i| i * i % 29).collect::<Vec<u32>>();
    let lengths = [2 * CHUNK + 7, CHUNK, 5, CHUNK + 1];
    let texts = lengths.map(text);
    let extent = Extent {
        texts: 4,
        tokens: config.seq_len,
    };
    let mut read = Vec::new();
    let done = model
        .decode_batch(extent, |decoding| {
            let pieces: Vec<(usize, &[u32])> =
                texts.iter().map(|t| t.as_slice()).enumerate().collect();
            let mut go_on = |_, _| ControlFlow::Continue(());
            decoding.read_batch(&pieces, &mut read, &mut go_on)
        })
        .unwrap();
    assert!(done.is_continue());
    for (text, read) in texts.iter().zip(read.chunks_exact(29)) {
        let all = model.logits(text, 1, text.len()).unwrap();
        let rows: Vec<Vec<f32>> = all.squeeze(0).unwrap().to_vec2().unwrap();
        for (a, b) in read.iter().zip(&rows[text.len() - 1]) {
            assert!((a - b).abs() < 1e-4, "{} tokens: {a} {b}", text.len());
        }
    }
}

#[test]
fn draws_depend_only_on_the_seed() {
    let mut model = fused();
    let mut run = |seed| {
        let sampling = Sampling {
            temperature: 1.0,
            seed,
            max_new_tokens: 20,
            ..Default::default()
        };
        let go = &mut |_| ControlFlow::Continue(());
        generate(&mut model, &[1, 2], rolling(&sampling), go)
            .unwrap()
            .tokens
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn log_probabilities_and_entropies_are_those_of_score() {
    let mut model = fused();
    let mut logprobs = Vec::new();
    let generated = generate(&mut model, &[7, 8], rolling(&greedy(6)), &mut |t| {
        logprobs.push((t.logprob, t.entropy));
        ControlFlow::Continue(())
    });
    let tokens = generated.unwrap().tokens;
    let text: Vec<u32> = [7, 8].into_iter().chain(tokens).collect();
    let batch = crate::nn::TokenBatch {
        inputs: &text[..7],
        targets: &text[1..],
        batch_size: 1,
        seq_len: 7,
        first: None,
        temperature: 1.0,
        filled: None,
    };
    let scored = model.score(&batch).unwrap();
    let logp = scored.logp.to_vec2::<f32>().unwrap();
    let entropy = scored.entropy.to_vec2::<f32>().unwrap();
    let expected = logp[0][1..].iter().zip(&entropy[0][1..]);
    for ((a, h), (b, g)) in logprobs.iter().zip(expected) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
        assert!((h - g).abs() < 1e-4, "{h} {g}");
    }
}

/// Layers with a window drop old tokens only when needed: far beyond the window, with long and short texts together.
#[test]
fn windows_that_dropped_tokens_equal_windows_that_kept_them() {
    use crate::nn::kv_cache::CHUNK;
    let config = ModelConfig {
        n_layer: 2,
        n_head: 2,
        n_kv_head: Some(1),
        d_model: 8,
        seq_len: CHUNK + 120,
        position: PositionConfig::Rope(Default::default()),
        sliding_window: Some(6),
        global_every: Some(2),
        init_std: 0.4,
        ..Default::default()
    };
    let mut model = Model::new(&config, 29, &Device::Cpu).unwrap();
    model.init(5).unwrap();
    let long: Vec<u32> = (0..CHUNK as u32 + 90).map(|i| i * i % 29).collect();
    let prompts: [&[u32]; 2] = [&long, &[3, 1, 4]];
    let sampling = greedy(15);
    let number = |(i, tokens)| Prompt {
        tokens,
        number: i as u32,
    };
    let batch: Vec<Prompt> = prompts.into_iter().enumerate().map(number).collect();
    let mut go = |_, _| ControlFlow::Continue(());
    let together = generate_batch(&mut model, &batch, rolling(&sampling), &mut go).unwrap();
    for (text, prompt) in together.iter().zip(prompts) {
        assert_eq!(text.tokens, without_cache(&mut model, prompt, 15));
    }
}

/// A model with a window in every other layer and none in the rest, whose context is longer than two chunks.
pub(super) fn windowed() -> Model {
    let config = ModelConfig {
        n_layer: 2,
        n_head: 2,
        n_kv_head: Some(1),
        d_model: 16,
        seq_len: 3 * CHUNK,
        position: PositionConfig::Rope(Default::default()),
        sliding_window: Some(20),
        global_every: Some(2),
        init_std: 0.4,
        ..Default::default()
    };
    let mut model = Model::new(&config, 29, &Device::Cpu).unwrap();
    model.init(7).unwrap();
    model
}

#[test]
fn a_text_with_a_reused_prefix_equals_one_computed_afresh() {
    use KvPrecision::{Bf16, F32};
    for (mut model, precision) in [
        (windowed(), F32),
        (fused(), F32),
        (windowed(), Bf16),
        (fused(), Bf16),
    ] {
        model.set_kv_cache(precision).unwrap();
        // A last-bit difference of f32 may become one of bf16.
        let allowed = if precision == F32 { 1e-4 } else { 1e-2 };
        let limit = model.shape().seq_len;
        let mut rng = crate::base::rng::Rng::new(5, crate::base::rng::Stream::Test, 0, 0);
        let (mut kept, mut text) = (Rows::new(1), Vec::<u32>::new());
        let mut reused = 0;
        for turn in 0..60 {
            // Sometimes an earlier token is changed, near the end or far from it; mostly the text is extended.
            if turn % 3 == 2 {
                text.truncate(rng.below(text.len() as u64) as usize);
            }
            let more = 1 + rng.below(limit as u64 / 4) as usize;
            text.extend((0..more).map(|_| rng.below(29) as u32));
            if text.len() > limit - 2 {
                text.truncate(limit / 3);
            }
            let sampling = greedy(1 + rng.below(4) as usize);
            let how = Continuing {
                when_full: WhenFull::Stop,
                ..rolling(&sampling)
            };
            let mut steps = Vec::new();
            let on = generate_on(
                &mut model,
                &mut kept,
                &text,
                how,
                Extras::default(),
                &mut |step| {
                    match step {
                        Step::Read { kept, .. } => reused = kept,
                        Step::Token(token, _) => steps.push(token),
                        Step::Scored(_) => {}
                    }
                    ControlFlow::Continue(())
                },
            );
            assert!(reused < text.len());
            let mut alone = Vec::new();
            let fresh = generate(&mut model, &text, how, &mut |token| {
                alone.push(token);
                ControlFlow::Continue(())
            });
            let (on, fresh) = (on.unwrap(), fresh.unwrap());
            assert_eq!(on, fresh, "turn {turn}, {reused} of {} kept", text.len());
            for (a, b) in steps.iter().zip(&alone) {
                assert!((a.logprob - b.logprob).abs() < allowed, "{a:?} {b:?}");
            }
            text.extend(on.tokens);
        }
    }
}

#[test]
fn a_kept_cache_is_reused_as_far_as_windows_reach_back_and_rolling_forgets() {
    let mut model = windowed();
    let limit = model.shape().seq_len;
    let sampling = greedy(2);
    let how = rolling(&sampling);
    let mut kept = Rows::new(1);
    let mut read = |text: &[u32]| {
        let mut reused = 0;
        let generated = generate_on(
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
        generated.unwrap();
        reused
    };
    let text: Vec<u32> = (0..1300).map(|i| i * 7 % 29).collect();
    assert_eq!(read(&text), 0);
    assert_eq!(read(&text), 1299);
    assert_eq!(read(&text[..1290]), 1289);
    // The window has dropped visible tokens: it is prefilled again.
    assert_eq!(read(&text[..600]), 0);
    assert_eq!(read(&text[..590]), 589);
    assert_eq!(read(&[&text[..100], &[1, 2, 3]].concat()), 0);
    assert_eq!(read(&[&text[..100], &[1, 9, 3]].concat()), 101);
    // A text that rolled has a different cache.
    let full: Vec<u32> = (0..limit as u32).map(|i| i % 29).collect();
    read(&full);
    assert_eq!(read(&full), 0);
}

#[test]
fn prefill_of_a_long_prompt_can_be_cancelled_between_chunks() {
    let mut model = windowed();
    let text: Vec<u32> = (0..1300).map(|i| i * 7 % 29).collect();
    let sampling = greedy(3);
    let mut kept = Rows::new(1);
    let mut steps = Vec::new();
    let how = rolling(&sampling);
    let generated = generate_on(
        &mut model,
        &mut kept,
        &text,
        how,
        Extras::default(),
        &mut |step| {
            if let Step::Read { tokens, kept } = step {
                steps.push((tokens, kept));
            }
            match steps.len() {
                2 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        },
    );
    let generated = generated.unwrap();
    assert_eq!(
        (generated.tokens.len(), generated.finish),
        (0, Finish::Stopped)
    );
    assert_eq!(steps, [(0, 0), (CHUNK, 0)]);
    // The prefilled tokens are kept.
    let mut reused = 0;
    let again = generate_on(
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
    let mut go = |_| ControlFlow::Continue(());
    let fresh = generate(&mut model, &text, how, &mut go).unwrap();
    assert_eq!((again.unwrap(), reused), (fresh, CHUNK));
}

#[test]
fn texts_that_share_a_prompt_prefill_it_once_and_equal_texts_alone() {
    for backend in [Backend::Fused, Backend::Composite] {
        let mut model = model(&PositionConfig::Rope(Default::default()), 2, backend);
        let sampling = Sampling {
            temperature: 1.0,
            max_new_tokens: 6,
            ..Default::default()
        };
        let how = Continuing {
            ends: &[7, 8],
            ..rolling(&sampling)
        };
        let tokens = [
            &[3, 1, 4][..],
            &[3, 1, 4],
            &[3, 1, 4],
            &[1, 5],
            &[1, 5],
            &[9, 2, 6, 5],
        ];
        let numbered = tokens.into_iter().zip(0..);
        let prompts: Vec<Prompt> = numbered
            .map(|(tokens, number)| Prompt { tokens, number })
            .collect();
        let mut go = |_, _| ControlFlow::Continue(());
        let together = generate_batch(&mut model, &prompts, how, &mut go).unwrap();
        for (prompt, text) in prompts.iter().zip(&together) {
            let alone = generate_batch(&mut model, &[*prompt], how, &mut go).unwrap();
            let said = |t: &Generated| (t.tokens.clone(), t.finish, t.end.map(|t| t.id));
            assert_eq!(said(text), said(&alone[0]), "{backend:?} {}", prompt.number);
        }
        assert_ne!(together[0].tokens, together[1].tokens);
    }
}
