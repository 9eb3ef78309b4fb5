//! A decoder's dimensions as the planner needs them, from a toy to 405B, and its exact parameter counts. Formulas only;
//! the dimensions of known models are in `models`.

use crate::nn::position::PositionConfig;
use crate::nn::{AttentionBias, Balancing, ModelConfig, ModelShape, MoeConfig, NormPlacement};
use crate::nn::{mlp::MlpConfig, norm::NormConfig};
use serde::Serialize;

/// The position encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Positions {
    /// A table of `max_len` × `d_model`.
    Learned,
    /// Applied to queries and keys, or computed: no parameters.
    Rotary,
}

/// Whether the output head has its own weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Embeddings {
    Tied,
    Separate,
}

/// The feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mlp {
    /// Two matrices with an activation between them.
    Plain,
    /// Three matrices: gate, up, down.
    Gated,
}

/// Parameters of a norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norm {
    Gain,
    GainAndBias,
}

/// Which linear layers have a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Biases {
    None,
    /// Queries, keys and values only (Qwen2).
    Qkv,
    /// All of attention's.
    Attention,
    All,
}

/// QK-norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QkNorm {
    No,
    /// One gain of head_dim each (Qwen3).
    Yes,
}

/// Mixture of experts in feed-forward blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Experts {
    pub count: u64,
    /// Experts per token.
    pub active: u64,
    /// Width inside one expert.
    pub d_ff: u64,
    /// Every n-th block has experts, the others one feed-forward block.
    pub every: u64,
    pub balance: Balance,
}

/// How load is balanced over experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balance {
    Loss,
    /// A routing bias per expert.
    Bias,
}

/// Whether training uses dropout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropout {
    No,
    Yes,
}

/// The dimensions of a decoder-only transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arch {
    pub n_layer: u64,
    pub d_model: u64,
    pub n_head: u64,
    pub n_kv_head: u64,
    pub head_dim: u64,
    pub d_ff: u64,
    pub vocab_size: u64,
    /// Context length; rows of the table of learned positions.
    pub max_len: u64,
    pub positions: Positions,
    pub embeddings: Embeddings,
    pub mlp: Mlp,
    pub norm: Norm,
    pub biases: Biases,
    pub qk_norm: QkNorm,
    pub placement: NormPlacement,
    pub dropout: Dropout,
    pub experts: Option<Experts>,
}

/// Exact parameter counts by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Params {
    pub embeddings: u64,
    pub positions: u64,
    /// All layers.
    pub attention: u64,
    /// All layers and experts, routers included.
    pub mlp: u64,
    pub norms: u64,
    /// 0 if tied to the embedding table.
    pub head: u64,
}

impl Params {
    pub fn total(&self) -> u64 {
        self.embeddings + self.positions + self.attention + self.mlp + self.norms + self.head
    }
}

impl Arch {
    /// Total width of the query heads.
    pub fn q_width(&self) -> u64 {
        self.n_head * self.head_dim
    }

    /// Total width of the key heads, and of the value heads.
    pub fn kv_width(&self) -> u64 {
        self.n_kv_head * self.head_dim
    }

    /// Parameter counts by part: `V·h·(1|2) + L·(attention + feed-forward + norms) + h`.
    pub fn params(&self) -> Params {
        let h = self.d_model;
        let (norm, separate) = (self.norm_params(), self.embeddings == Embeddings::Separate);
        let qk_norm = if self.qk_norm == QkNorm::Yes {
            2 * self.head_dim
        } else {
            0
        };
        let (per_block, last) = match self.placement {
            NormPlacement::Pre => (2, 1),
            NormPlacement::Post => (2, 0),
            NormPlacement::Both => (4, 1),
        };
        Params {
            embeddings: self.vocab_size * h,
            positions: if self.positions == Positions::Learned {
                self.max_len * h
            } else {
                0
            },
            attention: self.n_layer * self.attention_params(),
            mlp: self.mlp_params(),
            norms: self.n_layer * (per_block * norm + qk_norm) + last * norm,
            head: if separate { self.vocab_size * h } else { 0 },
        }
    }

    fn norm_params(&self) -> u64 {
        match self.norm {
            Norm::Gain => self.d_model,
            Norm::GainAndBias => 2 * self.d_model,
        }
    }

    fn attention_params(&self) -> u64 {
        let (h, q, kv) = (self.d_model, self.q_width(), self.kv_width());
        let biases = match self.biases {
            Biases::None => 0,
            Biases::Qkv => q + 2 * kv,
            Biases::Attention | Biases::All => q + 2 * kv + h,
        };
        h * (q + 2 * kv) + q * h + biases
    }

    /// Blocks with experts.
    pub fn expert_blocks(&self) -> u64 {
        self.experts.map_or(0, |e| self.n_layer / e.every.max(1))
    }

    /// All feed-forward blocks and experts, routers included.
    fn mlp_params(&self) -> u64 {
        let blocks = self.expert_blocks();
        let one = (self.n_layer - blocks) * self.feed_forward_params(self.d_ff);
        let many = self.experts.map_or(0, |e| {
            let bias = match e.balance {
                Balance::Loss => 0,
                Balance::Bias => e.count,
            };
            e.count * (self.feed_forward_params(e.d_ff) + self.d_model) + bias
        });
        one + blocks * many
    }

    /// One feed-forward block of width `f`; one expert of a mixture.
    fn feed_forward_params(&self, f: u64) -> u64 {
        let h = self.d_model;
        let wide = if self.mlp == Mlp::Gated { 2 * f } else { f };
        let biases = if self.biases == Biases::All {
            wide + h
        } else {
            0
        };
        h * (wide + f) + biases
    }

    pub fn n_params(&self) -> u64 {
        self.params().total()
    }

    /// Active parameters per token: all but the experts it is not routed to.
    pub fn n_active(&self) -> u64 {
        let idle = self.experts.map_or(0, |e| {
            (e.count - e.active.min(e.count)) * self.feed_forward_params(e.d_ff)
        });
        self.n_params() - self.expert_blocks() * idle
    }

    /// Parameters of one block, all experts included.
    pub fn layer_params(&self) -> u64 {
        let p = self.params();
        (p.attention + p.mlp) / self.n_layer.max(1)
    }

    /// Embeddings, positions, norms and head: what quantization leaves in 16 bits.
    pub fn kept_in_16_bit(&self) -> u64 {
        let p = self.params();
        p.embeddings + p.positions + p.norms + p.head
    }

    /// Parameters in matmuls per token: active ones minus tables that are only looked up.
    pub fn n_matmul(&self) -> u64 {
        let p = self.params();
        let looked_up = if self.embeddings == Embeddings::Separate {
            p.embeddings
        } else {
            0
        };
        self.n_active() - p.positions - looked_up
    }

    /// KV cache bytes per token: `2·L·n_kv·d·bytes`.
    pub fn kv_bytes_per_token(&self, bytes: u64) -> u64 {
        2 * self.n_layer * self.kv_width() * bytes
    }

    /// The dimensions of a spec's model; `vocab_size` is the tokenizer's, used if the config sets none.
    pub fn of(config: &ModelConfig, vocab_size: usize) -> Arch {
        let s = config.shape(vocab_size);
        let layer_norm = matches!(config.norm, NormConfig::LayerNorm(_));
        Arch {
            n_layer: s.n_layer as u64,
            d_model: s.d_model as u64,
            n_head: s.n_head as u64,
            n_kv_head: s.n_kv_head as u64,
            head_dim: s.head_dim as u64,
            d_ff: s.d_ff as u64,
            vocab_size: s.vocab_size as u64,
            max_len: s.seq_len as u64,
            positions: if config.position.has_table() {
                Positions::Learned
            } else {
                Positions::Rotary
            },
            embeddings: if config.tie_embeddings {
                Embeddings::Tied
            } else {
                Embeddings::Separate
            },
            mlp: if config.mlp.gated() {
                Mlp::Gated
            } else {
                Mlp::Plain
            },
            norm: if config.bias && layer_norm {
                Norm::GainAndBias
            } else {
                Norm::Gain
            },
            biases: match (config.bias, config.attention_bias) {
                (true, _) => Biases::All,
                (false, AttentionBias::None) => Biases::None,
                (false, AttentionBias::Qkv) => Biases::Qkv,
                (false, AttentionBias::All) => Biases::Attention,
            },
            qk_norm: if config.qk_norm {
                QkNorm::Yes
            } else {
                QkNorm::No
            },
            placement: config.norm_placement,
            dropout: if config.dropout > 0.0 {
                Dropout::Yes
            } else {
                Dropout::No
            },
            experts: config.moe.as_ref().map(|moe| Experts {
                count: moe.n_expert as u64,
                active: moe.top_k as u64,
                d_ff: moe.d_ff.unwrap_or(s.d_ff) as u64,
                every: moe.every as u64,
                balance: match moe.balancing {
                    Balancing::Loss {} => Balance::Loss,
                    Balancing::Bias { .. } => Balance::Bias,
                },
            }),
        }
    }

    /// The same dimensions as this engine's own config.
    pub(super) fn config(&self) -> (ModelConfig, ModelShape) {
        let config = ModelConfig {
            n_layer: self.n_layer as usize,
            n_head: self.n_head as usize,
            n_kv_head: Some(self.n_kv_head as usize),
            head_dim: Some(self.head_dim as usize),
            d_model: self.d_model as usize,
            d_ff: Some(self.d_ff as usize),
            seq_len: self.max_len as usize,
            vocab_size: Some(self.vocab_size as usize),
            position: match self.positions {
                Positions::Learned => PositionConfig::Learned(Default::default()),
                Positions::Rotary => PositionConfig::Rope(Default::default()),
            },
            norm: match self.norm {
                // GPT-2's names, and its one matrix for queries, keys and values, come with its norm; without biases it is a
                // gain as well.
                Norm::Gain
                    if self.positions == Positions::Learned && self.biases != Biases::All =>
                {
                    NormConfig::LayerNorm(Default::default())
                }
                Norm::Gain => NormConfig::RmsNorm(Default::default()),
                Norm::GainAndBias => NormConfig::LayerNorm(Default::default()),
            },
            mlp: match self.mlp {
                Mlp::Plain => MlpConfig::Gelu(Default::default()),
                Mlp::Gated => MlpConfig::SwiGlu(Default::default()),
            },
            bias: self.biases == Biases::All,
            attention_bias: match self.biases {
                Biases::None => AttentionBias::None,
                Biases::Qkv => AttentionBias::Qkv,
                Biases::Attention | Biases::All => AttentionBias::All,
            },
            qk_norm: self.qk_norm == QkNorm::Yes,
            norm_placement: self.placement,
            dropout: if self.dropout == Dropout::Yes {
                0.1
            } else {
                0.0
            },
            moe: self.experts.map(|e| MoeConfig {
                n_expert: e.count as usize,
                top_k: e.active as usize,
                d_ff: Some(e.d_ff as usize),
                every: e.every as usize,
                ..Default::default()
            }),
            tie_embeddings: self.embeddings == Embeddings::Tied,
            ..ModelConfig::default()
        };
        let shape = config.shape(self.vocab_size as usize);
        (config, shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_own_models_are_counted_as_the_engine_counts_them() {
        use candle_core::Device;
        let rope = PositionConfig::Rope(Default::default());
        let configs = [
            ModelConfig::default(),
            ModelConfig {
                bias: true,
                tie_embeddings: false,
                ..Default::default()
            },
            ModelConfig {
                n_kv_head: Some(2),
                position: rope,
                norm: NormConfig::RmsNorm(Default::default()),
                mlp: MlpConfig::SwiGlu(Default::default()),
                ..Default::default()
            },
        ];
        let options = [
            r#"{"head_dim": 20, "attention_bias": "qkv", "qk_norm": true, "norm_placement": "both"}"#,
            r#"{"attention_bias": "all", "norm_placement": "post", "position": {"alibi": {}}}"#,
            r#"{"position": {"rope": {}}, "bias": true,
                "moe": {"n_expert": 5, "top_k": 2, "d_ff": 24, "every": 2, "balancing": {"bias": {}}}}"#,
            r#"{"position": {"rope": {}}, "mlp": {"swiglu": {}}, "moe": {"n_expert": 4, "top_k": 3}}"#,
        ];
        let options = options.map(|text| serde_json::from_str(text).unwrap());
        for config in configs.into_iter().chain(options) {
            let model = crate::nn::Model::new(&config, 65, &Device::Cpu).unwrap();
            let arch = Arch::of(&config, 65);
            assert_eq!(arch.n_params(), model.n_params() as u64, "{config:?}");
            let with_attention = crate::plan::work::flops_per_token(&arch, arch.max_len);
            assert_eq!(with_attention, model.flops_per_token());
        }
    }

    #[test]
    fn an_expert_that_sleeps_is_not_active() {
        let mixtral = crate::plan::models::find("mixtral-8x7b").unwrap().arch;
        assert_eq!(mixtral.n_params(), 46_702_792_704);
        assert_eq!(mixtral.n_active(), 12_879_925_248);
    }
}
