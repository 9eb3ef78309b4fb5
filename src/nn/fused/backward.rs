//! The way back: nodes from last to first, segment by segment. A node first gives back its own output, which nobody reads
//! any more, so that its gradient can live there.

use super::{Node, Output, Pass, Plan};
use crate::kernels::matmul::Into;
use crate::kernels::rotary::Turn;
use crate::kernels::{activation, attention, embedding, linear, logprob, norm, reduce};
use crate::nn::layout::{LinearSpans, NormSpans};
use crate::nn::profile::Part;
use crate::nn::tape::{Slot, Track};

impl Pass {
    /// `grads`, flat like the weights, = (or +=) the gradient of Σ dlogp · logp + Σ dentropy · entropy.
    pub fn backward(
        &mut self,
        plan: &Plan,
        upstream: logprob::Upstream,
        (grads, into): (&mut [f32], Into),
    ) {
        let Some(hidden) = self.hidden.take() else {
            if into == Into::Overwrite {
                grads.fill(0.0);
            }
            return;
        };
        self.into = into;
        self.head_backward(plan, hidden, upstream, grads);
        self.walk(plan, grads);
        let replayed = self.boundaries.len().saturating_sub(1);
        for segment in (0..replayed).rev() {
            self.arena.release(self.boundaries[segment + 1]);
            self.replay(plan, segment);
            self.walk(plan, grads);
        }
        self.embedding_backward(plan, self.boundaries[0], grads);
    }

    /// Runs a segment's forward again, this time keeping what its backward needs. The last product of the segment is not
    /// computed: its result was the next segment's input.
    fn replay(&mut self, plan: &Plan, segment: usize) {
        self.keep = Track::Gradients;
        let blocks = plan.segment(segment);
        let mut x = self.boundaries[segment];
        for (i, block) in blocks.iter().enumerate() {
            let output = if i + 1 == blocks.len() {
                Output::Known(self.boundaries[segment + 1])
            } else {
                Output::New
            };
            x = self.block(plan, x, block, None, 0, output);
        }
    }

    fn walk(&mut self, plan: &Plan, grads: &mut [f32]) {
        while let Some(node) = self.nodes.pop() {
            match node {
                Node::Norm { x, y, stats, spans } => {
                    self.norm_backward(plan, [x, y, stats], &spans, grads);
                }
                Node::Linear {
                    x,
                    y,
                    residual,
                    spans,
                } => self.linear_backward(plan, [x, y], residual, &spans, grads),
                Node::Attention { qkv, out, lse } => self.attention_backward(plan, qkv, out, lse),
                Node::Activation { x, y } => self.activation_backward(plan, x, y),
            }
        }
    }

    fn head_backward(
        &mut self,
        plan: &Plan,
        hidden: Slot,
        upstream: logprob::Upstream,
        grads: &mut [f32],
    ) {
        let sizes = self.head_sizes(plan);
        let mut dhidden = self.arena.buffer(self.arena.get(hidden).len());
        let inputs = logprob::Inputs {
            hidden: self.arena.get(hidden),
            table: plan.matrix(plan.layout.head),
            targets: &self.targets,
        };
        let dtable = &mut grads[plan.layout.head.range()];
        let (outputs, into) = (&mut self.outputs, self.into);
        self.profile.measure(Part::Head, || {
            logprob::backward(
                plan.arithmetic,
                sizes,
                inputs,
                outputs,
                upstream,
                &mut dhidden,
                (dtable, into),
            );
        });
        self.arena.put_gradient(hidden, dhidden);
    }

    fn embedding_backward(&mut self, plan: &Plan, x: Slot, grads: &mut [f32]) {
        let Some(dx) = self.arena.take_gradient(x) else {
            return;
        };
        let (ids, into) = (&self.ids, self.into);
        let positions = self.rows.positions(0);
        self.profile.measure(Part::Embedding, || {
            let dtable = &mut grads[plan.layout.tokens.range()];
            // A tied table has the head's gradient already; few rows of a free one are written.
            if into == Into::Overwrite && plan.layout.tokens != plan.layout.head {
                dtable.fill(0.0);
            }
            embedding::backward(ids, &dx, dtable);
            if let Some(span) = plan.layout.positions {
                let d = plan.shape.d_model;
                if into == Into::Overwrite {
                    grads[span.range()].fill(0.0);
                }
                embedding::backward_positions(positions, d, &dx, &mut grads[span.range()]);
            }
        });
        self.arena.free(dx);
    }

    fn norm_backward(
        &mut self,
        plan: &Plan,
        [x, y, stats]: [Slot; 3],
        spans: &NormSpans,
        grads: &mut [f32],
    ) {
        let Some(dy) = self.arena.take_gradient(y) else {
            return;
        };
        self.arena.release(y);
        let (mut dx, into) = self.arena.open_gradient(x, dy.len());
        let saved = norm::Saved {
            x: self.arena.get(x),
            stats: self.arena.get(stats),
        };
        let (dgain, dbias) = spans.split(grads);
        let params = norm::ParamGradients {
            gain: dgain,
            bias: dbias,
            into: self.into,
        };
        let norm = plan.norm_of(spans);
        self.profile.measure(Part::Norm, || {
            norm::backward(norm, saved, &dy, (&mut dx, into), params);
        });
        self.arena.put_gradient(x, dx);
        self.arena.free(dy);
        self.arena.release(stats);
    }

    fn linear_backward(
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
        let (mut dx, into) = self.arena.open_gradient(x, sizes.rows * sizes.d_in);
        let x_values = self.arena.get(x);
        let weight = plan.dense(spans.weight);
        let (arithmetic, params_into) = (plan.arithmetic, self.into);
        self.profile.measure(Part::LinearBackward, || {
            let dweight = &mut grads[spans.weight.range()];
            linear::backward_weight(arithmetic, sizes, &dy, x_values, dweight, params_into);
            if let Some(span) = spans.bias {
                linear::backward_bias(&dy, &mut grads[span.range()], params_into);
            }
            linear::backward_input(arithmetic, sizes, &dy, weight, &mut dx, into);
        });
        self.arena.put_gradient(x, dx);
        self.residual_backward(residual, dy);
    }

    /// The residual's gradient is `dy` itself: handed on where it is the first.
    fn residual_backward(&mut self, residual: Option<Slot>, dy: Vec<f32>) {
        let Some(residual) = residual else {
            return self.arena.free(dy);
        };
        match self.arena.take_gradient(residual) {
            None => self.arena.put_gradient(residual, dy),
            Some(mut sum) => {
                self.profile
                    .measure(Part::Residual, || reduce::add(&mut sum, &dy));
                self.arena.put_gradient(residual, sum);
                self.arena.free(dy);
            }
        }
    }

    fn attention_backward(&mut self, plan: &Plan, qkv: Slot, out: Slot, lse: Slot) {
        let Some(dout) = self.arena.take_gradient(out) else {
            return;
        };
        let mut dqkv = self.arena.buffer(self.arena.get(qkv).len());
        let saved = attention::Saved {
            qkv: self.arena.get(qkv),
            out: self.arena.get(out),
            lse: self.arena.get(lse),
        };
        let sizes = self.rows.attention(plan.heads());
        self.profile.measure(Part::AttentionBackward, || {
            attention::backward(plan.arithmetic, sizes, saved, &dout, &mut dqkv);
        });
        self.turn(plan, &mut dqkv, 0, Turn::Back);
        self.arena.put_gradient(qkv, dqkv);
        self.arena.free(dout);
        self.arena.release(out);
        self.arena.release(lse);
    }

    fn activation_backward(&mut self, plan: &Plan, x: Slot, y: Slot) {
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
