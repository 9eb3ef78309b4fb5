//! The decoder on the tape: fused kernels on f32 slices, for the CPU.

use super::footprint::Footprint;
use super::kv_cache::KvCache;
use super::layout::{Layout, LinearSpans, NormSpans};
use super::tape::{Arena, Gradients, Slot, Track};
use super::{ModelConfig, ModelShape, TokenBatch};
use crate::kernels::attention::{self, Heads};
use crate::kernels::matmul::{Arithmetic, Compute, Into, Mat, matmul};
use crate::kernels::rotary::{self, RotaryTable, Turn};
use crate::kernels::{activation, embedding, linear, logprob, norm, reduce};

/// What does not change from step to step.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    /// What all products of the pass are computed in.
    pub arithmetic: Arithmetic,
    pub config: &'a ModelConfig,
    pub shape: &'a ModelShape,
    pub layout: &'a Layout,
    pub rotary: Option<&'a RotaryTable>,
    pub weights: &'a [f32],
}

impl Plan<'_> {
    fn heads(&self) -> Heads {
        Heads {
            n_head: self.shape.n_head,
            n_kv_head: self.shape.n_kv_head,
            head_dim: self.shape.head_dim,
        }
    }
}

/// One layer as the forward left it.
#[derive(Debug, Clone, Copy)]
enum Node {
    Embedding {
        x: Slot,
    },
    Norm {
        x: Slot,
        y: Slot,
        stats: Slot,
        spans: NormSpans,
    },
    Linear {
        x: Slot,
        y: Slot,
        residual: Option<Slot>,
        spans: LinearSpans,
    },
    Attention {
        qkv: Slot,
        out: Slot,
        lse: Slot,
    },
    Activation {
        x: Slot,
        y: Slot,
    },
}

/// One kind of pass (training or evaluation) with the memory that it uses again and again.
pub(crate) struct Pass {
    arena: Arena,
    gradients: Gradients,
    nodes: Vec<Node>,
    ids: Vec<u32>,
    targets: Vec<u32>,
    seq_len: usize,
    hidden: Option<Slot>,
    pub outputs: logprob::Outputs,
}

impl Pass {
    pub fn new(track: Track) -> Self {
        Pass {
            arena: Arena::new(track),
            gradients: Gradients::default(),
            nodes: Vec::new(),
            ids: Vec::new(),
            targets: Vec::new(),
            seq_len: 0,
            hidden: None,
            outputs: logprob::Outputs::default(),
        }
    }

    /// What this pass holds in memory after what it has done so far.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            activations: self.arena.bytes(),
            gradients: self.gradients.bytes(),
            head: self.outputs.bytes(),
        }
    }

    /// Fills `outputs` with log-probabilities and entropies of the batch.
    pub fn forward(&mut self, plan: &Plan, batch: &TokenBatch) {
        let hidden = self.hidden(plan, batch.inputs, batch.seq_len, None);
        self.targets.clear();
        self.targets.extend_from_slice(batch.targets);
        let inputs = logprob::Inputs {
            hidden: self.arena.get(hidden),
            table: &plan.weights[plan.layout.head.range()],
            targets: &self.targets,
        };
        logprob::forward(
            plan.arithmetic,
            self.head_sizes(plan),
            inputs,
            &mut self.outputs,
        );
    }

    /// Logits (rows, V) of the last `rows` tokens of `ids`, which follow what the cache holds.
    pub fn logits(
        &mut self,
        plan: &Plan,
        ids: &[u32],
        seq_len: usize,
        cache: Option<&mut KvCache>,
        rows: usize,
    ) -> Vec<f32> {
        let hidden = self.hidden(plan, ids, seq_len, cache);
        let (d, vocab) = (plan.shape.d_model, plan.shape.vocab_size);
        let last = &self.arena.get(hidden)[(ids.len() - rows) * d..];
        let table = Mat::new(&plan.weights[plan.layout.head.range()], vocab, d);
        let mut logits = vec![0.0; rows * vocab];
        let hidden = Mat::new(last, rows, d);
        matmul(
            &mut logits,
            hidden,
            table.t(),
            1.0,
            Into::Overwrite,
            Compute::pool(plan.arithmetic),
        );
        logits
    }

    /// Hidden states (B · T, D) after the last norm.
    fn hidden(
        &mut self,
        plan: &Plan,
        ids: &[u32],
        seq_len: usize,
        mut cache: Option<&mut KvCache>,
    ) -> Slot {
        self.arena.restart();
        self.nodes.clear();
        self.ids.clear();
        self.ids.extend_from_slice(ids);
        self.seq_len = seq_len;
        let start = cache.as_ref().map_or(0, |cache| cache.len());
        let mut x = self.embedding(plan, start);
        for (layer, block) in plan.layout.blocks.iter().enumerate() {
            let h = self.norm(plan, x, &block.norm1);
            let qkv = self.linear(plan, h, None, &block.qkv);
            self.arena.release(h);
            let mixed = match cache.as_deref_mut() {
                Some(cache) => self.cached_attention(plan, qkv, cache, layer),
                None => self.attention(plan, qkv),
            };
            self.arena.release(qkv);
            let after = self.linear(plan, mixed, Some(x), &block.attn_out);
            self.arena.release(mixed);
            self.arena.release(x);
            let h = self.norm(plan, after, &block.norm2);
            let wide = self.linear(plan, h, None, &block.mlp_in);
            self.arena.release(h);
            let active = self.activation(plan, wide);
            self.arena.release(wide);
            x = self.linear(plan, active, Some(after), &block.mlp_out);
            self.arena.release(active);
            self.arena.release(after);
        }
        if let Some(cache) = cache {
            cache.advance(ids.len());
        }
        let hidden = self.norm(plan, x, &plan.layout.norm);
        self.hidden = Some(hidden);
        hidden
    }

    /// Adds the gradient of Σ dlogp · logp + Σ dentropy · entropy to `grads`, flat like the weights.
    pub fn backward(&mut self, plan: &Plan, upstream: logprob::Upstream, grads: &mut [f32]) {
        let Some(hidden) = self.hidden.take() else {
            return;
        };
        let mut dhidden = self.gradients.buffer(self.arena.get(hidden).len());
        let inputs = logprob::Inputs {
            hidden: self.arena.get(hidden),
            table: &plan.weights[plan.layout.head.range()],
            targets: &self.targets,
        };
        let dtable = &mut grads[plan.layout.head.range()];
        let sizes = self.head_sizes(plan);
        logprob::backward(
            plan.arithmetic,
            sizes,
            inputs,
            &mut self.outputs,
            upstream,
            &mut dhidden,
            dtable,
        );
        self.gradients.put(hidden, dhidden);
        while let Some(node) = self.nodes.pop() {
            match node {
                Node::Embedding { x } => self.embedding_backward(plan, x, grads),
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

    fn head_sizes(&self, plan: &Plan) -> logprob::Sizes {
        logprob::Sizes::new(self.ids.len(), plan.shape.d_model, plan.shape.vocab_size)
    }

    fn embedding(&mut self, plan: &Plan, start: usize) -> Slot {
        let slot = self.arena.slot(self.ids.len() * plan.shape.d_model);
        let mut x = self.arena.take(slot);
        let table = &plan.weights[plan.layout.tokens.range()];
        let positions = plan
            .layout
            .positions
            .map(|span| &plan.weights[span.range()]);
        embedding::forward(&self.ids, self.seq_len, table, positions, start, &mut x);
        self.arena.put(slot, x);
        self.nodes.push(Node::Embedding { x: slot });
        slot
    }

    fn embedding_backward(&mut self, plan: &Plan, x: Slot, grads: &mut [f32]) {
        let Some(dx) = self.gradients.take(x) else {
            return;
        };
        embedding::backward(&self.ids, &dx, &mut grads[plan.layout.tokens.range()]);
        if let Some(span) = plan.layout.positions {
            let d = plan.shape.d_model;
            embedding::backward_positions(self.seq_len, d, &dx, &mut grads[span.range()]);
        }
        self.gradients.free(dx);
    }

    fn norm(&mut self, plan: &Plan, x: Slot, spans: &NormSpans) -> Slot {
        let (y, stats) = (
            self.arena.slot(self.arena.get(x).len()),
            self.arena.slot(self.ids.len() * 2),
        );
        let (mut y_values, mut stats_values) = (self.arena.take(y), self.arena.take(stats));
        norm::forward(
            plan.config.norm.kind(),
            self.arena.get(x),
            &plan.weights[spans.gain.range()],
            spans.bias.map(|span| &plan.weights[span.range()]),
            plan.config.norm.eps(),
            &mut y_values,
            &mut stats_values,
        );
        self.arena.put(y, y_values);
        self.arena.put(stats, stats_values);
        self.arena.release(stats);
        self.nodes.push(Node::Norm {
            x,
            y,
            stats,
            spans: *spans,
        });
        y
    }

    fn norm_backward(
        &mut self,
        plan: &Plan,
        [x, y, stats]: [Slot; 3],
        spans: &NormSpans,
        grads: &mut [f32],
    ) {
        let Some(dy) = self.gradients.take(y) else {
            return;
        };
        let saved = norm::Saved {
            x: self.arena.get(x),
            stats: self.arena.get(stats),
        };
        let gain = &plan.weights[spans.gain.range()];
        let (mut dx, into) = self.gradients.open(x, dy.len());
        let (dgain, dbias) = spans.split(grads);
        let params = norm::ParamGradients {
            gain: dgain,
            bias: dbias,
            into: Into::Accumulate,
        };
        norm::backward(
            plan.config.norm.kind(),
            saved,
            gain,
            &dy,
            (&mut dx, into),
            params,
        );
        self.gradients.put(x, dx);
        self.gradients.free(dy);
    }

    fn linear(
        &mut self,
        plan: &Plan,
        x: Slot,
        residual: Option<Slot>,
        spans: &LinearSpans,
    ) -> Slot {
        let sizes = self.linear_sizes(spans);
        let y = self.arena.slot(sizes.rows * sizes.d_out);
        let mut values = self.arena.take(y);
        linear::forward(
            plan.arithmetic,
            sizes,
            self.arena.get(x),
            &plan.weights[spans.weight.range()],
            spans.bias.map(|span| &plan.weights[span.range()]),
            residual.map(|slot| self.arena.get(slot)),
            &mut values,
        );
        self.arena.put(y, values);
        self.nodes.push(Node::Linear {
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

    fn linear_backward(
        &mut self,
        plan: &Plan,
        [x, y]: [Slot; 2],
        residual: Option<Slot>,
        spans: &LinearSpans,
        grads: &mut [f32],
    ) {
        let Some(dy) = self.gradients.take(y) else {
            return;
        };
        let sizes = self.linear_sizes(spans);
        let dweight = &mut grads[spans.weight.range()];
        linear::backward_weight(plan.arithmetic, sizes, &dy, self.arena.get(x), dweight);
        if let Some(span) = spans.bias {
            linear::backward_bias(&dy, &mut grads[span.range()]);
        }
        let (mut dx, into) = self.gradients.open(x, sizes.rows * sizes.d_in);
        let weight = &plan.weights[spans.weight.range()];
        linear::backward_input(plan.arithmetic, sizes, &dy, weight, &mut dx, into);
        self.gradients.put(x, dx);
        // The residual's gradient is dy itself: handed on where it is the first.
        let Some(residual) = residual else {
            return self.gradients.free(dy);
        };
        match self.gradients.take(residual) {
            None => self.gradients.put(residual, dy),
            Some(mut sum) => {
                reduce::add(&mut sum, &dy);
                self.gradients.put(residual, sum);
                self.gradients.free(dy);
            }
        }
    }

    fn attention(&mut self, plan: &Plan, qkv: Slot) -> Slot {
        self.turn_slot(plan, qkv, 0);
        let (heads, rows) = (plan.heads(), self.ids.len());
        let out = self.arena.slot(rows * heads.q_width());
        let lse = self.arena.slot(rows * heads.n_head);
        let (mut out_values, mut lse_values) = (self.arena.take(out), self.arena.take(lse));
        attention::forward(
            plan.arithmetic,
            attention::Sizes::causal(heads, self.seq_len),
            self.arena.get(qkv),
            &mut out_values,
            &mut lse_values,
        );
        self.arena.put(out, out_values);
        self.arena.put(lse, lse_values);
        self.arena.release(lse);
        self.nodes.push(Node::Attention { qkv, out, lse });
        out
    }

    fn cached_attention(
        &mut self,
        plan: &Plan,
        qkv: Slot,
        cache: &mut KvCache,
        layer: usize,
    ) -> Slot {
        let (heads, new, past) = (plan.heads(), self.ids.len(), cache.len());
        self.turn_slot(plan, qkv, past);
        let out = self.arena.slot(new * heads.q_width());
        let mut values = self.arena.take(out);
        let qkv = self.arena.get(qkv);
        cache.append(layer, heads, qkv);
        attention::forward_cached(
            plan.arithmetic,
            heads,
            (past, new),
            (qkv, heads.qkv_width()),
            cache.layer(layer),
            &mut values,
        );
        self.arena.put(out, values);
        out
    }

    /// Turns queries and keys in place.
    fn turn_slot(&mut self, plan: &Plan, qkv: Slot, start: usize) {
        let mut values = self.arena.take(qkv);
        self.turn(plan, &mut values, start, Turn::Forward);
        self.arena.put(qkv, values);
    }

    fn turn(&self, plan: &Plan, qkv: &mut [f32], start: usize, turn: Turn) {
        let heads = plan.heads();
        if let Some(table) = plan.rotary {
            let n_turned = heads.n_head + heads.n_kv_head;
            let width = heads.qkv_width();
            rotary::apply(table, qkv, width, n_turned, (self.seq_len, start), turn);
        }
    }

    fn attention_backward(&mut self, plan: &Plan, qkv: Slot, out: Slot, lse: Slot) {
        let Some(dout) = self.gradients.take(out) else {
            return;
        };
        let mut dqkv = self.gradients.buffer(self.arena.get(qkv).len());
        let saved = attention::Saved {
            qkv: self.arena.get(qkv),
            out: self.arena.get(out),
            lse: self.arena.get(lse),
        };
        attention::backward(
            plan.arithmetic,
            attention::Sizes::causal(plan.heads(), self.seq_len),
            saved,
            &dout,
            &mut dqkv,
        );
        self.turn(plan, &mut dqkv, 0, Turn::Back);
        self.gradients.put(qkv, dqkv);
        self.gradients.free(dout);
    }

    fn activation(&mut self, plan: &Plan, x: Slot) -> Slot {
        let d_ff = plan.shape.d_ff;
        let y = self.arena.slot(self.ids.len() * d_ff);
        let mut values = self.arena.take(y);
        let kind = plan.config.mlp.activation();
        activation::forward(kind, d_ff, self.arena.get(x), &mut values);
        self.arena.put(y, values);
        self.nodes.push(Node::Activation { x, y });
        y
    }

    fn activation_backward(&mut self, plan: &Plan, x: Slot, y: Slot) {
        let Some(dy) = self.gradients.take(y) else {
            return;
        };
        let x_values = self.arena.get(x);
        let mut dx = self.gradients.buffer(x_values.len());
        let kind = plan.config.mlp.activation();
        activation::backward(kind, plan.shape.d_ff, x_values, &dy, &mut dx);
        self.gradients.put(x, dx);
        self.gradients.free(dy);
    }
}
