//! Linear layers, with the residual stream added where they end a sub-layer.

use super::{Node, Output, Pass, Plan};
use crate::kernels::linear;
use crate::kernels::matmul::Accumulation;
use crate::nn::layout::LinearSpans;
use crate::nn::profile::Part;
use crate::nn::tape::Slot;

impl Pass {
    pub(super) fn linear(
        &mut self,
        plan: &Plan,
        x: Slot,
        residual: Option<Slot>,
        spans: &LinearSpans,
        output: Output,
    ) -> Slot {
        let sizes = self.linear_sizes(spans);
        let y = match output {
            Output::Known(y) => y,
            Output::New => {
                let y = self.arena.slot(sizes.rows * sizes.d_out);
                let mut values = self.arena.take(y);
                let arena = &self.arena;
                self.profile.measure(Part::LinearForward, || {
                    linear::forward(
                        plan.arithmetic,
                        sizes,
                        arena.get(x),
                        plan.matrix(spans.weight),
                        spans.bias.map(|span| plan.dense(span)),
                        residual.map(|slot| arena.get(slot)),
                        &mut values,
                    );
                });
                self.arena.put(y, values);
                y
            }
        };
        self.record(Node::Linear {
            x,
            y,
            residual,
            spans: *spans,
        });
        y
    }

    fn linear_sizes(&self, spans: &LinearSpans) -> linear::Sizes {
        linear::Sizes {
            rows: self.ids.len(),
            d_in: spans.weight.cols,
            d_out: spans.weight.rows,
        }
    }

    pub(super) fn linear_backward(
        &mut self,
        plan: &Plan,
        [x, y]: [Slot; 2],
        residual: Option<Slot>,
        spans: &LinearSpans,
        grads: &mut [f32],
    ) {
        let Some(dy) = self.arena.take_gradient(y) else {
            return;
        };
        self.arena.release(y);
        if let Some(&Node::Activation { x: wide, y: active }) = self.nodes.last()
            && active == x
        {
            self.nodes.pop();
            return self.activated_backward(plan, wide, (dy, residual), spans, grads);
        }
        let is_recomputed = self.recompute(plan, x);
        let x_values = self.arena.take(x);
        let len = x_values.len();
        self.weight_gradient(plan, spans, (&x_values, &dy), grads);
        self.arena.put(x, x_values);
        if is_recomputed {
            self.arena.release(x);
        }
        let (mut dx, into) = self.arena.open_gradient(x, len);
        self.input_gradient(plan, spans, &dy, (&mut dx, into));
        self.arena.put_gradient(x, dx);
        self.residual_backward(residual, dy);
    }

    /// Gradients by weight and bias from the layer's input and the gradient by its output.
    pub(super) fn weight_gradient(
        &mut self,
        plan: &Plan,
        spans: &LinearSpans,
        (x, dy): (&[f32], &[f32]),
        grads: &mut [f32],
    ) {
        let (sizes, into) = (self.linear_sizes(spans), self.into);
        self.profile.measure(Part::LinearBackward, || {
            let dweight = &mut grads[spans.weight.range()];
            linear::backward_weight(plan.arithmetic, sizes, dy, x, dweight, into);
            if let Some(span) = spans.bias {
                linear::backward_bias(dy, &mut grads[span.range()], into);
            }
        });
    }

    /// The gradient by the layer's input.
    pub(super) fn input_gradient(
        &mut self,
        plan: &Plan,
        spans: &LinearSpans,
        dy: &[f32],
        (dx, into): (&mut [f32], Accumulation),
    ) {
        let (sizes, weight) = (self.linear_sizes(spans), plan.dense(spans.weight));
        self.profile.measure(Part::LinearBackward, || {
            linear::backward_input(plan.arithmetic, sizes, dy, weight, dx, into);
        });
    }
}
