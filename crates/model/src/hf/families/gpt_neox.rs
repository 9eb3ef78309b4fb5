//! GPT-NeoX (the Pythia models): LayerNorm, plain feed-forward blocks, biases everywhere, RoPE on a quarter of each head, and
//! usually a parallel residual. Queries, keys and values are one matrix whose rows are (head, q | k | v, head_dim).

use super::super::keys::Keys;
use super::super::tensors::DiskTensor;
use super::family::{Family, one_by_one};
use super::rope::{self, Rope};
use crate::nn::mlp::{Approximate, GeluConfig, MlpConfig};
use crate::nn::norm::{LayerNormConfig, NormConfig};
use crate::nn::position::PositionConfig;
use crate::nn::{ModelConfig, ParamInfo};
use serde_json::{Value, json};

pub struct GptNeoX;

/// transformers' defaults of `rotary_emb_base` and `rotary_pct`.
const THETA: f64 = 10_000.0;
const FRACTION: f64 = 0.25;

/// Parts of our names ⇄ theirs.
const NAMES: [(&str, &str); 8] = [
    ("model.embed_tokens", "gpt_neox.embed_in"),
    ("model.norm", "gpt_neox.final_layer_norm"),
    ("model.layers", "gpt_neox.layers"),
    ("self_attn.q_proj", FUSED),
    ("self_attn.o_proj", "attention.dense"),
    ("mlp.up_proj", "mlp.dense_h_to_4h"),
    ("mlp.down_proj", "mlp.dense_4h_to_h"),
    // transformers 5 reads it as lm_head too.
    ("lm_head", "embed_out"),
];
/// Theirs of queries, keys and values.
const FUSED: &str = "attention.query_key_value";

impl Family for GptNeoX {
    fn model_type(&self) -> &'static str {
        "gpt_neox"
    }

    fn renames_matrices(&self) -> bool {
        true
    }

    fn class(&self) -> &'static str {
        "GPTNeoXForCausalLM"
    }

    fn classifier(&self) -> &'static str {
        "GPTNeoXForSequenceClassification"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, String> {
        keys.only("attention_bias", &json!(true))?;
        // Of training, and of encoders with a decoder.
        let _ = keys.number("classifier_dropout")?;
        let _ = keys.flag("is_decoder", false)?;
        let n_head = keys.need_size("num_attention_heads")?;
        Ok(ModelConfig {
            n_layer: keys.need_size("num_hidden_layers")?,
            n_head,
            n_kv_head: Some(n_head),
            d_model: keys.need_size("hidden_size")?,
            d_ff: Some(keys.need_size("intermediate_size")?),
            seq_len: keys.need_size("max_position_embeddings")?,
            vocab_size: Some(keys.need_size("vocab_size")?),
            position: positions(keys)?,
            norm: NormConfig::LayerNorm(LayerNormConfig {
                eps: keys.number("layer_norm_eps")?.unwrap_or(1e-5),
                bias: None,
            }),
            mlp: activation(keys)?,
            parallel_residual: keys.flag("use_parallel_residual", true)?,
            bias: true,
            tie_embeddings: keys.flag("tie_word_embeddings", false)?,
            ..ModelConfig::default()
        })
    }

    fn write(&self, config: &ModelConfig) -> Value {
        let mut value = json!({
            "num_hidden_layers": config.n_layer,
            "num_attention_heads": config.n_head,
            "hidden_size": config.d_model,
            "intermediate_size": config.d_ff,
            "max_position_embeddings": config.seq_len,
            "hidden_act": word(&config.mlp),
            "layer_norm_eps": config.norm.eps(),
            "use_parallel_residual": config.parallel_residual,
            "attention_bias": true,
            "attention_dropout": 0.0,
            "hidden_dropout": 0.0,
            "use_cache": true,
        });
        rope::write(&config.position, &mut value);
        let Some(rope) = config.position.rope() else {
            return value;
        };
        // The class has other names for these two.
        for (theirs, ours, x) in [
            ("rotary_emb_base", "rope_theta", rope.theta),
            ("rotary_pct", "partial_rotary_factor", rope.fraction),
        ] {
            if let Some(map) = value.as_object_mut() {
                map.remove(ours);
            }
            value[theirs] = json!(x);
            value["rope_parameters"][ours] = json!(x);
        }
        value
    }

    fn disk_name(&self, own: &str) -> String {
        let mut name = own.to_string();
        for (ours, theirs) in NAMES {
            name = name.replace(ours, theirs);
        }
        name
    }

    fn tensors(&self, config: &ModelConfig, infos: &[ParamInfo]) -> Vec<DiskTensor> {
        let mut tensors: Vec<DiskTensor> = Vec::new();
        for tensor in one_by_one(infos) {
            let name = self.disk_name(&tensor.name);
            // Keys and values follow their queries.
            let is_more = [".self_attn.k_proj.", ".self_attn.v_proj."]
                .iter()
                .any(|part| tensor.name.contains(part));
            let end = name.rsplit('.').next().unwrap_or_default();
            let fused = tensors
                .iter_mut()
                .rfind(|t| is_more && t.name.ends_with(&format!("{FUSED}.{end}")));
            match fused {
                Some(fused) => fused.append(tensor),
                None => tensors.push(tensor.named(name)),
            }
        }
        let in_turns = |tensor: DiskTensor| match tensor.name.contains(FUSED) {
            true => tensor.interleaved(config.n_head),
            false => tensor,
        };
        tensors.into_iter().map(in_turns).collect()
    }

    /// Masks and frequencies in files of transformers 4.
    fn is_buffer(&self, name: &str) -> bool {
        [".attention.bias", ".attention.masked_bias"]
            .iter()
            .any(|end| name.ends_with(end))
            || name.ends_with(".rotary_emb.inv_freq")
    }
}

fn positions(keys: &Keys) -> Result<PositionConfig, String> {
    let rope = Rope {
        theta: keys.number("rotary_emb_base")?.unwrap_or(THETA),
        partial: true,
        fraction: keys.number("rotary_pct")?.unwrap_or(FRACTION),
        longrope: false,
        sections: false,
        mscale: false,
    };
    let rope = rope.tables(keys)?;
    // transformers 4 writes the other families' names beside these, and 5 leaves them there: it reads neither.
    for (other, own, in_effect) in [
        ("rope_theta", "rotary_emb_base", rope.theta),
        ("partial_rotary_factor", "rotary_pct", rope.fraction),
    ] {
        if let Some(x) = keys.number(other)?.filter(|x| *x != in_effect) {
            return Err(format!(
                "{other} {x} beside {in_effect}: transformers reads it in rope_parameters only, else {own}; remove the one that the model was not trained with"
            ));
        }
    }
    Ok(PositionConfig::Rope(rope))
}

fn activation(keys: &Keys) -> Result<MlpConfig, String> {
    let gelu = |approximate| MlpConfig::Gelu(GeluConfig { approximate });
    Ok(match keys.word("hidden_act")?.unwrap_or("gelu") {
        "gelu" => gelu(Approximate::None),
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => gelu(Approximate::Tanh),
        "relu" => MlpConfig::Relu(Default::default()),
        "silu" | "swish" => MlpConfig::Silu(Default::default()),
        other => {
            return Err(format!(
                "hidden_act `{}` is not supported; use gelu, gelu_new, relu or silu",
                crate::base::text::one_line(other)
            ));
        }
    })
}

/// `hidden_act` of a feed-forward block; reading it back shows whether there is one.
fn word(mlp: &MlpConfig) -> &'static str {
    match mlp {
        MlpConfig::Gelu(gelu) if gelu.approximate == Approximate::Tanh => "gelu_new",
        MlpConfig::Relu(_) => "relu",
        MlpConfig::Silu(_) => "silu",
        _ => "gelu",
    }
}
