//! Scores of prompts against full forward passes, alternatives, and texts of a form.

use super::rows::tests::{Extras, generate_on, score_prompt};
use super::tests::{fused, greedy, rolling, windowed};
use super::*;
use crate::nn::{Backend, ModelConfig};
use candle_core::Device;

/// (log-probability of each token but the first, the two most likely tokens at its place)
fn by_logits(model: &mut Model, text: &[u32]) -> Vec<(f32, Vec<u32>)> {
    let vocab_size = model.shape().vocab_size;
    let logits = model.logits(text, 1, text.len()).unwrap();
    let logits = logits.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let rows = logits.chunks(vocab_size).zip(&text[1..]);
    rows.map(|(row, target)| {
        let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        let mut order: Vec<u32> = (0..vocab_size as u32).collect();
        order.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]));
        let logp = f64::from(row[*target as usize]) - sum.ln();
        (logp as f32, order[..2].to_vec())
    })
    .collect()
}

#[test]
fn a_prompts_scores_are_those_of_a_full_forward_and_are_prefilled_once() {
    let composite = ModelConfig {
        n_layer: 1,
        n_head: 2,
        d_model: 16,
        seq_len: 600,
        init_std: 0.4,
        ..ModelConfig::default()
    };
    let mut composite =
        Model::with_backend(&composite, 29, &Device::Cpu, Backend::Composite).unwrap();
    composite.init(5).unwrap();
    for (mut model, len, is_cached) in [(windowed(), 1100_u32, true), (composite, 530, false)] {
        let text: Vec<u32> = (0..len).map(|i| i * 7 % 29).collect();
        let mut kept = Rows::new(1);
        for _ in 0..2 {
            let mut tokens = Vec::new();
            let flow = score_prompt(&mut model, &mut kept, &text, 2, &mut |more| {
                tokens.extend(more);
                ControlFlow::Continue(())
            });
            assert!(flow.unwrap().is_continue());
            let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
            assert_eq!(ids, text);
            assert_eq!((tokens[0].logprob, tokens[0].top.len()), (None, 0));
            for (token, (logp, best)) in tokens[1..].iter().zip(by_logits(&mut model, &text)) {
                let found = token.logprob.unwrap();
                assert!((found - logp).abs() < 1e-3, "{found} {logp}");
                assert_eq!(token.top.iter().map(|t| t.id).collect::<Vec<_>>(), best);
                let same = token.top.iter().find(|top| top.id == token.id);
                assert!(same.is_none_or(|top| top.logprob == found), "exactly");
            }
        }
        let sampling = greedy(1);
        let mut reused = 0;
        let extras = Extras::default();
        let mut on_step = |step: Step| {
            if let Step::Read { kept, .. } = step {
                reused = kept;
            }
            ControlFlow::Continue(())
        };
        let generated = generate_on(
            &mut model,
            &mut kept,
            &text,
            rolling(&sampling),
            extras,
            &mut on_step,
        );
        let alone = generate(&mut model, &text, rolling(&sampling), &mut |_| {
            ControlFlow::Continue(())
        });
        assert_eq!(generated.unwrap().tokens, alone.unwrap().tokens);
        assert_eq!(reused, if is_cached { len as usize - 1 } else { 0 });
    }
}

#[test]
fn scoring_a_prompt_has_limits_and_can_be_cancelled() {
    let mut model = windowed();
    let mut kept = Rows::new(1);
    let mut score = |text: &[u32], most: usize| {
        let mut pieces = 0;
        let flow = score_prompt(&mut model, &mut kept, text, 0, &mut |_| {
            pieces += 1;
            match pieces < most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        flow.map(|flow| (flow.is_break(), pieces))
            .map_err(|e| e.to_string())
    };
    let long = vec![3; 5000];
    assert!(
        score(&long, 9)
            .unwrap_err()
            .contains("more than the context")
    );
    assert!(score(&[], 9).unwrap_err().contains("empty"));
    assert!(score(&[99], 9).is_err());
    assert_eq!(score(&[3], 9), Ok((false, 1)));
    assert_eq!(score(&long[..1200], 2), Ok((true, 2)));
    assert_eq!(score(&long[..1200], 9), Ok((false, 3)));
}

/// Takes the tokens in `order` alone, each once.
struct Only {
    order: Vec<u32>,
    at: usize,
}

impl Constraint for Only {
    fn mask(&mut self, logits: &mut [f32]) -> std::result::Result<(), String> {
        let next = self.order.get(self.at).ok_or("it is over")?;
        for (id, logit) in (0..).zip(logits) {
            if id != *next {
                *logit = FORBIDDEN;
            }
        }
        Ok(())
    }

    fn accept(&mut self, id: u32) -> std::result::Result<(), String> {
        self.at += 1;
        (self.order[self.at - 1] == id)
            .then_some(())
            .ok_or_else(|| format!("{id}"))
    }
}

#[test]
fn a_form_decides_whatever_the_settings_and_log_probabilities_stay_the_models_own() {
    let mut model = fused();
    let prompt = [1, 2, 3];
    let order = vec![7, 20, 4, 11];
    let settings = [
        greedy(4),
        Sampling {
            temperature: 1.0,
            ..greedy(4)
        },
        Sampling {
            temperature: 0.7,
            top_k: 3,
            top_p: 0.5,
            min_p: 0.3,
            repetition_penalty: 1.5,
            ..greedy(4)
        },
    ];
    for sampling in settings {
        let only = Only {
            order: order.clone(),
            at: 0,
        };
        let mut found = Vec::new();
        let extras = Extras {
            top: 3,
            constraint: Some(Box::new(only)),
        };
        let mut on_step = |step: Step| {
            if let Step::Token(token, top) = step {
                assert_eq!(top.len(), 3);
                assert!(top.is_sorted_by(|a, b| a.logprob >= b.logprob));
                assert!(top[0].logprob >= token.logprob, "of all tokens");
                found.push(token.logprob);
            }
            ControlFlow::Continue(())
        };
        let how = Continuing {
            ends: &[11],
            ..rolling(&sampling)
        };
        let mut kept = Rows::new(1);
        let generated =
            generate_on(&mut model, &mut kept, &prompt, how, extras, &mut on_step).unwrap();
        assert_eq!(
            (generated.tokens, generated.finish),
            (vec![7, 20, 4], Finish::Eos)
        );
        let text = [&prompt[..], &[7, 20, 4]].concat();
        let own = by_logits(&mut model, &text);
        for (found, (own, _)) in found.iter().zip(&own[2..]) {
            assert!((found - own).abs() < 1e-4, "{found} {own}");
        }
    }
    // Its error is the generation's.
    let none = Only {
        order: Vec::new(),
        at: 0,
    };
    let extras = Extras {
        top: 0,
        constraint: Some(Box::new(none)),
    };
    let sampling = greedy(4);
    let mut kept = Rows::new(1);
    let failed = generate_on(
        &mut model,
        &mut kept,
        &prompt,
        rolling(&sampling),
        extras,
        &mut |_| ControlFlow::Continue(()),
    );
    assert!(failed.unwrap_err().to_string().contains("it is over"));
}

#[test]
fn the_likeliest_tokens_are_sorted_and_ties_are_in_the_order_of_ids() {
    use crate::nn::sampler::most_likely;
    let logits = [0.0, 2.0, 1.0, 2.0, -1.0];
    let of = crate::kernels::distribution::softmax(&logits, &mut Vec::new());
    let ids = |n| {
        most_likely(&logits, &of, n)
            .iter()
            .map(|t| t.id)
            .collect::<Vec<_>>()
    };
    assert!(ids(0).is_empty());
    assert_eq!(ids(3), [1, 3, 2]);
    assert_eq!(ids(9), [1, 3, 2, 0, 4]);
    let total: f32 = most_likely(&logits, &of, 9)
        .iter()
        .map(|t| t.logprob.exp())
        .sum();
    assert!((total - 1.0).abs() < 1e-5);
}
