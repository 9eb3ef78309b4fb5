//! Which parameters a model has, in which order they lie in the flat buffers, and what they are called.
//!
//! Parts that one matrix product can serve lie side by side: q, k, v of a block, and gate and up of a gated one.

use super::config::{AttentionBias, ModelConfig, ModelShape, NormPlacement};
use super::moe::Balancing;
use super::params::{Init, ParamInfo};
use crate::kernels::norm::NormKind;

/// Whose names the parameters carry. The memory layout of linear layers is (out, in) under both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// `transformer.h.N.attn.c_attn.weight`, q, k, v in one: learned positions, LayerNorm, plain MLP, multi-head.
    Gpt2,
    /// `model.layers.N.self_attn.q_proj.weight` …: everything else.
    Llama,
}

impl Naming {
    /// The names that a model of this kind carries.
    pub fn of(config: &ModelConfig) -> Naming {
        let multi_head = config.kv_heads() == config.n_head && config.head_dim.is_none();
        let plain = !config.mlp.gated() && config.norm.kind() == NormKind::Layer;
        let usual = config.norm_placement == NormPlacement::Pre
            && !config.qk_norm
            && config.moe.is_none()
            && config.attention_bias == AttentionBias::None;
        if config.position.has_table() && plain && multi_head && usual {
            Naming::Gpt2
        } else {
            Naming::Llama
        }
    }
}

/// A part of the flat buffers, seen as a matrix (rows, cols) or as a vector (rows = 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub offset: usize,
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
}

/// A linear layer: weight (out, in) and bias (1, out).
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinearSpans {
    pub weight: Span,
    pub bias: Option<Span>,
}

/// A normalisation: gain and bias, each (1, D).
#[derive(Debug, Clone, Copy)]
pub(crate) struct NormSpans {
    pub gain: Span,
    pub bias: Option<Span>,
}

impl NormSpans {
    /// Gain and bias of flat gradients.
    pub fn split<'a>(&self, grads: &'a mut [f32]) -> (&'a mut [f32], Option<&'a mut [f32]>) {
        let grads = &mut grads[self.gain.offset..];
        let (gain, rest) = grads.split_at_mut(self.gain.len());
        let bias = self.bias.map(|span| {
            let from = span.offset - self.gain.offset - self.gain.len();
            &mut rest[from..from + span.len()]
        });
        (gain, bias)
    }
}

/// One transformer block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockSpans {
    /// In front of attention, unless norms come after alone.
    pub norm1: Option<NormSpans>,
    pub qkv: LinearSpans,
    /// Gains of queries and of keys, each (1, head_dim).
    pub qk_norm: Option<[Span; 2]>,
    pub attn_out: LinearSpans,
    /// Behind attention.
    pub norm1_after: Option<NormSpans>,
    /// In front of the feed-forward block.
    pub norm2: Option<NormSpans>,
    pub mlp: MlpSpans,
    /// Behind the feed-forward block.
    pub norm2_after: Option<NormSpans>,
}

/// What stands in the feed-forward part of a block.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MlpSpans {
    One(FeedForwardSpans),
    Many(ExpertSpans),
}

impl MlpSpans {
    /// The one block, or the first expert.
    pub fn first(&self) -> FeedForwardSpans {
        match self {
            MlpSpans::One(mlp) => *mlp,
            MlpSpans::Many(experts) => experts.expert(0),
        }
    }
}

/// A feed-forward block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FeedForwardSpans {
    /// Gate and up projection side by side where the block is gated.
    pub wide: LinearSpans,
    pub out: LinearSpans,
}

/// Feed-forward blocks of one size, laid out one behind another, and the router.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpertSpans {
    /// (n_expert, D).
    pub router: Span,
    /// What is added to probabilities for the choice alone, (1, n_expert): balanced by hand, not learnt.
    pub bias: Option<Span>,
    /// The first expert.
    first: FeedForwardSpans,
    pub count: usize,
}

impl ExpertSpans {
    /// Expert number `e`.
    pub fn expert(&self, e: usize) -> FeedForwardSpans {
        let one = self.first.wide.len() + self.first.out.len();
        FeedForwardSpans {
            wide: self.first.wide.behind(e * one),
            out: self.first.out.behind(e * one),
        }
    }
}

impl LinearSpans {
    fn len(&self) -> usize {
        self.weight.len() + self.bias.map_or(0, |span| span.len())
    }

    /// The same `elements` further on.
    fn behind(&self, elements: usize) -> LinearSpans {
        let shift = |span: Span| Span {
            offset: span.offset + elements,
            ..span
        };
        LinearSpans {
            weight: shift(self.weight),
            bias: self.bias.map(shift),
        }
    }
}

/// Where everything lies.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub tokens: Span,
    pub positions: Option<Span>,
    pub blocks: Vec<BlockSpans>,
    /// Behind the last block, unless it ends with a norm itself.
    pub norm: Option<NormSpans>,
    /// The output head; equals `tokens` where embeddings are tied.
    pub head: Span,
    pub infos: Vec<ParamInfo>,
}

impl Layout {
    pub fn new(config: &ModelConfig, shape: &ModelShape) -> Layout {
        Builder {
            config,
            shape,
            naming: Naming::of(config),
            infos: Vec::new(),
            end: 0,
        }
        .build()
    }

    /// Every part that a pass reads as one, each at least once: tied ones stand twice.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans = vec![self.tokens, self.head];
        spans.extend(self.positions);
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
            let mut linears = vec![block.qkv, block.attn_out];
            spans.extend(block.qk_norm.into_iter().flatten());
            match &block.mlp {
                MlpSpans::One(mlp) => linears.extend([mlp.wide, mlp.out]),
                MlpSpans::Many(experts) => {
                    spans.push(experts.router);
                    spans.extend(experts.bias);
                    for mlp in (0..experts.count).map(|e| experts.expert(e)) {
                        linears.extend([mlp.wide, mlp.out]);
                    }
                }
            }
            for part in linears {
                spans.push(part.weight);
                spans.extend(part.bias);
            }
        }
        spans
    }
}

/// What the norms of a block are called, where it has them.
struct BlockNorms {
    before1: Option<&'static str>,
    after1: Option<&'static str>,
    before2: Option<&'static str>,
    after2: Option<&'static str>,
}

impl BlockNorms {
    fn of(naming: Naming, placement: NormPlacement) -> BlockNorms {
        let names = match (naming, placement) {
            (Naming::Gpt2, _) => ["ln_1", "", "ln_2", ""],
            (_, NormPlacement::Pre) => ["input_layernorm", "", "post_attention_layernorm", ""],
            (_, NormPlacement::Post) => [
                "",
                "post_attention_layernorm",
                "",
                "post_feedforward_layernorm",
            ],
            (_, NormPlacement::Both) => [
                "input_layernorm",
                "post_attention_layernorm",
                "pre_feedforward_layernorm",
                "post_feedforward_layernorm",
            ],
        };
        let [before1, after1, before2, after2] =
            names.map(|name| Some(name).filter(|n| !n.is_empty()));
        BlockNorms {
            before1,
            after1,
            before2,
            after2,
        }
    }
}

struct Builder<'a> {
    config: &'a ModelConfig,
    shape: &'a ModelShape,
    naming: Naming,
    infos: Vec<ParamInfo>,
    end: usize,
}

impl Builder<'_> {
    fn build(mut self) -> Layout {
        let (vocab, d) = (self.shape.vocab_size, self.shape.d_model);
        let std = self.config.init_std;
        let (wte, wpe, norm) = match self.naming {
            Naming::Gpt2 => ("transformer.wte", "transformer.wpe", "transformer.ln_f"),
            Naming::Llama => ("model.embed_tokens", "model.embed_positions", "model.norm"),
        };
        let tokens = self.matrix(wte, vocab, d, std);
        let positions = self
            .config
            .position
            .has_table()
            .then(|| self.matrix(wpe, self.shape.seq_len, d, std));
        let blocks = (0..self.shape.n_layer)
            .map(|layer| self.block(layer))
            .collect();
        let ends_normed = self.config.norm_placement == NormPlacement::Post;
        let norm = (!ends_normed).then(|| self.norm(norm));
        let head = if self.config.tie_embeddings {
            tokens
        } else {
            self.matrix("lm_head", vocab, d, std)
        };
        Layout {
            tokens,
            positions,
            blocks,
            norm,
            head,
            infos: self.infos,
        }
    }

    fn block(&mut self, layer: usize) -> BlockSpans {
        let at = |part: &str| match self.naming {
            Naming::Gpt2 => format!("transformer.h.{layer}.{part}"),
            Naming::Llama => format!("model.layers.{layer}.{part}"),
        };
        let names = BlockNorms::of(self.naming, self.config.norm_placement);
        let attn_out = match self.naming {
            Naming::Gpt2 => at("attn.c_proj"),
            Naming::Llama => at("self_attn.o_proj"),
        };
        let (d, head_dim) = (self.shape.d_model, self.shape.head_dim);
        let q = self.shape.n_head * head_dim;
        let kv = self.shape.n_kv_head * head_dim;
        let qkv_parts = match self.naming {
            Naming::Gpt2 => vec![(at("attn.c_attn"), q + 2 * kv)],
            Naming::Llama => vec![
                (at("self_attn.q_proj"), q),
                (at("self_attn.k_proj"), kv),
                (at("self_attn.v_proj"), kv),
            ],
        };
        let qk_names = [at("self_attn.q_norm"), at("self_attn.k_norm")];
        let norms = [names.before1, names.after1, names.before2, names.after2];
        let norms = norms.map(|name| name.map(&at));
        let mlp = at("mlp");
        let biases = self.config.attention_biases();
        let has_qkv_bias = biases != AttentionBias::None;
        let has_out_bias = biases == AttentionBias::All;
        let [before1, after1, before2, after2] = norms;
        let (std, residual_std) = self.stds();
        BlockSpans {
            norm1: before1.map(|name| self.norm(&name)),
            qkv: self.linear(&qkv_parts, d, std, has_qkv_bias),
            qk_norm: self
                .config
                .qk_norm
                .then(|| qk_names.map(|name| self.gain(&name, head_dim))),
            attn_out: self.linear(&[(attn_out, d)], q, residual_std, has_out_bias),
            norm1_after: after1.map(|name| self.norm(&name)),
            norm2: before2.map(|name| self.norm(&name)),
            mlp: self.mlp(layer, &mlp),
            norm2_after: after2.map(|name| self.norm(&name)),
        }
    }

    /// Of initial weights, and of projections into the residual stream.
    fn stds(&self) -> (f64, f64) {
        let std = self.config.init_std;
        (std, std / (2.0 * self.shape.n_layer as f64).sqrt())
    }

    fn mlp(&mut self, layer: usize, name: &str) -> MlpSpans {
        let Some(moe) = self.config.experts(layer) else {
            return MlpSpans::One(self.feed_forward(name, self.shape.d_ff));
        };
        let (std, _) = self.stds();
        let d_ff = moe.d_ff.unwrap_or(self.shape.d_ff);
        let gate = format!("{name}.gate");
        let router = self.matrix(&gate, moe.n_expert, self.shape.d_model, std);
        let bias = matches!(moe.balancing, Balancing::Bias { .. }).then(|| {
            let name = format!("{gate}.e_score_correction_bias");
            self.push(name, vec![moe.n_expert], Init::Zeros)
        });
        let experts: Vec<_> = (0..moe.n_expert)
            .map(|e| self.feed_forward(&format!("{name}.experts.{e}"), d_ff))
            .collect();
        MlpSpans::Many(ExpertSpans {
            router,
            bias,
            first: experts[0],
            count: moe.n_expert,
        })
    }

    fn feed_forward(&mut self, name: &str, d_ff: usize) -> FeedForwardSpans {
        let at = |part: &str| format!("{name}.{part}");
        let wide = match (self.naming, self.config.mlp.gated()) {
            (Naming::Gpt2, _) => vec![(at("c_fc"), d_ff)],
            (Naming::Llama, true) => vec![(at("gate_proj"), d_ff), (at("up_proj"), d_ff)],
            (Naming::Llama, false) => vec![(at("up_proj"), d_ff)],
        };
        let out = match self.naming {
            Naming::Gpt2 => at("c_proj"),
            Naming::Llama => at("down_proj"),
        };
        let (d, biased) = (self.shape.d_model, self.config.bias);
        let (std, residual_std) = self.stds();
        FeedForwardSpans {
            wide: self.linear(&wide, d, std, biased),
            out: self.linear(&[(out, d)], d_ff, residual_std, biased),
        }
    }

    /// Linear layers with the same input, their weights and then their biases one after another.
    fn linear(
        &mut self,
        parts: &[(String, usize)],
        d_in: usize,
        std: f64,
        has_bias: bool,
    ) -> LinearSpans {
        let d_out = parts.iter().map(|(_, rows)| rows).sum();
        let weight = Span {
            offset: self.end,
            rows: d_out,
            cols: d_in,
        };
        for (name, rows) in parts {
            self.matrix(name, *rows, d_in, std);
        }
        let bias = has_bias.then_some(Span {
            offset: self.end,
            rows: 1,
            cols: d_out,
        });
        if bias.is_some() {
            for (name, rows) in parts {
                self.push(format!("{name}.bias"), vec![*rows], Init::Zeros);
            }
        }
        LinearSpans { weight, bias }
    }

    /// RMSNorm has no bias whatever the config says.
    fn norm(&mut self, name: &str) -> NormSpans {
        let d = self.shape.d_model;
        let gain = self.gain(name, d);
        let has_bias = self.config.bias && self.config.norm.kind() == NormKind::Layer;
        let bias = has_bias.then(|| self.push(format!("{name}.bias"), vec![d], Init::Zeros));
        NormSpans { gain, bias }
    }

    /// Gains that change nothing.
    fn gain(&mut self, name: &str, len: usize) -> Span {
        let init = if self.config.norm.gain_offset() == 0.0 {
            Init::Ones
        } else {
            Init::Zeros
        };
        self.push(format!("{name}.weight"), vec![len], init)
    }

    fn matrix(&mut self, name: &str, rows: usize, cols: usize, std: f64) -> Span {
        self.push(
            format!("{name}.weight"),
            vec![rows, cols],
            Init::Normal(std),
        )
    }

    fn push(&mut self, name: String, shape: Vec<usize>, init: Init) -> Span {
        let len = shape.iter().product();
        let span = Span {
            offset: self.end,
            rows: if shape.len() == 2 { shape[0] } else { 1 },
            cols: shape[shape.len() - 1],
        };
        self.infos.push(ParamInfo {
            decay: shape.len() >= 2,
            name,
            shape,
            offset: self.end,
            len,
            init,
        });
        self.end += len;
        span
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{mlp::MlpConfig, norm::NormConfig, position::PositionConfig};

    fn llama() -> ModelConfig {
        ModelConfig {
            n_kv_head: Some(2),
            position: PositionConfig::Rope(Default::default()),
            norm: NormConfig::RmsNorm(Default::default()),
            mlp: MlpConfig::SwiGlu(Default::default()),
            tie_embeddings: false,
            bias: true,
            ..Default::default()
        }
    }

    fn qwen3_moe() -> ModelConfig {
        ModelConfig {
            head_dim: Some(64),
            qk_norm: true,
            bias: false,
            moe: Some(crate::nn::MoeConfig {
                n_expert: 3,
                d_ff: Some(40),
                balancing: Balancing::Bias { rate: 1e-3 },
                every: 2,
                ..Default::default()
            }),
            ..llama()
        }
    }

    fn gemma() -> ModelConfig {
        ModelConfig {
            norm_placement: NormPlacement::Both,
            attention_bias: AttentionBias::Qkv,
            bias: false,
            ..llama()
        }
    }

    fn names(config: &ModelConfig, prefix: &str) -> Vec<String> {
        let infos = Layout::new(config, &config.shape(65)).infos;
        let short = |info: ParamInfo| info.name.strip_prefix(prefix).map(String::from);
        infos.into_iter().filter_map(short).collect()
    }

    #[test]
    fn options_have_the_names_of_hugging_face() {
        assert_eq!(
            names(&gemma(), "model.layers.3."),
            [
                "input_layernorm.weight",
                "self_attn.q_proj.weight",
                "self_attn.k_proj.weight",
                "self_attn.v_proj.weight",
                "self_attn.q_proj.bias",
                "self_attn.k_proj.bias",
                "self_attn.v_proj.bias",
                "self_attn.o_proj.weight",
                "post_attention_layernorm.weight",
                "pre_feedforward_layernorm.weight",
                "mlp.gate_proj.weight",
                "mlp.up_proj.weight",
                "mlp.down_proj.weight",
                "post_feedforward_layernorm.weight",
            ]
        );
        let experts = names(&qwen3_moe(), "model.layers.1.mlp.");
        assert_eq!(
            experts[..2],
            ["gate.weight", "gate.e_score_correction_bias"]
        );
        assert_eq!(experts[10], "experts.2.down_proj.weight");
        let dense = names(&qwen3_moe(), "model.layers.2.mlp.");
        assert_eq!(dense[0], "gate_proj.weight");
        let post = ModelConfig {
            norm_placement: NormPlacement::Post,
            ..llama()
        };
        assert!(names(&post, "model.norm").is_empty());
    }

    #[test]
    fn experts_lie_one_behind_another() {
        let config = qwen3_moe();
        let layout = Layout::new(&config, &config.shape(65));
        let MlpSpans::Many(experts) = layout.blocks[3].mlp else {
            panic!("block 3 has experts")
        };
        for e in 0..3 {
            let spans = experts.expert(e);
            for (part, span) in [
                ("gate_proj", spans.wide.weight),
                ("down_proj", spans.out.weight),
            ] {
                let name = format!("model.layers.3.mlp.experts.{e}.{part}.weight");
                let info = layout.infos.iter().find(|i| i.name == name).unwrap();
                assert_eq!(info.offset, span.offset, "{name}");
            }
            assert_eq!((spans.wide.weight.rows, spans.out.weight.cols), (80, 40));
        }
    }

    #[test]
    fn parameters_follow_each_other_without_gaps_and_names_are_unique() {
        for config in [ModelConfig::default(), llama(), qwen3_moe(), gemma()] {
            let layout = Layout::new(&config, &config.shape(65));
            let mut end = 0;
            for info in &layout.infos {
                assert_eq!(info.offset, end, "{}", info.name);
                assert_eq!(info.len, info.shape.iter().product::<usize>());
                assert_eq!(info.decay, info.shape.len() >= 2, "{}", info.name);
                end += info.len;
            }
            let names: std::collections::BTreeSet<_> =
                layout.infos.iter().map(|info| &info.name).collect();
            assert_eq!(names.len(), layout.infos.len());
        }
    }

    #[test]
    fn the_quickstart_has_nanogpts_parameter_count_and_gpt2_names() {
        let config = ModelConfig::default();
        let layout = Layout::new(&config, &config.shape(65));
        // 65·128 + 64·128 + 4·(12·128² + 2·128) + 128
        let total: usize = layout.infos.iter().map(|info| info.len).sum();
        assert_eq!(total, 804_096);
        assert_eq!(layout.infos[3].name, "transformer.h.0.attn.c_attn.weight");
        assert_eq!(layout.infos[3].shape, [384, 128]);
        assert_eq!(layout.head, layout.tokens);
    }

    #[test]
    fn packed_spans_cover_their_parts() {
        let config = llama();
        let layout = Layout::new(&config, &config.shape(65));
        let find = |name: &str| {
            layout
                .infos
                .iter()
                .find(|info| info.name == name)
                .unwrap_or_else(|| panic!("{name} is missing"))
        };
        let qkv = layout.blocks[1].qkv;
        let q = find("model.layers.1.self_attn.q_proj.weight");
        let v = find("model.layers.1.self_attn.v_proj.weight");
        assert_eq!(qkv.weight.range(), q.offset..v.offset + v.len);
        let v_bias = find("model.layers.1.self_attn.v_proj.bias");
        assert_eq!(
            qkv.bias.map(|span| span.range().end),
            Some(v_bias.offset + v_bias.len)
        );
        let up = find("model.layers.1.mlp.up_proj.weight");
        let MlpSpans::One(mlp) = layout.blocks[1].mlp else {
            panic!("no experts were asked for")
        };
        assert_eq!(mlp.wide.weight.range().end, up.offset + up.len);
        let norm1 = layout.blocks[1].norm1.unwrap();
        assert!(norm1.bias.is_none(), "RMSNorm has no bias");
        assert_ne!(layout.head, layout.tokens);
    }
}
