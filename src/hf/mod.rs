//! Hugging Face model folders: config.json, model.safetensors, tokenizer.json, generation_config.json ⇄ our model. What
//! makes a folder a point to resume from (moments, counters, manifest) is the engine's business.

pub mod config;
pub mod safetensors;

pub use config::Family;
pub use safetensors::TensorFileError;

use crate::nn::{Model, ModelConfig, ParamInfo};
use safetensors::{TensorFile, TensorHead};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub const CONFIG: &str = "config.json";
pub const WEIGHTS: &str = "model.safetensors";
pub const TOKENIZER: &str = "tokenizer.json";
pub const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
pub const GENERATION: &str = "generation_config.json";

/// Largest `config.json` that is read.
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
    Model(#[from] candle_core::Error),
}

/// `config.json` as text.
pub fn config_json(model: &Model, eos: Option<u32>) -> String {
    pretty(&config::write(model.config(), model.shape(), eos))
}

/// `generation_config.json` as text: what `generate` of transformers starts from.
pub fn generation_json(eos: Option<u32>) -> String {
    pretty(&json!({"bos_token_id": eos, "eos_token_id": eos, "do_sample": true}))
}

fn pretty(value: &Value) -> String {
    let mut text = format!("{value:#}");
    text.push('\n');
    text
}

/// Writes `model.safetensors` with Hugging Face's names and layouts. Holds one turned matrix at most.
pub fn write_weights(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    let family = Family::of(model.config());
    let params = model.params();
    let with_biases = family == Some(Family::Gpt2) && !model.config().bias;
    let bias = |info: &ParamInfo| zero_bias(info).filter(|_| with_biases);
    let heads: Vec<TensorHead> = params
        .infos()
        .iter()
        .flat_map(|info| std::iter::once(outward(info, family)).chain(bias(info)))
        .collect();
    let written = params.read_weights(|weights| {
        safetensors::write_to(out, &heads, &mut |sink| {
            for info in params.infos() {
                let values = &weights[info.offset..info.offset + info.len];
                match turned(info, family) {
                    Some((rows, cols)) => sink.put(&transposed(values, rows, cols))?,
                    None => sink.put(values)?,
                }
                if let Some(bias) = bias(info) {
                    sink.put(&vec![0.0; bias.shape[0]])?;
                }
            }
            Ok(())
        })
    });
    written.map_err(io::Error::other)?
}

/// Fills the model's weights from a folder's `model.safetensors`; every parameter must be there with its shape. Where one is
/// not, no weight is changed.
pub fn read_weights(folder: &Path, model: &mut Model) -> Result<(), HfError> {
    let file = TensorFile::open(&folder.join(WEIGHTS))?;
    let family = Family::of(model.config());
    let infos = model.params().infos().to_vec();
    for info in &infos {
        file.expect(&info.name, &outward(info, family).shape)?;
    }
    model.params_mut().write_weights(|weights| {
        infos.iter().try_for_each(|info| {
            let part = &mut weights[info.offset..info.offset + info.len];
            inward(info, &file, family, part)
        })
    })??;
    Ok(())
}

/// The model's words as a folder's `config.json` has them; its vocabulary size is filled in.
pub fn read_config(folder: &Path) -> Result<ModelConfig, HfError> {
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
    let text = std::fs::read(&path).map_err(io)?;
    let value: Value = serde_json::from_slice(&text).map_err(|e| config(e.to_string()))?;
    config::read(&value).map_err(config)
}

/// The model of a folder, weights included, on the CPU.
pub fn load(folder: &Path) -> Result<Model, HfError> {
    let config = read_config(folder)?;
    let vocab_size = config.vocab_size.unwrap_or_default();
    let mut model = Model::new(&config, vocab_size, &candle_core::Device::Cpu)?;
    read_weights(folder, &mut model)?;
    Ok(model)
}

/// The rows and columns, as we keep them, of a matrix that Hugging Face keeps turned: GPT-2 has its linear layers as
/// (in, out), transformers' `Conv1D`.
fn turned(info: &ParamInfo, family: Option<Family>) -> Option<(usize, usize)> {
    const CONV1D: [&str; 3] = ["c_attn.weight", "c_proj.weight", "c_fc.weight"];
    let conv1d = family == Some(Family::Gpt2) && CONV1D.iter().any(|end| info.name.ends_with(end));
    match info.shape[..] {
        [rows, cols] if conv1d => Some((rows, cols)),
        _ => None,
    }
}

/// One parameter's name and shape as Hugging Face lays it out.
fn outward(info: &ParamInfo, family: Option<Family>) -> TensorHead {
    TensorHead {
        name: info.name.clone(),
        shape: match turned(info, family) {
            Some((rows, cols)) => vec![cols, rows],
            None => info.shape.clone(),
        },
    }
}

/// One parameter back in our layout.
fn inward(
    info: &ParamInfo,
    file: &TensorFile,
    family: Option<Family>,
    into: &mut [f32],
) -> Result<(), TensorFileError> {
    match turned(info, family) {
        Some((rows, cols)) => {
            let values = file.read(&info.name, &[cols, rows])?;
            into.copy_from_slice(&transposed(&values, cols, rows));
            Ok(())
        }
        None => file.read_into(&info.name, &info.shape, into),
    }
}

/// transformers' GPT-2 has biases everywhere; a model without them is one whose biases are zero.
fn zero_bias(info: &ParamInfo) -> Option<TensorHead> {
    let part = info.name.strip_suffix(".weight")?;
    let biased = ["ln_1", "ln_2", "ln_f", "c_attn", "c_proj", "c_fc"];
    let len = info.shape[0];
    biased
        .iter()
        .any(|end| part.ends_with(end))
        .then(|| TensorHead {
            name: format!("{part}.bias"),
            shape: vec![len],
        })
}

/// (rows, cols) → (cols, rows).
fn transposed(values: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    let mut out = vec![0.0; values.len()];
    for row in 0..rows {
        for col in 0..cols {
            out[col * rows + row] = values[row * cols + col];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{mlp::MlpConfig, norm::NormConfig, position::PositionConfig};
    use candle_core::Device;

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
    fn every_style_comes_back_bit_for_bit() {
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
    fn a_folder_of_another_shape_is_refused_with_tensor_and_shapes() {
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
