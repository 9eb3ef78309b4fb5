//! Which parameters a model has, in which order they lie in the flat buffers, and what they are called.
//!
//! Parts that one matrix product can serve lie side by side: q, k, v of a block, and gate and up of a gated one.

use super::config::{ModelConfig, ModelShape};
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
        let multi_head = config.n_kv_head.is_none_or(|n| n == config.n_head);
        let plain = !config.mlp.gated() && config.norm.kind() == NormKind::Layer;
        if config.position.has_table() && plain && multi_head {
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
    pub norm1: NormSpans,
    pub qkv: LinearSpans,
    pub attn_out: LinearSpans,
    pub norm2: NormSpans,
    /// Gate and up projection side by side where the block is gated.
    pub mlp_in: LinearSpans,
    pub mlp_out: LinearSpans,
}

/// Where everything lies.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub tokens: Span,
    pub positions: Option<Span>,
    pub blocks: Vec<BlockSpans>,
    pub norm: NormSpans,
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
        let norms = self.blocks.iter().flat_map(|b| [&b.norm1, &b.norm2]);
        for norm in norms.chain([&self.norm]) {
            spans.push(norm.gain);
            spans.extend(norm.bias);
        }
        for block in &self.blocks {
            for part in [block.qkv, block.attn_out, block.mlp_in, block.mlp_out] {
                spans.push(part.weight);
                spans.extend(part.bias);
            }
        }
        spans
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
        let norm = self.norm(norm);
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
        let (prefix, norm1, attn_out, norm2, mlp_out) = match self.naming {
            Naming::Gpt2 => ("transformer.h", "ln_1", "attn.c_proj", "ln_2", "mlp.c_proj"),
            Naming::Llama => (
                "model.layers",
                "input_layernorm",
                "self_attn.o_proj",
                "post_attention_layernorm",
                "mlp.down_proj",
            ),
        };
        let at = |part: &str| format!("{prefix}.{layer}.{part}");
        let (d, d_ff, head_dim) = (self.shape.d_model, self.shape.d_ff, self.shape.head_dim);
        let q = self.shape.n_head * head_dim;
        let kv = self.shape.n_kv_head * head_dim;
        let std = self.config.init_std;
        let residual_std = std / (2.0 * self.shape.n_layer as f64).sqrt();
        let qkv_parts = match self.naming {
            Naming::Gpt2 => vec![(at("attn.c_attn"), q + 2 * kv)],
            Naming::Llama => vec![
                (at("self_attn.q_proj"), q),
                (at("self_attn.k_proj"), kv),
                (at("self_attn.v_proj"), kv),
            ],
        };
        let mlp_parts = match (self.naming, self.config.mlp.gated()) {
            (Naming::Gpt2, _) => vec![(at("mlp.c_fc"), d_ff)],
            (Naming::Llama, true) => {
                vec![(at("mlp.gate_proj"), d_ff), (at("mlp.up_proj"), d_ff)]
            }
            (Naming::Llama, false) => vec![(at("mlp.up_proj"), d_ff)],
        };
        BlockSpans {
            norm1: self.norm(&at(norm1)),
            qkv: self.linear(&qkv_parts, d, std),
            attn_out: self.linear(&[(at(attn_out), d)], q, residual_std),
            norm2: self.norm(&at(norm2)),
            mlp_in: self.linear(&mlp_parts, d, std),
            mlp_out: self.linear(&[(at(mlp_out), d)], d_ff, residual_std),
        }
    }

    /// Linear layers with the same input, their weights and then their biases one after another.
    fn linear(&mut self, parts: &[(String, usize)], d_in: usize, std: f64) -> LinearSpans {
        let d_out = parts.iter().map(|(_, rows)| rows).sum();
        let weight = Span {
            offset: self.end,
            rows: d_out,
            cols: d_in,
        };
        for (name, rows) in parts {
            self.matrix(name, *rows, d_in, std);
        }
        let bias = self.config.bias.then_some(Span {
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
        let gain = self.push(format!("{name}.weight"), vec![d], Init::Ones);
        let has_bias = self.config.bias && self.config.norm.kind() == NormKind::Layer;
        let bias = has_bias.then(|| self.push(format!("{name}.bias"), vec![d], Init::Zeros));
        NormSpans { gain, bias }
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

    #[test]
    fn parameters_follow_each_other_without_gaps_and_names_are_unique() {
        for config in [ModelConfig::default(), llama()] {
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
        assert_eq!(
            layout.blocks[1].mlp_in.weight.range().end,
            up.offset + up.len
        );
        assert!(layout.blocks[1].norm1.bias.is_none(), "RMSNorm has no bias");
        assert_ne!(layout.head, layout.tokens);
    }
}
