//! `deepseek2`: DeepSeek-V2, V3 and what computes as they do (Moonlight, Kimi K2, GLM-4.7-Flash): latent attention
//! (llama.cpp, src/models/deepseek2.cpp). Pairs of rotated features are neighbours, as in ours.

use super::common::{self, KV_HEADS, RMS_EPS, count, float};
use super::{Architecture, Keys, OwnKeys, Seen};
use crate::gguf::Value;
use crate::nn::mlp::MlpConfig;
use crate::nn::norm::NormConfig;
use crate::nn::position::{PositionConfig, RopeConfig, ScalingConfig, scaling};
use crate::nn::{Balancing, MlaConfig, ModelConfig, ModelShape, MoeConfig, NormPlacement, Scoring};

pub struct DeepSeek2;

const DENSE: &str = "leading_dense_block_count";
const EXPERT_WIDTH: &str = "expert_feed_forward_length";
const N_SHARED: &str = "expert_shared_count";
const SCORING: &str = "expert_gating_func";
/// 0 in files from before there was a choice.
const SOFTMAX: usize = 1;
const SIGMOID: usize = 2;
/// Of Mistral's models: factors of the queries by their positions.
const TEMPERATURE: &str = "attention.temperature_scale";
/// A tenth of mscale_all_dim.
const LOG: &str = "rope.scaling.yarn_log_multiplier";

impl Architecture for DeepSeek2 {
    fn name(&self) -> &'static str {
        "deepseek2"
    }

    fn read(&self, keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
        if keys.number_if(TEMPERATURE)?.is_some() {
            return Err(format!(
                "deepseek2.{TEMPERATURE}: attention whose queries grow with their positions is not supported"
            ));
        }
        let n_layer = common::without_ahead(self.name(), keys, keys.count("block_count")?)?;
        let rope_dim = keys.count("rope.dimension_count")?;
        let length = |key: &str| match keys.count_if(&format!("attention.{key}_mla"))? {
            Some(n) => Ok(n),
            // Of files with one matrix for keys and values.
            None => keys.count(&format!("attention.{key}")),
        };
        let (qk, v_dim) = (length("key_length")?, length("value_length")?);
        let nope_dim = qk.checked_sub(rope_dim).filter(|n| *n > 0);
        let nope_dim = nope_dim.ok_or_else(|| {
            format!("deepseek2.rope.dimension_count is {rope_dim}, of keys with {qk} features")
        })?;
        let mla = MlaConfig {
            kv_rank: keys.count("attention.kv_lora_rank")?,
            q_rank: keys.count_if("attention.q_lora_rank")?.filter(|n| *n > 0),
            nope_dim,
            rope_dim,
            v_dim,
            ..MlaConfig::default()
        };
        Ok(ModelConfig {
            n_layer,
            n_head: keys.count("attention.head_count")?,
            d_model: keys.count("embedding_length")?,
            d_ff: keys.count_if("feed_forward_length")?,
            seq_len: keys.count("context_length")?.min(common::MAX_SEQ_LEN),
            vocab_size: Some(seen.vocab_size),
            mla: Some(mla),
            position: PositionConfig::Rope(rope(keys, seen, rope_dim)?),
            norm: common::rms(keys.number(RMS_EPS)?, false),
            mlp: MlpConfig::SwiGlu(Default::default()),
            moe: experts(keys, n_layer, seen.vocab_size)?,
            tie_embeddings: !seen.has_head,
            ..ModelConfig::default()
        })
    }

    fn leaves_out(&self, tensor: &str, n_layer: usize) -> bool {
        common::is_behind(tensor, n_layer)
    }

    fn write(&self, config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
        let mla = config.mla.as_ref()?;
        let has_plain_norm = match &config.norm {
            NormConfig::RmsNorm(norm) => !norm.unit_offset,
            NormConfig::LayerNorm(_) => false,
        };
        let fits = has_plain_norm
            && !(mla.q_rank.is_some() && is_lite(shape))
            && matches!(config.mlp, MlpConfig::SwiGlu(_))
            && config.norm_placement == NormPlacement::Pre
            && !config.parallel_residual
            && common::is_unscaled(config)
            && config.attention_scale.is_none();
        let rope = config.position.rope().filter(|_| fits)?;
        let mut keys = vec![
            ("context_length", count(shape.seq_len)),
            ("embedding_length", count(shape.d_model)),
            ("block_count", count(shape.n_layer)),
            ("feed_forward_length", count(shape.d_ff)),
            ("attention.head_count", count(shape.n_head)),
            // In decode all heads share one key, the latent vector.
            (KV_HEADS, count(1)),
            ("attention.key_length", count(mla.kept())),
            ("attention.value_length", count(mla.kv_rank)),
            ("attention.key_length_mla", count(mla.qk_dim())),
            ("attention.value_length_mla", count(mla.v_dim)),
            ("attention.kv_lora_rank", count(mla.kv_rank)),
            (RMS_EPS, float(config.norm.eps())),
            ("vocab_size", count(shape.vocab_size)),
            ("rope.dimension_count", count(mla.rope_dim)),
        ];
        // llama.cpp requires it of models without such a vector, too, and the widths of experts of those without experts.
        keys.push(("attention.q_lora_rank", count(mla.q_rank.unwrap_or(0))));
        write_rope(rope, &mut keys)?;
        match &config.moe {
            Some(moe) => write_experts(config, moe, &mut keys)?,
            None => keys.extend([
                (DENSE, count(shape.n_layer)),
                (EXPERT_WIDTH, count(shape.d_ff)),
                (N_SHARED, count(0)),
            ]),
        }
        Some(keys)
    }

    fn notes(&self, config: &ModelConfig) -> Vec<String> {
        let eps = config.norm.eps();
        let own = config.mla.as_ref().map(|mla| mla.norm_eps);
        let other = own.filter(|own| *own != eps);
        let note = other.map(|own| {
            format!("llama.cpp's norms of latent vectors add {eps:e} as all others do, instead of {own:e}")
        });
        note.into_iter().collect()
    }

    fn is_latent(&self) -> bool {
        true
    }
}

/// Sizes by which llama.cpp knows models whose queries come from the block's input (DeepSeek-V2-Lite, GigaChat 3, Kanana 2): it looks
/// for no other queries there.
fn is_lite(shape: &ModelShape) -> bool {
    match shape.n_layer {
        26 | 27 => true,
        n => n == 48 && shape.vocab_size == 128_256,
    }
}

fn rope(keys: Keys, seen: &Seen, rope_dim: usize) -> Result<RopeConfig, String> {
    let mut rope = common::rope(keys, seen, rope_dim)?;
    if let Some(ScalingConfig::Yarn(yarn)) = &mut rope.scaling
        && let Some(log) = keys.number_if(LOG)?
    {
        // Both weights are one in its models: cosines and sines stay as they are.
        let weight = common::seven_digits(10.0 * log);
        (yarn.mscale, yarn.mscale_all_dim) = (Some(weight), Some(weight));
        yarn.attention_factor = None;
    }
    Ok(rope)
}

/// `None` for positions that llama.cpp does not have there.
fn write_rope(rope: &RopeConfig, keys: &mut OwnKeys) -> Option<()> {
    if rope.nope_every.is_some() || rope.local_theta.is_some() || rope.fraction != 1.0 {
        return None;
    }
    keys.push(("rope.freq_base", float(rope.theta)));
    match &rope.scaling {
        None => {}
        Some(ScalingConfig::Linear(linear)) => {
            keys.push(("rope.scaling.type", Value::String("linear".into())));
            keys.push(("rope.scaling.factor", float(linear.factor)));
        }
        Some(ScalingConfig::Yarn(yarn)) => {
            let standard = scaling::Yarn::default();
            let is_plain = (yarn.beta_fast, yarn.beta_slow)
                == (standard.beta_fast, standard.beta_slow)
                && yarn.truncate
                && (yarn.attention_factor() - 1.0).abs() < 1e-6;
            let weight = yarn.mscale_all_dim.filter(|_| is_plain)?;
            keys.push(("rope.scaling.type", Value::String("yarn".into())));
            keys.push(("rope.scaling.factor", float(yarn.factor)));
            let original = count(yarn.original_len?);
            keys.push(("rope.scaling.original_context_length", original));
            keys.push((LOG, float(0.1 * weight)));
        }
        Some(_) => return None,
    }
    Some(())
}

/// GLM-4.7-Flash, of which some files do not say that its scores are sigmoids; llama.cpp goes by the same numbers.
fn is_glm_flash(n_layer: usize, vocab_size: usize) -> bool {
    matches!(n_layer, 47 | 48) && vocab_size == 154_880
}

fn experts(keys: Keys, n_layer: usize, vocab_size: usize) -> Result<Option<MoeConfig>, String> {
    let Some(n_expert) = keys.count_if("expert_count")?.filter(|n| *n > 0) else {
        return Ok(None);
    };
    let scoring = match keys.count_if(SCORING)?.unwrap_or(0) {
        0 if is_glm_flash(n_layer, vocab_size) => Scoring::Sigmoid,
        0 | SOFTMAX => Scoring::Softmax,
        SIGMOID => Scoring::Sigmoid,
        other => {
            return Err(format!(
                "deepseek2.{SCORING} is {other}; {SOFTMAX} and {SIGMOID} are supported, softmax and sigmoid scores"
            ));
        }
    };
    let dense = keys.count_if(DENSE)?.unwrap_or(0);
    let (every, dense_blocks) = MoeConfig::blocks_of(n_layer, |layer| layer >= dense);
    let d_ff = keys.count(EXPERT_WIDTH)?;
    let n_shared = keys.count_if(N_SHARED)?.unwrap_or(0);
    let groups = keys.count_if("expert_group_count")?.unwrap_or(1);
    let reached = keys.count_if("expert_group_used_count")?.unwrap_or(groups);
    let has_groups = reached < groups;
    if has_groups && scoring == Scoring::Softmax {
        return Err(format!(
            "deepseek2.expert_group_count is {groups} with softmax scores: llama.cpp takes the groups with the best pair of experts, and DeepSeek-V2 those with the best one"
        ));
    }
    let scale = keys.number_if("expert_weights_scale")?;
    Ok(Some(MoeConfig {
        n_expert,
        top_k: keys.count("expert_used_count")?,
        d_ff: Some(d_ff),
        norm_topk: keys.flag_if("expert_weights_norm").unwrap_or(false),
        scoring,
        gate_scale: scale.map(common::seven_digits).filter(|x| *x != 1.0),
        n_group: has_groups.then_some(groups),
        top_group: has_groups.then_some(reached),
        shared_d_ff: Some(n_shared.saturating_mul(d_ff)).filter(|n| *n > 0),
        balancing: match scoring {
            Scoring::Softmax => Balancing::Loss {},
            Scoring::Sigmoid => Balancing::Bias { rate: 0.0 },
        },
        aux_loss_coef: 0.0,
        z_loss_coef: 0.0,
        every,
        dense_blocks,
        ..MoeConfig::default()
    }))
}

/// `None` for experts that llama.cpp does not have there.
fn write_experts(config: &ModelConfig, moe: &MoeConfig, keys: &mut OwnKeys) -> Option<()> {
    let has_experts = |layer: &usize| config.experts(*layer).is_some();
    let dense = (0..config.n_layer).find(has_experts)?;
    let d_ff = moe.d_ff?.max(1);
    let shared = moe.shared_d_ff.unwrap_or(0);
    let is_sigmoid = moe.scoring == Scoring::Sigmoid;
    let has_groups = moe.n_group > moe.top_group;
    let fits = (dense..config.n_layer).all(|layer| has_experts(&layer))
        // llama.cpp reads tensors of a shared expert wherever there are experts.
        && shared > 0
        && shared.is_multiple_of(d_ff)
        && !moe.shared_gate
        && (moe.balancing != Balancing::Loss {}) == is_sigmoid
        && (is_sigmoid || !has_groups);
    if !fits {
        return None;
    }
    let scoring = if is_sigmoid { SIGMOID } else { SOFTMAX };
    keys.extend([
        (DENSE, count(dense)),
        ("expert_count", count(moe.n_expert)),
        ("expert_used_count", count(moe.top_k)),
        (EXPERT_WIDTH, count(d_ff)),
        (N_SHARED, count(shared / d_ff)),
        ("expert_weights_scale", float(moe.gate_scale.unwrap_or(1.0))),
        ("expert_weights_norm", Value::Bool(moe.norm_topk)),
        (SCORING, count(scoring)),
    ]);
    if let (Some(n), Some(top), true) = (moe.n_group, moe.top_group, has_groups) {
        keys.push(("expert_group_count", count(n)));
        keys.push(("expert_group_used_count", count(top)));
    }
    Some(())
}
