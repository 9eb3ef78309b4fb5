//! The gate of attention's output.

use super::{Node, Pass, Plan};
use crate::kernels::gate;
use crate::nn::profile::Part;
use crate::nn::tape::Slot;

impl Pass {
    /// `x` ∘ sigmoid(`gate`), each (rows, width of all query heads).
    pub(super) fn gate(&mut self, plan: &Plan, x: Slot, gate: Slot) -> Slot {
        let width = plan.heads().q_width();
        let y = self.arena.slot(self.rows.count * width);
        let mut values = self.arena.take(y);
        let arena = &self.arena;
        self.kernels.run(Part::Activation, || {
            gate::forward(width, arena.get(x), arena.get(gate), &mut values);
        });
        self.arena.put(y, values);
        self.record(Node::Gate { x, gate, y });
        y
    }

    pub(super) fn gate_backward(&mut self, plan: &Plan, [x, gate, y]: [Slot; 3]) {
        let Some(dy) = self.arena.take_gradient(y) else {
            return;
        };
        self.arena.release(y);
        let width = plan.heads().q_width();
        let mut dx = self.arena.buffer(dy.len());
        let mut dgate = self.arena.buffer(dy.len());
        let arena = &self.arena;
        self.kernels.run(Part::Activation, || {
            let saved = [arena.get(x), arena.get(gate), &dy];
            gate::backward(width, saved, &mut dx, &mut dgate);
        });
        self.arena.put_gradient(x, dx);
        self.arena.put_gradient(gate, dgate);
        self.arena.free(dy);
    }
}
