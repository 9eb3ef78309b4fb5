//! The activation function between the two linear layers of a feed-forward block. Its backward is part of the second layer's:
//! `linear`.

use super::{Node, Pass, Plan};
use crate::kernels::activation;
use crate::nn::profile::Part;
use crate::nn::tape::Slot;

impl Pass {
    /// `d_ff` is the width of the output.
    pub(super) fn activation(&mut self, plan: &Plan, x: Slot, d_ff: usize) -> Slot {
        let storage = self.arena.storage(x);
        let y = self.arena.slot_in(storage, self.rows.count * d_ff);
        let mut values = self.arena.take(y);
        let kind = plan.config.mlp.activation();
        let x_values = self.arena.view(x);
        self.kernels.run(Part::Activation, || {
            activation::forward(kind, d_ff, x_values, values.view_mut());
        });
        self.arena.put(y, values);
        self.record(Node::Activation { x, y });
        y
    }
}
