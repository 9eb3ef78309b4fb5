//! Adapters as PEFT keeps them: `adapter_config.json` and `adapter_model.safetensors`, here beside the model that they
//! belong to.

use super::safetensors::{TensorFile, TensorHead, write_to};
use super::{HfError, pretty};
use crate::base::text::one_line;
use crate::kernels::low_rank;
use crate::nn::{AdapterConfig, Model, ParamInfo, Role, role::AttentionRole};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

pub const ADAPTER_CONFIG: &str = "adapter_config.json";
pub const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";

/// What stands in front of a module's name in the file.
const PREFIX: &str = "base_model.model.";
const A: &str = ".lora_A.weight";
const B: &str = ".lora_B.weight";
/// The one module that is read whole beside factors.
const SCORE: &str = "score.weight";
/// Largest `adapter_config.json` that is read.
const MAX_BYTES: u64 = 1 << 20;

/// `adapter_config.json` as text; `None` for a model without adapters.
pub fn adapter_json(model: &Model) -> Option<String> {
    let AdapterConfig::Lora(lora) = model.adapter()?;
    let infos = model.params().adapters();
    // The end of `transformer.h.0.attn.c_proj`: PEFT compares ends, and `c_proj` alone is in both halves of a block.
    let module = |info: &ParamInfo| {
        let mut words = info.name.strip_suffix(A)?.rsplit('.');
        let (last, site) = (words.next()?, words.next()?);
        Some(format!("{site}.{last}"))
    };
    let modules: BTreeSet<String> = infos.iter().filter_map(module).collect();
    // GPT-2 keeps its matrices as (in, out).
    let fused = |info: &ParamInfo| info.role == Role::Attention(AttentionRole::QueryKeyValue);
    let is_turned = model.params().base().iter().any(fused);
    Some(pretty(&json!({
        "peft_type": "LORA",
        "task_type": match reward_head(model) {
            Some(_) => "SEQ_CLS",
            None => "CAUSAL_LM",
        },
        "base_model_name_or_path": null,
        "inference_mode": true,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": modules,
        "fan_in_fan_out": is_turned,
        "bias": "none",
        "use_rslora": false,
        "use_dora": false,
        "rank_pattern": {},
        "alpha_pattern": {},
        "modules_to_save": reward_head(model).map(|_| ["score"]),
    })))
}

/// The head of a reward model, which trains beside the adapters and is kept with them.
fn reward_head(model: &Model) -> Option<&ParamInfo> {
    model.params().base().iter().find(|info| info.name == SCORE)
}

/// Writes `adapter_model.safetensors` in f32.
///
/// # Errors
/// What the writer says.
pub fn write_adapter(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    let infos: Vec<&ParamInfo> = reward_head(model)
        .into_iter()
        .chain(model.params().adapters())
        .collect();
    let heads: Vec<TensorHead> = infos
        .iter()
        .map(|info| TensorHead::f32(name_in_file(info), info.shape.clone()))
        .collect();
    let written = model.params().read_weights(|weights| {
        write_to(out, &heads, &mut |sink| {
            infos
                .iter()
                .try_for_each(|info| sink.put(&weights[info.offset..info.offset + info.len]))
        })
    });
    written.map_err(io::Error::other)?
}

/// Fills the adapters of a model from a folder that [`write_adapter`] has written to; every factor must be there with its
/// shape. Where one is not, nothing is changed.
///
/// # Errors
/// No such file, or one of another adapter.
pub fn read_adapter(folder: &Path, model: &mut Model) -> Result<(), HfError> {
    let infos = model.params().adapters().to_vec();
    let file = TensorFile::open(&folder.join(ADAPTER_WEIGHTS))?;
    for info in &infos {
        file.expect(&name_in_file(info), &info.shape)?;
    }
    model.params_mut().write_weights(|weights| {
        infos.iter().try_for_each(|info| {
            let part = &mut weights[info.offset..info.offset + info.len];
            file.read_into(&name_in_file(info), &info.shape, part)
        })
    })??;
    Ok(())
}

fn name_in_file(info: &ParamInfo) -> String {
    format!("{PREFIX}{}", info.name)
}

/// Adds the adapters of a folder, where it has any, to the weights that they belong to: W + alpha / r · B A in f32. Says
/// whether there were any.
///
/// # Errors
/// An adapter of a kind that is not read here, or one that belongs to another model.
pub fn merge_adapter(folder: &Path, model: &mut Model) -> Result<bool, HfError> {
    let path = folder.join(ADAPTER_CONFIG);
    if !path.is_file() {
        return Ok(false);
    }
    let wrong = |what: String| HfError::Config {
        path: path.clone(),
        what,
    };
    let scale = scale(&read_config(&path)?).map_err(wrong)?;
    let file = TensorFile::open(&folder.join(ADAPTER_WEIGHTS))?;
    let infos = model.params().base().iter();
    let by_name: BTreeMap<&str, &ParamInfo> = infos.map(|i| (i.name.as_str(), i)).collect();
    let mut factors = Vec::new();
    let mut head = None;
    for name in file.names() {
        let module = name.strip_prefix(PREFIX).unwrap_or(name);
        if let (SCORE, Some(info)) = (module, by_name.get(SCORE)) {
            head = Some((info.offset, file.read(name, &info.shape)?));
            continue;
        }
        let Some(module) = module.strip_suffix(A) else {
            let known = module.ends_with(B);
            if !known {
                return Err(wrong(format!("{} is no factor of LoRA", one_line(name))));
            }
            continue;
        };
        let Some(info) = by_name.get(format!("{module}.weight").as_str()) else {
            return Err(wrong(format!("this model has no {}", one_line(module))));
        };
        let rank = file.shape(name).and_then(|shape| shape.first().copied());
        let (rank, rows, cols) = match (rank, &info.shape[..]) {
            (Some(rank), [rows, cols]) => (rank, *rows, *cols),
            _ => return Err(wrong(format!("{} is no matrix", one_line(module)))),
        };
        let a = file.read(name, &[rank, cols])?;
        let b = file.read(&format!("{}{B}", name.trim_end_matches(A)), &[rows, rank])?;
        factors.push((info.offset, (rows, cols), b, a));
    }
    model.params_mut().write_weights(|weights| {
        if let Some((offset, values)) = &head {
            weights[*offset..offset + values.len()].copy_from_slice(values);
        }
        for (offset, (rows, cols), b, a) in &factors {
            let weight = &mut weights[*offset..offset + rows * cols];
            low_rank::merge(scale as f32, (b, a), (*rows, *cols), weight);
        }
    })?;
    Ok(true)
}

fn read_config(path: &Path) -> Result<Value, HfError> {
    let io = |source| HfError::Io {
        path: path.into(),
        source,
    };
    let config = |what: String| HfError::Config {
        path: path.into(),
        what,
    };
    if std::fs::metadata(path).map_err(io)?.len() > MAX_BYTES {
        return Err(config(format!("larger than {MAX_BYTES} bytes")));
    }
    let text = std::fs::read(path).map_err(io)?;
    serde_json::from_slice(&text).map_err(|e| config(one_line(&e.to_string())))
}

/// What B A is multiplied by.
fn scale(config: &Value) -> Result<f64, String> {
    if config["peft_type"] != "LORA" {
        return Err(format!(
            "peft_type {} is not read, LORA is",
            config["peft_type"]
        ));
    }
    let is_set = |key: &str| match &config[key] {
        Value::Null | Value::Bool(false) => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::String(word) => word != "none",
        _ => true,
    };
    let other = [
        "use_dora",
        "rank_pattern",
        "alpha_pattern",
        "modules_to_save",
        "bias",
    ];
    // What PEFT saves whole for a model with labels, under whichever of the two names the model has it.
    let is_head = |module: &Value| module == "score" || module == "classifier";
    let modules = config["modules_to_save"].as_array();
    let heads_alone = modules.is_some_and(|list| list.iter().all(is_head));
    let is_score = |key: &str| key == "modules_to_save" && heads_alone;
    if let Some(key) = other.into_iter().find(|key| is_set(key) && !is_score(key)) {
        return Err(format!(
            "{key} is not read here; merge this adapter with PEFT first"
        ));
    }
    let number = |key: &str| config[key].as_f64().filter(|x| x.is_finite() && *x > 0.0);
    let (Some(r), Some(alpha)) = (number("r"), number("lora_alpha")) else {
        return Err("r and lora_alpha must be positive numbers".into());
    };
    Ok(match config["use_rslora"].as_bool().unwrap_or(false) {
        true => alpha / r.sqrt(),
        false => alpha / r,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::ModelConfig;
    use crate::nn::adapter::Lora;
    use candle_core::Device;

    fn adapted() -> Model {
        let config = ModelConfig {
            n_layer: 2,
            n_head: 2,
            d_model: 8,
            seq_len: 8,
            init_std: 0.3,
            ..Default::default()
        };
        let mut model = Model::new(&config, 11, &Device::Cpu).unwrap();
        model.adapt(&AdapterConfig::Lora(Lora::default())).unwrap();
        model.init(3).unwrap();
        let fill = |weights: &mut [f32]| {
            for (i, w) in weights.iter_mut().enumerate() {
                *w += 0.05 * (i as f32).sin();
            }
        };
        model.params_mut().write_weights(fill).unwrap();
        model
    }

    fn write(model: &Model, folder: &Path) {
        std::fs::write(folder.join(ADAPTER_CONFIG), adapter_json(model).unwrap()).unwrap();
        let mut file = std::fs::File::create(folder.join(ADAPTER_WEIGHTS)).unwrap();
        write_adapter(model, &mut file).unwrap();
    }

    fn base(model: &Model) -> Model {
        let mut base = Model::new(model.config(), 11, &Device::Cpu).unwrap();
        let n = base.n_params();
        let values = model.params().read_weights(|w| w[..n].to_vec()).unwrap();
        let copy = |weights: &mut [f32]| weights.copy_from_slice(&values);
        base.params_mut().write_weights(copy).unwrap();
        base
    }

    #[test]
    fn adapters_come_back_bit_for_bit_and_under_pefts_names() {
        let folder = tempfile::tempdir().unwrap();
        let model = adapted();
        write(&model, folder.path());
        let file = TensorFile::open(&folder.path().join(ADAPTER_WEIGHTS)).unwrap();
        let name = "base_model.model.transformer.h.1.attn.c_attn.lora_B.weight";
        assert_eq!(file.shape(name), Some(&[24, 8][..]));
        let config: Value = serde_json::from_str(&adapter_json(&model).unwrap()).unwrap();
        let modules = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"];
        assert_eq!(config["target_modules"], json!(modules));
        let mut other = adapted();
        other.init_adapters(9).unwrap();
        read_adapter(folder.path(), &mut other).unwrap();
        let bits = |m: &Model| m.params().read_weights(<[f32]>::to_vec).unwrap();
        assert!(bits(&other) == bits(&model));
    }

    #[test]
    fn merged_weights_say_what_base_and_adapters_say() {
        let folder = tempfile::tempdir().unwrap();
        let mut model = adapted();
        write(&model, folder.path());
        let mut merged = base(&model);
        assert!(merge_adapter(folder.path(), &mut merged).unwrap());
        let tokens: Vec<u32> = (0..8).collect();
        let logits = |m: &mut Model| -> Vec<f32> {
            let logits = m.logits(&tokens, 1, 8).unwrap();
            logits.flatten_all().unwrap().to_vec1().unwrap()
        };
        let exact = logits(&mut model);
        for (a, b) in logits(&mut merged).iter().zip(&exact) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
        model.merge_adapters().unwrap();
        assert_eq!(model.n_params(), merged.n_params());
        for (a, b) in logits(&mut model).iter().zip(&exact) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }

    #[test]
    fn what_is_not_read_is_refused_by_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let model = adapted();
        write(&model, folder.path());
        let path = folder.path().join(ADAPTER_CONFIG);
        for (key, value) in [
            ("use_dora", json!(true)),
            ("rank_pattern", json!({"q_proj": 4})),
            ("peft_type", json!("IA3")),
            ("r", json!(0)),
        ] {
            let mut config: Value = serde_json::from_str(&adapter_json(&model).unwrap()).unwrap();
            config[key] = value;
            std::fs::write(&path, config.to_string()).unwrap();
            let error = merge_adapter(folder.path(), &mut base(&model)).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
        let empty = tempfile::tempdir().unwrap();
        assert!(!merge_adapter(empty.path(), &mut base(&model)).unwrap());
    }
}
