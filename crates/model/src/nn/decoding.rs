//! Incremental forward with a KV cache (prefill and decode). Batched sequences of different lengths give the same results as
//! alone.

use super::composite::{Decoder, Past};
use super::fused::{Pass, Plan};
use super::kv_cache::{CHUNK, KvCache, Texts};
use crate::kernels::threads;
use candle_core::{DType, IndexOp, Result, Tensor};
use std::ops::ControlFlow;

/// The size of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Number of texts.
    pub texts: usize,
    /// Maximum tokens of one text.
    pub tokens: usize,
}

/// What is kept of several texts between forwards: by the backend one or the other.
#[derive(Default)]
pub(crate) struct Caches {
    pub held: Vec<KvCache>,
    pub pasts: Vec<Past>,
}

/// A model's scores of given tokens.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scores {
    /// Log-probability of each, in nats.
    pub logps: Vec<f32>,
    /// How many of them are the top-1 token at their position.
    pub greedy: usize,
}

impl Scores {
    /// Adds a token, by the logits (V) at its position.
    fn push_row(&mut self, logits: &[f32], target: u32) {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|x| f64::from(x - max).exp()).sum();
        let own = logits[target as usize];
        self.logps.push((f64::from(own - max) - sum.ln()) as f32);
        self.greedy += usize::from(own >= max);
    }
}

/// Texts with their KV caches. The weights must not change while it exists.
pub(crate) enum Decoding<'a> {
    /// One text after the other.
    Composite {
        decoder: Decoder<'a>,
        pasts: Vec<Past>,
    },
    Fused {
        plan: Plan<'a>,
        pass: &'a mut Pass,
        texts: Texts,
        ids: Vec<u32>,
    },
}

impl<'a> Decoding<'a> {
    pub fn composite(decoder: Decoder<'a>, pasts: Vec<Past>) -> Self {
        Decoding::Composite { decoder, pasts }
    }

    /// One cache for each text; cached tokens are not computed again.
    pub fn fused(plan: Plan<'a>, pass: &'a mut Pass, caches: Vec<KvCache>) -> Self {
        Decoding::Fused {
            plan,
            pass,
            texts: Texts::new(caches),
            ids: Vec::new(),
        }
    }

    /// The number of cached tokens of a text.
    pub fn held(&self, text: usize) -> usize {
        match self {
            Decoding::Composite { .. } => 0,
            Decoding::Fused { texts, .. } => texts.caches[text].len,
        }
    }

    /// Whether blocks keep states, which do not go back with the text.
    pub fn has_states(&self) -> bool {
        match self {
            Decoding::Composite { .. } => false,
            Decoding::Fused { texts, .. } => texts.caches.iter().any(KvCache::has_states),
        }
    }

    /// Keeps a copy of the states of a text, to which it can be truncated later.
    pub fn take_snapshot(&mut self, text: usize) {
        if let Decoding::Fused { texts, .. } = self {
            texts.caches[text].take_snapshot();
        }
    }

    /// Copies the cache of text `from` to text `to`: a shared prompt is prefilled once.
    pub fn copy(&mut self, from: usize, to: usize) {
        match self {
            Decoding::Composite { pasts, .. } => pasts[to] = pasts[from].clone(),
            Decoding::Fused { plan, texts, .. } => {
                if let Ok([from, to]) = texts.caches.get_disjoint_mut([from, to]) {
                    to.copy(from, plan.kept_heads());
                }
            }
        }
    }

    /// What is kept of the texts.
    pub fn into_caches(self) -> Caches {
        match self {
            Decoding::Composite { pasts, .. } => Caches {
                pasts,
                ..Caches::default()
            },
            Decoding::Fused { texts, .. } => Caches {
                held: texts.caches,
                ..Caches::default()
            },
        }
    }

    /// Appends `tokens` to the first text and fills `logits` (V), those after the last token; the buffer may be reused.
    ///
    /// # Errors
    /// More tokens than a text may have, or an id outside of the vocabulary.
    pub fn read(&mut self, tokens: &[u32], logits: &mut Vec<f32>) -> Result<()> {
        let mut go_on = |_, _| ControlFlow::Continue(());
        let _ = self.read_batch(&[(0, tokens)], logits, &mut go_on)?;
        Ok(())
    }

    /// Appends tokens to several texts: (text, tokens) in the order of the texts; texts without new tokens are not listed. Fills
    /// `logits` (pieces, V), those after the last token of each. Between two chunks of a long piece `pause` gets the text and the
    /// number of tokens just prefilled, and may cancel: then there are no logits.
    pub fn read_batch(
        &mut self,
        pieces: &[(usize, &[u32])],
        logits: &mut Vec<f32>,
        pause: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        debug_assert!(pieces.is_sorted_by_key(|(text, _)| *text));
        // Long pieces are processed in chunks; only the last chunk gives logits.
        let mut skip = 0;
        while pieces
            .iter()
            .map(|(_, t)| t.len() - skip.min(t.len()))
            .max()
            > Some(CHUNK)
        {
            for (text, tokens) in pieces {
                let rest = &tokens[skip.min(tokens.len())..];
                // The rest for the end has at least one token.
                let chunk = &rest[..rest.len().saturating_sub(1).min(CHUNK)];
                if !chunk.is_empty() {
                    self.read_chunk(&[(*text, chunk)], logits)?;
                    if pause(*text, chunk.len()).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            skip += CHUNK;
        }
        let rests: Vec<(usize, &[u32])> = pieces
            .iter()
            .map(|(text, tokens)| (*text, &tokens[skip.min(tokens.len() - 1)..]))
            .collect();
        self.read_rests(&rests, logits)?;
        Ok(ControlFlow::Continue(()))
    }

    /// Pieces of at most [`CHUNK`] tokens, as many in a pass as fit.
    fn read_rests(&mut self, pieces: &[(usize, &[u32])], logits: &mut Vec<f32>) -> Result<()> {
        let all: usize = pieces.iter().map(|(_, tokens)| tokens.len()).sum();
        if all <= CHUNK || pieces.len() == 1 {
            return self.read_chunk(pieces, logits);
        }
        let (mut from, mut part) = (0, Vec::new());
        let mut whole = Vec::new();
        while from < pieces.len() {
            let mut tokens = 0;
            let fits = pieces[from..].iter().take_while(|(_, new)| {
                tokens += new.len();
                tokens <= CHUNK
            });
            let to = from + fits.count().max(1);
            self.read_chunk(&pieces[from..to], &mut part)?;
            whole.extend_from_slice(&part);
            from = to;
        }
        *logits = whole;
        Ok(())
    }

    fn read_chunk(&mut self, pieces: &[(usize, &[u32])], logits: &mut Vec<f32>) -> Result<()> {
        match self {
            Decoding::Composite { decoder, pasts } => {
                logits.clear();
                for (text, tokens) in pieces {
                    let ids = Tensor::from_slice(tokens, (1, tokens.len()), &decoder.device())?;
                    let hidden = decoder.hidden(&ids, &mut pasts[*text], None)?;
                    let last = decoder.logits(&hidden.i((0, tokens.len() - 1..))?)?;
                    logits.extend(last.squeeze(0)?.to_dtype(DType::F32)?.to_vec1::<f32>()?);
                }
            }
            Decoding::Fused {
                plan,
                pass,
                texts,
                ids,
            } => {
                texts.take_up(pieces, ids);
                threads::team(|| pass.next_logits(plan, ids, texts, logits));
            }
        }
        Ok(())
    }

    /// Continues several texts, (text, tokens, targets) in the order of the texts, and returns for each piece the
    /// log-probability (nats) of the target after each of its tokens and whether it is the top-1 token.
    ///
    /// # Errors
    /// More tokens than a text may have, or an id outside of the vocabulary.
    pub fn score_batch(&mut self, pieces: &[(usize, &[u32], &[u32])]) -> Result<Vec<Scores>> {
        debug_assert!(pieces.is_sorted_by_key(|(text, ..)| *text));
        let mut scores = vec![Scores::default(); pieces.len()];
        let mut at = 0;
        while at < pieces.len() {
            let mut tokens = 0;
            let fits = pieces[at..].iter().take_while(|(_, inputs, _)| {
                tokens += inputs.len();
                tokens <= CHUNK
            });
            let to = at + fits.count().max(1);
            let (part, into) = (&pieces[at..to], &mut scores[at..to]);
            match part {
                // A long piece is processed alone, chunk by chunk.
                [(text, inputs, targets)] => {
                    for (inputs, targets) in inputs.chunks(CHUNK).zip(targets.chunks(CHUNK)) {
                        self.score_chunk(&[(*text, inputs, targets)], into)?;
                    }
                }
                several => self.score_chunk(several, into)?,
            }
            at = to;
        }
        Ok(scores)
    }

    fn score_chunk(
        &mut self,
        pieces: &[(usize, &[u32], &[u32])],
        scores: &mut [Scores],
    ) -> Result<()> {
        match self {
            Decoding::Composite { decoder, pasts } => {
                for ((text, inputs, targets), scores) in pieces.iter().zip(scores) {
                    let ids = Tensor::from_slice(inputs, (1, inputs.len()), &decoder.device())?;
                    let hidden = decoder.hidden(&ids, &mut pasts[*text], None)?;
                    let logits = decoder.logits(&hidden.i(0)?)?.to_dtype(DType::F32)?;
                    for (row, target) in logits.to_vec2::<f32>()?.iter().zip(*targets) {
                        scores.push_row(row, *target);
                    }
                }
            }
            Decoding::Fused {
                plan,
                pass,
                texts,
                ids,
            } => {
                let read: Vec<(usize, &[u32])> = pieces.iter().map(|(t, i, _)| (*t, *i)).collect();
                let targets: Vec<u32> = pieces.iter().flat_map(|(.., t)| *t).copied().collect();
                texts.take_up(&read, ids);
                threads::enter(|| pass.next_logps(plan, ids, &targets, texts));
                let mut row = 0;
                for ((_, inputs, _), scores) in pieces.iter().zip(scores) {
                    let rows = row..row + inputs.len();
                    scores.logps.extend(&pass.outputs.logp[rows.clone()]);
                    // 1 if the target is the top-1 token.
                    let hits = pass.outputs.top1[rows].iter().filter(|hit| **hit > 0.5);
                    scores.greedy += hits.count();
                    row += inputs.len();
                }
            }
        }
        Ok(())
    }

    /// Clears the cache of a text.
    pub fn restart(&mut self, text: usize) {
        match self {
            Decoding::Composite { pasts, .. } => pasts[text] = Past::default(),
            Decoding::Fused { texts, .. } => texts.caches[text].clear(),
        }
    }
}
