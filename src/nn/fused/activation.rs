//! What stands between the two linear layers of a feed-forward block.

use super::{Node, Pass, Plan};
use crate::kernels::activation;
use crate::nn::profile::Part;
use crate::nn::tape::Slot;

impl Pass {
    pub(super) fn activation(&mut self, plan: &Plan, x: Slot) -> Slot {
        let d_ff = plan.shape.d_ff;
        let y = self.arena.slot(self.ids.len() * d_ff);
        let mut values = self.arena.take(y);
        let kind = plan.config.mlp.activation();
        let x_values = self.arena.get(x);
        self.profile.measure(Part::Activation, || {
            activation::forward(kind, d_ff, x_values, &mut values);
        });
        self.arena.put(y, values);
        self.record(Node::Activation { x, y });
        y
    }

    pub(super) fn activation_backward(&mut self, plan: &Plan, x: Slot, y: Slot) {
        let Some(dy) = self.arena.take_gradient(y) else {
            return;
        };
        self.arena.release(y);
        let mut dx = self.arena.buffer(self.arena.get(x).len());
        let x_values = self.arena.get(x);
        let (kind, d_ff) = (plan.config.mlp.activation(), plan.shape.d_ff);
        self.profile.measure(Part::Activation, || {
            activation::backward(kind, d_ff, x_values, &dy, &mut dx);
        });
        self.arena.put_gradient(x, dx);
        self.arena.free(dy);
    }
}
