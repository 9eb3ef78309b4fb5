//! `lfm2`, and with experts behind the first blocks `lfm2moe`: gated short convolutions in place of attention where a block has no key and value heads, QK-norm in the others
//! (llama.cpp, src/models/lfm2.cpp, src/models/lfm2moe.cpp).

use super::common::{self, KV_HEADS, RMS_EPS, count};
use super::{Architecture, Keys, OwnKeys, Seen};
use crate::gguf::{Array, Value};
use crate::nn::mixer::{MixerConfig, ShortConvConfig, attention_keys};
use crate::nn::{AttentionBias, Balancing, ModelConfig, ModelShape, MoeConfig, Scoring};

pub struct Lfm2 {
    name: &'static str,
    has_experts: bool,
}

pub const LFM2: Lfm2 = Lfm2 {
    name: "lfm2",
    has_experts: false,
};
pub const LFM2_MOE: Lfm2 = Lfm2 {
    name: "lfm2moe",
    has_experts: true,
};

/// How many of the first blocks have no experts; and how logits of routers become scores: 2 is the sigmoid.
const DENSE: &str = "leading_dense_block_count";
const SCORING: &str = "expert_gating_func";
const SIGMOID: usize = 2;

/// Tokens that the convolution reads.
const CONV_LEN: &str = "shortconv.l_cache";

impl Architecture for Lfm2 {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        if keys.flag_if("attention.causal") == Some(false) {
            return Err(format!(
                "{}.attention.causal is false: it is an encoder, which writes no text",
                self.name
            ));
        }
        if keys
            .count_if("attention.sliding_window")?
            .is_some_and(|n| n > 0)
        {
            return Err(format!(
                "{}.attention.sliding_window: models of speech are not supported",
                self.name
            ));
        }
        let n_layer = keys.count("block_count")?;
        let (has_attention, most) = common::key_heads(keys, n_layer)?;
        let norm = common::rms(keys.number(RMS_EPS)?, false);
        let config = common::read_grouped(keys, seen, norm, most)?;
        let mixes = has_attention.contains(&false);
        let (attention_every, attention_blocks) = attention_keys(&has_attention);
        let conv = ShortConvConfig {
            conv_len: keys.count(CONV_LEN)?,
            bias: false,
        };
        Ok(ModelConfig {
            qk_norm: true,
            mixer: mixes.then_some(MixerConfig::ShortConv(conv)),
            attention_every,
            attention_blocks,
            moe: self.experts(keys, config.moe, n_layer)?,
            ..config
        })
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let Some(MixerConfig::ShortConv(conv)) = &config.mixer else {
            return None;
        };
        let has_attention = |layer: &usize| config.mixer(*layer).is_none();
        let fits = common::is_plain(&common::without_experts(config))
            && common::rotates_alike(config, shape)
            && config.qk_norm
            && !config.attention_gate
            && config.moe.is_some() == self.has_experts
            && config.attention_biases() == AttentionBias::None
            // llama.cpp's convolution has no bias, and looks back at least one token.
            && !conv.bias
            && conv.conv_len > 1
            && shape.n_head * shape.head_dim == shape.d_model
            && (0..shape.n_layer).any(|layer| has_attention(&layer));
        let mut keys = fits.then(|| common::write(config, shape))??;
        let heads = (0..shape.n_layer).map(|layer| match has_attention(&layer) {
            true => i32::try_from(shape.n_kv_head).unwrap_or(i32::MAX),
            false => 0,
        });
        let heads = Value::Array(Array::I32(heads.collect()));
        keys.retain(|(key, _)| *key != KV_HEADS);
        keys.push((KV_HEADS, heads));
        keys.push((CONV_LEN, count(conv.conv_len)));
        if let Some(moe) = &config.moe {
            let has_experts = |layer: &usize| config.experts(*layer).is_some();
            let dense = (0..shape.n_layer).find(has_experts)?;
            let fits = (dense..shape.n_layer).all(|layer| has_experts(&layer))
                && moe.scoring == Scoring::Sigmoid
                && moe.norm_topk
                && moe.gate_scale.is_none_or(|scale| scale == 1.0)
                && moe.balancing != Balancing::Loss {}
                && moe.shared_d_ff.is_none();
            if !fits {
                return None;
            }
            keys.push((DENSE, count(dense)));
            keys.push((SCORING, count(SIGMOID)));
        }
        Some(keys)
    }

    fn is_hybrid(&self) -> bool {
        true
    }

    fn own_name(&self, part: &str) -> Option<&'static str> {
        (part == "model.norm").then_some("token_embd_norm")
    }
}

impl Lfm2 {
    /// The experts of a file: sigmoid scores, with biases for the choice.
    fn experts(
        &self,
        keys: Keys,
        moe: Option<MoeConfig>,
        n_layer: usize,
    ) -> Result<Option<MoeConfig>, String> {
        let Some(moe) = moe.filter(|_| self.has_experts) else {
            return Ok(None);
        };
        let scoring = keys.count(SCORING)?;
        if scoring != SIGMOID {
            return Err(format!(
                "{}.{SCORING} is {scoring}; {SIGMOID} is supported, sigmoid scores",
                self.name
            ));
        }
        let dense = keys.count_if(DENSE)?.unwrap_or(0);
        let (every, dense_blocks) = MoeConfig::blocks_of(n_layer, |layer| layer >= dense);
        Ok(Some(MoeConfig {
            scoring: Scoring::Sigmoid,
            balancing: Balancing::Bias { rate: 0.0 },
            aux_loss_coef: 0.0,
            z_loss_coef: 0.0,
            every,
            dense_blocks,
            ..moe
        }))
    }
}
