//! Linear layers, with the residual add if they end a sub-layer, and with their adapters. Frozen weights get no gradient, and
//! their weight-gradient matmul is not computed.

use super::adapter::{self, Low};
use super::{Node, Output, Pass, Plan};
use crate::kernels::activation;
use crate::kernels::linear;
use crate::kernels::matmul::{Accumulation, Plus};
use crate::kernels::numbers::{Storage, Values};
use crate::kernels::skinny;
use crate::nn::layout::LinearSpans;
use crate::nn::profile::Part;
use crate::nn::tape::{Buffer, Slot};

/// State of a linear layer's forward for its backward.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinearNode {
    pub x: Slot,
    pub y: Slot,
    pub residual: Option<Slot>,
    /// The state of its adapters, if it has any and they are on.
    pub low: Option<Low>,
    pub spans: LinearSpans,
}

impl Pass {
    pub(super) fn linear(
        &mut self,
        plan: &Plan,
        x: Slot,
        residual: Option<Slot>,
        spans: &LinearSpans,
        output: Output,
    ) -> Slot {
        let node = |y, low| {
            Node::Linear(LinearNode {
                x,
                y,
                residual,
                low,
                spans: *spans,
            })
        };
        let adapter = plan.adapter(spans);
        if let Some(adapter) = adapter.filter(|adapter| adapter.has_magnitudes()) {
            let (y, low) = self.adapter_scaled(plan, (x, residual), (spans, adapter), output);
            self.read_low(low);
            self.record(node(y, Some(low)));
            return y;
        }
        let sizes = self.linear_sizes(spans);
        let low = adapter.map(|adapter| (adapter, self.adapter_low(plan, x, adapter)));
        let (joined, behind) = match low {
            Some((adapter, low)) if adapter.joins() => (Some((adapter, low)), None),
            low => (None, low),
        };
        let y = match output {
            Output::Known(y) => y,
            Output::New(storage) => {
                let y = self.arena.slot_in(storage, sizes.rows * sizes.d_out);
                let mut values = self.arena.take(y);
                let arena = &self.arena;
                self.kernels.run(Part::LinearForward, || {
                    let plus = Plus {
                        bias: spans.bias.map(|span| plan.dense(span)),
                        residual: residual.map(|slot| arena.get(slot)),
                        ..Plus::default()
                    };
                    adapter::with_low_rank(plan, (arena, sizes), joined, plus, |plus| {
                        let weight = plan.matrix(spans.weight);
                        let (x, y) = (arena.view(x), values.view_mut());
                        linear::forward(plan.arithmetic, sizes, x, weight, plus, y);
                    });
                });
                self.arena.put(y, values);
                if let Some((adapter, low)) = behind {
                    self.adapter_add(plan, low.low, adapter, (y, sizes.d_out));
                }
                y
            }
        };
        let low = low.map(|(_, low)| low);
        if let Some(low) = low {
            self.read_low(low);
        }
        self.record(node(y, low));
        y
    }

    pub(super) fn linear_sizes(&self, spans: &LinearSpans) -> linear::Sizes {
        linear::Sizes {
            rows: self.rows.count,
            d_in: spans.weight.cols,
            d_out: spans.weight.rows,
        }
    }

    pub(super) fn linear_backward(&mut self, plan: &Plan, node: &LinearNode, grads: &mut [f32]) {
        let Some(dy) = self.arena.take_gradient(node.y) else {
            return;
        };
        self.arena.release(node.y);
        let adapted = (&node.spans, node.low);
        let scaled = self.adapter_scale_backward(plan, adapted, &dy, grads);
        let dproduct = scaled.as_ref().unwrap_or(&dy).view();
        let dlow = self.adapter_out_backward(plan, adapted, dproduct, grads);
        match self.producer(node.x) {
            Some(Node::Activation { x: wide, .. }) => {
                self.activated_backward(plan, node, wide, (dproduct, dlow.as_deref()), grads);
            }
            _ => self.plain_backward(plan, node, (dproduct, dlow.as_deref()), grads),
        }
        self.release_mask(node.low);
        for buffer in [dlow, scaled].into_iter().flatten() {
            self.arena.free(buffer);
        }
        self.residual_backward(node.residual, dy);
    }

    fn plain_backward(
        &mut self,
        plan: &Plan,
        node: &LinearNode,
        (dy, dlow): (Values, Option<&[f32]>),
        grads: &mut [f32],
    ) {
        let (x, spans) = (node.x, &node.spans);
        let len = self.rows.count * spans.weight.cols;
        if spans.weight.grad.is_some() || dlow.is_some() {
            let is_recomputed = self.recompute(plan, x);
            let x_values = self.arena.take(x);
            self.weight_gradient(plan, spans, (x_values.view(), dy), grads);
            self.adapter_in_gradient(plan, (spans, node.low), (x_values.view(), dlow), grads);
            self.arena.put(x, x_values);
            if is_recomputed {
                self.arena.release(x);
            }
        } else {
            self.bias_gradient(spans, dy, grads);
        }
        // Attention's gradient has the same storage dtype as its inputs.
        let storage = match self.producer(x) {
            Some(Node::Attention { .. }) => self.arena.storage(x),
            _ => Storage::F32,
        };
        let (mut dx, into) = self.arena.open_gradient_in(storage, x, len);
        self.input_gradient(plan, node, (dy, dlow), (&mut dx, into));
        self.arena.put_gradient(x, dx);
    }

    /// Backward through the layer and through the activation of `wide` before it. One pass gives the gradient with respect
    /// to `wide` and recomputes the layer's input, which the forward released: for free, as the derivative has the same terms.
    fn activated_backward(
        &mut self,
        plan: &Plan,
        node: &LinearNode,
        wide: Slot,
        (dy, dlow): (Values, Option<&[f32]>),
        grads: &mut [f32],
    ) {
        let spans = &node.spans;
        let (kind, d_ff) = (plan.config.mlp.activation(), spans.weight.cols);
        let mut values = self.arena.take(wide);
        let mut active = (self.arena).buffer_in(values.storage(), self.rows.count * d_ff);
        let overwrite = Accumulation::Overwrite;
        self.input_gradient(plan, node, (dy, dlow), (&mut active, overwrite));
        self.kernels.run(Part::Activation, || {
            activation::backward(kind, d_ff, values.view_mut(), active.view_mut());
        });
        self.arena.put_gradient(wide, values);
        self.weight_gradient(plan, spans, (active.view(), dy), grads);
        self.adapter_in_gradient(plan, (spans, node.low), (active.view(), dlow), grads);
        self.arena.free(active);
    }

    /// Gradients with respect to weight and bias, from the layer's input and the gradient of its output.
    fn weight_gradient(
        &mut self,
        plan: &Plan,
        spans: &LinearSpans,
        (x, dy): (Values, Values),
        grads: &mut [f32],
    ) {
        let (sizes, into) = (self.linear_sizes(spans), self.into);
        if let Some(range) = spans.weight.grads() {
            self.kernels.run(Part::LinearBackward, || {
                let dweight = &mut grads[range];
                linear::backward_weight(plan.arithmetic, sizes, dy, x, dweight, into);
            });
        }
        self.bias_gradient(spans, dy, grads);
    }

    fn bias_gradient(&mut self, spans: &LinearSpans, dy: Values, grads: &mut [f32]) {
        let into = self.into;
        if let Some(range) = spans.bias.and_then(|span| span.grads()) {
            self.kernels.run(Part::LinearBackward, || {
                linear::backward_bias(dy, &mut grads[range], into);
            });
        }
    }

    /// The gradient with respect to the layer's input.
    fn input_gradient(
        &mut self,
        plan: &Plan,
        node: &LinearNode,
        (dy, dlow): (Values, Option<&[f32]>),
        (dx, into): (&mut Buffer, Accumulation),
    ) {
        let spans = &node.spans;
        let joined = (plan.adapter(spans).zip(dlow))
            .filter(|(adapter, _)| skinny::is_profitable(adapter.a.rows));
        let dropped = joined.and_then(|(adapter, _)| {
            let mask = node.low.and_then(|low| low.mask);
            self.adapter_drop(plan, adapter).zip(mask)
        });
        let (sizes, weight, arena) = (
            self.linear_sizes(spans),
            plan.matrix(spans.weight),
            &self.arena,
        );
        self.kernels.run(Part::LinearBackward, || {
            let low_rank = joined.map(|(adapter, dlow)| {
                adapter::fused_input_term(plan, (arena, dropped), adapter, dlow)
            });
            let plus = Plus {
                into,
                low_rank,
                ..Plus::default()
            };
            linear::backward_input(plan.arithmetic, sizes, dy, weight, dx.view_mut(), plus);
        });
        if joined.is_none() {
            self.adapter_input_gradient(plan, (spans, node.low), dlow, dx);
        }
    }
}
