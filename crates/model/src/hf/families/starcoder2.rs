//! StarCoder2: LayerNorm, biases everywhere, grouped queries, RoPE, a GELU feed-forward block with GPT-2's names, a sliding
//! window in all blocks.

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::common::Defaults;
use super::family::{Family, one_by_one};
use super::gpt2::zero_bias;
use super::rope::Rope;
use crate::nn::mlp::{Approximate, GeluConfig, MlpConfig, ReluConfig};
use crate::nn::norm::{LayerNormConfig, NormConfig};
use crate::nn::position::PositionConfig;
use crate::nn::{ModelConfig, ParamInfo};
use serde_json::{Value, json};

pub struct Starcoder2;

const DEFAULTS: Defaults = Defaults {
    rope: Rope {
        theta: 10_000.0,
        partial: false,
        fraction: 1.0,
        longrope: false,
        sections: false,
        mscale: false,
    },
    tied: true,
    kv_heads: Some(2),
    ..Defaults::LLAMA
};

/// The default of `norm_epsilon`.
const EPS: f64 = 1e-5;
/// Our matrix → theirs.
const RENAMED: [(&str, &str); 2] = [
    (".mlp.up_proj", ".mlp.c_fc"),
    (".mlp.down_proj", ".mlp.c_proj"),
];
/// The norms, which have biases even with `use_bias: false`.
const NORMS: [&str; 2] = ["layernorm", "model.norm"];

impl Family for Starcoder2 {
    fn model_type(&self) -> &'static str {
        "starcoder2"
    }

    fn renames_matrices(&self) -> bool {
        true
    }

    fn class(&self) -> &'static str {
        "Starcoder2ForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "Starcoder2ForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        // Of the training program, in the published files: transformers has no other choice.
        keys.only("norm_type", &json!("layer_norm"))?;
        keys.only("mlp_type", &json!("default"))?;
        for old in [
            "attention_softmax_in_fp32",
            "scale_attention_softmax_in_fp32",
            "scale_attn_weights",
        ] {
            keys.only(old, &json!(true))?;
        }
        let _ = keys.number("layer_norm_epsilon")?;
        let mlp = match keys.word("hidden_act")?.unwrap_or("gelu_pytorch_tanh") {
            "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => gelu(Approximate::Tanh),
            "gelu" => gelu(Approximate::None),
            "relu" => MlpConfig::Relu(ReluConfig::default()),
            other => {
                return Err(format!(
                    "hidden_act `{}` is not supported; use gelu_pytorch_tanh, gelu or relu",
                    crate::base::text::one_line(other)
                ));
            }
        };
        let position = PositionConfig::Rope(DEFAULTS.rope.read(keys)?);
        let bias = keys.flag("use_bias", true)?;
        Ok(ModelConfig {
            norm: NormConfig::LayerNorm(LayerNormConfig {
                eps: keys.number("norm_epsilon")?.unwrap_or(EPS),
                bias: (!bias).then_some(true),
            }),
            mlp,
            bias,
            sliding_window: keys.size("sliding_window")?,
            ..DEFAULTS.with(keys, position)?
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = DEFAULTS.write(config);
        if let Some(map) = value.as_object_mut() {
            map.remove("rms_norm_eps");
        }
        value["norm_epsilon"] = json!(config.norm.eps());
        value["hidden_act"] = json!(match &config.mlp {
            MlpConfig::Gelu(gelu) if gelu.approximate == Approximate::Tanh => "gelu_pytorch_tanh",
            MlpConfig::Relu(_) => "relu",
            _ => "gelu",
        });
        value["use_bias"] = json!(config.bias);
        value["sliding_window"] = json!(config.sliding_window);
        value["residual_dropout"] = json!(0.0);
        value["embedding_dropout"] = json!(0.0);
        value
    }

    /// A model without any biases is written with zeros in its norms.
    fn canonical(&self, mut config: ModelConfig) -> ModelConfig {
        if let NormConfig::LayerNorm(norm) = &mut config.norm
            && !config.bias
        {
            norm.bias = Some(true);
        }
        config
    }

    fn disk_name(&self, own: &str) -> String {
        RENAMED
            .iter()
            .fold(own.to_string(), |name, (ours, theirs)| {
                name.replace(ours, theirs)
            })
    }

    /// Where our norms have no biases, theirs are zero.
    fn tensors(&self, config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        let has_biases = config.norm.bias().unwrap_or(config.bias);
        let mut tensors = Vec::new();
        for tensor in one_by_one(infos) {
            let zeros = zero_bias(&tensor, &NORMS).filter(|_| !has_biases);
            // One with gates is none of theirs: its matrices keep their names.
            let name = match config.mlp.gated() {
                true => tensor.name.clone(),
                false => self.disk_name(&tensor.name),
            };
            tensors.push(tensor.named(name));
            tensors.extend(zeros);
        }
        tensors
    }
}

fn gelu(approximate: Approximate) -> MlpConfig {
    MlpConfig::Gelu(GeluConfig { approximate })
}
