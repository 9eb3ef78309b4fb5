//! Attention over whole rows, with RoPE on queries and keys.

use super::{Node, Pass, Plan};
use crate::kernels::attention;
use crate::kernels::matmul::Accumulation;
use crate::kernels::numbers::Storage;
use crate::kernels::rotary::{self, Turn};
use crate::nn::layout::Span;
use crate::nn::profile::Part;
use crate::nn::tap::{self, AttentionInputs};
use crate::nn::tape::{Buffer, Slot};

impl Pass {
    /// The output is stored in `storage`.
    pub(super) fn attention(
        &mut self,
        plan: &Plan,
        qkv: Slot,
        (layer, sinks): (usize, Option<Span>),
        storage: Storage,
    ) -> Slot {
        self.rotate_slot(plan, qkv, (layer, 0));
        let (heads, rows) = (plan.heads(), self.rows.count);
        let out = self.arena.slot_in(storage, rows * heads.q_width());
        let lse = self.arena.slot(rows * heads.n_head);
        let (mut out_values, mut lse_values) = (self.arena.take(out), self.arena.take(lse));
        let qkv_values = self.arena.view(qkv);
        let mut sizes = plan.attention(layer, self.rows.seq_len);
        sizes.mask.first = self.rows.documents();
        self.kernels.run(Part::AttentionForward, || {
            sizes.scores.sinks = sinks.map(|span| plan.dense(span));
            attention::forward(
                plan.arithmetic,
                sizes,
                qkv_values,
                out_values.view_mut(),
                &mut lse_values,
            );
        });
        if self.tap.is_some() && !self.replays {
            let seen = AttentionInputs {
                layer,
                sizes,
                first_row: self
                    .rows
                    .filled
                    .first()
                    .map_or(sizes.seq_len, |n| *n as usize),
                qkv: &qkv_values.as_f32(),
            };
            tap::observe(self.tap.as_ref(), |tap| tap.attention(&seen));
        }
        self.arena.put(out, out_values);
        self.arena.put(lse, lse_values);
        self.read(lse);
        self.record(Node::Attention {
            qkv,
            out,
            lse,
            layer,
            sinks,
        });
        out
    }

    pub(super) fn attention_backward(
        &mut self,
        plan: &Plan,
        [qkv, out, lse]: [Slot; 3],
        (layer, sinks): (usize, Option<Span>),
        grads: &mut [f32],
    ) {
        let Some(dout) = self.arena.take_gradient(out) else {
            return;
        };
        let (storage, n) = (self.arena.storage(qkv), self.arena.numbers(qkv));
        let mut dqkv = self.arena.buffer_in(storage, n);
        let saved = attention::Saved {
            qkv: self.arena.view(qkv),
            out: self.arena.view(out),
            lse: self.arena.get(lse),
        };
        let mut sizes = plan.attention(layer, self.rows.seq_len);
        sizes.mask.first = self.rows.documents();
        let into = self.into;
        self.kernels.run(Part::AttentionBackward, || {
            sizes.scores.sinks = sinks.map(|span| plan.dense(span));
            if let Some(range) = sinks.and_then(|span| span.grads()) {
                let (dsinks, add) = (&mut grads[range], into == Accumulation::Add);
                attention::backward_sinks(sizes, saved, dout.view(), dsinks, add);
            }
            attention::backward(plan.arithmetic, sizes, saved, dout.view(), dqkv.view_mut());
        });
        self.rotate(plan, &mut dqkv, (layer, 0), Turn::Back);
        self.arena.put_gradient(qkv, dqkv);
        self.arena.free(dout);
        self.arena.release(out);
        self.arena.release(lse);
    }

    /// Rotates queries and keys of a block in place; `start` is the number of cached tokens.
    pub(super) fn rotate_slot(&mut self, plan: &Plan, qkv: Slot, (layer, start): (usize, usize)) {
        let mut values = self.arena.take(qkv);
        self.rotate(plan, &mut values, (layer, start), Turn::Forward);
        self.arena.put(qkv, values);
    }

    fn rotate(
        &mut self,
        plan: &Plan,
        qkv: &mut Buffer,
        (layer, start): (usize, usize),
        turn: Turn,
    ) {
        let heads = plan.heads();
        if let Some(table) = plan.rotary(layer) {
            let n_rotated = heads.n_head + heads.n_kv_head;
            let width = heads.qkv_width();
            let positions = self.rows.positions(start);
            self.kernels.run(Part::Rotary, || {
                rotary::apply(table, qkv.view_mut(), width, n_rotated, positions, turn);
            });
        }
    }
}
