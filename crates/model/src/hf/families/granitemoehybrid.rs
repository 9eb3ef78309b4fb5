//! Granite 4.0 (granite-4.0-h-350m, -h-1b, -h-micro, -h-tiny, -h-small): Mamba 2 in most blocks and attention without positions in the
//! others, with experts beside a feed-forward block that every token passes, or that block alone. The models without Mamba 2
//! (granite-4.0-350m, -1b, -micro) are of this class too, and rotate.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::common::{self, Defaults};
use super::experts::{everywhere, stacked, write_everywhere};
use super::family::{Family, one_by_one};
use super::granite::{scaled, write_scales};
use super::mamba;
use crate::nn::mixer::{MAX_BLOCKS, MixerConfig, attention_keys};
use crate::nn::position::PositionConfig;
use crate::nn::{AttentionBias, ModelConfig, ParamInfo};
use serde_json::{Value, json};

pub struct GraniteMoeHybrid;

const DEFAULTS: Defaults = Defaults::LLAMA;
/// The width of the feed-forward block that every token passes.
const SHARED: &str = "shared_intermediate_size";
const N_EXPERT: &str = "num_local_experts";
/// Without effect where there are no experts; the value is the default of the class.
const AUX_LOSS: &str = "router_aux_loss_coef";
const POSITIONS: &str = "position_embedding_type";

/// Words of `layer_types`: those of transformers 4, which 5 reads as well, and its own.
const MAMBA: [&str; 2] = ["mamba", "linear_attention"];
const ATTENTION: [&str; 2] = ["attention", "full_attention"];

impl Family for GraniteMoeHybrid {
    fn model_type(&self) -> &'static str {
        "granitemoehybrid"
    }

    fn renames_matrices(&self) -> bool {
        true
    }

    fn class(&self) -> &'static str {
        "GraniteMoeHybridForCausalLM"
    }

    /// Named as the others.
    fn classifier(&self) -> &'static str {
        "GraniteMoeHybridForSequenceClassification"
    }

    fn has_classifier(&self) -> bool {
        false
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        unread(keys)?;
        let rope = DEFAULTS.rope.read(keys)?;
        let position = match keys.word(POSITIONS)? {
            Some("rope") => PositionConfig::Rope(rope),
            None | Some("nope") => PositionConfig::None(Default::default()),
            Some(other) => {
                return Err(format!(
                    "{POSITIONS} `{}`: rope and nope are supported",
                    crate::base::text::one_line(other)
                ));
            }
        };
        let config = scaled(DEFAULTS.with(keys, position)?, keys)?;
        let net = mamba::read(keys, config.d_model)?;
        let has_attention = attention(keys, config.n_layer)?;
        let mixes = has_attention.contains(&false);
        let (attention_every, attention_blocks) = attention_keys(&has_attention);
        let config = ModelConfig {
            attention_bias: common::attention_bias(keys)?,
            mixer: mixes.then_some(MixerConfig::Mamba2(net)),
            attention_every,
            attention_blocks,
            ..config
        };
        with_shared(keys, config, 1024)
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        write_scales(config, &mut value);
        write_shared(config, &mut value);
        mamba::write(config, &mut value);
        let word = |layer| match config.mixer(layer) {
            Some(_) => MAMBA[0],
            None => ATTENTION[0],
        };
        value["layer_types"] = (0..config.n_layer).map(word).collect::<Vec<_>>().into();
        value["attention_bias"] = json!(config.attention_biases() == AttentionBias::All);
        value[POSITIONS] = match config.position {
            PositionConfig::Rope(_) => json!("rope"),
            PositionConfig::None(_) => json!("nope"),
            // Which the class has not: it shows when it is read.
            _ => json!("other"),
        };
        value
    }

    fn disk_name(&self, own: &str) -> String {
        disk_name(own)
    }

    fn tensors(&self, _config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        tensors(infos)
    }
}

/// Keys of the published files that the class does not read: how it was initialized, and the only norm that it has.
pub(super) fn unread(keys: &Keys) -> Result<(), String> {
    common::silu(keys)?;
    keys.only("normalization_function", &json!("rmsnorm"))?;
    let _ = keys.word("init_method")?;
    Ok(())
}

/// `config` with the experts of its keys, and the feed-forward block beside them or in their place; `default` is its width where no key
/// says it.
///
/// # Errors
/// A key of another type.
pub(super) fn with_shared(
    keys: &Keys,
    config: ModelConfig,
    default: usize,
) -> Result<ModelConfig, String> {
    let shared = keys.count(SHARED)?.unwrap_or(default);
    if keys.count(N_EXPERT)? == Some(0) {
        let _ = keys.count("num_experts_per_tok")?;
        let _ = keys.number(AUX_LOSS)?;
        if shared == 0 {
            return Err(format!(
                "{SHARED} and {N_EXPERT} are 0: no feed-forward block is left"
            ));
        }
        return Ok(ModelConfig {
            d_ff: Some(shared),
            ..config
        });
    }
    let moe = everywhere(keys, &config)?;
    Ok(ModelConfig {
        moe: Some(crate::nn::MoeConfig {
            shared_d_ff: Some(shared).filter(|width| *width > 0),
            ..moe
        }),
        ..config
    })
}

/// Their keys for a canonical config.
pub(super) fn write_shared(config: &ModelConfig, value: &mut Value) {
    write_everywhere(config, value);
    match &config.moe {
        Some(moe) => value[SHARED] = json!(moe.shared_d_ff.unwrap_or(0)),
        None => {
            value[SHARED] = json!(config.d_ff);
            value[N_EXPERT] = json!(0);
            value["num_experts_per_tok"] = json!(0);
            value[AUX_LOSS] = json!(0.001);
        }
    }
}

pub(super) fn disk_name(own: &str) -> String {
    let shared = own.replace(".mlp.shared_expert.", ".shared_mlp.");
    let dense = [".mlp.gate_proj.", ".mlp.up_proj.", ".mlp.down_proj."];
    let name = match dense.iter().any(|part| own.contains(part)) {
        true => own.replace(".mlp.", ".shared_mlp."),
        false => shared,
    };
    match name.contains(".shared_mlp.") {
        true => name
            .replace(".gate_proj.", ".input_linear.")
            .replace(".up_proj.", ".input_linear.")
            .replace(".down_proj.", ".output_linear."),
        false => name
            .replace(".mlp.gate.", ".mlp.router.layer.")
            .replace(".mlp.", ".block_sparse_moe."),
    }
}

/// Gate and up projections are one matrix, and the experts of a block two tensors.
pub(super) fn tensors(infos: &[ParamInfo]) -> Vec<DiskTensor> {
    let names = ["input_linear.weight", "output_linear.weight"];
    let mut tensors: Vec<DiskTensor> = Vec::new();
    for tensor in stacked(one_by_one(infos), names) {
        let name = disk_name(&tensor.name);
        let is_up = tensor.name.ends_with(".up_proj.weight");
        match tensors.iter_mut().rfind(|t| is_up && t.name == name) {
            Some(fused) => fused.append(tensor),
            None => tensors.push(mamba::with_convolutions(tensor).named(name)),
        }
    }
    tensors
}

/// Which blocks have attention: none without the list.
fn attention(keys: &Keys, n_layer: usize) -> Result<Vec<bool>, String> {
    let old = keys.words("layers_block_type")?;
    let Some(types) = keys.words("layer_types")?.or(old) else {
        return Ok(vec![false; n_layer.min(MAX_BLOCKS)]);
    };
    let known = [ATTENTION, MAMBA].concat();
    common::one_per_block(&types, n_layer, &known)?;
    Ok(types.iter().map(|word| ATTENTION.contains(word)).collect())
}
