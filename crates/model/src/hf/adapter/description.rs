//! adapter_config.json: which keys are read and which have no effect here; all others are rejected, because they may
//! change what the adapter computes. The keys are those of `LoraConfig` of PEFT 0.21.

use super::patterns::{Targets, by_pattern};
use super::{KEEPS_TIED, PARAMETERS};
use crate::base::text::one_line;
use crate::nn::adapter::{ByPattern, Lora, RankAlpha, Whole};
use serde_json::Value;

/// Largest accepted `adapter_config.json`, in bytes.
pub(super) const MAX_BYTES: u64 = 1 << 20;
/// Modules that PEFT saves in full for a model with labels; the model has one of the two names.
const HEADS: [&str; 2] = ["score", "classifier"];
const READ: [&str; 20] = [
    "alpha_pattern",
    "base_model_name_or_path",
    "bias",
    KEEPS_TIED,
    "exclude_modules",
    // The layout of GPT-2's matrices is known.
    "fan_in_fan_out",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "lora_alpha",
    "lora_dropout",
    "modules_to_save",
    "peft_type",
    "r",
    "rank_pattern",
    "target_modules",
    PARAMETERS,
    "task_type",
    "use_dora",
    "use_rslora",
];
/// Bookkeeping, and settings that have no effect unless `init_lora_weights` or another key enables them.
const HARMLESS: [&str; 10] = [
    "auto_mapping",
    "corda_config",
    "eva_config",
    "inference_mode",
    "lora_ga_config",
    "loftq_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
];
/// Initializations that leave the base unchanged; all others subtract their low-rank term from its weights, or round them.
const BEGINNINGS: [&str; 4] = ["gaussian", "eva", "orthogonal", "mica"];

/// The adapter that a config describes.
#[derive(Debug)]
pub(super) struct Description {
    /// Without targets and without per-module sizes.
    pub lora: Lora,
    pub targets: Targets,
    /// target_parameters: names, or the ends of names.
    pub parameters: Vec<String>,
    /// Embeddings saved in full; they are the head's table as well if the base ties the two.
    pub keeps_tied: bool,
    ranks: ByPattern<usize>,
    alphas: ByPattern<f64>,
}

impl Description {
    /// # Errors
    /// An unread key, or a value out of range: the reason.
    pub fn of(config: &Value) -> Result<Description, String> {
        let Some(keys) = config.as_object() else {
            return Err("it is not a map of keys".into());
        };
        if config["peft_type"] != "LORA" {
            return Err(format!(
                "peft_type {} is not supported, only LORA",
                one_line(&config["peft_type"].to_string())
            ));
        }
        let is_known = |key: &str| READ.contains(&key) || HARMLESS.contains(&key);
        let other = keys
            .iter()
            .find(|(key, value)| is_set(value) && (*key == "bias" || !is_known(key)));
        if let Some((key, _)) = other {
            return Err(format!(
                "{} is not supported and may change what the adapter computes; merge this adapter with PEFT first",
                one_line(key)
            ));
        }
        beginning(&config["init_lora_weights"])?;
        let (Some(rank), Some(alpha)) = (whole(&config["r"]), positive(&config["lora_alpha"]))
        else {
            return Err(
                "r must be a whole number of at least 1, and lora_alpha a positive number".into(),
            );
        };
        Ok(Description {
            keeps_tied: flag(config, KEEPS_TIED)?,
            lora: Lora {
                rank,
                alpha,
                dropout: config["lora_dropout"]
                    .as_f64()
                    .unwrap_or(0.0)
                    .clamp(0.0, 0.95),
                rslora: flag(config, "use_rslora")?,
                dora: flag(config, "use_dora")?,
                modules_to_save: saved(&config["modules_to_save"])?,
                ..Lora::default()
            },
            targets: Targets::of(config)?,
            parameters: parameters(&config[PARAMETERS])?,
            ranks: by_pattern(config, "rank_pattern", whole)?,
            alphas: by_pattern(config, "alpha_pattern", positive)?,
        })
    }

    /// Rank and alpha of a module's adapter, by the module's name in PEFT.
    pub fn size_of(&self, module: &str) -> RankAlpha {
        RankAlpha {
            rank: self.ranks.get(module).unwrap_or(self.lora.rank),
            alpha: self.alphas.get(module).unwrap_or(self.lora.alpha),
        }
    }

    /// The key that determines a module's rank.
    pub fn key_of_rank(&self, module: &str) -> &'static str {
        match self.ranks.get(module) {
            Some(_) => "rank_pattern",
            None => "r",
        }
    }
}

/// Whether a key is set: PEFT writes all of them.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::String(word) => word != "none",
        _ => true,
    }
}

/// PiSSA, OLoRA, CorDA and LoRA-GA subtract the initial B A from the weights, LoftQ rounds them: loading the adapter does so
/// again.
fn beginning(value: &Value) -> Result<(), String> {
    match value {
        Value::Null | Value::Bool(_) => Ok(()),
        Value::String(word) if BEGINNINGS.contains(&word.to_lowercase().as_str()) => Ok(()),
        other => Err(format!(
            "init_lora_weights: {} has changed the base's weights, which this adapter depends on; save it again with PEFT's \
             path_initial_model_for_weight_conversion, or merge it with PEFT first",
            one_line(&other.to_string())
        )),
    }
}

fn saved(value: &Value) -> Result<Vec<Whole>, String> {
    let mut saved = Vec::new();
    for module in value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        match module {
            "embed_tokens" | "wte" | "embed_in" => saved.push(Whole::Embeddings),
            "lm_head" | "embed_out" => saved.push(Whole::Head),
            module if HEADS.contains(&module) => {}
            module => {
                return Err(format!(
                    "modules_to_save: {} is not supported; merge this adapter with PEFT first",
                    one_line(module)
                ));
            }
        }
    }
    Ok(saved)
}

fn parameters(value: &Value) -> Result<Vec<String>, String> {
    let list = match value {
        Value::Null => return Ok(Vec::new()),
        list => list.as_array(),
    };
    let names = list.and_then(|list| {
        let names = list.iter().map(|name| name.as_str().map(String::from));
        names.collect()
    });
    names.ok_or_else(|| format!("{PARAMETERS} must be a list of names"))
}

fn flag(config: &Value, key: &str) -> Result<bool, String> {
    match &config[key] {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        _ => Err(format!("{key} must be true or false")),
    }
}

fn whole(value: &Value) -> Option<usize> {
    let number = value.as_u64().filter(|n| (1..=1 << 32).contains(n))?;
    usize::try_from(number).ok()
}

fn positive(value: &Value) -> Option<f64> {
    value.as_f64().filter(|x| x.is_finite() && *x > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(key: &str, value: Value) -> Result<Description, String> {
        let mut config = json!({"peft_type": "LORA", "r": 4, "lora_alpha": 8});
        config[key] = value;
        Description::of(&config)
    }

    #[test]
    fn keys_that_change_the_computation_are_rejected_by_name() {
        for (key, value) in [
            ("bias", json!("all")),
            ("bias", json!("lora_only")),
            ("lora_bias", json!(true)),
            ("layer_replication", json!([[0, 2], [1, 3]])),
            ("megatron_config", json!({"tensor_model_parallel_size": 2})),
            ("target_parameters", json!("mlp.experts.gate_up_proj")),
            ("trainable_token_indices", json!([1, 2])),
            ("trainable_token_indices", json!({"embed_tokens": [1]})),
            ("alora_invocation_tokens", json!([5, 6])),
            ("use_qalora", json!(true)),
            ("use_bdlora", json!({"nblocks": 2})),
            ("arrow_config", json!({"top_k": 3})),
            ("kasa_config", json!({"beta": 1e-4})),
            ("monteclora_config", json!({"num_samples": 4})),
            ("velora_config", json!({"num_groups": 32})),
            ("use_something_new", json!(true)),
            ("modules_to_save", json!(["norm"])),
            ("init_lora_weights", json!("pissa")),
            ("init_lora_weights", json!("pissa_niter_4")),
            ("init_lora_weights", json!("olora")),
            ("init_lora_weights", json!("corda")),
            ("init_lora_weights", json!("lora_ga")),
            ("init_lora_weights", json!("loftq")),
            ("peft_type", json!("IA3")),
            ("r", json!(0)),
            ("r", json!(2.5)),
            ("lora_alpha", json!(0)),
            ("use_dora", json!("yes")),
            ("rank_pattern", json!({"q_proj": 0})),
            ("alpha_pattern", json!({"q_proj": -1})),
        ] {
            let error = with(key, value.clone()).unwrap_err();
            assert!(error.contains(key), "{key}: {value}: {error}");
        }
    }

    #[test]
    fn keys_without_effect_are_ignored() {
        for (key, value) in [
            ("init_lora_weights", json!("gaussian")),
            ("init_lora_weights", json!("eva")),
            ("init_lora_weights", json!(false)),
            ("eva_config", json!({"rho": 2.0})),
            ("corda_config", json!({"corda_method": "ipm"})),
            ("loftq_config", json!({"loftq_bits": 4})),
            ("megatron_core", json!("megatron.core")),
            ("qalora_group_size", json!(16)),
            ("bias", json!("none")),
            ("layer_replication", json!(null)),
            ("use_something_new", json!(false)),
        ] {
            assert!(with(key, value.clone()).is_ok(), "{key}: {value}");
        }
    }

    #[test]
    fn rank_and_alpha_patterns_are_independent() {
        let mut config = json!({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "use_rslora": true});
        config["rank_pattern"] = json!({"q_proj": 9});
        config["alpha_pattern"] = json!({"self_attn.*": 6, "q_proj": 7.5});
        let described = Description::of(&config).unwrap();
        let of = |module: &str| {
            let size = described.size_of(module);
            (size.rank, size.alpha, described.lora.scale_of(size))
        };
        assert_eq!(of("model.layers.0.self_attn.q_proj"), (9, 6.0, 2.0));
        assert_eq!(of("model.layers.0.self_attn.v_proj"), (4, 6.0, 3.0));
        assert_eq!(of("model.layers.0.mlp.up_proj"), (4, 8.0, 4.0));
    }
}
