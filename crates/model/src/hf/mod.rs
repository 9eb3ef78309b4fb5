//! Hugging Face model folders: config.json, model.safetensors (or shards), tokenizer.json, generation_config.json ⇄ our
//! model. What makes a folder resumable (moments, counters, manifest) belongs to the engine.

mod adapter;
pub mod config;
mod dtype;
mod families;
mod generation;
mod keys;
mod outgoing;
mod packed;
mod positions;
pub mod safetensors;
mod stored;
mod tensor_file;
mod tensors;
mod weights;

pub use adapter::{
    ADAPTER_CONFIG, ADAPTER_WEIGHTS, AdapterError, Applied, JoinError, Joins, Peft, adapter_json,
    attach_sum, merge_adapter, merge_adapter_of, read_adapter, write_adapter,
};
pub use config::TokenIds;
pub use dtype::Dtype;
pub use families::{FAMILIES, Family, of as family_of};
pub use generation::{ends_of, generation_ends, generation_json, read_generation};
pub use outgoing::{Outgoing, Values as ValuesByTensor};
pub use positions::{positions_in, rope_parameters};
pub use stored::Stored;
pub use tensor_file::TensorFileError;
pub use weights::{INDEX, WEIGHTS, Weights, absence as why_no_weights, shard_name, shards_of};

use crate::base::files::read_plain;
use crate::base::text::one_line;
use crate::kernels::errors::error_text;
use crate::nn::{Model, ModelConfig, ParamInfo};
use serde_json::Value;
use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use tensors::{DiskTensor, Reading, Values};

pub const CONFIG: &str = "config.json";
pub const TOKENIZER: &str = "tokenizer.json";
pub const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
pub const GENERATION: &str = "generation_config.json";

/// Largest accepted `config.json`, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Why a model folder could not be read.
#[derive(Debug, thiserror::Error)]
pub enum HfError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: {what}")]
    Config { path: PathBuf, what: String },
    #[error(transparent)]
    Tensors(#[from] TensorFileError),
    #[error("the model's weights: {0}")]
    Model(String),
}

impl From<candle_core::Error> for HfError {
    fn from(error: candle_core::Error) -> Self {
        HfError::Model(error_text(error))
    }
}

/// Naming and layout of the tensors in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// Those of the model's family, if it has one.
    Family,
    /// Ours.
    Own,
}

/// `config.json` as text, for weights in f32.
pub fn config_json(model: &Model, ids: impl Into<TokenIds>) -> String {
    config_json_for(model, &ids.into(), Dtype::F32, Naming::Family)
}

/// `config.json` as text, for weights in `dtype` with the names of `naming`.
pub fn config_json_for(model: &Model, ids: &TokenIds, dtype: Dtype, naming: Naming) -> String {
    let of = (model.config(), model.shape().vocab_size);
    config_json_of(of, ids, dtype, naming)
}

/// The same of a model of this config and vocabulary size.
pub fn config_json_of(
    (config, vocab_size): (&ModelConfig, usize),
    ids: &TokenIds,
    dtype: Dtype,
    naming: Naming,
) -> String {
    let config = config.in_files();
    let shape = config.shape(vocab_size);
    pretty(&config::write(&config, &shape, ids, dtype, naming))
}

fn pretty(value: &Value) -> String {
    let mut text = format!("{value:#}");
    text.push('\n');
    text
}

/// The mapping from a model's parameters to tensors in files of a family; in our own format without one.
fn disk_tensors(
    family: Option<&dyn Family>,
    config: &ModelConfig,
    infos: &[ParamInfo],
) -> Vec<DiskTensor> {
    match family {
        Some(family) => family.tensors(config, infos),
        None => families::one_by_one(infos),
    }
}

/// Where the values of each tensor of a model's files are in its flat weights.
pub fn places(model: &Model) -> Vec<Vec<Range<usize>>> {
    let config = model.config().in_files();
    let tensors = disk_tensors(families::of(&config), &config, model.params().base());
    let ranges = tensors.iter().map(DiskTensor::places);
    ranges.filter(|ranges| !ranges.is_empty()).collect()
}

/// The same as a file has it: some hold the experts of a block together.
fn tensors_of(
    file: &Weights,
    family: Option<&dyn Family>,
    config: &ModelConfig,
    infos: &[ParamInfo],
) -> Vec<DiskTensor> {
    let tensors = disk_tensors(family, config, infos);
    // Those of a head that predicts tokens further ahead say nothing of the model's own.
    let is_stacked =
        |name: &str| !is_buffer(family, config, name) && name.ends_with(families::TOGETHER[0]);
    let are_single = |tensor: &DiskTensor| !matches!(tensor.values, Values::Experts(_));
    let stacks = config.moe.is_some() && tensors.iter().all(are_single);
    let tensors = match stacks && file.names().any(is_stacked) {
        true => families::stacked_experts(tensors, families::TOGETHER),
        false => tensors,
    };
    // In MXFP4 what shares a scale is along the input.
    let as_stored = |tensor: DiskTensor| match file.is_mxfp4(&tensor.name) {
        true => tensor.unturned(),
        false => tensor,
    };
    tensors.into_iter().map(as_stored).collect()
}

/// Writes `model.safetensors` in f32, with Hugging Face's names and layouts. Holds at most one transposed matrix.
///
/// # Errors
/// `out` cannot be written, or the weights are quantized.
pub fn write_weights(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    Outgoing::new(model, Naming::Family, Dtype::F32, u64::MAX).write(0, model, out)
}

/// Loads the model's weights from a folder; every parameter must be present with its shape, and nothing else. On any
/// mismatch no weight is changed.
///
/// # Errors
/// A file is absent or damaged, or its tensors are not those of the model.
pub fn read_weights(folder: &Path, model: &mut Model) -> Result<(), HfError> {
    let infos = model.params().base().to_vec();
    read_weights_of(folder, model, &infos)
}

/// The same for a folder that has these parameters of the model: see [`Model::base_of_vocabulary`].
///
/// # Errors
/// As [`read_weights`].
pub fn read_weights_of(
    folder: &Path,
    model: &mut Model,
    infos: &[ParamInfo],
) -> Result<(), HfError> {
    let family = family_in(&read_json(folder)?, model.config());
    let file = Weights::open(folder)?;
    let tensors = tensors_of(&file, family, model.config(), infos);
    let ignored = |name: &str| is_buffer(family, model.config(), name);
    let reading = Reading::plan(&file, &tensors, &ignored)?;
    model
        .params_mut()
        .write_weights(|weights| reading.read(weights))??;
    Ok(())
}

fn is_buffer(family: Option<&dyn Family>, config: &ModelConfig, name: &str) -> bool {
    family.is_some_and(|family| family.is_buffer(name) || family.is_behind(config, name))
}

/// The family that named the tensors next to a config.json: that of its `model_type`. Several families may compute the same
/// model (Phi-3 with whole heads rotated is Mistral), so the computation does not identify it.
fn family_in(value: &Value, config: &ModelConfig) -> Option<&'static dyn Family> {
    match value["model_type"].as_str() {
        Some(config::OWN) => None,
        Some(model_type) => families::named(model_type)
            .ok()
            .or_else(|| families::of(config)),
        None => families::of(config),
    }
}

/// The model class of transformers that a folder's config.json names; `None` in our own format.
///
/// # Errors
/// It cannot be read.
pub fn class_in(folder: &Path) -> Result<Option<&'static str>, HfError> {
    let config = read_config(folder)?;
    let family = family_in(&read_json(folder)?, &config);
    Ok(family.map(|family| family.class_of(&config)))
}

/// Dropout rates above 0 that a folder's config.json states for training in transformers, by key.
///
/// # Errors
/// It cannot be read.
pub fn dropouts(folder: &Path) -> Result<Vec<(&'static str, f64)>, HfError> {
    let value = read_json(folder)?;
    let rate = |key: &&'static str| Some((*key, value[*key].as_f64().filter(|p| *p > 0.0)?));
    Ok(keys::DROPOUTS.iter().filter_map(rate).collect())
}

/// What of a folder's model is left out, and what its config.json says that has no effect here nor in transformers, but in another
/// program; as sentences.
pub fn ignored_in(folder: &Path) -> Vec<String> {
    let has = |beginning: &str| {
        let weights = Weights::open(folder);
        weights.is_ok_and(|weights| weights.names().any(|name| name.starts_with(beginning)))
    };
    let config = whole_json(folder).ok();
    let left_out = config.and_then(|config| families::left_out(&config, has));
    let ignored = read_json(folder).ok().and_then(|c| families::ignored(&c));
    left_out.into_iter().chain(ignored).collect()
}

/// The model config of a folder's `config.json`; with the vocabulary size filled in.
///
/// # Errors
/// `config.json` is absent, not JSON, or describes an unsupported model; the message names the key.
pub fn read_config(folder: &Path) -> Result<ModelConfig, HfError> {
    let value = read_json(folder)?;
    config::read(&value).map_err(|what| HfError::Config {
        path: folder.join(CONFIG),
        what,
    })
}

/// BOS, EOS and padding ids of a folder's `config.json`; invalid ids are dropped.
///
/// # Errors
/// `config.json` is absent or not JSON.
pub fn token_ids(folder: &Path) -> Result<TokenIds, HfError> {
    let value = read_json(folder)?;
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let eos = match &value["eos_token_id"] {
        Value::Array(list) => list.iter().filter_map(id).collect(),
        one => id(one).into_iter().collect(),
    };
    Ok(TokenIds {
        bos: id(&value["bos_token_id"]),
        eos,
        pad: id(&value["pad_token_id"]),
    })
}

/// A folder's config.json: that of the text model, where it has vision beside it.
fn read_json(folder: &Path) -> Result<Value, HfError> {
    let whole = whole_json(folder)?;
    let text = families::text_model(&whole).map(Cow::into_owned);
    text.map_err(|what| HfError::Config {
        path: folder.join(CONFIG),
        what,
    })
}

/// The format of a folder's weights; plain without a config.json.
fn format_in(folder: &Path) -> Result<packed::Format, String> {
    if !folder.join(CONFIG).is_file() {
        return Ok(packed::Format::Plain);
    }
    let config = read_json(folder).map_err(|e| e.to_string())?;
    packed::Format::of(&config)
}

fn whole_json(folder: &Path) -> Result<Value, HfError> {
    let path = folder.join(CONFIG);
    let io = |source| HfError::Io {
        path: path.clone(),
        source,
    };
    let config = |what: String| HfError::Config {
        path: path.clone(),
        what,
    };
    if std::fs::metadata(&path).map_err(io)?.len() > MAX_CONFIG_BYTES {
        return Err(config(format!("larger than {MAX_CONFIG_BYTES} bytes")));
    }
    let text = read_plain(&path).map_err(io)?;
    let parsed = serde_json::from_slice(&text).or_else(|error| {
        let finite = String::from_utf8_lossy(&text);
        match keys::with_floats(&finite) {
            Some(text) => serde_json::from_str(&text),
            None => Err(error),
        }
    });
    parsed.map_err(|e| config(one_line(&e.to_string())))
}

/// Validates a folder's weights against a config without reading them: names, shapes and dtypes. Allocates no weights.
///
/// # Errors
/// A file is absent or damaged, or its tensors are not those of the config.
pub fn check_weights(folder: &Path, config: &ModelConfig) -> Result<(), HfError> {
    let family = family_in(&read_json(folder)?, config);
    let file = Weights::open(folder)?;
    let infos = crate::nn::param_infos(config, config.vocab_size.unwrap_or_default());
    let tensors = tensors_of(&file, family, config, &infos);
    let ignored = |name: &str| is_buffer(family, config, name);
    Reading::plan(&file, &tensors, &ignored)?;
    Ok(())
}

/// Loads a folder's model with weights on the CPU; an adapter next to them is merged. Its files are validated against its
/// config before allocation.
///
/// # Errors
/// A file is absent or damaged, the config is not supported, or weights do not fit it.
pub fn load(folder: &Path) -> Result<Model, HfError> {
    let mut model = load_base(folder)?;
    merge_adapter(folder, &mut model)?;
    Ok(model)
}

/// The same without the adapter next to the weights.
///
/// # Errors
/// As [`load`].
pub fn load_base(folder: &Path) -> Result<Model, HfError> {
    let config = read_config(folder)?;
    check_weights(folder, &config)?;
    let vocab_size = config.vocab_size.unwrap_or_default();
    let mut model = Model::new(&config, vocab_size, &candle_core::Device::Cpu)?;
    read_weights(folder, &mut model)?;
    Ok(model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{mlp::MlpConfig, norm::NormConfig, position::PositionConfig};
    use candle_core::Device;
    use serde_json::json;
    use tensor_file::TensorFile;

    #[test]
    fn a_config_may_have_python_s_words_for_numbers_that_json_lacks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(CONFIG);
        let text =
            r#"{"a": [0.0, Infinity], "b": "an \" Infinity", "c": -Infinity, "d": NaN, "e": 1}"#;
        std::fs::write(&path, text).unwrap();
        let read = whole_json(dir.path()).unwrap();
        let float = |word: &str| json!({"__float__": word});
        let expected = json!({
            "a": [0.0, float("Infinity")], "b": "an \" Infinity", "c": float("-Infinity"), "d": float("NaN"), "e": 1,
        });
        assert_eq!(read, expected);
        // An error keeps its place in the file.
        std::fs::write(&path, "{\n  \"a\": Infinit\n}").unwrap();
        let error = whole_json(dir.path()).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    fn tiny() -> ModelConfig {
        ModelConfig {
            n_layer: 2,
            n_head: 2,
            d_model: 8,
            seq_len: 8,
            ..Default::default()
        }
    }

    fn styles() -> Vec<ModelConfig> {
        let llama = ModelConfig {
            position: PositionConfig::Rope(Default::default()),
            norm: NormConfig::RmsNorm(Default::default()),
            mlp: MlpConfig::SwiGlu(Default::default()),
            n_kv_head: Some(1),
            tie_embeddings: false,
            ..tiny()
        };
        let mixed = ModelConfig {
            norm: NormConfig::LayerNorm(Default::default()),
            bias: true,
            ..llama.clone()
        };
        let biased = ModelConfig {
            bias: true,
            ..tiny()
        };
        vec![tiny(), biased, llama, mixed]
    }

    fn save(folder: &Path, config: &ModelConfig) -> Model {
        let mut model = Model::new(config, 11, &Device::Cpu).unwrap();
        model.init(5).unwrap();
        std::fs::write(folder.join(CONFIG), config_json(&model, None)).unwrap();
        let mut file = std::fs::File::create(folder.join(WEIGHTS)).unwrap();
        write_weights(&model, &mut file).unwrap();
        model
    }

    #[test]
    fn every_style_round_trips_bit_for_bit() {
        for config in styles() {
            let dir = tempfile::tempdir().unwrap();
            let model = save(dir.path(), &config);
            let back = load(dir.path()).unwrap();
            let bits = |m: &Model| m.params().read_weights(<[f32]>::to_vec).unwrap();
            assert_eq!(bits(&model), bits(&back), "{config:?}");
            assert_eq!(back.shape().vocab_size, 11);
        }
    }

    #[test]
    fn gpt2_folders_have_conv1d_layouts_and_zero_biases() {
        let dir = tempfile::tempdir().unwrap();
        let model = save(dir.path(), &tiny());
        let file = TensorFile::open(&dir.path().join(WEIGHTS)).unwrap();
        let name = "transformer.h.1.attn.c_attn.weight";
        let info = model
            .params()
            .infos()
            .iter()
            .find(|i| i.name == name)
            .unwrap();
        let ours = model
            .params()
            .weight(info)
            .unwrap()
            .to_vec2::<f32>()
            .unwrap();
        let theirs = file.read(name, &[8, 24]).unwrap();
        assert_eq!(theirs[3 * 24 + 17], ours[17][3]);
        assert_eq!(file.read("transformer.ln_f.bias", &[8]).unwrap(), [0.0; 8]);
        assert_eq!(
            file.read("transformer.h.0.mlp.c_fc.bias", &[32]).unwrap(),
            [0.0; 32]
        );
        assert!(!file.contains("transformer.wte.bias"));
    }

    #[test]
    fn a_folder_of_another_shape_is_rejected_with_tensor_and_shapes() {
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), &tiny());
        let wider = ModelConfig {
            d_model: 16,
            ..tiny()
        };
        let mut model = Model::new(&wider, 11, &Device::Cpu).unwrap();
        let error = read_weights(dir.path(), &mut model)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("transformer.wte.weight") && error.contains("[11, 16]"),
            "{error}"
        );
        let deeper = ModelConfig {
            n_layer: 3,
            ..tiny()
        };
        let mut model = Model::new(&deeper, 11, &Device::Cpu).unwrap();
        let error = read_weights(dir.path(), &mut model)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("transformer.h.2") && error.contains("missing"),
            "{error}"
        );
    }
}
