//! Log-likelihoods of continuations of a context: each context is prefilled once for all its continuations, and a prefix shared
//! by several contexts once for all of them.

use super::decoding::Extent;
pub use super::decoding::Scores;
use super::{Model, ModelConfig};
use candle_core::{Result, bail};
use std::ops::ControlFlow;

/// A context and its possible continuations. Each has at least one token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    pub context: Vec<u32>,
    pub continuations: Vec<Vec<u32>>,
}

impl Group {
    /// Cache capacity for the longest of its texts: the last token of a text is predicted but not processed.
    pub fn tokens(&self) -> usize {
        let longest = self.continuations.iter().map(Vec::len).max().unwrap_or(0);
        self.context.len() + longest.saturating_sub(1)
    }
}

/// Bytes that texts of at most `tokens` tokens take while they are scored: keys and values, at most in f32, and states.
pub fn cache_bytes(config: &ModelConfig, texts: usize, tokens: usize) -> usize {
    let of_block = match &config.mla {
        Some(mla) => mla.kept(),
        None => 2 * config.kv_heads() * config.head_width(),
    };
    let kv = 4 * config.attention_layers().count() * of_block;
    texts * (tokens * kv + config.state_bytes())
}

/// Rejects inputs that cannot be scored.
///
/// # Errors
/// An empty context or continuation, a text longer than the model's context, ids beyond the vocabulary.
pub fn check(model: &Model, groups: &[Group]) -> Result<()> {
    let limit = model.shape().seq_len;
    for group in groups {
        if group.context.is_empty() || group.continuations.iter().any(Vec::is_empty) {
            bail!("scoring: contexts and continuations need at least one token")
        }
        if group.tokens() > limit {
            bail!(
                "scoring: a text of {} tokens, more than the context of {limit} tokens holds",
                group.tokens()
            )
        }
        model.check_ids("context", &group.context)?;
        for ids in &group.continuations {
            model.check_ids("continuation", ids)?;
        }
    }
    Ok(())
}

/// Scores of every continuation of every group, in order. All texts are cached at the same time: the caller limits the number of
/// groups per call, by [`cache_bytes`].
///
/// # Errors
/// As [`check`]; damaged weights.
pub fn score(model: &mut Model, groups: &[Group]) -> Result<Vec<Vec<Scores>>> {
    check(model, groups)?;
    let texts = groups.iter().map(|group| group.continuations.len()).sum();
    let tokens = groups.iter().map(Group::tokens).max().unwrap_or(0);
    if texts == 0 {
        return Ok(vec![Vec::new(); groups.len()]);
    }
    let scores = model.decode_batch(Extent { texts, tokens }, |decoding| {
        // The first text of each non-empty group, and the part of its context to prefill before the scored pieces.
        let mut firsts = Vec::new();
        let mut at = 0;
        for group in groups
            .iter()
            .filter(|group| !group.continuations.is_empty())
        {
            firsts.push((at, &group.context[..group.context.len() - 1], group));
            at += group.continuations.len();
        }
        let (shared, mut logits) = (shared_prefix(&firsts), Vec::new());
        let mut go_on = |_, _| ControlFlow::Continue(());
        if let ([(first, context, _), others @ ..], true) = (firsts.as_slice(), shared > 0) {
            let _ =
                decoding.read_batch(&[(*first, &context[..shared])], &mut logits, &mut go_on)?;
            for (other, ..) in others {
                decoding.copy(*first, *other);
            }
        }
        let rests = firsts
            .iter()
            .map(|(text, context, _)| (*text, &context[shared..]));
        let rests: Vec<(usize, &[u32])> = rests.filter(|(_, rest)| !rest.is_empty()).collect();
        if !rests.is_empty() {
            let _ = decoding.read_batch(&rests, &mut logits, &mut go_on)?;
        }
        let (mut inputs, mut targets): (Vec<Vec<u32>>, Vec<&[u32]>) = Default::default();
        for (first, context, group) in &firsts {
            for (n, continuation) in group.continuations.iter().enumerate() {
                if n > 0 {
                    decoding.copy(*first, first + n);
                }
                let last = &group.context[context.len()..];
                inputs.push([last, &continuation[..continuation.len() - 1]].concat());
                targets.push(continuation);
            }
        }
        let pieces: Vec<(usize, &[u32], &[u32])> = inputs
            .iter()
            .zip(targets)
            .enumerate()
            .map(|(text, (inputs, targets))| (text, inputs.as_slice(), targets))
            .collect();
        decoding.score_batch(&pieces)
    })?;
    let mut scores = scores.into_iter();
    let of_group = |group: &Group| scores.by_ref().take(group.continuations.len()).collect();
    Ok(groups.iter().map(of_group).collect())
}

/// The length of the common prefix of all contexts, in tokens.
fn shared_prefix(firsts: &[(usize, &[u32], &Group)]) -> usize {
    let [(_, one, _), others @ ..] = firsts else {
        return 0;
    };
    let alike = |other: &[u32]| one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let lengths = others.iter().map(|(_, other, _)| alike(other));
    lengths.min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::{Rng, Stream};
    use crate::nn::{Backend, TokenBatch};

    fn model(backend: Backend) -> Model {
        let config = ModelConfig {
            n_layer: 2,
            d_model: 16,
            n_head: 2,
            seq_len: 600,
            ..ModelConfig::default()
        };
        let mut model =
            Model::with_backend(&config, 31, &candle_core::Device::Cpu, backend).unwrap();
        model.init(5).unwrap();
        model
    }

    /// The result of a full pass over each text.
    fn alone(model: &mut Model, context: &[u32], continuation: &[u32]) -> Vec<f32> {
        let all = [context, continuation].concat();
        let n = all.len() - 1;
        let batch = TokenBatch::plain(&all[..n], &all[1..], 1, n);
        let logps = model.score(&batch).unwrap().logp.flatten_all().unwrap();
        logps.to_vec1::<f32>().unwrap()[context.len() - 1..].to_vec()
    }

    #[test]
    fn texts_with_a_shared_context_score_as_alone() {
        let mut rng = Rng::new(1, Stream::Test, 0, 0);
        let mut ids = |n: usize| (0..n).map(|_| rng.below(31) as u32).collect::<Vec<_>>();
        let head = ids(40);
        let groups = [
            Group {
                context: [head.clone(), ids(9)].concat(),
                continuations: vec![ids(3), ids(1), ids(12)],
            },
            Group::default(),
            Group {
                context: head.clone(),
                continuations: vec![ids(2), ids(530)],
            },
        ];
        let one = Group {
            context: ids(1),
            continuations: vec![ids(4)],
        };
        for backend in [Backend::Fused, Backend::Composite] {
            let mut model = model(backend);
            let mut check = |groups: &[Group]| {
                let groups: Vec<Group> = groups
                    .iter()
                    .filter(|g| !g.context.is_empty())
                    .cloned()
                    .collect();
                let found = score(&mut model, &groups).unwrap();
                for (group, found) in groups.iter().zip(found) {
                    assert_eq!(found.len(), group.continuations.len());
                    for (continuation, found) in group.continuations.iter().zip(found) {
                        let expected = alone(&mut model, &group.context, continuation);
                        assert_eq!(found.logps.len(), expected.len());
                        for (a, b) in found.logps.iter().zip(&expected) {
                            assert!((a - b).abs() < 2e-5, "{a} {b}");
                        }
                    }
                }
            };
            check(&groups);
            check(std::slice::from_ref(&one));
            let greedy = score(&mut model, std::slice::from_ref(&one)).unwrap();
            assert!(greedy[0][0].greedy <= 4);
            assert!(score(&mut model, &groups[1..2]).is_err());
        }
    }
}
