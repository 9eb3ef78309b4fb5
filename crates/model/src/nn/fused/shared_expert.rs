//! The shared expert of a block: a feed-forward block that every token passes, beside the experts that it is routed to.

use super::{Node, Output, Pass, Plan};
use crate::kernels::linear;
use crate::kernels::matmul::{ComputeDtype, Plus};
use crate::kernels::numbers::{Values, ValuesMut};
use crate::kernels::row_gate;
use crate::nn::layout::{SharedSpans, Span};
use crate::nn::profile::Part;
use crate::nn::tape::Slot;

/// State of the gate of a shared expert for its backward.
#[derive(Debug, Clone, Copy)]
pub(super) struct SharedGateNode {
    /// The block's input.
    h: Slot,
    /// What the gate multiplies.
    x: Slot,
    /// Of each row, before the sigmoid.
    scores: Slot,
    pub y: Slot,
    residual: Option<Slot>,
    gate: Span,
}

impl Pass {
    /// `residual` + the shared expert's output for `h` (rows, D).
    pub(super) fn shared_expert(
        &mut self,
        plan: &Plan,
        (h, residual): (Slot, Option<Slot>),
        spans: &SharedSpans,
        is_cached: bool,
    ) -> Slot {
        let (into, out) = (&spans.mlp.wide, &spans.mlp.out);
        let kept = Output::New(plan.among([into, out], is_cached));
        let wide = self.linear(plan, h, None, into, kept);
        let active = self.activation(plan, wide, out.weight.cols);
        self.read(wide);
        let y = match spans.gate {
            None => self.linear(plan, active, residual, out, Output::NEW),
            Some(gate) => {
                let x = self.linear(plan, active, None, out, Output::NEW);
                let y = self.shared_gate(plan, (h, x), residual, gate);
                self.read(x);
                y
            }
        };
        // The backward gets it together with its gradient.
        self.arena.release(active);
        y
    }

    /// `residual` + sigmoid(`h` · `gate`) `x`, computed in f32 in any compute dtype.
    fn shared_gate(
        &mut self,
        plan: &Plan,
        (h, x): (Slot, Slot),
        residual: Option<Slot>,
        gate: Span,
    ) -> Slot {
        let scores = self.arena.slot(self.rows.count);
        let mut values = self.arena.take(scores);
        let y = self.arena.slot(self.rows.count * gate.cols);
        let mut sums = self.arena.take(y);
        let (sizes, arena) = (self.gate_sizes(gate), &self.arena);
        self.kernels.run(Part::Experts, || {
            let (h, weight) = (Values::F32(arena.get(h)), plan.matrix(gate));
            let to = ValuesMut::F32(&mut values);
            linear::forward(ComputeDtype::F32, sizes, h, weight, Plus::default(), to);
            let residual = residual.map(|slot| arena.get(slot));
            row_gate::forward(&values, arena.get(x), residual, &mut sums);
        });
        self.arena.put(scores, values);
        self.arena.put(y, sums);
        self.read(scores);
        self.record(Node::SharedGate(SharedGateNode {
            h,
            x,
            scores,
            y,
            residual,
            gate,
        }));
        y
    }

    pub(super) fn shared_gate_backward(
        &mut self,
        plan: &Plan,
        node: &SharedGateNode,
        grads: &mut [f32],
    ) {
        let Some(dy) = self.arena.take_gradient(node.y) else {
            return;
        };
        self.arena.release(node.y);
        let mut dx = self.arena.buffer(dy.len());
        let mut dscores = self.arena.buffer(self.rows.count);
        let arena = &self.arena;
        self.kernels.run(Part::Experts, || {
            let saved = [arena.get(node.scores), arena.get(node.x), &dy];
            row_gate::backward(saved, &mut dx, &mut dscores);
        });
        self.arena.put_gradient(node.x, dx);
        let (mut dh, into) = self.arena.open_gradient(node.h, dy.len());
        let (h, sizes) = (self.arena.get(node.h), self.gate_sizes(node.gate));
        let step = self.into;
        self.kernels.run(Part::Experts, || {
            let dscores = Values::F32(&dscores);
            if let Some(range) = node.gate.grads() {
                let (h, dweight) = (Values::F32(h), &mut grads[range]);
                linear::backward_weight(ComputeDtype::F32, sizes, dscores, h, dweight, step);
            }
            let (weight, dh) = (plan.matrix(node.gate), ValuesMut::F32(&mut dh));
            linear::backward_input(ComputeDtype::F32, sizes, dscores, weight, dh, into.into());
        });
        self.arena.put_gradient(node.h, dh);
        self.arena.free(dscores);
        self.residual_backward(node.residual, dy);
    }

    fn gate_sizes(&self, gate: Span) -> linear::Sizes {
        linear::Sizes {
            rows: self.rows.count,
            d_in: gate.cols,
            d_out: 1,
        }
    }
}
