//! The incremental forward pass over the next pieces of several texts at once, with a KV cache: one matmul per matrix for all
//! of them, and attention per text.

use super::{Pass, Plan, head};
use crate::kernels::attention;
use crate::nn::kv_cache::Texts;
use crate::nn::layout::Span;
use crate::nn::profile::Part;
use crate::nn::tape::Slot;

/// Rows of logits that are there at once.
const LOGIT_ROWS: usize = 64;

impl Pass {
    /// Processes the pieces prepared in `texts`, with the concatenated `ids`, and fills `logits` (pieces, V) with those
    /// after the last token of each.
    pub fn next_logits(
        &mut self,
        plan: &Plan,
        ids: &[u32],
        texts: &mut Texts,
        logits: &mut Vec<f32>,
    ) {
        let ends = texts.ends();
        let hidden = self.hidden(plan, (ids, None), ids.len(), Some(texts));
        let d = plan.shape.d_model;
        let mut last = self.arena.buffer(ends.len() * d);
        let states = self.arena.get(hidden);
        for (row, end) in last.chunks_exact_mut(d).zip(&ends) {
            row.copy_from_slice(&states[(end - 1) * d..end * d]);
        }
        self.kernels
            .run(Part::Head, || head::logits(plan, &last, logits));
        self.arena.free(last);
    }

    /// Processes the pieces prepared in `texts` and fills `outputs` with one row per token of `ids`: the
    /// log-probability of the target at its position, and the top-1 token.
    pub fn next_logps(&mut self, plan: &Plan, ids: &[u32], targets: &[u32], texts: &mut Texts) {
        self.targets.clear();
        self.targets.extend_from_slice(targets);
        // That of an earlier pass over rollouts may be left.
        self.temperature = 1.0;
        let hidden = self.hidden(plan, (ids, None), ids.len(), Some(texts));
        self.head_forward(plan, hidden, None);
    }

    /// Processes the pieces prepared in `texts` and calls `visit` with the logits (V) after each token of `ids`, in their order.
    pub fn each_logits(
        &mut self,
        plan: &Plan,
        ids: &[u32],
        texts: &mut Texts,
        visit: &mut dyn FnMut(&[f32]),
    ) {
        let hidden = self.hidden(plan, (ids, None), ids.len(), Some(texts));
        let (d, vocab_size) = (plan.shape.d_model, plan.shape.vocab_size);
        let mut logits = Vec::new();
        // Those of all tokens at once would be gigabytes.
        for states in self.arena.get(hidden).chunks(LOGIT_ROWS * d) {
            self.kernels
                .run(Part::Head, || head::logits(plan, states, &mut logits));
            logits.chunks_exact(vocab_size).for_each(&mut *visit);
        }
    }

    /// Attention of each text's new tokens over all its cached tokens.
    pub(super) fn cached_attention(
        &mut self,
        plan: &Plan,
        qkv: Slot,
        texts: &mut Texts,
        (layer, sinks): (usize, Option<Span>),
    ) -> Slot {
        let (heads, start) = (plan.heads(), texts.start());
        self.rotate_slot(plan, qkv, (layer, start));
        let (width, q_width) = (heads.qkv_width(), heads.q_width());
        let out = self.arena.slot(self.rows.count * q_width);
        let mut values = self.arena.take(out);
        let qkv = self.arena.get(qkv);
        self.kernels.run(Part::AttentionForward, || {
            let (mut row, mut pieces) = (0, Vec::new());
            for (cache, new) in texts.reading() {
                let qkv = &qkv[row * width..(row + new) * width];
                pieces.push(cache.append(layer, heads, qkv));
                row += new;
            }
            let mut sizes = plan.attention(layer, 0);
            sizes.scores.sinks = sinks.map(|span| plan.dense(span));
            attention::forward_cached(plan.arithmetic, sizes, &pieces, (qkv, width), &mut values);
        });
        self.arena.put(out, values);
        out
    }
}
