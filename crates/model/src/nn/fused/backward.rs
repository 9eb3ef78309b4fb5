//! The backward pass: nodes from last to first, segment by segment. A node first releases its own output, which nothing reads
//! any more, so that its gradient can reuse the buffer.

use super::head::{HeadGradient, HeadPass};
use super::{Node, Output, Pass, Plan};
use crate::kernels::matmul::Accumulation;
use crate::nn::tape::Track;

impl Pass {
    /// `grads`, flat like the weights, = (or +=) the gradient of Σ dlogp · logp + Σ dentropy · entropy + Σ dvalue · value.
    pub fn backward(
        &mut self,
        plan: &Plan,
        upstream: HeadGradient,
        (grads, into): (&mut [f32], Accumulation),
    ) {
        let Some(hidden) = self.hidden.take() else {
            if into == Accumulation::Overwrite {
                grads.fill(0.0);
            }
            return;
        };
        self.into = into;
        if !self.head_done {
            self.head_backward(plan, hidden, upstream, grads, HeadPass::Backward);
        }
        self.walk(plan, grads);
        let replayed = self.boundaries.len().saturating_sub(1);
        for segment in (0..replayed).rev() {
            self.arena.release(self.boundaries[segment + 1]);
            self.replay(plan, segment);
            self.walk(plan, grads);
        }
        self.embedding_backward(plan, self.boundaries[0], grads);
    }

    /// Runs a segment's forward again, now storing what its backward needs. The last matmul of the segment is not
    /// computed: its result was the next segment's input.
    fn replay(&mut self, plan: &Plan, segment: usize) {
        self.keep = Track::Gradients;
        self.replays = true;
        let first = segment * plan.segment_len();
        let blocks = plan.segment(segment);
        let mut x = self.boundaries[segment];
        for (i, block) in blocks.iter().enumerate() {
            let output = if i + 1 == blocks.len() {
                Output::Known(self.boundaries[segment + 1])
            } else {
                Output::NEW
            };
            x = self.block(plan, x, (first + i, block), None, output);
        }
    }

    fn walk(&mut self, plan: &Plan, grads: &mut [f32]) {
        while let Some(node) = self.nodes.pop() {
            match node {
                Node::Norm {
                    x, y, stats, spans, ..
                } => {
                    self.norm_backward(plan, [x, y, stats], &spans, grads);
                }
                Node::Linear(node) => self.linear_backward(plan, &node, grads),
                Node::QkNorm {
                    x,
                    y,
                    scales,
                    gains,
                } => self.qk_norm_backward(plan, [x, y, scales], gains, grads),
                Node::Attention {
                    qkv,
                    out,
                    lse,
                    layer,
                    sinks,
                } => self.attention_backward(plan, [qkv, out, lse], (layer, sinks), grads),
                Node::LatentNorm(node) => self.latent_norm_backward(plan, &node, grads),
                Node::Join(node) => self.join_backward(&node),
                Node::Values { x, y } => self.values_backward(plan, [x, y]),
                Node::Gate { x, gate, y } => self.gate_backward(plan, [x, gate, y]),
                Node::ShortConv { wide, out, spans } => {
                    self.short_conv_backward(plan, [wide, out], &spans, grads);
                }
                Node::GatedDelta(node) => self.gated_delta_backward(plan, &node, grads),
                Node::Mamba2(node) => self.mamba2_backward(plan, &node, grads),
                // The following linear layer has already computed it.
                Node::Activation { .. } => {}
                Node::Experts(node) => self.experts_backward(plan, &node, grads),
                Node::SharedGate(node) => self.shared_gate_backward(plan, &node, grads),
                Node::Residual {
                    x,
                    residual,
                    y,
                    drop,
                } => self.sum_backward(plan, [x, residual, y], drop),
            }
        }
    }
}
