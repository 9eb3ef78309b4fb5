//! The decoder on the tape: fused kernels on f32 slices, for the CPU. Here is the forward pass; `backward` walks back.

mod backward;
mod reading;

use super::checkpointing::ActivationCheckpointing;
use super::footprint::Footprint;
use super::kv_cache::Texts;
use super::layout::{BlockSpans, Layout, LinearSpans, NormSpans, Span};
use super::profile::{Part, Profile};
use super::tape::{Arena, Slot, Track};
use super::weights::Weights;
use super::{ModelConfig, ModelShape, TokenBatch};
use crate::kernels::attention::{self, Heads, Mask};
use crate::kernels::matmul::{Arithmetic, Into};
use crate::kernels::matrix::Matrix;
use crate::kernels::positions::Positions;
use crate::kernels::rotary::{self, RotaryTable, Turn};
use crate::kernels::{activation, embedding, linear, logprob, norm};

/// What does not change from step to step.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    /// What all products of the pass are computed in.
    pub arithmetic: Arithmetic,
    pub checkpointing: ActivationCheckpointing,
    pub config: &'a ModelConfig,
    pub shape: &'a ModelShape,
    pub layout: &'a Layout,
    pub rotary: Option<&'a RotaryTable>,
    pub weights: Weights<'a>,
}

impl<'a> Plan<'a> {
    /// A matrix of weights: the one place where a pass reads it, whatever it is kept in. What a backward differentiates
    /// by is always dense: [`Plan::dense`].
    fn matrix(&self, span: Span) -> Matrix<'a> {
        self.weights.matrix(span)
    }

    /// A vector of weights (gains, biases), or a table of which rows are added.
    fn dense(&self, span: Span) -> &'a [f32] {
        self.weights.dense(span)
    }

    fn heads(&self) -> Heads {
        Heads {
            n_head: self.shape.n_head,
            n_kv_head: self.shape.n_kv_head,
            head_dim: self.shape.head_dim,
        }
    }

    fn norm_of(&self, spans: &NormSpans) -> norm::Norm<'a> {
        norm::Norm {
            kind: self.config.norm.kind(),
            gain: self.dense(spans.gain),
            gain_offset: self.config.norm.gain_offset() as f32,
            bias: spans.bias.map(|span| self.dense(span)),
            eps: self.config.norm.eps() as f32,
        }
    }

    fn segment_len(&self) -> usize {
        self.checkpointing.segment_len(self.shape.n_layer)
    }

    /// Blocks of segment number `segment`.
    fn segment(&self, segment: usize) -> &[BlockSpans] {
        let len = self.segment_len();
        let blocks = &self.layout.blocks;
        &blocks[segment * len..((segment + 1) * len).min(blocks.len())]
    }
}

/// One layer as the forward left it.
#[derive(Debug, Clone, Copy)]
enum Node {
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

/// Where a block's output goes.
#[derive(Debug, Clone, Copy)]
enum Output {
    /// To a slot of its own.
    New,
    /// It was computed before: only the way back to this slot is recorded.
    Known(Slot),
}

/// How the tokens of a pass lie in rows.
#[derive(Debug, Default)]
struct Rows {
    seq_len: usize,
    /// Where documents begin in packed rows; empty where each row is one.
    first: Vec<u32>,
}

impl Rows {
    fn documents(&self) -> Option<&[u32]> {
        (!self.first.is_empty()).then_some(&*self.first)
    }

    /// Positions of the tokens, `start` of which were read before.
    fn positions(&self, start: usize) -> Positions<'_> {
        Positions {
            seq_len: self.seq_len,
            start,
            first: self.documents(),
        }
    }

    fn attention(&self, heads: Heads) -> attention::Sizes<'_> {
        attention::Sizes {
            heads,
            seq_len: self.seq_len,
            mask: Mask {
                window: None,
                first: self.documents(),
            },
            scores: Default::default(),
        }
    }
}

/// One kind of pass (training or evaluation) with the memory that it uses again and again.
pub(crate) struct Pass {
    /// Whether this pass has a backward.
    track: Track,
    /// Whether what runs now is kept: segments that will run again are not.
    keep: Track,
    arena: Arena,
    nodes: Vec<Node>,
    /// Input of each segment of blocks; the first is the embedding's output.
    boundaries: Vec<Slot>,
    ids: Vec<u32>,
    targets: Vec<u32>,
    rows: Rows,
    hidden: Option<Slot>,
    /// How the backward under way writes gradients of parameters.
    into: Into,
    /// What the arena held after the first forward of this size.
    forward_bytes: u64,
    pub outputs: logprob::Outputs,
    pub profile: Profile,
}

impl Pass {
    pub fn new(track: Track) -> Self {
        Pass {
            track,
            keep: track,
            arena: Arena::default(),
            nodes: Vec::new(),
            boundaries: Vec::new(),
            ids: Vec::new(),
            targets: Vec::new(),
            rows: Rows::default(),
            hidden: None,
            into: Into::Accumulate,
            forward_bytes: 0,
            outputs: logprob::Outputs::default(),
            profile: Profile::default(),
        }
    }

    /// What this pass holds in memory after what it has done so far.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            activations: self.forward_bytes,
            gradients: self.arena.bytes() - self.forward_bytes,
            head: self.outputs.bytes(),
        }
    }

    /// Fills `outputs` with log-probabilities and entropies of the batch.
    pub fn forward(&mut self, plan: &Plan, batch: &TokenBatch) {
        let hidden = self.hidden(plan, (batch.inputs, batch.first), batch.seq_len, None);
        self.targets.clear();
        self.targets.extend_from_slice(batch.targets);
        let sizes = self.head_sizes(plan);
        let inputs = logprob::Inputs {
            hidden: self.arena.get(hidden),
            table: plan.matrix(plan.layout.head),
            targets: &self.targets,
        };
        let outputs = &mut self.outputs;
        self.profile.measure(Part::Head, || {
            logprob::forward(plan.arithmetic, sizes, inputs, outputs);
        });
    }

    /// Logits (B · T, V) of all tokens of `ids`, into a buffer that may be used again.
    pub fn logits(&mut self, plan: &Plan, ids: &[u32], seq_len: usize, logits: &mut Vec<f32>) {
        let hidden = self.hidden(plan, (ids, None), seq_len, None);
        let Pass { arena, profile, .. } = self;
        profile.measure(Part::Head, || head(plan, arena.get(hidden), logits));
    }

    /// Hidden states (B · T, D) after the last norm.
    fn hidden(
        &mut self,
        plan: &Plan,
        (ids, first): (&[u32], Option<&[u32]>),
        seq_len: usize,
        mut texts: Option<&mut Texts>,
    ) -> Slot {
        self.begin(ids, seq_len);
        self.rows.first.extend_from_slice(first.unwrap_or_default());
        let start = match &texts {
            Some(texts) => texts.positions(&mut self.rows.first),
            None => 0,
        };
        let n_layer = plan.shape.n_layer;
        let segment_len = plan.segment_len();
        let mut x = self.embedding(plan, start);
        for (layer, block) in plan.layout.blocks.iter().enumerate() {
            if layer % segment_len == 0 {
                self.boundaries.push(x);
                let last = layer + segment_len >= n_layer;
                self.keep = if last { self.track } else { Track::Off };
            }
            let y = self.block(plan, x, block, texts.as_deref_mut(), layer, Output::New);
            let is_boundary = self.boundaries.last() == Some(&x);
            if self.track == Track::Off || !is_boundary {
                self.read(x);
            }
            x = y;
        }
        if let Some(texts) = texts {
            texts.advance();
        }
        let hidden = match &plan.layout.norm {
            Some(norm) => {
                let hidden = self.norm(plan, x, norm);
                self.read(x);
                hidden
            }
            None => x,
        };
        if self.forward_bytes == 0 {
            self.forward_bytes = self.arena.bytes();
        }
        self.hidden = Some(hidden);
        hidden
    }

    fn begin(&mut self, ids: &[u32], seq_len: usize) {
        if (ids.len(), seq_len) != (self.ids.len(), self.rows.seq_len) {
            self.arena.clear();
            self.forward_bytes = 0;
        }
        self.arena.restart();
        self.nodes.clear();
        self.boundaries.clear();
        self.ids.clear();
        self.ids.extend_from_slice(ids);
        self.rows.seq_len = seq_len;
        self.rows.first.clear();
        self.keep = self.track;
    }

    /// Says that the forward has read a slot for the last time.
    fn read(&mut self, slot: Slot) {
        if self.keep == Track::Off {
            self.arena.release(slot);
        }
    }

    fn record(&mut self, node: Node) {
        if self.keep == Track::Gradients {
            self.nodes.push(node);
        }
    }

    /// One transformer block over `x`, which is left alone.
    fn block(
        &mut self,
        plan: &Plan,
        x: Slot,
        block: &BlockSpans,
        texts: Option<&mut Texts>,
        layer: usize,
        output: Output,
    ) -> Slot {
        let h = self.norm_before(plan, x, block.norm1.as_ref());
        let qkv = self.linear(plan, h, None, &block.qkv, Output::New);
        self.read_unless(h, x);
        let mixed = match texts {
            Some(texts) => self.cached_attention(plan, qkv, texts, layer),
            None => self.attention(plan, qkv),
        };
        self.read(qkv);
        let after = self.linear(plan, mixed, Some(x), &block.attn_out, Output::New);
        self.read(mixed);
        let h = self.norm_before(plan, after, block.norm2.as_ref());
        let mlp = block.mlp.first();
        let wide = self.linear(plan, h, None, &mlp.wide, Output::New);
        self.read_unless(h, after);
        let active = self.activation(plan, wide);
        self.read(wide);
        let y = self.linear(plan, active, Some(after), &mlp.out, output);
        self.read(active);
        self.read(after);
        y
    }

    /// The norm in front of a sub-layer, where there is one.
    fn norm_before(&mut self, plan: &Plan, x: Slot, norm: Option<&NormSpans>) -> Slot {
        norm.map_or(x, |norm| self.norm(plan, x, norm))
    }

    fn read_unless(&mut self, slot: Slot, other: Slot) {
        if slot != other {
            self.read(slot);
        }
    }

    fn head_sizes(&self, plan: &Plan) -> logprob::Sizes {
        logprob::Sizes::new(self.ids.len(), plan.shape.d_model, plan.shape.vocab_size)
    }

    fn embedding(&mut self, plan: &Plan, start: usize) -> Slot {
        let slot = self.arena.slot(self.ids.len() * plan.shape.d_model);
        let mut x = self.arena.take(slot);
        let table = plan.matrix(plan.layout.tokens);
        let vectors = plan.layout.positions;
        let vectors = vectors.map(|span| plan.dense(span));
        let positions = self.rows.positions(start);
        self.profile.measure(Part::Embedding, || {
            embedding::forward(&self.ids, table, vectors, positions, &mut x);
        });
        self.arena.put(slot, x);
        slot
    }

    fn norm(&mut self, plan: &Plan, x: Slot, spans: &NormSpans) -> Slot {
        let y = self.arena.slot(self.ids.len() * plan.shape.d_model);
        let stats = self.arena.slot(self.ids.len() * 2);
        let (mut y_values, mut stats_values) = (self.arena.take(y), self.arena.take(stats));
        let x_values = self.arena.get(x);
        self.profile.measure(Part::Norm, || {
            norm::forward(
                plan.norm_of(spans),
                x_values,
                &mut y_values,
                &mut stats_values,
            );
        });
        self.arena.put(y, y_values);
        self.arena.put(stats, stats_values);
        self.read(stats);
        self.record(Node::Norm {
            x,
            y,
            stats,
            spans: *spans,
        });
        y
    }

    fn linear(
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

    fn attention(&mut self, plan: &Plan, qkv: Slot) -> Slot {
        self.turn_slot(plan, qkv, 0);
        let (heads, rows) = (plan.heads(), self.ids.len());
        let out = self.arena.slot(rows * heads.q_width());
        let lse = self.arena.slot(rows * heads.n_head);
        let (mut out_values, mut lse_values) = (self.arena.take(out), self.arena.take(lse));
        let (sizes, qkv_values) = (self.rows.attention(heads), self.arena.get(qkv));
        self.profile.measure(Part::AttentionForward, || {
            attention::forward(
                plan.arithmetic,
                sizes,
                qkv_values,
                &mut out_values,
                &mut lse_values,
            );
        });
        self.arena.put(out, out_values);
        self.arena.put(lse, lse_values);
        self.read(lse);
        self.record(Node::Attention { qkv, out, lse });
        out
    }

    /// Turns queries and keys in place.
    fn turn_slot(&mut self, plan: &Plan, qkv: Slot, start: usize) {
        let mut values = self.arena.take(qkv);
        self.turn(plan, &mut values, start, Turn::Forward);
        self.arena.put(qkv, values);
    }

    fn turn(&mut self, plan: &Plan, qkv: &mut [f32], start: usize, turn: Turn) {
        let heads = plan.heads();
        if let Some(table) = plan.rotary {
            let n_turned = heads.n_head + heads.n_kv_head;
            let width = heads.qkv_width();
            let positions = self.rows.positions(start);
            self.profile.measure(Part::Rotary, || {
                rotary::apply(table, qkv, width, n_turned, positions, turn);
            });
        }
    }

    fn activation(&mut self, plan: &Plan, x: Slot) -> Slot {
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
}

/// Logits (rows, V) of `hidden` states (rows, D) after the last norm.
fn head(plan: &Plan, hidden: &[f32], logits: &mut Vec<f32>) {
    let (d, vocab) = (plan.shape.d_model, plan.shape.vocab_size);
    let rows = hidden.len() / d;
    let sizes = linear::Sizes {
        rows,
        d_in: d,
        d_out: vocab,
    };
    let table = plan.matrix(plan.layout.head);
    logits.resize(rows * vocab, 0.0);
    linear::forward(plan.arithmetic, sizes, hidden, table, None, None, logits);
}
