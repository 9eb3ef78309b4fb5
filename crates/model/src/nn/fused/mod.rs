//! The decoder on the tape: fused kernels on f32 slices, for the CPU. Here is the forward pass over whole batches; `block` and
//! `mixing` assemble a block, each kind of node has a file with its forward and its backward, and `backward` runs the nodes in
//! reverse.

mod activation;
mod adapter;
mod attention;
mod backward;
mod block;
mod count;
mod embedding;
mod experts;
mod gate;
mod gated_delta;
mod head;
mod latent;
mod linear;
mod mamba2;
mod mixing;
mod norm;
mod plan;
mod qk_norm;
mod reading;
mod recompute;
mod residual;
mod shared_expert;
mod short_conv;

pub use count::Footprint;
pub(crate) use experts::Experts;
pub(crate) use head::HeadGradient;
pub(crate) use plan::{Magnitudes, Plan};

use super::TokenBatch;
use super::kv_cache::Texts;
use super::layout::{NormSpans, ShortConvSpans, Span};
use super::profile::{Kernels, Part};
use super::tap::{self, Activation, SharedTap, Site};
use super::tape::{Arena, Slot, Track};
use crate::kernels::dropout::Dropout;
use crate::kernels::experts::Counted;
use crate::kernels::logprob;
use crate::kernels::matmul::Accumulation;
use crate::kernels::numbers::Storage;
use crate::kernels::positions::Positions;
use std::borrow::Cow;

use head::HeadPass;

/// One layer, as recorded by the forward. A tape holds a few hundred of them, so their size does not matter.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::large_enum_variant,
    reason = "nodes are copied out of the tape"
)]
enum Node {
    Norm {
        x: Slot,
        y: Slot,
        /// The dtype of the output.
        storage: Storage,
        stats: Slot,
        spans: NormSpans,
    },
    Linear(linear::LinearNode),
    QkNorm {
        x: Slot,
        y: Slot,
        scales: Slot,
        gains: [Span; 2],
    },
    Attention {
        qkv: Slot,
        out: Slot,
        lse: Slot,
        layer: usize,
        sinks: Option<Span>,
    },
    LatentNorm(latent::LatentNormNode),
    Join(latent::JoinNode),
    /// The features of attention's heads that are values.
    Values {
        x: Slot,
        y: Slot,
    },
    /// x ∘ sigmoid(gate).
    Gate {
        x: Slot,
        gate: Slot,
        y: Slot,
    },
    ShortConv {
        wide: Slot,
        out: Slot,
        spans: ShortConvSpans,
    },
    GatedDelta(gated_delta::GatedDeltaNode),
    Mamba2(mamba2::Mamba2Node),
    Activation {
        x: Slot,
        y: Slot,
    },
    Experts(experts::ExpertsNode),
    SharedGate(shared_expert::SharedGateNode),
    /// A sum with the residual stream, with dropout or scaled.
    Residual {
        x: Slot,
        residual: Slot,
        y: Slot,
        drop: Option<Dropout>,
    },
}

impl Node {
    /// The slot of its output.
    fn output(&self) -> Slot {
        match self {
            Node::Norm { y, .. }
            | Node::QkNorm { y, .. }
            | Node::Attention { out: y, .. }
            | Node::ShortConv { out: y, .. }
            | Node::Gate { y, .. }
            | Node::Values { y, .. }
            | Node::Activation { y, .. }
            | Node::Residual { y, .. } => *y,
            Node::Linear(node) => node.y,
            Node::GatedDelta(node) => node.out,
            Node::LatentNorm(node) => node.y,
            Node::Join(node) => node.qkv,
            Node::Mamba2(node) => node.out,
            Node::Experts(node) => node.output(),
            Node::SharedGate(node) => node.y,
        }
    }
}

/// Where a block's output goes.
#[derive(Debug, Clone, Copy)]
enum Output {
    /// To a new slot, stored in this dtype.
    New(Storage),
    /// Already computed: only the backward of this slot is recorded.
    Known(Slot),
}

impl Output {
    const NEW: Output = Output::New(Storage::F32);
}

/// The layout of a pass's tokens in rows.
#[derive(Debug, Default)]
struct Rows {
    /// Tokens of all rows.
    count: usize,
    seq_len: usize,
    /// Document starts in packed rows; empty if each row is one document.
    first: Vec<u32>,
    /// For each row, the number of leading positions that are not padding; empty without padding.
    filled: Vec<u32>,
}

impl Rows {
    /// The tokens that count in balancing losses.
    fn counted(&self) -> Counted<'_> {
        Counted {
            seq_len: self.seq_len,
            filled: &self.filled,
        }
    }

    /// Values (rows, `width`) as observers get them: without padding.
    fn without_padding<'a>(&self, values: &'a [f32], width: usize) -> Cow<'a, [f32]> {
        if self.filled.is_empty() || width == 0 {
            return Cow::Borrowed(values);
        }
        let counted = self.counted();
        let rows = values.chunks_exact(width).enumerate();
        let tokens = rows.filter(|(at, _)| counted.has(*at));
        tokens.flat_map(|(_, row)| row).copied().collect()
    }

    fn documents(&self) -> Option<&[u32]> {
        (!self.first.is_empty()).then_some(&*self.first)
    }

    /// Positions of the tokens, after `start` cached ones.
    fn positions(&self, start: usize) -> Positions<'_> {
        Positions {
            seq_len: self.seq_len,
            start,
            first: self.documents(),
        }
    }
}

/// One kind of pass (training or evaluation) with its reusable memory.
pub(crate) struct Pass {
    /// Whether this pass has a backward.
    track: Track,
    /// Whether activations are stored: not in segments that will be recomputed.
    keep: Track,
    arena: Arena,
    nodes: Vec<Node>,
    /// Input of each segment of blocks; the first is the embedding's output.
    boundaries: Vec<Slot>,
    ids: Vec<u32>,
    targets: Vec<u32>,
    rows: Rows,
    /// Divisor of the logits.
    temperature: f32,
    /// Hidden states of a batch that awaits its backward.
    hidden: Option<Slot>,
    /// Whether their gradient is computed already.
    head_done: bool,
    /// Whether the current backward overwrites or accumulates parameter gradients.
    into: Accumulation,
    /// Memory of the arena after the first forward of this size.
    forward_bytes: u64,
    /// Whether this is a recomputation for the backward.
    replays: bool,
    /// Whether a counting pass stands for one over cached texts: latent attention has other buffers there.
    decodes: bool,
    pub experts: Experts,
    pub outputs: logprob::Outputs,
    /// The value of each token; empty without a value head.
    pub values: Vec<f32>,
    /// The largest head so far, by the sizes it was called with.
    head_bytes: u64,
    pub kernels: Kernels,
    /// The observer.
    pub tap: Option<SharedTap>,
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
            temperature: 1.0,
            hidden: None,
            head_done: false,
            into: Accumulation::Add,
            forward_bytes: 0,
            replays: false,
            decodes: false,
            experts: Experts::default(),
            outputs: logprob::Outputs::default(),
            values: Vec::new(),
            head_bytes: 0,
            kernels: Kernels::default(),
            tap: None,
        }
    }

    /// Memory of this pass so far.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            activations: self.forward_bytes,
            gradients: self.arena.bytes() - self.forward_bytes,
            head: self.outputs.bytes() + (self.values.len() * size_of::<f32>()) as u64,
        }
    }

    /// Fills `outputs` with log-probabilities and entropies of the batch.
    pub fn forward(&mut self, plan: &Plan, batch: &TokenBatch) {
        self.forward_beside(plan, batch, None);
    }

    /// The same with the divergences from a teacher, whose head is over the same batch.
    pub fn forward_beside(
        &mut self,
        plan: &Plan,
        batch: &TokenBatch,
        teacher: Option<logprob::Teacher>,
    ) {
        let hidden = self.hidden_of(plan, batch);
        self.head_forward(plan, hidden, teacher);
        self.show_logits(plan);
    }

    /// The same if the gradient with respect to `outputs` is known beforehand: the head runs forward and backward at once. It
    /// must be followed by a [`Pass::backward`] with the same `upstream` and `grads`.
    pub fn forward_at_once(
        &mut self,
        plan: &Plan,
        batch: &TokenBatch,
        upstream: HeadGradient,
        (grads, into): (&mut [f32], Accumulation),
    ) {
        let hidden = self.hidden_of(plan, batch);
        self.into = into;
        self.head_backward(plan, hidden, upstream, grads, HeadPass::Both);
        self.show_logits(plan);
    }

    fn show_logits(&self, plan: &Plan) {
        if plan.config.is_reward_model() {
            return;
        }
        tap::observe(self.tap.as_ref(), |tap| {
            tap.logits(&self.rows.without_padding(self.outputs.lse(), 1));
        });
    }

    /// Passes the value of a slot to the observer.
    fn show(&self, site: Site, layer: usize, slot: Slot) {
        if self.tap.is_some() && !self.replays {
            let values = self.arena.view(slot).as_f32();
            let width = values.len() / self.ids.len().max(1);
            let values = self.rows.without_padding(&values, width);
            let seen = Activation {
                site,
                layer,
                values: &values,
                width,
            };
            tap::observe(self.tap.as_ref(), |tap| tap.activation(&seen));
        }
    }

    /// Hidden states of a batch whose targets the head will evaluate.
    fn hidden_of(&mut self, plan: &Plan, batch: &TokenBatch) -> Slot {
        self.targets.clear();
        self.targets.extend_from_slice(batch.targets);
        self.temperature = batch.temperature;
        let filled = batch.filled.unwrap_or_default();
        self.begin(batch.inputs.len(), batch.seq_len);
        self.rows.filled.extend_from_slice(filled);
        self.hidden_begun(plan, (batch.inputs, batch.first), None)
    }

    /// Logits (B · T, V) of all tokens, into a reusable buffer.
    pub fn logits(
        &mut self,
        plan: &Plan,
        texts: (&[u32], Option<&[u32]>),
        seq_len: usize,
        logits: &mut Vec<f32>,
    ) {
        let hidden = self.hidden(plan, texts, seq_len, None);
        let Pass { arena, kernels, .. } = self;
        kernels.run(Part::Head, || head::logits(plan, arena.get(hidden), logits));
    }

    /// Hidden states (B · T, D) after the last norm.
    fn hidden(
        &mut self,
        plan: &Plan,
        (ids, first): (&[u32], Option<&[u32]>),
        seq_len: usize,
        texts: Option<&mut Texts>,
    ) -> Slot {
        self.begin(ids.len(), seq_len);
        self.hidden_begun(plan, (ids, first), texts)
    }

    fn hidden_begun(
        &mut self,
        plan: &Plan,
        (ids, first): (&[u32], Option<&[u32]>),
        mut texts: Option<&mut Texts>,
    ) -> Slot {
        self.ids.extend_from_slice(ids);
        self.rows.first.extend_from_slice(first.unwrap_or_default());
        let start = match &texts {
            Some(texts) => texts.positions(&mut self.rows.first),
            None => 0,
        };
        let hidden = self.blocks(plan, start, texts.as_deref_mut());
        if let Some(texts) = texts {
            texts.advance();
        }
        hidden
    }

    /// From the embedding to the last norm; returns the hidden states.
    fn blocks(&mut self, plan: &Plan, start: usize, mut texts: Option<&mut Texts>) -> Slot {
        let n_layer = plan.shape.n_layer;
        let segment_len = plan.segment_len();
        let mut x = self.embedding(plan, start);
        for (layer, block) in plan.layout.blocks.iter().enumerate() {
            if layer % segment_len == 0 {
                self.boundaries.push(x);
                let last = layer + segment_len >= n_layer;
                self.keep = if last { self.track } else { Track::Off };
            }
            let at = (layer, block);
            let y = self.block(plan, x, at, texts.as_deref_mut(), Output::NEW);
            self.show(Site::Block, layer, y);
            let is_boundary = self.boundaries.last() == Some(&x);
            if self.track == Track::Off || !is_boundary {
                self.read(x);
            }
            x = y;
        }
        let hidden = match &plan.layout.norm {
            Some(norm) => {
                let hidden = self.norm(plan, x, norm, Output::NEW);
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

    fn begin(&mut self, count: usize, seq_len: usize) {
        if (count, seq_len) != (self.rows.count, self.rows.seq_len) {
            self.arena.clear();
            self.forward_bytes = 0;
        }
        self.arena.restart();
        self.nodes.clear();
        self.boundaries.clear();
        self.ids.clear();
        (self.rows.count, self.rows.seq_len) = (count, seq_len);
        self.rows.first.clear();
        self.rows.filled.clear();
        self.keep = self.track;
        self.head_done = false;
        self.replays = false;
    }

    /// Marks the forward's last read of a slot.
    fn read(&mut self, slot: Slot) {
        if self.keep == Track::Off {
            self.arena.release(slot);
        }
    }

    /// The node that produced a slot, among those whose backward is pending.
    fn producer(&self, slot: Slot) -> Option<Node> {
        let mut nodes = self.nodes.iter().rev();
        nodes.find(|node| node.output() == slot).copied()
    }

    fn record(&mut self, node: Node) {
        if self.keep == Track::Gradients {
            self.nodes.push(node);
        }
    }
}
