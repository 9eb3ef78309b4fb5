//! Which parameters a model has, their order in the flat buffers, and their names.
//!
//! Parts that are fused into one matmul are adjacent: q, k, v of a block, gate and up of a gated one, and a mixer's projections of
//! its input.

use super::adapter::AdapterConfig;
use super::config::{AttentionBias, ModelConfig, ModelShape, NormPlacement};
use super::params::ParamInfo;
use crate::kernels::norm::NormKind;

mod adapters;
mod build;
mod mixing;
#[cfg(test)]
mod tests;

pub(crate) use adapters::{AdapterSpans, ExpertFactors};

/// The naming scheme of parameters. The memory layout of linear layers is (out, in) in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// `transformer.h.N.attn.c_attn.weight`, q, k, v in one: learned positions, LayerNorm, plain MLP, multi-head.
    Gpt2,
    /// `model.layers.N.self_attn.q_proj.weight` …: everything else.
    Llama,
}

impl Naming {
    /// The naming scheme of a model of this kind.
    pub fn of(config: &ModelConfig) -> Naming {
        let multi_head = config.kv_heads() == config.n_head
            && config.head_width() * config.n_head == config.d_model;
        let plain = !config.mlp.gated() && config.norm.kind() == NormKind::Layer;
        let usual = config.norm_placement == NormPlacement::Pre
            && !config.qk_norm
            && config.moe.is_none()
            && config.mixer.is_none()
            && config.mla.is_none()
            && !config.attention_gate
            && !config.attention_sinks
            && config.attention_bias == AttentionBias::None;
        if config.position.has_table() && plain && multi_head && usual {
            Naming::Gpt2
        } else {
            Naming::Llama
        }
    }
}

/// A part of the flat buffers, viewed as a matrix (rows, cols) or as a vector (rows = 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// First element in the flat weights.
    pub offset: usize,
    /// First element in the flat gradients; `None` if it is frozen.
    pub grad: Option<usize>,
    pub rows: usize,
    pub cols: usize,
}

impl Span {
    pub fn len(&self) -> usize {
        self.rows * self.cols
    }

    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.len()
    }

    /// Its range in the flat gradients; `None` if it is frozen.
    pub fn grads(&self) -> Option<std::ops::Range<usize>> {
        self.grad.map(|from| from..from + self.len())
    }

    /// The same span, `elements` further on.
    fn offset_by(self, elements: usize) -> Span {
        Span {
            offset: self.offset + elements,
            grad: self.grad.map(|from| from + elements),
            ..self
        }
    }
}

/// The gradients of parts of the flat buffers, in ascending order, out of all; `None` of those that are frozen.
pub(crate) fn gradients<const N: usize>(
    spans: [Option<Span>; N],
    mut grads: &mut [f32],
) -> [Option<&mut [f32]>; N] {
    let mut end = 0;
    spans.map(|span| {
        let range = span?.grads()?;
        let (part, rest) = std::mem::take(&mut grads).split_at_mut(range.end - end);
        let from = range.start - end;
        (grads, end) = (rest, range.end);
        Some(&mut part[from..])
    })
}

/// A linear layer: weight (out, in), bias (1, out) and the number of its adapters in [`Layout::adapters`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinearSpans {
    pub weight: Span,
    pub bias: Option<Span>,
    pub adapter: Option<usize>,
}

/// A normalization: gain and bias, each (1, D).
#[derive(Debug, Clone, Copy)]
pub(crate) struct NormSpans {
    pub gain: Span,
    pub bias: Option<Span>,
}

impl NormSpans {
    /// Splits flat gradients into gain and bias; `None` if frozen. The bias follows the gain.
    pub fn split<'a>(
        &self,
        grads: &'a mut [f32],
    ) -> Option<(&'a mut [f32], Option<&'a mut [f32]>)> {
        let from = self.gain.grad?;
        let (gain, rest) = grads[from..].split_at_mut(self.gain.len());
        Some((gain, self.bias.map(|span| &mut rest[..span.len()])))
    }
}

/// One transformer block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockSpans {
    /// Before attention or its replacement, unless norms are only placed after sub-layers.
    pub norm1: Option<NormSpans>,
    pub mixing: MixingSpans,
    /// After attention, or what a block has in its place.
    pub norm1_after: Option<NormSpans>,
    /// Before the feed-forward block.
    pub norm2: Option<NormSpans>,
    pub mlp: MlpSpans,
    /// After the feed-forward block.
    pub norm2_after: Option<NormSpans>,
}

/// The part of a block in which tokens read earlier ones.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MixingSpans {
    Attention(AttentionSpans),
    Latent(LatentSpans),
    ShortConv(ShortConvSpans),
    GatedDelta(GatedDeltaSpans),
    Mamba2(Mamba2Spans),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct AttentionSpans {
    pub qkv: LinearSpans,
    /// Gains of queries and of keys: each (1, head_dim), or (1, width of all heads).
    pub qk_norm: Option<[Span; 2]>,
    /// (width of all query heads, D): its sigmoid multiplies attention's output.
    pub gate: Option<LinearSpans>,
    pub out: LinearSpans,
    /// (1, query heads): a score more for each.
    pub sinks: Option<Span>,
}

/// Latent attention.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LatentSpans {
    /// The queries or what they come from, then the latent vector of keys and values, then the keys that all heads share.
    pub wide: LinearSpans,
    /// The norm of the latent vector that queries come from, (1, q_rank), and the queries: (width of all, q_rank).
    pub q: Option<(Span, LinearSpans)>,
    /// The norm of the latent vector of keys and values, (1, kv_rank).
    pub kv_norm: Span,
    /// (keys and values, kv_rank).
    pub kv: LinearSpans,
    pub out: LinearSpans,
}

/// A gated short convolution.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShortConvSpans {
    /// (3 D, D): the two gates b and c, and x.
    pub wide: LinearSpans,
    pub conv: ConvSpans,
    pub out: LinearSpans,
}

/// A gated delta net.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GatedDeltaSpans {
    /// Channels of the convolution (queries, keys, values), then the output's gate z, b and a.
    pub wide: LinearSpans,
    pub conv: ConvSpans,
    /// (1, value heads).
    pub dt_bias: Span,
    /// (1, value heads).
    pub a_log: Span,
    /// The gain of the norm of each head's output, (1, value_dim).
    pub norm: Span,
    pub out: LinearSpans,
}

/// Mamba 2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mamba2Spans {
    /// The output's gate z, channels of the convolution (x, B, C), and dt.
    pub wide: LinearSpans,
    pub conv: ConvSpans,
    /// (1, heads) each.
    pub dt_bias: Span,
    pub a_log: Span,
    pub d: Span,
    /// The gain of the norm, (1, width of all heads).
    pub norm: Span,
    pub out: LinearSpans,
}

/// A causal depthwise convolution: weights (channels, taps) as a vector, the tap of the current token last; biases (1, channels).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConvSpans {
    pub weight: Span,
    pub bias: Option<Span>,
}

impl MixingSpans {
    /// The projections of the block's input, and the projection out.
    pub fn ends(&self) -> [&LinearSpans; 2] {
        match self {
            MixingSpans::Attention(spans) => [&spans.qkv, &spans.out],
            MixingSpans::Latent(spans) => [&spans.wide, &spans.out],
            MixingSpans::ShortConv(spans) => [&spans.wide, &spans.out],
            MixingSpans::GatedDelta(spans) => [&spans.wide, &spans.out],
            MixingSpans::Mamba2(spans) => [&spans.wide, &spans.out],
        }
    }

    /// The linear layers, in the order of their adapters.
    pub fn linears(&self) -> impl Iterator<Item = LinearSpans> {
        let [first, last] = self.ends();
        let between = match self {
            MixingSpans::Attention(spans) => [spans.gate, None],
            MixingSpans::Latent(spans) => [spans.q.map(|(_, linear)| linear), Some(spans.kv)],
            MixingSpans::ShortConv(_) | MixingSpans::GatedDelta(_) | MixingSpans::Mamba2(_) => {
                [None, None]
            }
        };
        let all = std::iter::once(*first).chain(between.into_iter().flatten());
        all.chain([*last])
    }

    /// The same for giving them adapters.
    fn linears_mut(&mut self) -> Vec<&mut LinearSpans> {
        match self {
            MixingSpans::Attention(spans) => {
                let mut all = vec![&mut spans.qkv];
                all.extend(&mut spans.gate);
                all.push(&mut spans.out);
                all
            }
            MixingSpans::Latent(spans) => {
                let mut all = vec![&mut spans.wide];
                all.extend(spans.q.as_mut().map(|(_, linear)| linear));
                all.extend([&mut spans.kv, &mut spans.out]);
                all
            }
            MixingSpans::ShortConv(spans) => vec![&mut spans.wide, &mut spans.out],
            MixingSpans::GatedDelta(spans) => vec![&mut spans.wide, &mut spans.out],
            MixingSpans::Mamba2(spans) => vec![&mut spans.wide, &mut spans.out],
        }
    }

    /// All parts besides the linear layers.
    fn vectors(&self) -> Vec<Span> {
        let of_conv = |conv: &ConvSpans| std::iter::once(conv.weight).chain(conv.bias);
        match self {
            MixingSpans::Attention(spans) => {
                let gains = spans.qk_norm.into_iter().flatten();
                gains.chain(spans.sinks).collect()
            }
            MixingSpans::Latent(spans) => {
                let q = spans.q.map(|(norm, _)| norm);
                q.into_iter().chain([spans.kv_norm]).collect()
            }
            MixingSpans::ShortConv(spans) => of_conv(&spans.conv).collect(),
            MixingSpans::GatedDelta(spans) => {
                let own = [spans.dt_bias, spans.a_log, spans.norm];
                of_conv(&spans.conv).chain(own).collect()
            }
            MixingSpans::Mamba2(spans) => {
                let own = [spans.dt_bias, spans.a_log, spans.d, spans.norm];
                of_conv(&spans.conv).chain(own).collect()
            }
        }
    }
}

/// The feed-forward part of a block.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::large_enum_variant,
    reason = "one for each block, and copied as a whole"
)]
pub(crate) enum MlpSpans {
    One(FeedForwardSpans),
    Many(ExpertSpans),
}

impl MlpSpans {
    /// The feed-forward block that every token passes, if there is one.
    fn for_all(&self) -> Option<FeedForwardSpans> {
        match self {
            MlpSpans::One(spans) => Some(*spans),
            MlpSpans::Many(spans) => spans.shared.map(|shared| shared.mlp),
        }
    }

    /// The same for giving it adapters.
    fn for_all_mut(&mut self) -> Option<&mut FeedForwardSpans> {
        match self {
            MlpSpans::One(spans) => Some(spans),
            MlpSpans::Many(spans) => spans.shared.as_mut().map(|shared| &mut shared.mlp),
        }
    }
}

/// A feed-forward block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FeedForwardSpans {
    /// Gate and up projection adjacent if the block is gated.
    pub wide: LinearSpans,
    pub out: LinearSpans,
}

/// Feed-forward blocks of one size, contiguous, and the router.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpertSpans {
    /// (n_expert, D).
    pub router: Span,
    /// Biases added to probabilities only for routing, (1, n_expert): updated by the balancing rule, not by gradients.
    pub bias: Option<Span>,
    /// Added to the router's logits, (1, n_expert).
    pub logit_bias: Option<Span>,
    /// The first expert.
    first: FeedForwardSpans,
    pub count: usize,
    pub shared: Option<SharedSpans>,
    /// The adapters of all experts: of the first layer, and of the second.
    pub low: [Option<ExpertFactors>; 2],
}

/// A shared expert.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedSpans {
    pub mlp: FeedForwardSpans,
    /// (1, D): the sigmoid of its product with a token multiplies the output.
    pub gate: Option<Span>,
}

impl ExpertSpans {
    /// Expert number `e`.
    pub fn expert(&self, e: usize) -> FeedForwardSpans {
        let one = self.first.wide.len() + self.first.out.len();
        FeedForwardSpans {
            wide: self.first.wide.offset_by(e * one),
            out: self.first.out.offset_by(e * one),
        }
    }
}

impl LinearSpans {
    fn len(&self) -> usize {
        self.weight.len() + self.bias.map_or(0, |span| span.len())
    }

    /// The same layer, `elements` further on. Only for experts, whose adapters are [`ExpertFactors`].
    fn offset_by(&self, elements: usize) -> LinearSpans {
        LinearSpans {
            weight: self.weight.offset_by(elements),
            bias: self.bias.map(|span| span.offset_by(elements)),
            adapter: None,
        }
    }
}

/// The positions of all parameters.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub tokens: Span,
    pub positions: Option<Span>,
    pub blocks: Vec<BlockSpans>,
    /// After the last block, unless blocks end with a norm.
    pub norm: Option<NormSpans>,
    /// The output head; equals `tokens` if embeddings are tied.
    pub head: Span,
    /// The value head, (1, D), for a critic on the policy's trunk. It comes after adapters, so that it does not move the base
    /// or the adapters.
    pub value: Option<Span>,
    /// The adapters, in the order of the blocks.
    pub adapters: Vec<AdapterSpans>,
    pub infos: Vec<ParamInfo>,
    /// Number of parameters of the base model; adapters follow, and a value head after those.
    pub n_base: usize,
}

/// Options of a layout besides the model's config.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub adapter: Option<&'a AdapterConfig>,
    /// Which parameters train.
    pub trains: &'a dyn Fn(&ParamInfo) -> bool,
}

impl Layout {
    /// Without adapters; everything trains.
    pub fn new(config: &ModelConfig, shape: &ModelShape) -> Layout {
        let parts = Parts {
            adapter: None,
            trains: &|_| true,
        };
        Layout::of(config, shape, parts).0
    }

    /// Without adapters; nothing trains.
    pub fn frozen(config: &ModelConfig, shape: &ModelShape) -> Layout {
        let parts = Parts {
            adapter: None,
            trains: &|_| false,
        };
        Layout::of(config, shape, parts).0
    }

    /// The layout, and the names of parameters of one matmul of which some train and some do not:
    /// if there are any, no pass can use it.
    pub fn of(config: &ModelConfig, shape: &ModelShape, parts: Parts) -> (Layout, Vec<String>) {
        let mut builder = build::Builder::new(config, shape, parts);
        let mut layout = builder.build();
        layout.infos = builder.infos;
        (layout, builder.mixed)
    }

    /// Parameters that a token does not use: in each block the experts that it is not routed to.
    pub fn idle(&self, config: &ModelConfig) -> Vec<Span> {
        let mut idle = Vec::new();
        for (layer, block) in self.blocks.iter().enumerate() {
            let moe = config.experts(layer);
            if let (MlpSpans::Many(experts), Some(moe)) = (&block.mlp, moe) {
                for mlp in (moe.top_k..experts.count).map(|e| experts.expert(e)) {
                    for part in [mlp.wide, mlp.out] {
                        idle.push(part.weight);
                        idle.extend(part.bias);
                    }
                }
                for low in experts.low.iter().flatten() {
                    idle.extend((moe.top_k..experts.count).flat_map(|e| [low.a(e), low.b(e)]));
                }
            }
        }
        idle
    }

    /// The linear layers that have adapters.
    pub fn adapted_linears(&self) -> Vec<(LinearSpans, &AdapterSpans)> {
        let linears = self.blocks.iter().flat_map(|block| {
            let mlp = block.mlp.for_all().into_iter();
            let mlp = mlp.flat_map(|mlp| [mlp.wide, mlp.out]);
            block.mixing.linears().chain(mlp).collect::<Vec<_>>()
        });
        let adapted = linears.filter_map(|linear| Some((linear, &self.adapters[linear.adapter?])));
        adapted.collect()
    }

    /// Every part that a pass reads as a whole, each at least once: tied ones occur twice.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans = vec![self.tokens, self.head];
        spans.extend(self.positions);
        spans.extend(self.value);
        let mut norm = |norm: &NormSpans| {
            spans.push(norm.gain);
            spans.extend(norm.bias);
        };
        self.norm.iter().for_each(&mut norm);
        for block in &self.blocks {
            let norms = [
                block.norm1,
                block.norm2,
                block.norm1_after,
                block.norm2_after,
            ];
            norms.iter().flatten().for_each(&mut norm);
        }
        for block in &self.blocks {
            let mut linears: Vec<_> = block.mixing.linears().collect();
            spans.extend(block.mixing.vectors());
            if let MlpSpans::Many(experts) = &block.mlp {
                spans.push(experts.router);
                spans.extend(experts.bias);
                spans.extend(experts.logit_bias);
                spans.extend(experts.shared.and_then(|shared| shared.gate));
                for mlp in (0..experts.count).map(|e| experts.expert(e)) {
                    linears.extend([mlp.wide, mlp.out]);
                }
                let low = experts.low.iter().flatten();
                spans.extend(low.flat_map(|low| [low.all_a, low.all_b]));
            }
            if let Some(mlp) = block.mlp.for_all() {
                linears.extend([mlp.wide, mlp.out]);
            }
            for part in linears {
                spans.push(part.weight);
                spans.extend(part.bias);
            }
        }
        spans.extend(self.adapters.iter().flat_map(AdapterSpans::spans));
        spans
    }
}
