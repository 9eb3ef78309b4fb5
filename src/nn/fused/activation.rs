//! What stands between the two linear layers of a feed-forward block.

use super::{Node, Pass, Plan};
use crate::kernels::activation;
use crate::kernels::aligned::Aligned;
use crate::kernels::matmul::Accumulation;
use crate::nn::layout::LinearSpans;
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

    /// Back through a linear layer, whose output's gradient is `dy`, and through the activation of `wide` in front of it.
    /// One pass gives the gradient by `wide` and the layer's input, which the forward let go: for nothing, as the
    /// derivative has the same terms.
    pub(super) fn activated_backward(
        &mut self,
        plan: &Plan,
        wide: Slot,
        (dy, residual): (Aligned, Option<Slot>),
        spans: &LinearSpans,
        grads: &mut [f32],
    ) {
        let (kind, d_ff) = (plan.config.mlp.activation(), plan.shape.d_ff);
        let mut active = self.arena.buffer(self.ids.len() * d_ff);
        self.input_gradient(plan, spans, &dy, (&mut active, Accumulation::Overwrite));
        let mut values = self.arena.take(wide);
        self.profile.measure(Part::Activation, || {
            activation::backward(kind, d_ff, &mut values, &mut active);
        });
        self.arena.put_gradient(wide, values);
        self.weight_gradient(plan, spans, (&active, &dy), grads);
        self.arena.free(active);
        self.residual_backward(residual, dy);
    }
}
