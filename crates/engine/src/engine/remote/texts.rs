//! Prefill and decode on the ranks, which hold the KV caches. Logits come back and are sampled here, by the sampler of all
//! other texts: a completion depends on weights, seed, step and its index, not on who computes it.

use super::Remote;
use crate::nn::Model;
use crate::nn::generate::BatchDecoder;
use crate::workers::{Frame, bytes_of_ids, numbers};
use candle_core::{Result, bail};
use serde_json::json;
use std::ops::ControlFlow;

/// Bytes of logits that one rank answers at most: half of what a frame carries.
const MOST_LOGITS: usize = 512 << 20;

/// Texts side by side, shared among the ranks in order.
pub struct Texts<'a> {
    remote: &'a mut Remote,
    vocab_size: usize,
    /// Most tokens of one.
    tokens: usize,
    /// Texts of one rank.
    share: usize,
    begun: bool,
    /// (from, to) and forgotten texts: sent with the next pieces.
    copies: Vec<(usize, usize)>,
    forgotten: Vec<usize>,
}

impl Remote {
    /// So many texts of so many tokens at most, by the weights that the ranks have.
    pub fn texts(&mut self, model: &Model, texts: usize, tokens: usize) -> Texts<'_> {
        let share = texts.div_ceil(self.ranks).max(1);
        Texts {
            remote: self,
            vocab_size: model.shape().vocab_size,
            tokens,
            share,
            begun: false,
            copies: Vec::new(),
            forgotten: Vec::new(),
        }
    }

    /// How many texts can be read at once, of `wanted`.
    pub fn most_texts(&self, model: &Model, wanted: usize) -> usize {
        let row = 4 * model.shape().vocab_size;
        wanted.min(self.ranks * (MOST_LOGITS / row).max(1))
    }
}

impl BatchDecoder for Texts<'_> {
    fn append_tokens(
        &mut self,
        pieces: &[(usize, &[u32])],
        logits: &mut Vec<f32>,
        _: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let (share, ranks) = (self.share, self.remote.ranks);
        let of = |rank: usize| {
            let own = pieces.iter().filter(move |(text, _)| text / share == rank);
            own.map(move |(text, tokens)| (text % share, *tokens))
        };
        let begin = !std::mem::replace(&mut self.begun, true);
        let copies = std::mem::take(&mut self.copies);
        let forgotten = std::mem::take(&mut self.forgotten);
        let tokens = self.tokens;
        let role = self.remote.model.role();
        let frame = |rank: usize| {
            let own = |text: &&usize| **text / share == rank;
            let copies = copies.iter().filter(|(from, _)| from / share == rank);
            let copies: Vec<[usize; 2]> = copies.map(|(f, t)| [f % share, t % share]).collect();
            let forgotten: Vec<usize> = forgotten
                .iter()
                .filter(own)
                .map(|text| text % share)
                .collect();
            let lengths: Vec<[usize; 2]> = of(rank).map(|(text, ids)| [text, ids.len()]).collect();
            let header = json!({
                "type": "read", "begin": begin, "texts": share, "tokens": tokens, "copies": copies, "forget": forgotten,
                "pieces": lengths, "role": role,
            });
            Frame::with(
                header,
                of(rank).flat_map(|(_, ids)| bytes_of_ids(ids)).collect(),
            )
        };
        let answers = self.remote.ask(frame, &mut |_| {})?;
        logits.clear();
        for (rank, answer) in answers.iter().take(ranks).enumerate() {
            let expected = of(rank).count() * self.vocab_size;
            let payload = &answer.frame.payload;
            if payload.len() != 4 * expected {
                bail!(
                    "rank {rank} answered {} bytes for {expected} logits",
                    payload.len()
                );
            }
            logits.extend(numbers(payload));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn copy_cache(&mut self, from: usize, to: usize) {
        self.copies.push((from, to));
    }

    fn clear_cache(&mut self, text: usize) {
        self.forgotten.push(text);
    }

    /// Each rank has its own texts.
    fn together(&self, one: usize, other: usize) -> bool {
        one / self.share == other / self.share
    }
}
