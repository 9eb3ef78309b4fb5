//! A decoder as the planner sees it: the model's own config, and its parameters counted by role in the list that the model
//! itself would lay out, from a toy to 405B. Nothing is allocated. The known models are in `models`.

use crate::nn::mixer::{Mixer, MixerConfig};
use crate::nn::role::{AttentionRole, MixerRole, Role, Site};
use crate::nn::{ModelConfig, ModelShape, ParamInfo, param_infos};
use serde::Serialize;

/// Exact parameter counts by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Params {
    pub embeddings: u64,
    pub positions: u64,
    /// All layers, those of mixers in its place included.
    pub attention: u64,
    /// All layers and experts, routers included.
    pub mlp: u64,
    pub norms: u64,
    /// Without the table of embeddings, where that is the head; with a value head.
    pub head: u64,
}

impl Params {
    fn of(infos: &[ParamInfo]) -> Params {
        let mut params = Params::default();
        for info in infos {
            let part = match info.role {
                Role::Embedding => &mut params.embeddings,
                Role::Position => &mut params.positions,
                Role::Attention(_) | Role::Mixer(_) | Role::Bias(Site::Attention | Site::Mixer) => {
                    &mut params.attention
                }
                Role::Mlp(_) | Role::Bias(Site::Mlp | Site::Router) | Role::Router => {
                    &mut params.mlp
                }
                Role::Norm | Role::Bias(Site::Norm) => &mut params.norms,
                Role::Head | Role::Value => &mut params.head,
                // Not part of a model: `Request::n_trainable` counts them.
                Role::Adapter(_) => continue,
            };
            *part += info.len as u64;
        }
        params
    }

    pub fn total(&self) -> u64 {
        self.embeddings + self.positions + self.attention + self.mlp + self.norms + self.head
    }
}

/// Inputs plus outputs of all linear layers of a kind that can have adapters, which experts cannot: an adapter of rank r has r times
/// as many parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinearWidths {
    pub query_value: u64,
    /// Keys, the gate and the projection out.
    pub key_output: u64,
    /// Of mixers other than attention.
    pub mixers: u64,
    pub mlp: u64,
}

impl LinearWidths {
    /// GPT-2's one matrix for queries, keys and values counts as three.
    fn of(infos: &[ParamInfo], shape: &ModelShape) -> LinearWidths {
        let mut widths = LinearWidths::default();
        for info in infos.iter().filter(|info| info.expert.is_none()) {
            let [d_out, d_in] = info.shape[..] else {
                continue;
            };
            let width = (d_in + d_out) as u64;
            match info.role {
                Role::Attention(AttentionRole::Query | AttentionRole::Value) => {
                    widths.query_value += width;
                }
                Role::Attention(
                    AttentionRole::Key | AttentionRole::Gate | AttentionRole::Output,
                ) => {
                    widths.key_output += width;
                }
                Role::Mixer(MixerRole::In | MixerRole::Output) => widths.mixers += width,
                Role::Attention(AttentionRole::QueryKeyValue) => {
                    let kv = shape.n_kv_head * shape.head_dim;
                    widths.query_value += (2 * d_in + d_out - kv) as u64;
                    widths.key_output += (d_in + kv) as u64;
                }
                Role::Mlp(_) => widths.mlp += width,
                _ => {}
            }
        }
        widths
    }
}

/// A decoder-only transformer to plan with. Changing it counts it again: see [`Arch::with`].
#[derive(Debug, Clone, PartialEq)]
pub struct Arch {
    config: ModelConfig,
    shape: ModelShape,
    params: Params,
    linear_widths: LinearWidths,
    /// Parameters of experts, and of those that a token is not routed to.
    n_in_experts: u64,
    n_idle: u64,
}

impl Arch {
    /// The model of a config; `vocab_size` is the tokenizer's, used if the config sets none.
    pub fn of(config: &ModelConfig, vocab_size: usize) -> Arch {
        let shape = config.shape(vocab_size);
        let infos = param_infos(config, vocab_size);
        let experts = infos.iter().filter(|info| info.expert.is_some());
        let n_in_experts = experts.map(|info| info.len as u64).sum();
        Arch {
            config: ModelConfig {
                n_kv_head: Some(shape.n_kv_head),
                attention_type: None,
                head_dim: Some(shape.head_dim),
                d_ff: Some(shape.d_ff),
                vocab_size: Some(shape.vocab_size),
                ..config.clone()
            },
            shape,
            params: Params::of(&infos),
            linear_widths: LinearWidths::of(&infos, &shape),
            n_in_experts,
            n_idle: idle(config, n_in_experts),
        }
    }

    /// The same model with a change to its config, in which heads, widths and vocabulary are filled in.
    pub fn with(&self, change: impl FnOnce(&mut ModelConfig)) -> Arch {
        let mut config = self.config.clone();
        change(&mut config);
        Arch::of(&config, self.shape.vocab_size)
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    pub fn n_layer(&self) -> u64 {
        self.shape.n_layer as u64
    }

    pub fn d_model(&self) -> u64 {
        self.shape.d_model as u64
    }

    pub fn n_head(&self) -> u64 {
        self.shape.n_head as u64
    }

    pub fn vocab_size(&self) -> u64 {
        self.shape.vocab_size as u64
    }

    /// Context length; rows of a table of learned positions.
    pub fn max_len(&self) -> u64 {
        self.shape.seq_len as u64
    }

    /// Total width of the query heads.
    pub fn q_width(&self) -> u64 {
        (self.shape.n_head * self.shape.head_dim) as u64
    }

    /// Total width of the key heads, and of the value heads.
    pub fn kv_width(&self) -> u64 {
        (self.shape.n_kv_head * self.shape.head_dim) as u64
    }

    /// Width inside the feed-forward blocks that a token passes in one layer, all its experts together, a shared one included; the
    /// mean where some blocks have none.
    pub fn active_d_ff(&self) -> u64 {
        let d_ff = self.shape.d_ff;
        let width = |layer| {
            let moe = self.config.experts(layer);
            moe.map_or(d_ff, |moe| moe.active_width(d_ff)) as u64
        };
        let all: u64 = (0..self.shape.n_layer).map(width).sum();
        all / self.n_layer().max(1)
    }

    pub fn params(&self) -> Params {
        self.params
    }

    pub fn linear_widths(&self) -> LinearWidths {
        self.linear_widths
    }

    pub fn n_params(&self) -> u64 {
        self.params.total()
    }

    /// Active parameters per token: all but the experts it is not routed to.
    pub fn n_active(&self) -> u64 {
        self.n_params() - self.n_idle
    }

    /// Parameters that a decode step of so many texts reads in the mean: beside the experts of one token those that the others are
    /// routed to, at random.
    pub fn n_read(&self, texts: u64) -> f64 {
        let idle = self.config.moe.as_ref().map_or(1.0, |moe| {
            let share = moe.top_k as f64 / moe.n_expert.max(1) as f64;
            (1.0 - share).powf(texts.saturating_sub(1) as f64)
        });
        self.n_active() as f64 + self.n_idle as f64 * (1.0 - idle)
    }

    /// Parameters of the experts of all blocks.
    pub fn n_in_experts(&self) -> u64 {
        self.n_in_experts
    }

    /// Parameters of one block, all experts included.
    pub fn layer_params(&self) -> u64 {
        (self.params.attention + self.params.mlp) / self.n_layer().max(1)
    }

    /// Embeddings, positions, norms and head: what quantization leaves in 16 bits.
    pub fn kept_in_16_bit(&self) -> u64 {
        let p = self.params;
        p.embeddings + p.positions + p.norms + p.head
    }

    /// Parameters in matmuls per token: active ones minus tables that are only looked up.
    pub fn n_matmul(&self) -> u64 {
        let looked_up = match self.config.ties_head() {
            true => 0,
            false => self.params.embeddings,
        };
        self.n_active() - self.params.positions - looked_up
    }

    /// Blocks that have attention.
    pub fn attention_layers(&self) -> u64 {
        self.config.attention_layers().count() as u64
    }

    /// Elements that training keeps of a token for the backward pass of attention or of a mixer, of a block in the mean: of
    /// attention `2·q + 2·kv`, and with a gate `2·q` more; of a mixer its projections, what goes to the projection out, and of a gated
    /// delta net or Mamba 2 what its convolution gives and its heads' outputs.
    pub fn mixing_elements(&self) -> u64 {
        let d = self.shape.d_model;
        let of = |layer| match self.config.mixer(layer) {
            None if self.config.mla.is_some() => self.latent_elements(),
            None => {
                let gate = if self.config.attention_gate { 2 } else { 0 };
                (2 + gate) * self.q_width() + 2 * self.kv_width()
            }
            Some(MixerConfig::ShortConv(_)) => 4 * d as u64,
            Some(MixerConfig::GatedDeltaNet(net)) => {
                let (channels, values) = (net.conv_channels(d), net.values());
                (2 * channels + 3 * values + 2 * net.n_value_head) as u64
            }
            Some(MixerConfig::Mamba2(net)) => {
                (2 * net.conv_channels(d) + 3 * net.inner() + net.n_head) as u64
            }
        };
        let all: u64 = (0..self.shape.n_layer).map(of).sum();
        all / self.n_layer().max(1)
    }

    /// Elements that a text keeps of a token in a block with attention: `2·n_kv·d`, or with latent attention the latent vector and the
    /// shared key.
    fn kept_elements(&self) -> u64 {
        match &self.config.mla {
            Some(mla) => mla.kept() as u64,
            None => 2 * self.kv_width(),
        }
    }

    /// What training keeps of a token in a block with latent attention: its latent vectors before and after their norms, the shared
    /// key, and of all heads query, key, value and output.
    fn latent_elements(&self) -> u64 {
        let Some(mla) = &self.config.mla else {
            return 0;
        };
        let latents = 2 * mla.q_rank.unwrap_or(0) + mla.kv_rank + mla.kept();
        (latents + 2 * self.shape.n_head * (mla.qk_dim() + mla.v_dim)) as u64
    }

    /// Bytes per token of keys and values of all blocks with attention: `2·L·n_kv·d·bytes`.
    pub fn kv_bytes_per_token(&self, bytes: u64) -> u64 {
        self.attention_layers() * self.kept_elements() * bytes
    }

    /// Bytes of a text's states in f32, whatever its length: of blocks without attention.
    pub fn state_bytes(&self) -> u64 {
        self.config.state_bytes() as u64
    }

    /// Bytes that are kept of a text: keys and values, of a block with a sliding window no more than its window, and states.
    pub fn kv_bytes(&self, tokens: u64, bytes: u64) -> u64 {
        let kept = |layer| match self.config.window(layer) {
            Some(window) => tokens.min(window as u64),
            None => tokens,
        };
        let kept: u64 = self.config.attention_layers().map(kept).sum();
        self.kept_elements() * bytes * kept + self.state_bytes()
    }
}

/// Parameters of the experts a token is not routed to.
fn idle(config: &ModelConfig, n_in_experts: u64) -> u64 {
    let Some(moe) = &config.moe else {
        return 0;
    };
    let n = moe.n_expert.max(1) as u64;
    n_in_experts / n * n.saturating_sub(moe.top_k as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::mlp::MlpConfig;
    use crate::nn::norm::NormConfig;
    use crate::nn::position::PositionConfig;

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
            r#"{"qk_norm": true, "qk_norm_over": "all_heads", "norm_placement": "reordered", "n_kv_head": 2}"#,
            r#"{"sliding_window": 16, "global_every": 2}"#,
            r#"{"position": {"rope": {"fraction": 0.25}}, "bias": true, "parallel_residual": true}"#,
            r#"{"position": {"rope": {}}, "mlp": {"swiglu": {}}, "moe": {"n_expert": 4, "top_k": 3}}"#,
            r#"{"position": {"rope": {}}, "mlp": {"swiglu": {}}, "moe": {"n_expert": 4, "top_k": 3, "d_ff": 16,
                "shared_d_ff": 40, "shared_gate": true, "dense_blocks": [0, 2]}}"#,
            r#"{"position": {"rope": {}}, "bias": true, "moe": {"n_expert": 4, "shared_d_ff": 24, "scoring": "sigmoid",
                "balancing": {"bias": {}}}}"#,
            r#"{"mixer": {"short_conv": {"bias": true}}, "attention_blocks": [1], "attention_gate": true}"#,
            r#"{"mixer": {"gated_delta_net": {"n_value_head": 8}}, "attention_every": 4}"#,
            r#"{"position": {"rope": {}}, "mla": {"v_dim": 20}}"#,
            r#"{"position": {"rope": {}}, "mla": {"q_rank": 24, "v_dim": 60}, "moe": {"n_expert": 4, "shared_d_ff": 24}}"#,
            r#"{"mixer": {"mamba2": {"n_head": 6, "head_dim": 20, "state_dim": 24, "n_group": 2}}, "attention_every": 4}"#,
        ];
        let options = options.map(|text| serde_json::from_str(text).unwrap());
        for config in configs.into_iter().chain(options) {
            let model = crate::nn::Model::new(&config, 65, &Device::Cpu).unwrap();
            let arch = Arch::of(&config, 65);
            assert_eq!(arch.n_params(), model.n_params() as u64, "{config:?}");
            let with_attention = crate::plan::work::flops_per_token(&arch, arch.max_len());
            assert_eq!(with_attention, model.flops_per_token());
        }
    }

    #[test]
    fn an_expert_that_sleeps_is_not_active() {
        let mixtral = &crate::plan::models::find("mixtral-8x7b").unwrap().arch;
        assert_eq!(mixtral.n_params(), 46_702_792_704);
        assert_eq!(mixtral.n_active(), 12_879_925_248);
        // One of four pairs of experts wakes with each further text.
        let (active, all) = (mixtral.n_active() as f64, mixtral.n_params() as f64);
        assert_eq!(mixtral.n_read(1), active);
        let of_two = active + (all - active) * 0.25;
        assert!((mixtral.n_read(2) / of_two - 1.0).abs() < 1e-12);
        assert!((mixtral.n_read(64) / all - 1.0).abs() < 1e-6);
        let dense = &crate::plan::models::find("gpt2").unwrap().arch;
        assert_eq!(dense.n_read(64), dense.n_params() as f64);
    }

    #[test]
    fn a_block_with_a_window_caches_no_more_than_that() {
        let whole = &crate::plan::models::find("gpt2").unwrap().arch;
        assert_eq!(whole.kv_bytes(100, 2), 100 * whole.kv_bytes_per_token(2));
        let windowed = whole.with(|config| {
            config.sliding_window = Some(16);
            config.global_every = Some(2);
        });
        let half = whole.kv_bytes_per_token(2) / 2;
        assert_eq!(windowed.kv_bytes(100, 2), half * (100 + 16));
        assert_eq!(windowed.kv_bytes(10, 2), half * (10 + 10));
    }
}
