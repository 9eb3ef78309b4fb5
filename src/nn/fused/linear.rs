//! Linear layers, with the residual stream added where they end a sub-layer.

use super::{Node, Output, Pass, Plan};
use crate::kernels::linear;
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
        let sizes = self.linear_sizes(spans);
        let is_remade = self.remake(plan, x);
        let x_values = self.arena.get(x);
        let (arithmetic, params_into) = (plan.arithmetic, self.into);
        self.profile.measure(Part::LinearBackward, || {
            let dweight = &mut grads[spans.weight.range()];
            linear::backward_weight(arithmetic, sizes, &dy, x_values, dweight, params_into);
            if let Some(span) = spans.bias {
                linear::backward_bias(&dy, &mut grads[span.range()], params_into);
            }
        });
        if is_remade {
            self.arena.release(x);
        }
        let (mut dx, into) = self.arena.open_gradient(x, sizes.rows * sizes.d_in);
        let weight = plan.dense(spans.weight);
        self.profile.measure(Part::LinearBackward, || {
            linear::backward_input(arithmetic, sizes, &dy, weight, &mut dx, into);
        });
        self.arena.put_gradient(x, dx);
        self.residual_backward(residual, dy);
    }
}
