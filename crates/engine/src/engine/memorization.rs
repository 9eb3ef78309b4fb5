//! How much of a set of texts a model has memorized: each text's log-likelihood against its zlib size, its least likely
//! tokens, and the effect of another text of the set in the context.

use super::perplexity::token_logps;
use crate::base::rng::{Rng, Stream};
pub use crate::metrics::estimators::memory::{auc, codec};
use crate::metrics::estimators::memory::{bits_ratio, min_k, zlib_bytes};
use crate::nn::Model;
use candle_core::Result;

/// A text as the model reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct Text {
    pub ids: Vec<u32>,
    /// What all tokens but the first spell.
    pub bytes: Vec<u8>,
    /// What ends a text in front of it, as in training data (EOS); none where it begins with BOS, or the vocabulary has neither.
    pub separator: Option<u32>,
}

/// The result for one text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Known {
    /// Mean log-likelihood of its tokens, nats; the first is not predicted.
    pub mean: f64,
    /// The change of that mean by one other text of the set before it.
    pub change: Option<f64>,
    /// `bits_ratio`; none of short texts and trivial ones.
    pub zlib: Option<f64>,
    pub min_k: f64,
}

/// Share of the tokens that count as the least likely.
pub const MIN_K: f64 = 0.2;
/// zlib's own bytes matter below this.
const SHORT: usize = 500;
/// What zlib packs to less than this share says nothing.
const TRIVIAL: f64 = 0.15;

/// Reads each text alone and after another one. Texts are cut to half of the model's context, so that there is room; of the
/// other one the end is taken.
///
/// # Errors
/// A token outside the vocabulary.
pub fn measure(model: &mut Model, texts: &[Text], seed: u64) -> Result<Vec<Known>> {
    let context = model.shape().seq_len;
    let most = (context / 2).max(2);
    let mut known = Vec::with_capacity(texts.len());
    for (at, text) in texts.iter().enumerate() {
        let ids = &text.ids[..text.ids.len().min(most)];
        if ids.len() < 2 {
            continue;
        }
        let alone = token_logps(model, ids, context)?;
        let mean = |logps: &[f32]| {
            logps.iter().map(|x| f64::from(*x)).sum::<f64>() / logps.len().max(1) as f64
        };
        let other = another(texts.len(), at, seed).map(|other| &texts[other].ids);
        let change = match other {
            Some(other) => {
                let room = context + 1 - ids.len() - usize::from(text.separator.is_some());
                let before = other[other.len().saturating_sub(room)..].iter();
                let before: Vec<u32> = before.copied().chain(text.separator).collect();
                let behind = token_logps(model, &[&*before, ids].concat(), context)?;
                // The same tokens: all but the text's first.
                Some(mean(&behind[before.len()..]) - mean(&alone))
            }
            None => None,
        };
        let cut = ids.len() < text.ids.len();
        known.push(Known {
            mean: mean(&alone),
            change,
            // Of a text that was cut the bytes are not known.
            zlib: if cut {
                whole_ratio(model, text)?
            } else {
                ratio(&alone, &text.bytes)
            },
            min_k: min_k(&alone, MIN_K).unwrap_or(f64::NAN),
        });
    }
    Ok(known)
}

/// The ratio of a long text, read in windows.
fn whole_ratio(model: &mut Model, text: &Text) -> Result<Option<f64>> {
    let context = model.shape().seq_len;
    let logps = token_logps(model, &text.ids, context)?;
    Ok(ratio(&logps, &text.bytes))
}

fn ratio(logps: &[f32], bytes: &[u8]) -> Option<f64> {
    let packed = zlib_bytes(bytes);
    let nll = -logps.iter().map(|x| f64::from(*x)).sum::<f64>();
    let speaks = bytes.len() >= SHORT && packed as f64 >= TRIVIAL * bytes.len() as f64;
    speaks.then(|| bits_ratio(nll, packed))
}

/// Another text of the set, by the seed alone.
fn another(n: usize, at: usize, seed: u64) -> Option<usize> {
    let others = n.checked_sub(1).filter(|others| *others > 0)?;
    let drawn = Rng::new(seed, Stream::Eval, at as u64, 0).below(others as u64) as usize;
    Some(if drawn >= at { drawn + 1 } else { drawn })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Batch;
    use crate::engine::update::{At, Rates, update};
    use crate::methods::MethodConfig;
    use crate::nn::ModelConfig;
    use crate::optim::OptimizerConfig;
    use serde_json::json;

    const VOCAB: u64 = 32;
    const LEN: usize = 16;

    fn texts(seed: u64, n: u64) -> Vec<Text> {
        let one = |at| {
            let mut rng = Rng::new(seed, Stream::Test, at, 0);
            let ids: Vec<u32> = (0..LEN).map(|_| rng.below(VOCAB) as u32).collect();
            Text {
                bytes: ids.iter().map(|id| *id as u8).collect(),
                separator: None,
                ids,
            }
        };
        (0..n).map(one).collect()
    }

    fn model() -> Model {
        let config: ModelConfig = serde_json::from_value(json!({
            "n_layer": 2, "n_head": 2, "d_model": 64, "seq_len": 2 * LEN, "vocab_size": VOCAB,
        }))
        .unwrap();
        let mut model = Model::new(&config, VOCAB as usize, &candle_core::Device::Cpu).unwrap();
        model.init(1).unwrap();
        model
    }

    fn share(known: &[Known]) -> f64 {
        codec(&known.iter().filter_map(|k| k.change).collect::<Vec<_>>())
            .unwrap()
            .0
    }

    /// Memorizes 32 random sequences, and is asked for them and for others.
    #[test]
    fn sequences_known_by_heart_are_told_from_others() {
        let (mut model, seen, others) = (model(), texts(1, 32), texts(2, 32));
        let untrained = share(&measure(&mut model, &seen, 7).unwrap());
        assert!((0.2..0.8).contains(&untrained), "{untrained}");
        let method = MethodConfig::Pretrain(Default::default());
        let optimizer =
            OptimizerConfig::AdamW(serde_json::from_value(json!({"lr": 3e-3})).unwrap());
        let mut rule = optimizer.build(model.params()).unwrap();
        let rows = |part: fn(&[u32]) -> &[u32]| {
            seen.iter()
                .flat_map(|t| part(&t.ids).to_vec())
                .collect::<Vec<u32>>()
        };
        let batch = Batch {
            inputs: rows(|ids| &ids[..LEN - 1]),
            targets: rows(|ids| &ids[1..]),
            batch_size: seen.len(),
            seq_len: LEN - 1,
            ..Batch::default()
        };
        let rates = Rates {
            lr: 3e-3,
            clip_norm: 1.0,
        };
        let mut loss = f64::INFINITY;
        for step in 0..300 {
            let at = At {
                seed: 1,
                micro_step: step,
            };
            loss = update(
                &*method,
                &mut model,
                &mut *rule,
                std::slice::from_ref(&batch),
                at,
                rates,
            )
            .unwrap()
            .0
            .loss;
        }
        // The first of 15 tokens to be guessed stands after one alone.
        assert!(loss < 0.25, "{loss}");
        let (known, unknown) = (
            measure(&mut model, &seen, 7).unwrap(),
            measure(&mut model, &others, 7).unwrap(),
        );
        assert!(share(&known) > 0.9, "{}", share(&known));
        let least = |found: &[Known]| found.iter().map(|k| k.min_k).collect::<Vec<_>>();
        assert!(auc(&least(&unknown), &least(&known)).unwrap() > 0.95);
        assert_eq!(
            known,
            measure(&mut model, &seen, 7).unwrap(),
            "the same draw each time"
        );
    }

    #[test]
    fn a_text_alone_has_no_context_and_short_ones_no_ratio() {
        let mut model = model();
        let known = measure(&mut model, &texts(1, 1), 7).unwrap();
        assert_eq!((known[0].change, known[0].zlib), (None, None));
        let drawn: Vec<usize> = (0..4).filter_map(|at| another(4, at, 3)).collect();
        assert!(
            drawn
                .iter()
                .enumerate()
                .all(|(at, other)| at != *other && *other < 4),
            "{drawn:?}"
        );
    }
}
