//! Continues a prompt token by token, with keys and values of earlier tokens kept.
//!
//! At the context limit (`seq_len`) the window rolls: the newer half of the text is read again from its first position, and
//! generation goes on from there.

use super::Model;
use super::kv_cache::Decoding;
use super::sampler::Sampler;
use crate::base::sampling::Sampling;
use candle_core::{Result, bail};
use std::ops::ControlFlow;

/// One new token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GeneratedToken {
    pub id: u32,
    /// Log-probability in nats under the model's whole distribution, before penalties, temperature and truncation.
    pub logprob: f32,
}

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The end-of-sequence token came; it is not among the tokens.
    Eos,
    /// `max_new_tokens` are there.
    Length,
    /// The callback said so.
    Stopped,
}

/// What came of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// New tokens, without the prompt and without `eos`.
    pub tokens: Vec<u32>,
    pub finish: Finish,
}

/// Continues `prompt` by at most `sampling.max_new_tokens`. `on_token` sees each token as it comes and may break off.
/// `sampling.stop` is about text and is the caller's to watch.
pub fn generate(
    model: &mut Model,
    prompt: &[u32],
    sampling: &Sampling,
    eos: Option<u32>,
    on_token: &mut dyn FnMut(GeneratedToken) -> ControlFlow<()>,
) -> Result<Generated> {
    if prompt.is_empty() {
        bail!("generate: the prompt is empty; give at least one token")
    }
    model.check_ids("prompt", prompt)?;
    let limit = model.shape().seq_len;
    let mut sampler = Sampler::new(sampling, model.shape().vocab_size, prompt);
    model.decode(|decoding| {
        let mut window = Window::new(prompt, limit);
        let (mut tokens, mut logits) = (Vec::new(), Vec::new());
        for index in 0..sampling.max_new_tokens {
            window.read(decoding, &mut logits)?;
            let (id, logprob) = sampler.next(&logits, index as u64)?;
            if Some(id) == eos {
                let finish = Finish::Eos;
                return Ok(Generated { tokens, finish });
            }
            tokens.push(id);
            if on_token(GeneratedToken { id, logprob }).is_break() {
                let finish = Finish::Stopped;
                return Ok(Generated { tokens, finish });
            }
            window.push(id, decoding);
        }
        let finish = Finish::Length;
        Ok(Generated { tokens, finish })
    })
}

/// The part of the text that the model sees.
struct Window {
    tokens: Vec<u32>,
    /// How many of them are read.
    read: usize,
    limit: usize,
}

impl Window {
    /// The last `limit` tokens of the prompt.
    fn new(prompt: &[u32], limit: usize) -> Self {
        Window {
            tokens: prompt[prompt.len().saturating_sub(limit)..].to_vec(),
            read: 0,
            limit,
        }
    }

    fn read(&mut self, decoding: &mut Decoding, logits: &mut Vec<f32>) -> Result<()> {
        decoding.read(&self.tokens[self.read..], logits)?;
        self.read = self.tokens.len();
        Ok(())
    }

    /// Takes up a new token; a window that is over the limit keeps its newer half, to be read afresh.
    fn push(&mut self, id: u32, decoding: &mut Decoding) {
        self.tokens.push(id);
        if self.tokens.len() > self.limit {
            self.tokens
                .drain(..self.tokens.len() - self.limit.div_ceil(2));
            self.read = 0;
            decoding.restart();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{Door, ModelConfig, position::PositionConfig};
    use candle_core::Device;

    fn greedy(max_new_tokens: usize) -> Sampling {
        Sampling {
            temperature: 0.0,
            max_new_tokens,
            ..Default::default()
        }
    }

    fn model(position: &PositionConfig, n_kv_head: usize, door: Door) -> Model {
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
        let mut model = Model::with_door(&config, 29, &Device::Cpu, door).unwrap();
        model.init(5).unwrap();
        model
    }

    /// Every token computed afresh from the whole window.
    fn without_cache(model: &mut Model, prompt: &[u32], n: usize) -> Vec<u32> {
        let mut window = Window::new(prompt, model.shape().seq_len);
        let mut tokens = Vec::new();
        for _ in 0..n {
            let len = window.tokens.len();
            let logits = model.logits(&window.tokens, 1, len).unwrap();
            let row: Vec<Vec<f32>> = logits.squeeze(0).unwrap().to_vec2().unwrap();
            let last = &row[len - 1];
            let id = (0..last.len())
                .max_by(|&a, &b| last[a].total_cmp(&last[b]))
                .unwrap() as u32;
            tokens.push(id);
            window.tokens.push(id);
            if window.tokens.len() > window.limit {
                let keep = window.limit.div_ceil(2);
                window.tokens.drain(..window.tokens.len() - keep);
            }
        }
        tokens
    }

    #[test]
    fn greedy_with_cache_equals_greedy_without_even_beyond_the_context() {
        let positions = [
            PositionConfig::Learned(Default::default()),
            PositionConfig::Rope(Default::default()),
        ];
        for position in &positions {
            for n_kv_head in [4, 2, 1] {
                for door in [Door::Fused, Door::Composite] {
                    let mut model = model(position, n_kv_head, door);
                    let prompt = [3, 1, 4, 1, 5];
                    let expected = without_cache(&mut model, &prompt, 30);
                    let mut seen = Vec::new();
                    let generated = generate(&mut model, &prompt, &greedy(30), None, &mut |t| {
                        seen.push(t.id);
                        ControlFlow::Continue(())
                    });
                    let generated = generated.unwrap();
                    assert_eq!(
                        generated.tokens, expected,
                        "{position:?} {n_kv_head} {door:?}"
                    );
                    assert_eq!(generated.finish, Finish::Length);
                    assert_eq!(seen, expected);
                }
            }
        }
    }

    fn fused() -> Model {
        let position = PositionConfig::Learned(Default::default());
        model(&position, 4, Door::Fused)
    }

    #[test]
    fn a_prompt_longer_than_the_context_is_read_from_its_end() {
        let mut model = fused();
        let prompt: Vec<u32> = (0..40).map(|i| i % 29).collect();
        let mut run = |prompt: &[u32]| {
            let go = &mut |_| ControlFlow::Continue(());
            generate(&mut model, prompt, &greedy(5), None, go).unwrap()
        };
        assert_eq!(run(&prompt), run(&prompt[28..]));
    }

    #[test]
    fn the_end_token_and_the_callback_end_a_text() {
        let mut model = fused();
        let mut go = |_| ControlFlow::Continue(());
        let all = generate(&mut model, &[1], &greedy(4), None, &mut go).unwrap();
        let eos = all.tokens[2];
        let cut = all.tokens.iter().position(|&id| id == eos).unwrap();
        let ended = generate(&mut model, &[1], &greedy(4), Some(eos), &mut go).unwrap();
        assert_eq!(ended.finish, Finish::Eos);
        assert_eq!(ended.tokens, all.tokens[..cut]);
        let mut stop = |_| ControlFlow::Break(());
        let stopped = generate(&mut model, &[1], &greedy(4), None, &mut stop).unwrap();
        assert_eq!(stopped.finish, Finish::Stopped);
        assert_eq!(stopped.tokens, all.tokens[..1]);
        assert!(generate(&mut model, &[], &greedy(4), None, &mut go).is_err());
    }

    #[test]
    fn draws_repeat_with_the_seed_alone() {
        let mut model = fused();
        let mut run = |seed| {
            let sampling = Sampling {
                temperature: 1.0,
                seed,
                max_new_tokens: 20,
                ..Default::default()
            };
            let go = &mut |_| ControlFlow::Continue(());
            generate(&mut model, &[1, 2], &sampling, None, go)
                .unwrap()
                .tokens
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn log_probabilities_are_those_of_score() {
        let mut model = fused();
        let mut logprobs = Vec::new();
        let generated = generate(&mut model, &[7, 8], &greedy(6), None, &mut |t| {
            logprobs.push(t.logprob);
            ControlFlow::Continue(())
        });
        let tokens = generated.unwrap().tokens;
        let text: Vec<u32> = [7, 8].into_iter().chain(tokens).collect();
        let batch = crate::nn::TokenBatch {
            inputs: &text[..7],
            targets: &text[1..],
            batch_size: 1,
            seq_len: 7,
            weights: None,
            first: None,
        };
        let logp = model.score(&batch).unwrap().logp.to_vec2::<f32>().unwrap();
        for (a, b) in logprobs.iter().zip(&logp[0][1..]) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }
}
