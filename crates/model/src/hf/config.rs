//! `config.json`: the architecture in Hugging Face's form, if one of their families computes the same, plus our own under
//! the key `llmtui` for an exact round trip.

use super::Naming;
use super::dtype::Dtype;
use super::families::{self, Family};
use super::keys;
use crate::base::text::one_line;
use crate::nn::{HeadKind, ModelConfig, ModelShape};
use serde_json::{Map, Value, json};

/// The `model_type` of models without an equivalent family.
pub const OWN: &str = "llmtui";
/// Keys present in both forms that other programs may change without changing the model.
const FREE: [&str; 11] = [
    "architectures",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "initializer_range",
    "llmtui",
    "n_ctx",
    "pad_token_id",
    // Older versions wrote its default whatever its value was.
    "router_aux_loss_coef",
    "torch_dtype",
    "use_cache",
];
/// transformers' name for the only label of a model with a score.
const LABEL: &str = "LABEL_0";
/// Token ids needed for generation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenIds {
    pub bos: Option<u32>,
    /// Each of them ends a text: first the tokenizer's EOS, then end-of-turn tokens.
    pub eos: Vec<u32>,
    pub pad: Option<u32>,
}

impl From<Option<u32>> for TokenIds {
    /// A single token that both separates and starts texts.
    fn from(mark: Option<u32>) -> TokenIds {
        TokenIds {
            bos: mark,
            eos: mark.into_iter().collect(),
            pad: None,
        }
    }
}

impl TokenIds {
    /// As in the files: absent, one id, or several.
    pub fn eos_value(&self) -> Value {
        match &self.eos[..] {
            [] => Value::Null,
            [one] => json!(one),
            several => json!(several),
        }
    }
}

/// The complete `config.json`; `dtype` is that of the weights next to it.
pub fn write(
    config: &ModelConfig,
    shape: &ModelShape,
    ids: &TokenIds,
    dtype: Dtype,
    naming: Naming,
) -> Value {
    let family = families::of(config).filter(|_| naming == Naming::Family);
    let mut value = match family {
        Some(family) => of_family(family, config, shape),
        None => json!({"model_type": OWN}),
    };
    // The tokenizer determines the vocabulary size if the spec sets none; written out, the folder is self-contained.
    let mut own = config.clone();
    own.vocab_size = Some(shape.vocab_size);
    value["vocab_size"] = json!(shape.vocab_size);
    value["tie_word_embeddings"] = json!(config.tie_embeddings);
    value["initializer_range"] = json!(config.init_std);
    value["bos_token_id"] = json!(ids.bos);
    value["eos_token_id"] = ids.eos_value();
    value["pad_token_id"] = json!(ids.pad);
    value["torch_dtype"] = json!(dtype.torch_word());
    value["llmtui"] = json!({"version": env!("CARGO_PKG_VERSION"), "model": own});
    value
}

fn of_family(family: &dyn Family, config: &ModelConfig, shape: &ModelShape) -> Value {
    let mut canonical = family.canonical(families::canonical(config, shape));
    // Without effect on logits, but other programs use it for training.
    if let (Some(moe), Some(ours)) = (&mut canonical.moe, &config.moe) {
        moe.aux_loss_coef = ours.aux_loss_coef;
    }
    let mut value = json!({
        "architectures": [family.class_of(config)],
        "model_type": family.model_type(),
    });
    if let (Some(map), Value::Object(keys)) = (value.as_object_mut(), family.write(&canonical)) {
        map.extend(keys);
    }
    if config.is_reward_model() {
        value["num_labels"] = json!(1);
        value["id2label"] = json!({"0": LABEL});
        value["label2id"] = json!({LABEL: 0});
    }
    value
}

/// Whether `architectures` names the family's class with labels.
fn is_classifier(map: &Map<String, Value>) -> bool {
    let model_type = map.get("model_type").and_then(Value::as_str);
    let family = model_type.and_then(|name| families::named(name).ok());
    let class = map.get("architectures").and_then(|list| list.get(0));
    family.is_some_and(|family| class.and_then(Value::as_str) == Some(family.classifier()))
}

/// Number of labels of a classifier: two if absent.
fn labels(map: &Map<String, Value>) -> usize {
    let listed = map.get("id2label").and_then(Value::as_object);
    let said = map.get("num_labels").and_then(Value::as_u64);
    listed.map_or(said.unwrap_or(2) as usize, Map::len)
}

/// The model of a `config.json`: from our own key if present, else from its family.
///
/// # Errors
/// An unknown model type (with the list of known ones), a key that is missing, wrong or not supported, sizes beyond
/// the limits, or our key contradicting theirs.
pub fn read(value: &Value) -> Result<ModelConfig, String> {
    let value = families::text_model(value)?;
    let Some(map) = value.as_object() else {
        return Err("not a JSON object".into());
    };
    let own = value.pointer("/llmtui/model");
    let config = match own {
        Some(own) => read_own(own, map)?,
        None => read_foreign(map)?,
    };
    config.within_limits()?;
    if let Some(fault) = config.faults().first() {
        let keys = fault.keys.join(", ");
        return Err(format!("{keys}: {}; {}", fault.what, fault.hint));
    }
    Ok(match own {
        Some(_) => config,
        None => of_its_family(config, map),
    })
}

/// Naming its family, where another one computes the same and comes first: checkpoints and exports keep the `model_type`, and
/// with it the names of the tensors, which those of an adapter follow.
fn of_its_family(config: ModelConfig, map: &Map<String, Value>) -> ModelConfig {
    let said = map.get("model_type").and_then(Value::as_str);
    let kept =
        |config: &ModelConfig| families::of(config).map(|family| family.model_type()) == said;
    let naming = ModelConfig {
        family: said.map(String::from),
        ..config.clone()
    };
    match kept(&config) || !kept(&naming) {
        true => config,
        false => naming,
    }
}

fn read_foreign(map: &Map<String, Value>) -> Result<ModelConfig, String> {
    let Some(model_type) = map.get("model_type").and_then(Value::as_str) else {
        return Err("it has no `model_type`: is this the config.json of a model?".into());
    };
    let family = families::named(model_type)?;
    let class = map
        .get("architectures")
        .and_then(|list| list.get(0))
        .and_then(Value::as_str);
    let base = |class: &str| class.ends_with("Model") && !class.contains("For");
    if is_classifier(map) {
        return match labels(map) {
            1 => Ok(ModelConfig {
                head: HeadKind::Score,
                ..families::read_keys(family, map)?
            }),
            n => Err(format!(
                "{} with {n} labels; a reward model has one (num_labels: 1)",
                family.classifier()
            )),
        };
    }
    if let Some(other) = class.filter(|c| *c != family.class() && !base(c)) {
        return Err(format!(
            "architectures names {}; llmtui reads {} and {} of this family",
            one_line(other),
            family.class(),
            family.classifier()
        ));
    }
    families::read_keys(family, map)
}

fn read_own(own: &Value, map: &Map<String, Value>) -> Result<ModelConfig, String> {
    let mut config: ModelConfig = crate::base::json::read(own)
        .map_err(|e| format!("llmtui.model: {}", one_line(&e.to_string())))?;
    // Checkpoints of earlier versions have it, but their weights do not.
    config.value_head = false;
    config.within_limits()?;
    // Trainers of reward models keep our key and replace the vocabulary by a score.
    if is_classifier(map) && labels(map) == 1 {
        config.head = HeadKind::Score;
    }
    let shape = config.shape(0);
    let naming = match map.get("model_type").and_then(Value::as_str) {
        Some(OWN) => Naming::Own,
        _ => Naming::Family,
    };
    let said = write(&config, &shape, &TokenIds::default(), Dtype::F32, naming);
    let contradiction = said.as_object().into_iter().flatten().find(|(key, value)| {
        let theirs = map.get(*key).filter(|_| !FREE.contains(&key.as_str()));
        theirs.is_some_and(|theirs| !keys::same(theirs, value))
    });
    // Where we write no scaling, an existing one was added by another program, and other readers apply it.
    let scaling = map.get("rope_scaling").filter(|scaling| {
        let kind = |key: &str| scaling.get(key).and_then(Value::as_str);
        let is_default = kind("rope_type").or(kind("type")) == Some("default");
        naming == Naming::Family && !scaling.is_null() && !is_default
    });
    let scaled = (scaling.is_some() && said.get("rope_scaling").is_none())
        .then(|| ("rope_scaling".to_string(), Value::Null));
    let scaled = scaled.as_ref().map(|(key, value)| (key, value));
    match contradiction.or(scaled) {
        None => Ok(config),
        Some((key, value)) => {
            let theirs = map.get(key).map(|v| one_line(&v.to_string()));
            Err(format!(
                "{key} is {}, but its entry `llmtui` has {value}: the file was changed after llmtui wrote it; remove the entry `llmtui` to use the other keys",
                theirs.unwrap_or_default()
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{mlp::MlpConfig, norm::NormConfig, position::PositionConfig};

    fn llama_config() -> ModelConfig {
        ModelConfig {
            position: PositionConfig::Rope(Default::default()),
            norm: NormConfig::RmsNorm(Default::default()),
            mlp: MlpConfig::SwiGlu(Default::default()),
            n_kv_head: Some(2),
            ..Default::default()
        }
    }

    fn written(config: &ModelConfig) -> Value {
        write(
            config,
            &config.shape(65),
            &Some(3).into(),
            Dtype::F32,
            Naming::Family,
        )
    }

    #[test]
    fn our_keys_round_trip_exactly_with_the_vocabulary_filled_in() {
        let mixed = ModelConfig {
            norm: NormConfig::LayerNorm(Default::default()),
            ..llama_config()
        };
        assert_eq!(written(&mixed)["model_type"], OWN);
        for config in [ModelConfig::default(), llama_config(), mixed] {
            let text = serde_json::to_string(&written(&config)).unwrap();
            let read = read(&serde_json::from_str(&text).unwrap()).unwrap();
            let wanted = ModelConfig {
                vocab_size: Some(65),
                ..config
            };
            assert_eq!(read, wanted);
        }
    }

    #[test]
    fn changes_by_other_programs_are_detected_except_bookkeeping() {
        let mut value = written(&llama_config());
        value["torch_dtype"] = json!("bfloat16");
        value["transformers_version"] = json!("5.0.0");
        value["eos_token_id"] = json!([1, 2]);
        assert!(read(&value).is_ok());
        value["vocab_size"] = json!(70);
        let error = read(&value).unwrap_err();
        assert!(
            error.contains("vocab_size is 70") && error.contains("remove the entry `llmtui`"),
            "{error}"
        );
        value.as_object_mut().unwrap().remove("llmtui");
        assert_eq!(read(&value).unwrap().vocab_size, Some(70));
    }

    /// transformers 5 prefers `rope_scaling` to `rope_parameters`, and 4 knows only the former.
    #[test]
    fn a_rope_scaling_added_by_another_program_is_detected() {
        use crate::nn::position::{RopeConfig, ScalingConfig, scaling::Linear};
        let linear = json!({"rope_type": "linear", "factor": 4.0});
        let scaled = ModelConfig {
            position: PositionConfig::Rope(RopeConfig {
                scaling: Some(ScalingConfig::Linear(Linear { factor: 2.0 })),
                ..RopeConfig::default()
            }),
            ..llama_config()
        };
        for config in [llama_config(), scaled] {
            let mut value = written(&config);
            assert!(read(&value).is_ok());
            value["rope_scaling"] = linear.clone();
            let error = read(&value).unwrap_err();
            assert!(error.contains("rope_scaling is"), "{error}");
            value["rope_scaling"] = Value::Null;
            assert_eq!(read(&value).is_ok(), config == llama_config());
            value.as_object_mut().unwrap().remove("rope_scaling");
            assert!(read(&value).is_ok());
        }
        let mut value = written(&llama_config());
        value["rope_scaling"] = json!({"rope_type": "default"});
        assert!(read(&value).is_ok());
    }

    #[test]
    fn foreign_configs_are_rejected_by_name() {
        let error = read(&json!({"model_type": "mamba"})).unwrap_err();
        assert!(
            error.contains("mamba") && error.contains("gpt2, llama"),
            "{error}"
        );
        assert!(read(&json!({"llmtui": {"model": {"n_layer": "x"}}})).is_err());
        assert!(read(&json!([])).is_err());
        assert!(read(&json!({})).unwrap_err().contains("model_type"));
        let mut classifier = written(&llama_config());
        classifier.as_object_mut().unwrap().remove("llmtui");
        classifier["architectures"] = json!(["LlamaForTokenClassification"]);
        let error = read(&classifier).unwrap_err();
        assert!(error.contains("LlamaForTokenClassification"), "{error}");
        classifier["architectures"] = json!(["LlamaForSequenceClassification"]);
        let error = read(&classifier).unwrap_err();
        assert!(error.contains("2 labels"), "{error}");
        classifier["id2label"] = json!({"0": "LABEL_0"});
        assert_eq!(read(&classifier).unwrap().head, HeadKind::Score);
        classifier["architectures"] = json!(["LlamaForCausalLM"]);
        classifier["quantization_config"] = json!({"quant_method": "gptq"});
        assert!(read(&classifier).unwrap_err().contains("quantization"));
    }

    #[test]
    fn values_out_of_range_are_rejected_under_our_keys_and_under_theirs() {
        let mut value = written(&llama_config());
        for (key, wrong) in [
            ("sliding_window", json!(0)),
            ("dropout", json!(1.0)),
            ("moe", json!({"n_expert": 4, "top_k": 0})),
            ("logit_softcap", json!(0.0)),
            ("norm", json!({"rmsnorm": {"eps": -1e-5}})),
        ] {
            let mut value = value.clone();
            value["llmtui"]["model"][key] = wrong;
            let error = read(&value).unwrap_err();
            assert!(error.contains(key), "{error}");
        }
        value.as_object_mut().unwrap().remove("llmtui");
        value["rms_norm_eps"] = json!(-1.0);
        let error = read(&value).unwrap_err();
        assert!(error.contains("norm.rmsnorm.eps: -1 is not"), "{error}");
        let gemma = json!({"model_type": "gemma2", "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
            "hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 64, "vocab_size": 65});
        assert!(read(&gemma).is_ok());
        for (key, wrong) in [
            ("query_pre_attn_scalar", json!(-1)),
            ("query_pre_attn_scalar", json!(0)),
            ("final_logit_softcapping", json!(0.0)),
        ] {
            let mut gemma = gemma.clone();
            gemma[key] = wrong;
            let error = read(&gemma).unwrap_err();
            let ours = key.replace("final_logit_softcapping", "logit_softcap");
            assert!(error.contains(&ours), "{error}");
        }
    }

    /// Model files have no value head: a policy with one is the model of its family, and reads back without it.
    #[test]
    fn a_model_with_a_value_head_keeps_its_family() {
        let with_head = ModelConfig {
            value_head: true,
            ..llama_config()
        };
        assert_eq!(written(&with_head)["model_type"], "llama");
        assert_eq!(written(&with_head.in_files()), written(&llama_config()));
        // As in checkpoints of earlier versions.
        let read = read(&written(&with_head)).unwrap();
        assert!(!read.value_head);
    }

    #[test]
    fn unreasonable_sizes_are_rejected_before_allocation() {
        let mut value = written(&llama_config());
        value.as_object_mut().unwrap().remove("llmtui");
        for (key, size) in [
            ("num_hidden_layers", 1_000_000_000u64),
            ("vocab_size", 1 << 40),
            ("hidden_size", 1 << 30),
            ("num_key_value_heads", 1 << 39),
            ("intermediate_size", 1 << 39),
        ] {
            let mut value = value.clone();
            value[key] = json!(size);
            assert!(read(&value).is_err(), "{key}");
        }
    }
}
