//! Shared by decoders with RoPE and RMSNorm: nearly everything.

use super::{Keys, OwnKeys, Seen};
use crate::gguf::Value;
use crate::nn::mixer::MAX_BLOCKS;
use crate::nn::mlp::MlpConfig;
use crate::nn::norm::NormConfig;
use crate::nn::position::{PositionConfig, RopeConfig, ScalingConfig, scaling};
use crate::nn::{
    AttentionBias, Balancing, ModelConfig, ModelShape, MoeConfig, NormPlacement, QkNormOver,
    Scoring,
};

/// Keys of the norms' epsilon, and of the key and value heads.
pub const RMS_EPS: &str = "attention.layer_norm_rms_epsilon";
pub const KV_HEADS: &str = "attention.head_count_kv";
pub const LAYER_EPS: &str = "attention.layer_norm_epsilon";
/// Width of a shared expert.
pub const SHARED_WIDTH: &str = "expert_shared_feed_forward_length";

/// Upper limit on the context length.
pub const MAX_SEQ_LEN: usize = 1 << 20;

/// The model config from the keys, for Llama-like models: SwiGLU, pre-norm.
///
/// # Errors
/// A key is missing, has another type, or a value that is not supported.
pub fn read(keys: Keys, seen: &Seen) -> Result<ModelConfig, String> {
    read_normed(keys, seen, rms(keys.number(RMS_EPS)?, false))
}

/// The same with other norms.
///
/// # Errors
/// As [`read`].
pub fn read_normed(keys: Keys, seen: &Seen, norm: NormConfig) -> Result<ModelConfig, String> {
    let n_kv_head = keys.count_if(KV_HEADS)?;
    read_grouped(keys, seen, norm, n_kv_head)
}

/// The same with so many key and value heads in blocks that have attention.
///
/// # Errors
/// As [`read`].
pub fn read_grouped(
    keys: Keys,
    seen: &Seen,
    norm: NormConfig,
    n_kv_head: Option<usize>,
) -> Result<ModelConfig, String> {
    let (n_head, d_model) = (
        keys.count("attention.head_count")?,
        keys.count("embedding_length")?,
    );
    let plain = d_model.checked_div(n_head).unwrap_or(0);
    let head_dim = keys.count_if("attention.key_length")?.unwrap_or(plain);
    let value_dim = keys.count_if("attention.value_length")?.unwrap_or(head_dim);
    if value_dim != head_dim {
        return Err(format!(
            "values of {value_dim} features with keys of {head_dim} are not supported"
        ));
    }
    let rope = rope(keys, seen, head_dim)?;
    Ok(ModelConfig {
        n_layer: keys.count("block_count")?,
        n_head,
        n_kv_head,
        head_dim: Some(head_dim).filter(|n| *n != plain),
        d_model,
        d_ff: keys.count_if("feed_forward_length")?,
        seq_len: keys.count("context_length")?.min(MAX_SEQ_LEN),
        vocab_size: Some(seen.vocab_size),
        position: PositionConfig::Rope(rope),
        norm,
        mlp: MlpConfig::SwiGlu(Default::default()),
        moe: experts(keys)?,
        bias: seen.has_mlp_bias,
        attention_bias: match (seen.has_qkv_bias, seen.has_out_bias) {
            _ if seen.has_mlp_bias => AttentionBias::None,
            (false, false) => AttentionBias::None,
            (true, false) => AttentionBias::Qkv,
            (false, true) => AttentionBias::Output,
            (true, true) => AttentionBias::All,
        },
        tie_embeddings: !seen.has_head,
        ..ModelConfig::default()
    })
}

/// Which blocks of a hybrid have attention, and with how many key and value heads: the others have none.
///
/// # Errors
/// A list of another length, or with several numbers.
pub fn key_heads(keys: Keys, n_layer: usize) -> Result<(Vec<bool>, Option<usize>), String> {
    let name = keys.architecture;
    let heads = match keys.counts_if(KV_HEADS)? {
        Some(heads) => heads,
        None => vec![keys.count(KV_HEADS)?; n_layer.min(MAX_BLOCKS)],
    };
    if heads.len() != n_layer {
        return Err(format!(
            "{name}.{KV_HEADS} has {} entries for {n_layer} blocks",
            heads.len()
        ));
    }
    let most = heads.iter().copied().max().filter(|n| *n > 0);
    if heads.iter().any(|n| *n > 0 && Some(*n) != most) {
        return Err(format!(
            "{name}.{KV_HEADS} differs between blocks with attention"
        ));
    }
    Ok((heads.iter().map(|n| *n > 0).collect(), most))
}

pub fn rms(eps: f64, unit_offset: bool) -> NormConfig {
    let mut norm = NormConfig::RmsNorm(Default::default());
    if let NormConfig::RmsNorm(config) = &mut norm {
        // Files store f32: 1e-5 reads back as 0.0000099999997.
        config.eps = seven_digits(eps);
        config.unit_offset = unit_offset;
    }
    norm
}

/// The shortest decimal of seven digits: the value before it became an f32.
pub fn seven_digits(x: f64) -> f64 {
    format!("{x:.6e}").parse().unwrap_or(x)
}

/// Rotary positions of heads of `head_dim` features.
///
/// # Errors
/// A key has another type, or a value that is not supported.
pub fn rope(keys: Keys, seen: &Seen, head_dim: usize) -> Result<RopeConfig, String> {
    let width = keys.count_if("rope.dimension_count")?.unwrap_or(head_dim);
    if width == 0 || width > head_dim {
        return Err(format!("{width} features of {head_dim} cannot be rotated"));
    }
    let theta = keys.number_if("rope.freq_base")?.unwrap_or(10_000.0);
    Ok(RopeConfig {
        theta: seven_digits(theta),
        fraction: width as f64 / head_dim as f64,
        scaling: scaling(keys, seen, width / 2)?,
        ..RopeConfig::default()
    })
}

/// The scaling of `half` pairs.
fn scaling(keys: Keys, seen: &Seen, half: usize) -> Result<Option<ScalingConfig>, String> {
    if let Some(factors) = &seen.rope_factors {
        if factors.len() != half {
            return Err(format!(
                "rope_freqs.weight has {} factors for {half} rotated pairs",
                factors.len()
            ));
        }
        let theta = keys.number_if("rope.freq_base")?.unwrap_or(10_000.0);
        let divisors = || factors.iter().map(|f| f64::from(*f)).collect::<Vec<_>>();
        // Any other divisors are used as given: a list of LongRoPE's, whatever the context.
        let listed = || {
            ScalingConfig::Longrope(scaling::Longrope {
                short_factor: divisors(),
                long_factor: divisors(),
                attention_factor: Some(1.0),
                ..scaling::Longrope::default()
            })
        };
        return Ok(Some(llama3(factors, theta).unwrap_or_else(listed)));
    }
    // Older files have a factor but no type.
    let factor = match keys.number_if("rope.scaling.factor")? {
        None => keys.number_if("rope.scale_linear")?,
        factor => factor,
    };
    let kind = keys.word_if("rope.scaling.type").unwrap_or("linear");
    let known = matches!(kind, "linear" | "yarn");
    let Some(factor) = factor.filter(|_| known) else {
        return match (kind, known) {
            ("none", _) | ("linear", true) => Ok(None),
            (_, true) => keys.number("rope.scaling.factor").map(|_| None),
            (_, false) => Err(format!(
                "{}.rope.scaling.type is {kind:?}, which is not supported; linear and yarn are",
                keys.architecture
            )),
        };
    };
    match kind {
        "linear" => Ok(Some(ScalingConfig::Linear(scaling::Linear { factor }))),
        "yarn" => {
            let standard = scaling::Yarn {
                factor,
                ..scaling::Yarn::default()
            };
            let own = keys.number_if("rope.scaling.attn_factor")?;
            // In Hugging Face's form: the complete factor.
            let whole = keys.number_if("rope.scaling.yarn_attn_factor")?;
            Ok(Some(ScalingConfig::Yarn(scaling::Yarn {
                original_len: keys.count_if("rope.scaling.original_context_length")?,
                beta_fast: keys
                    .number_if("rope.scaling.yarn_beta_fast")?
                    .unwrap_or(standard.beta_fast),
                beta_slow: keys
                    .number_if("rope.scaling.yarn_beta_slow")?
                    .unwrap_or(standard.beta_slow),
                // The file's factor multiplies the default one.
                attention_factor: own
                    .filter(|own| *own != 1.0)
                    .map(|own| own * standard.usual_attention_factor())
                    .or(whole),
                ..standard
            })))
        }
        _ => Ok(None),
    }
}

/// Files hold the factors of Llama 3's scaling, not its parameters. Its wavelength bounds are 1 and 4 in all models;
/// a factor on the ramp between them determines the original context. `None` if these are not such factors.
fn llama3(factors: &[f32], theta: f64) -> Option<ScalingConfig> {
    use crate::nn::position::Rotation;
    use crate::nn::position::scaling::Scaling;
    let standard = scaling::Llama3::default();
    let plain = Rotation::plain(theta, factors.len()).frequencies;
    let greatest = seven_digits(factors.iter().copied().fold(1.0_f32, f32::max).into());
    let same = |tried: &scaling::Llama3| {
        let stretched = tried.rotation(theta, factors.len(), 0).frequencies;
        let pairs = plain.iter().zip(&stretched).zip(factors);
        pairs.into_iter().all(|((a, b), f)| {
            let expected = a / b;
            (expected - f64::from(*f)).abs() <= 1e-3 * expected
        })
    };
    let ramp = plain
        .iter()
        .zip(factors)
        .find(|(_, f)| **f > 1.001 && f64::from(**f) < 0.999 * greatest);
    let (low, high) = (standard.low_freq_factor, standard.high_freq_factor);
    let original_len = ramp.map(|(frequency, f)| {
        let kept = (1.0 / f64::from(*f) - 1.0 / greatest) / (1.0 - 1.0 / greatest);
        let waves = low + kept * (high - low);
        (waves * std::f64::consts::TAU / frequency).round() as usize
    });
    let lengths = [standard.original_len].into_iter().chain(original_len);
    let tried = lengths.map(|original_len| scaling::Llama3 {
        factor: greatest,
        original_len,
        ..standard.clone()
    });
    let found = tried.into_iter().find(|tried| same(tried));
    found.map(ScalingConfig::Llama3)
}

fn experts(keys: Keys) -> Result<Option<MoeConfig>, String> {
    let Some(n_expert) = keys.count_if("expert_count")?.filter(|n| *n > 0) else {
        return Ok(None);
    };
    if keys.count_if("expert_shared_count")?.unwrap_or(0) > 1 {
        return Err("several shared experts are not supported".into());
    }
    Ok(Some(MoeConfig {
        n_expert,
        top_k: keys.count("expert_used_count")?,
        d_ff: keys.count_if("expert_feed_forward_length")?,
        shared_d_ff: keys.count_if(SHARED_WIDTH)?.filter(|n| *n > 0),
        ..MoeConfig::default()
    }))
}

/// Integers are written as 32 bits, which llama.cpp requires.
pub fn count(n: usize) -> Value {
    Value::Unsigned(n as u64)
}

pub fn float(x: f64) -> Value {
    Value::Float(x)
}

/// The keys of a Llama-like model; `None` if its positions cannot be expressed.
pub fn write(config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
    let rope = config.position.rope()?;
    if rope.nope_every.is_some() {
        // `smollm3` alone has such blocks; it passes a config in which all rotate.
        return None;
    }
    let eps = match config.norm {
        NormConfig::RmsNorm(_) => RMS_EPS,
        NormConfig::LayerNorm(_) => LAYER_EPS,
    };
    let mut keys = vec![
        ("context_length", count(shape.seq_len)),
        ("embedding_length", count(shape.d_model)),
        ("block_count", count(shape.n_layer)),
        ("feed_forward_length", count(shape.d_ff)),
        ("attention.head_count", count(shape.n_head)),
        (KV_HEADS, count(shape.n_kv_head)),
        ("attention.key_length", count(shape.head_dim)),
        ("attention.value_length", count(shape.head_dim)),
        (eps, float(config.norm.eps())),
        ("vocab_size", count(shape.vocab_size)),
        ("rope.dimension_count", count(rope.width(shape.head_dim))),
        ("rope.freq_base", float(rope.theta)),
    ];
    match &rope.scaling {
        // Llama 3's scaling goes into a tensor of factors.
        None | Some(ScalingConfig::Llama3(_)) => {}
        Some(ScalingConfig::Linear(linear)) => {
            keys.push(("rope.scaling.type", Value::String("linear".into())));
            keys.push(("rope.scaling.factor", float(linear.factor)));
        }
        Some(ScalingConfig::Yarn(yarn)) => {
            // llama.cpp supports no other ramp bounds in these architectures.
            let standard = scaling::Yarn::default();
            let betas = (yarn.beta_fast, yarn.beta_slow);
            if betas != (standard.beta_fast, standard.beta_slow) || !yarn.truncate {
                return None;
            }
            let original = yarn.original_len?;
            keys.push(("rope.scaling.type", Value::String("yarn".into())));
            keys.push(("rope.scaling.factor", float(yarn.factor)));
            keys.push(("rope.scaling.original_context_length", count(original)));
            keys.push(("rope.scaling.yarn_beta_fast", float(yarn.beta_fast)));
            keys.push(("rope.scaling.yarn_beta_slow", float(yarn.beta_slow)));
            // DeepSeek's weights of the logarithm have no keys here: what follows from them is written.
            if yarn.attention_factor.is_some() || yarn.mscale.is_some() {
                let own = yarn.attention_factor() / yarn.usual_attention_factor();
                keys.push(("rope.scaling.attn_factor", float(own)));
            }
        }
        Some(ScalingConfig::Ntk(_) | ScalingConfig::Longrope(_)) => return None,
    }
    if let Some(moe) = &config.moe {
        keys.push(("expert_count", count(moe.n_expert)));
        keys.push(("expert_used_count", count(moe.top_k)));
        let d_ff = moe.d_ff.unwrap_or(shape.d_ff);
        keys.push(("expert_feed_forward_length", count(d_ff)));
        keys.extend(moe.shared_d_ff.map(|d_ff| (SHARED_WIDTH, count(d_ff))));
    }
    Some(keys)
}

/// The keys of a model whose architecture has no width of an expert apart from that of a feed-forward block.
pub fn write_one_width(config: &ModelConfig, shape: &ModelShape) -> Option<OwnKeys> {
    let d_ff = config.moe.as_ref().and_then(|moe| moe.d_ff);
    let d_ff = d_ff.unwrap_or(shape.d_ff);
    write(config, &ModelShape { d_ff, ..*shape })
}

/// A config whose experts are as wide as its file says, or together as a feed-forward block, where it says no width of theirs.
pub fn with_widths(mut config: ModelConfig) -> ModelConfig {
    let width = config.d_ff;
    if let Some(moe) = config.moe.as_mut().filter(|moe| moe.d_ff.is_none()) {
        moe.d_ff = width.map(|width| width / moe.top_k.max(1));
    }
    config
}

/// Whether every block has experts, of softmax scores without biases or a factor, shared ones aside.
pub fn has_plain_experts(config: &ModelConfig) -> bool {
    let plain = config.moe.as_ref().is_some_and(|moe| {
        moe.scoring == Scoring::Softmax
            && moe.gate_scale.is_none_or(|scale| scale == 1.0)
            && moe.balancing == Balancing::Loss {}
    });
    plain && config.expert_blocks() == config.n_layer
}

/// The same without experts.
pub fn without_experts(config: &ModelConfig) -> ModelConfig {
    ModelConfig {
        moe: None,
        ..config.clone()
    }
}

/// Whether whole heads are rotated, as most architectures require.
pub fn rotates_all(config: &ModelConfig, shape: &ModelShape) -> bool {
    let rope = config.position.rope();
    rope.is_some_and(|rope| rope.width(shape.head_dim) == shape.head_dim)
}

/// The same, with one base in all blocks and no factors.
pub fn rotates_alike(config: &ModelConfig, shape: &ModelShape) -> bool {
    let rope = config.position.rope();
    let one_base = rope.is_some_and(|rope| rope.local_theta.is_none());
    one_base && rotates_all(config, shape) && !has_factors(config)
}

/// Whether frequencies have their own factors, a tensor that only `llama` has.
pub fn has_factors(config: &ModelConfig) -> bool {
    let rope = config.position.rope();
    rope.is_some_and(|rope| matches!(rope.scaling, Some(ScalingConfig::Llama3(_))))
}

/// Whether a model has neither a window nor caps nor scales, except that of attention scores.
pub fn is_unscaled(config: &ModelConfig) -> bool {
    config.sliding_window.is_none()
        && config.attention_softcap.is_none()
        && config.logit_softcap.is_none()
        && config.embedding_scale.is_none()
        && config.residual_scale.is_none()
        && config.logit_scale.is_none()
}

/// Whether a model is Llama-like up to biases, QK-norm of single heads, experts and partial RoPE.
pub fn is_plain(config: &ModelConfig) -> bool {
    let plain_norm = match &config.norm {
        NormConfig::RmsNorm(norm) => !norm.unit_offset,
        NormConfig::LayerNorm(_) => false,
    };
    plain_norm
        && config
            .position
            .rope()
            .is_some_and(|rope| rope.local_theta.is_none())
        && matches!(config.mlp, MlpConfig::SwiGlu(_))
        && config.norm_placement == NormPlacement::Pre
        && !config.parallel_residual
        && is_unscaled(config)
        && config.qk_norm_over == QkNormOver::Head
        && config
            .moe
            .as_ref()
            .is_none_or(|moe| has_plain_experts(config) && moe.shared_d_ff.is_none())
}

/// Blocks behind those of the model, which predict tokens further ahead.
const AHEAD: &str = "nextn_predict_layers";

/// Of `n_layer` blocks of a file those of the model.
///
/// # Errors
/// A sentence: none is left.
pub(super) fn without_ahead(name: &str, keys: Keys, n_layer: usize) -> Result<usize, String> {
    let ahead = keys.count_if(AHEAD)?.unwrap_or(0);
    let left = n_layer.checked_sub(ahead).filter(|n| *n > 0);
    left.ok_or_else(|| format!("{name}.{AHEAD} is {ahead} of {n_layer} blocks: none is left"))
}

/// Whether the tensor is of a block behind those of the model.
pub(super) fn is_behind(tensor: &str, n_layer: usize) -> bool {
    let block = tensor
        .strip_prefix("blk.")
        .and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
    block.is_some_and(|block| block >= n_layer)
}
