//! Bamba (Bamba-9B): Llama with Mamba 2 in most blocks, and attention that rotates half of each head in the others.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::common::{self, Defaults};
use super::family::{Family, one_by_one};
use super::mamba;
use super::rope::Rope;
use crate::nn::mixer::{MAX_BLOCKS, MixerConfig, attention_keys};
use crate::nn::{ModelConfig, ParamInfo};
use serde_json::{Value, json};

pub struct Bamba;

/// The share of a head that is rotated, whatever the keys say.
const FRACTION: f64 = 0.5;
const DEFAULTS: Defaults = Defaults {
    rope: Rope {
        partial: true,
        fraction: FRACTION,
        ..Defaults::LLAMA.rope
    },
    eps: 1e-5,
    kv_heads: Some(8),
    ..Defaults::LLAMA
};
const ATTENTION: &str = "attn_layer_indices";

/// Parts of our names ⇄ theirs.
const NAMES: [(&str, &str); 3] = [
    ("model.norm.", "model.final_layernorm."),
    (".post_attention_layernorm.", ".pre_ff_layernorm."),
    (".mlp.", ".feed_forward."),
];

impl Family for Bamba {
    fn model_type(&self) -> &'static str {
        "bamba"
    }

    fn renames_matrices(&self) -> bool {
        true
    }

    fn class(&self) -> &'static str {
        "BambaForCausalLM"
    }

    /// Named as the others.
    fn classifier(&self) -> &'static str {
        "BambaForSequenceClassification"
    }

    fn has_classifier(&self) -> bool {
        false
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        common::silu(keys)?;
        // Logits that a prompt gives, a loss of training, and what follows from the share of a head.
        for key in ["num_logits_to_keep", "attn_rotary_emb"] {
            let _ = keys.count(key)?;
        }
        let _ = keys.number("z_loss_coefficient")?;
        let config = common::with_biases(keys, DEFAULTS.read(keys)?)?;
        let fraction = config.position.rope().map(|rope| rope.fraction);
        if fraction != Some(FRACTION) {
            return Err(format!(
                "partial_rotary_factor: transformers rotates {FRACTION} of each head in this class"
            ));
        }
        let net = mamba::read(keys, config.d_model)?;
        let blocks = keys.numbers(ATTENTION)?.unwrap_or_default();
        let has_attention: Vec<bool> = (0..config.n_layer.min(MAX_BLOCKS))
            .map(|layer| blocks.contains(&(layer as f64)))
            .collect();
        let mixes = has_attention.contains(&false);
        let (attention_every, attention_blocks) = attention_keys(&has_attention);
        Ok(ModelConfig {
            mixer: mixes.then_some(MixerConfig::Mamba2(net)),
            attention_every,
            attention_blocks,
            ..config
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        common::write_biases(config, &mut value);
        mamba::write(config, &mut value);
        value[ATTENTION] = json!(config.attention_layers().collect::<Vec<_>>());
        // transformers would use its default, which is outside no vocabulary but has no meaning here.
        value["pad_token_id"] = Value::Null;
        value
    }

    fn disk_name(&self, own: &str) -> String {
        let rename = |name: String, (ours, theirs): &(&str, &str)| name.replace(ours, theirs);
        NAMES.iter().fold(own.to_string(), rename)
    }

    fn tensors(&self, _config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        let renamed = |tensor: DiskTensor| {
            let name = self.disk_name(&tensor.name);
            mamba::with_convolutions(tensor).named(name)
        };
        one_by_one(infos).into_iter().map(renamed).collect()
    }
}
