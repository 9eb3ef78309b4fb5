//! Names parameters and lays them one behind another.

use super::{
    BlockSpans, ExpertSpans, FeedForwardSpans, Layout, LinearSpans, MlpSpans, Naming, NormSpans,
    Span,
};
use crate::kernels::norm::NormKind;
use crate::nn::moe::Balancing;
use crate::nn::params::{Init, ParamInfo};
use crate::nn::{AttentionBias, ModelConfig, ModelShape, NormPlacement};

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

pub(super) struct Builder<'a> {
    config: &'a ModelConfig,
    shape: &'a ModelShape,
    naming: Naming,
    infos: Vec<ParamInfo>,
    end: usize,
}

impl<'a> Builder<'a> {
    pub fn new(config: &'a ModelConfig, shape: &'a ModelShape) -> Self {
        Builder {
            config,
            shape,
            naming: Naming::of(config),
            infos: Vec::new(),
            end: 0,
        }
    }

    pub fn build(mut self) -> Layout {
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
