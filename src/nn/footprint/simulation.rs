//! A pass simulated through without computing: which buffers it asks for and gives back, in its own order. Each function here
//! stands for the one of the same name in `fused`.

use crate::nn::fused::is_recomputed;
use crate::nn::layout::{Layout, LinearSpans, MlpSpans};
use crate::nn::tape::Track;
use crate::nn::{AdapterConfig, ModelConfig, ModelShape, MoeConfig, NormPlacement};
use std::collections::BTreeMap;

/// The pool of buffers as numbers: widths of rows that are free, and how often.
pub(super) struct Simulation<'a> {
    config: &'a ModelConfig,
    rows: usize,
    n_layer: usize,
    d: usize,
    qkv: usize,
    attended: usize,
    d_ff: usize,
    lse: usize,
    /// Heads whose scale a norm of queries and keys keeps.
    scales: usize,
    drops: bool,
    /// Of each block what its adapters keep of a row.
    low: Vec<Low>,
    /// Whether features are dropped on their way into adapters.
    adapter_drops: bool,
    free: BTreeMap<usize, usize>,
    pub elements: usize,
}

/// Statistics of a norm.
const STATS: usize = 2;

/// Widths of x Aᵀ by linear layer; 0 where there is no adapter.
#[derive(Debug, Clone, Copy, Default)]
struct Low {
    qkv: usize,
    attn_out: usize,
    wide: usize,
    out: usize,
}

impl Low {
    /// Of all blocks.
    fn of(config: &ModelConfig, shape: &ModelShape, adapter: Option<&AdapterConfig>) -> Vec<Low> {
        if adapter.is_none() {
            return vec![Low::default(); shape.n_layer];
        }
        let layout = Layout::adapted(config, shape, adapter);
        let blocks = layout.blocks.iter().map(|block| {
            let width =
                |linear: &LinearSpans| linear.adapter.map_or(0, |i| layout.adapters[i].a.rows);
            let (wide, out) = match &block.mlp {
                MlpSpans::One(mlp) => (width(&mlp.wide), width(&mlp.out)),
                MlpSpans::Many(_) => (0, 0),
            };
            Low {
                qkv: width(&block.qkv),
                attn_out: width(&block.attn_out),
                wide,
                out,
            }
        });
        blocks.collect()
    }
}

/// The widths of a block's experts.
#[derive(Clone, Copy)]
struct Widths {
    top_k: usize,
    n_expert: usize,
    routing: usize,
    wide: usize,
    active: usize,
    outs: usize,
}

/// What a sub-layer ends with.
#[derive(Clone, Copy)]
enum Last {
    /// A product from rows so wide, and what its adapters keep.
    Linear(usize, usize),
    Experts(Widths),
}

impl<'a> Simulation<'a> {
    pub fn new(
        config: &'a ModelConfig,
        shape: &ModelShape,
        adapter: Option<&AdapterConfig>,
        rows: usize,
        track: Track,
    ) -> Self {
        let dropout = adapter.map_or(0.0, |adapter| adapter.dropout());
        Simulation {
            config,
            rows,
            n_layer: shape.n_layer,
            d: shape.d_model,
            qkv: (shape.n_head + 2 * shape.n_kv_head) * shape.head_dim,
            attended: shape.n_head * shape.head_dim,
            d_ff: shape.d_ff,
            lse: shape.n_head,
            scales: shape.n_head + shape.n_kv_head,
            drops: config.dropout > 0.0 && track == Track::Gradients,
            low: Low::of(config, shape, adapter),
            adapter_drops: dropout > 0.0 && track == Track::Gradients,
            free: BTreeMap::new(),
            elements: 0,
        }
    }

    fn get(&mut self, width: usize) {
        match self.free.get_mut(&width) {
            Some(n) if *n > 0 => *n -= 1,
            _ => self.elements += width * self.rows,
        }
    }

    fn free(&mut self, width: usize) {
        *self.free.entry(width).or_default() += 1;
    }

    /// Gives back what a pass keeps only for its backward.
    fn done(&mut self, kept: bool, width: usize) {
        if !kept {
            self.free(width);
        }
    }

    /// Whether values so wide wait for the backward, or are made anew.
    fn waits(&self, kept: bool, width: usize) -> bool {
        kept && !is_recomputed(width * self.rows)
    }

    /// The adapters of a layer whose input is `width` wide, after its own product.
    fn adapter(&mut self, low: usize, width: usize, kept: bool) {
        if low == 0 {
            return;
        }
        if self.adapter_drops {
            self.get(width);
        }
        self.get(low);
        if self.adapter_drops {
            self.free(width);
        }
        self.done(kept, low);
    }

    /// Back through a layer whose input is `width` wide: the gradient of the input, unless it is `known` already, and what
    /// adapters need meanwhile.
    fn linear_back(&mut self, low: usize, width: usize, is_recomputed: bool, known: bool) {
        if low > 0 {
            self.get(low);
            self.free(low);
            let held = usize::from(is_recomputed) + usize::from(self.adapter_drops);
            (0..held).for_each(|_| self.get(width));
            (0..held).for_each(|_| self.free(width));
        }
        if !known {
            self.get(width);
        }
        if low > 0 {
            if self.adapter_drops {
                self.get(width);
                self.free(width);
            }
            self.free(low);
        }
    }

    pub fn training_forward(&mut self, segment_len: usize) {
        self.get(self.d);
        let last = (self.n_layer - 1) / segment_len;
        for layer in 0..self.n_layer {
            let kept = layer / segment_len == last;
            self.block(layer, kept, true);
            if !kept && layer % segment_len != 0 {
                self.free(self.d);
            }
        }
        self.last_norm();
    }

    pub fn evaluation_forward(&mut self) {
        self.get(self.d);
        for layer in 0..self.n_layer {
            self.block(layer, false, true);
            self.free(self.d);
        }
        self.last_norm();
    }

    fn last_norm(&mut self) {
        if self.config.norm_placement != NormPlacement::Post {
            self.get(self.d);
            self.get(STATS);
        }
    }

    pub fn backward(&mut self, segment_len: usize) {
        let last = (self.n_layer - 1) / segment_len;
        // Gradient by the hidden states.
        self.get(self.d);
        if self.config.norm_placement != NormPlacement::Post {
            self.norm_back(true, false);
        }
        self.segment_back(last * segment_len..self.n_layer, true);
        for segment in (0..last).rev() {
            self.free(self.d);
            let layers = segment * segment_len..(segment + 1) * segment_len;
            for layer in layers.clone() {
                self.block(layer, true, layer + 1 < layers.end);
            }
            self.segment_back(layers, false);
        }
    }

    /// Whether sub-layers begin with a norm, and end with one.
    fn norms(&self) -> (bool, bool) {
        match self.config.norm_placement {
            NormPlacement::Pre => (true, false),
            NormPlacement::Post => (false, true),
            NormPlacement::Both => (true, true),
        }
    }

    fn widths(&self, moe: &MoeConfig) -> Widths {
        let d_ff = moe.d_ff.unwrap_or(self.d_ff);
        let wide = self.config.mlp.activation().input_width(d_ff);
        Widths {
            top_k: moe.top_k,
            n_expert: moe.n_expert,
            routing: moe.router().width(),
            wide: moe.top_k * wide,
            active: moe.top_k * d_ff,
            outs: moe.top_k * self.d,
        }
    }

    /// Forward of one block; `output` says whether its last values are wanted.
    fn block(&mut self, layer: usize, kept: bool, output: bool) {
        let (before, _) = self.norms();
        if before {
            self.norm(kept, true);
        }
        let low = self.low[layer];
        self.get(self.qkv);
        self.adapter(low.qkv, self.d, kept);
        if before {
            self.done(self.waits(kept, self.d), self.d);
        }
        if self.config.qk_norm {
            self.get(self.qkv);
            self.get(self.scales);
            self.done(kept, self.scales);
            self.done(kept, self.qkv);
        }
        self.get(self.attended);
        self.get(self.lse);
        self.done(kept, self.lse);
        self.done(kept, self.qkv);
        self.join(Last::Linear(self.attended, low.attn_out), kept, true);
        self.done(kept, self.attended);
        if before {
            self.norm(kept, true);
        }
        match self.config.experts(layer).map(|moe| self.widths(moe)) {
            Some(widths) => {
                self.join(Last::Experts(widths), kept, output);
                if before {
                    self.done(kept, self.d);
                }
            }
            None => {
                let wide = self.config.mlp.activation().input_width(self.d_ff);
                self.get(wide);
                self.adapter(low.wide, self.d, kept);
                if before {
                    self.done(self.waits(kept, self.d), self.d);
                }
                self.get(self.d_ff);
                self.done(kept, wide);
                self.join(Last::Linear(self.d_ff, low.out), kept, output);
                self.free(self.d_ff);
            }
        }
        self.done(kept, self.d);
    }

    fn norm(&mut self, kept: bool, output: bool) {
        self.get(self.d);
        self.get(STATS);
        if !output {
            self.free(self.d);
        }
        self.done(kept, STATS);
    }

    fn join(&mut self, last: Last, kept: bool, output: bool) {
        let (before, after) = self.norms();
        if before && after {
            self.last(last, kept, true);
            self.norm(kept, true);
            self.done(kept, self.d);
            return self.residual(output);
        }
        let sum = output || after;
        if self.drops {
            self.last(last, kept, true);
            self.residual(sum);
        } else {
            self.last(last, kept, sum);
        }
        if after {
            self.norm(kept, output);
            self.done(kept, self.d);
        }
    }

    fn residual(&mut self, output: bool) {
        if output {
            self.get(self.d);
        }
        self.free(self.d);
    }

    fn last(&mut self, last: Last, kept: bool, output: bool) {
        if let Last::Experts(w) = last {
            self.get(w.routing);
            self.get(w.n_expert);
            self.free(w.n_expert);
            self.get(w.outs);
            self.get(w.wide);
            self.free(w.outs);
            self.get(w.active);
            self.get(w.outs);
            if output {
                self.get(self.d);
            }
            for width in [w.wide, w.active, w.outs, w.routing] {
                self.done(kept, width);
            }
        } else if output {
            self.get(self.d);
        }
        if let Last::Linear(width, low) = last {
            self.adapter(low, width, kept);
        }
    }

    /// Backward of kept blocks; `output` says whether the last one's output is still held.
    fn segment_back(&mut self, layers: std::ops::Range<usize>, output: bool) {
        let (before, _) = self.norms();
        for layer in layers.clone().rev() {
            let held = output || layer + 1 < layers.end;
            let low = self.low[layer];
            let is_recomputed = before && !self.waits(true, self.d);
            match self.config.experts(layer).map(|moe| self.widths(moe)) {
                Some(widths) => {
                    self.join_back(Last::Experts(widths), held);
                    if before {
                        self.norm_back(true, true);
                    }
                }
                None => {
                    let wide = self.config.mlp.activation().input_width(self.d_ff);
                    self.join_back(Last::Linear(self.d_ff, low.out), held);
                    // The gradient by the wide side lies where its values were; product in.
                    self.free(self.d_ff);
                    self.linear_back(low.wide, self.d, is_recomputed, !before);
                    self.free(wide);
                    if before {
                        self.norm_back(self.waits(true, self.d), true);
                    }
                }
            }
            self.join_back(Last::Linear(self.attended, low.attn_out), true);
            self.attention_back(low.qkv, is_recomputed);
            if before {
                self.norm_back(self.waits(true, self.d), true);
            }
        }
    }

    /// From the output of attention to the norm in front of it.
    fn attention_back(&mut self, low: usize, is_recomputed: bool) {
        self.get(self.qkv);
        self.free(self.attended);
        self.free(self.attended);
        self.free(self.lse);
        if self.config.qk_norm {
            self.free(self.qkv);
            self.get(self.qkv);
            self.free(self.qkv);
            self.free(self.scales);
        }
        self.free(self.qkv);
        self.linear_back(low, self.d, is_recomputed, !self.norms().0);
        self.free(self.qkv);
    }

    /// `held`: the output's values are there. `known`: the input has a gradient already.
    fn norm_back(&mut self, held: bool, known: bool) {
        if held {
            self.free(self.d);
        }
        if !known {
            self.get(self.d);
        }
        self.free(self.d);
        self.free(STATS);
    }

    fn join_back(&mut self, last: Last, held: bool) {
        let (before, after) = self.norms();
        if before && after {
            self.sum_back(held);
            self.norm_back(false, false);
            return self.last_back(last, true, false);
        }
        if after {
            self.norm_back(held, false);
        }
        let held = held || after;
        if self.drops {
            self.sum_back(held);
            self.last_back(last, false, false);
        } else {
            self.last_back(last, held, true);
        }
    }

    fn sum_back(&mut self, held: bool) {
        if held {
            self.free(self.d);
        }
        self.get(self.d);
    }

    /// `residual`: the gradient by the output goes on as the residual stream's.
    fn last_back(&mut self, last: Last, held: bool, residual: bool) {
        if held {
            self.free(self.d);
        }
        match last {
            Last::Linear(width, low) => {
                self.linear_back(low, width, false, false);
                if !residual {
                    self.free(self.d);
                }
            }
            Last::Experts(w) => self.experts_back(w, residual),
        }
    }

    fn experts_back(&mut self, w: Widths, residual: bool) {
        let (before, _) = self.norms();
        self.get(w.top_k);
        self.get(w.active);
        self.free(w.active);
        self.free(w.active);
        self.get(w.outs);
        self.free(w.outs);
        self.free(w.wide);
        // The input is the residual stream itself where no norm stands before; a sum has handed its gradient on.
        let known = !before && !residual;
        if !known {
            self.get(self.d);
        }
        self.free(w.outs);
        self.get(w.n_expert);
        self.free(w.n_expert);
        self.free(w.routing);
        self.free(w.top_k);
        if !residual || !before {
            self.free(self.d);
        }
    }
}
