//! A model → a file for llama.cpp, in a given number format.

use super::ModelFileError;
use super::arch::{self, Chosen};
use super::latents::{Half, Latents};
use super::names::{Place, place};
use crate::gguf::{NewTensor, TensorKind, Value};
use crate::kernels::quant::{Kind, encode_rows};
use crate::nn::position::scaling::Scaling;
use crate::nn::position::{Rotation, ScalingConfig};
use crate::nn::{Model, ModelConfig, ModelShape, ParamInfo};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The result of writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The value of `general.architecture`.
    pub architecture: &'static str,
    /// Number formats of the matrices, with the count of each.
    pub formats: BTreeMap<&'static str, usize>,
    /// Converted features, and tensors that could not have the requested format: how many, why, and the format used
    /// instead.
    pub notes: Vec<String>,
}

/// One tensor of the file: its parameters, concatenated.
struct Part<'a> {
    tensor: NewTensor,
    kind: Kind,
    made_of: Vec<(&'a ParamInfo, Place)>,
    /// Values without a parameter: zeros, or RoPE frequency factors.
    values: Option<Vec<f32>>,
    /// Factor for the query weights.
    query_factor: f32,
    /// Of the matrix of keys and values of latent attention one half.
    half: Option<(Latents, Half)>,
}

/// Whether a file can hold a model's head: a language model's, which every architecture here has.
///
/// # Errors
/// It is a reward model.
pub fn check_head(config: &ModelConfig) -> Result<(), ModelFileError> {
    match config.is_reward_model() {
        true => Err(ModelFileError::Model(
            "it is a reward model: a GGUF file has no place for its score (score.weight), and llama.cpp would read a language model without a head".into(),
        )),
        false => Ok(()),
    }
}

/// Whether llama.cpp knows a model's architecture, asked before it is trained.
///
/// # Errors
/// It is a reward model, or llama.cpp has no architecture for it.
pub fn check_model(config: &ModelConfig, vocab_size: usize) -> Result<(), ModelFileError> {
    check_head(config)?;
    let shape = config.shape(vocab_size);
    match arch::of(config, &shape) {
        Some(_) => Ok(()),
        None => Err(no_architecture(config, &shape)),
    }
}

fn no_architecture(config: &ModelConfig, shape: &ModelShape) -> ModelFileError {
    let every = config.position.rope().and_then(|rope| rope.nope_every);
    let nope = every.map_or_else(String::new, |n| {
        format!(
            " (position.rope.nope_every is {n}; only SmolLM3 has blocks without positions there: every 4th, and no biases, experts, QK-norm, partial RoPE or llama3 scaling)"
        )
    });
    let of_olmo = || arch::reason(config, shape).map(|reason| format!(" ({reason})"));
    let obstacle = arch::obstacle(config, shape)
        .map(|setting| format!(", as none of those with its other settings has {setting}"));
    let parallel = || {
        let only = " (model.parallel_residual, which only its gptneox has: RoPE, LayerNorm, GELU)";
        config.parallel_residual.then(|| only.to_string())
    };
    let because = obstacle
        .or_else(of_olmo)
        .or_else(parallel)
        .unwrap_or_default();
    ModelFileError::Model(format!(
        "llama.cpp has no architecture for this model{nope}{because}: supported are GPT-2, GPT-NeoX, Llama, Granite, SmolLM3, Qwen2, Qwen3, Qwen3-Next, Qwen 3.5, LFM2, Granite 4, DeepSeek-V2 and V3, gpt-oss, Gemma, OLMo, Phi-3, StableLM and StarCoder2, and with experts Mixtral and those of Granite, LFM2, OLMoE and Qwen; --format safetensors writes any model"
    ))
}

/// Writes a model with its matrices in `kind`. `name` is a display name; `tokenizer` has the tokenizer's keys.
///
/// # Errors
/// It is a reward model, llama.cpp has no architecture for it, the model's weights are quantized, `kind` is read-only, or
/// writing fails.
pub fn write(
    model: &Model,
    kind: Kind,
    name: &str,
    tokenizer: &[(String, Value)],
    out: &mut dyn Write,
) -> Result<Written, ModelFileError> {
    if !kind.writable() {
        let what = format!("{} is supported for reading only", kind.name());
        return Err(ModelFileError::Model(what));
    }
    let (config, shape) = (model.config(), model.shape());
    check_head(config)?;
    let chosen = arch::of(config, shape).ok_or_else(|| no_architecture(config, shape))?;
    let architecture = chosen.architecture;
    let mut instead = BTreeMap::new();
    let parts = parts(model, &chosen, kind, &mut instead)?;
    let mut keys = vec![
        text("general.architecture", architecture.name()),
        text("general.type", "model"),
        text("general.name", name),
        ("general.file_type".into(), Value::Unsigned(file_type(kind))),
        ("general.quantization_version".into(), Value::Unsigned(2)),
    ];
    let prefix = architecture.name();
    keys.extend(
        chosen
            .keys
            .into_iter()
            .map(|(key, value)| (format!("{prefix}.{key}"), value)),
    );
    keys.extend(tokenizer.iter().cloned());
    let mut formats = BTreeMap::new();
    for part in parts.iter().filter(|part| part.tensor.dims.len() > 1) {
        *formats.entry(part.kind.name()).or_insert(0) += 1;
    }
    let tensors: Vec<NewTensor> = parts.iter().map(|part| part.tensor.clone()).collect();
    let mut refused = None;
    let written = model.params().read_weights(|weights| {
        crate::gguf::write(out, &keys, &tensors, &mut |index, bytes| {
            parts[index].encode(weights, bytes).map_err(|why| {
                refused = Some(why);
                io::Error::other("a value out of range")
            })
        })
    })?;
    if let Some(why) = refused {
        return Err(ModelFileError::Model(why));
    }
    written.map_err(|e: io::Error| ModelFileError::Model(format!("writing: {e}")))?;
    Ok(Written {
        architecture: architecture.name(),
        formats,
        notes: chosen.notes.into_iter().chain(notes(instead)).collect(),
    })
}

fn text(key: &str, value: &str) -> (String, Value) {
    (key.into(), Value::String(value.into()))
}

/// llama.h, `enum llama_ftype`: the format of most matrices.
fn file_type(kind: Kind) -> u64 {
    match kind {
        Kind::F32 => 0,
        Kind::F16 => 1,
        Kind::Q4_0 => 2,
        Kind::Q4_1 => 3,
        Kind::Q8_0 => 7,
        Kind::Q5_0 => 8,
        Kind::Q5_1 => 9,
        Kind::Q2K => 10,
        Kind::Q3K => 12,
        Kind::Q4K => 14,
        Kind::Q5K => 16,
        Kind::Q6K => 18,
        Kind::Iq4Nl => 25,
        Kind::Iq4Xs => 30,
        Kind::Bf16 => 32,
        Kind::Mxfp4 => 38,
    }
}

fn parts<'a>(
    model: &'a Model,
    chosen: &Chosen,
    kind: Kind,
    instead: &mut Instead,
) -> Result<Vec<Part<'a>>, ModelFileError> {
    let (config, shape) = (model.config(), model.shape());
    let mut parts: Vec<Part> = Vec::new();
    let mut at = BTreeMap::new();
    for info in model.params().base() {
        let place = place(chosen.architecture, config, shape, info);
        let place = place.map_err(ModelFileError::Model)?;
        if let Some(&index) = at.get(&place.tensor) {
            let part: &mut Part = &mut parts[index];
            part.made_of.push((info, place));
            continue;
        }
        if let Some(latents) = Latents::of(config, info) {
            for half in [Half::Keys, Half::Values] {
                let name = Latents::name(&place.tensor, half);
                let dims = latents.dims(half);
                let kind = fitting(kind, false, dims[0] as usize, &name, instead);
                parts.push(Part {
                    tensor: new_tensor(name, dims, kind)?,
                    kind,
                    made_of: vec![(info, place.clone())],
                    values: None,
                    query_factor: 1.0,
                    half: Some((latents, half)),
                });
            }
            continue;
        }
        let dims = place.dims(info);
        let is_head = place.tensor == "output.weight"
            || (place.tensor == "token_embd.weight" && config.tie_embeddings);
        let kind = match keeps_f32(&place.tensor) || dims.len() == 1 || info.shape.len() == 1 {
            true => Kind::F32,
            false => fitting(kind, is_head, dims[0] as usize, &place.tensor, instead),
        };
        at.insert(place.tensor.clone(), parts.len());
        parts.push(Part {
            tensor: new_tensor(place.tensor.clone(), dims, kind)?,
            kind,
            made_of: vec![(info, place)],
            values: None,
            query_factor: chosen.query_factor as f32,
            half: None,
        });
    }
    if chosen.architecture.needs_head() && config.ties_head() {
        let table = parts
            .iter()
            .find(|part| part.tensor.name == "token_embd.weight");
        let copy = table.map(|table| {
            Ok::<_, ModelFileError>(Part {
                tensor: new_tensor(
                    "output.weight".into(),
                    table.tensor.dims.clone(),
                    table.kind,
                )?,
                kind: table.kind,
                made_of: table.made_of.clone(),
                values: None,
                query_factor: table.query_factor,
                half: None,
            })
        });
        parts.extend(copy.transpose()?);
    }
    let added = match chosen.architecture.needs_biases() {
        true => zero_biases(&parts, &at)?,
        false => Vec::new(),
    };
    parts.extend(added);
    if let Some(factors) = rope_factors(model) {
        let dims = vec![factors.len() as u64];
        parts.push(Part {
            tensor: new_tensor("rope_freqs.weight".into(), dims, Kind::F32)?,
            kind: Kind::F32,
            made_of: Vec::new(),
            values: Some(factors),
            query_factor: 1.0,
            half: None,
        });
    }
    Ok(parts)
}

fn new_tensor(name: String, dims: Vec<u64>, kind: Kind) -> Result<NewTensor, ModelFileError> {
    let id = kind.format().ggml_id;
    let kind = TensorKind::by_id(id);
    let kind = kind.ok_or_else(|| ModelFileError::Model(format!("no tensor type {id}")))?;
    Ok(NewTensor { name, dims, kind })
}

/// Small tensors that are added or used for routing: their rounding errors matter most.
fn keeps_f32(tensor: &str) -> bool {
    let ends = [
        "ffn_gate_inp.weight",
        // Of convolutions, which llama.cpp computes in f32 alone.
        "shortconv.conv.weight",
        "ssm_conv1d.weight",
        // Vectors in rows.
        "ssm_a",
        "ssm_d",
        "ssm_norm.weight",
    ];
    tensor == "position_embd.weight" || ends.iter().any(|end| tensor.ends_with(end))
}

/// The reason, and the affected tensors.
type Instead = BTreeMap<String, Vec<String>>;

/// One note per reason.
fn notes(instead: Instead) -> Vec<String> {
    let line = |(why, tensors): (String, Vec<String>)| match tensors.as_slice() {
        [one] => format!("{one}: {why}"),
        [first, ..] => format!("{} tensors ({first}, …): {why}", tensors.len()),
        [] => why,
    };
    instead.into_iter().map(line).collect()
}

/// The format of one matrix. The head of a model in four bits or Q5_K gets six or eight, as in llama.cpp; rows that are not a
/// whole number of blocks get the next format whose blocks fit.
fn fitting(kind: Kind, is_head: bool, cols: usize, tensor: &str, instead: &mut Instead) -> Kind {
    let wanted = match kind {
        Kind::Q4_0 | Kind::Q4_1 | Kind::Q4K | Kind::Q5K if is_head => Kind::Q6K,
        other => other,
    };
    let next = |kind| match kind {
        Kind::Q4K => Kind::Q5_0,
        Kind::Q5K => Kind::Q5_1,
        Kind::Q6K => Kind::Q8_0,
        _ => Kind::F16,
    };
    let mut found = wanted;
    while found.row_bytes(cols).is_none() {
        found = next(found);
    }
    let why = if found != wanted {
        let block = wanted.format().values;
        Some(format!(
            "rows of {cols} values are not a multiple of the block size {block}: {} instead of {}",
            found.name(),
            wanted.name()
        ))
    } else {
        let head = format!("the head is in {}, as in llama.cpp", wanted.name());
        (wanted != kind).then_some(head)
    };
    if let Some(why) = why {
        instead.entry(why).or_default().push(tensor.to_string());
    }
    found
}

/// Zero biases for a model without them.
fn zero_biases<'a>(
    parts: &[Part<'a>],
    at: &BTreeMap<String, usize>,
) -> Result<Vec<Part<'a>>, ModelFileError> {
    let mut added = Vec::new();
    for part in parts {
        let Some(stem) = part.tensor.name.strip_suffix(".weight") else {
            continue;
        };
        let bias = format!("{stem}.bias");
        let is_table = matches!(stem, "token_embd" | "position_embd" | "output");
        if is_table || at.contains_key(&bias) {
            continue;
        }
        let len = *part.tensor.dims.last().unwrap_or(&0);
        added.push(Part {
            tensor: new_tensor(bias, vec![len], Kind::F32)?,
            kind: Kind::F32,
            made_of: Vec::new(),
            values: Some(vec![0.0; len as usize]),
            query_factor: 1.0,
            half: None,
        });
    }
    Ok(added)
}

/// Divisors of the frequencies under Llama 3's scaling.
fn rope_factors(model: &Model) -> Option<Vec<f32>> {
    let rope = model.config().position.rope()?;
    let Some(ScalingConfig::Llama3(scaling)) = &rope.scaling else {
        return None;
    };
    let half = rope.width(model.shape().head_dim) / 2;
    let plain = Rotation::plain(rope.theta, half).frequencies;
    let stretched = scaling.rotation(rope.theta, half, 0).frequencies;
    let pairs = plain.iter().zip(&stretched);
    Some(pairs.map(|(a, b)| (a / b) as f32).collect())
}

impl Part<'_> {
    /// # Errors
    /// A value out of range for the format, or for the scale of its block: it would be infinite in the file.
    fn encode(&self, weights: &[f32], bytes: &mut Vec<u8>) -> Result<(), String> {
        let mut values = self.values.clone().unwrap_or_default();
        let len: u64 = self.tensor.dims.iter().product();
        values.resize(len as usize, 0.0);
        for (info, place) in &self.made_of {
            let own = &weights[info.offset..info.offset + info.len];
            if let Some((latents, half)) = self.half {
                values = latents.half(own, half);
                continue;
            }
            let factor = match place.makes_queries {
                true => self.query_factor,
                false => 1.0,
            };
            let rows = info.shape[0];
            let cols = info.len / rows.max(1);
            let first = place.expert.map_or(0, |(expert, _)| expert * rows);
            for (row, own) in own.chunks_exact(cols.max(1)).enumerate() {
                let to = (first + place.rows.at(row)) * cols;
                let to = &mut values[to..to + cols];
                for (at, x) in own.iter().enumerate() {
                    let at = place.columns.map_or(at, |tiles| tiles.at(at));
                    to[at] = place.value.theirs(*x) * factor;
                }
            }
        }
        let format = self.kind.format();
        bytes.resize(values.len() / format.values * format.bytes, 0);
        // Quantization searches for the best scales: row by row, on all threads.
        let cols = (self.tensor.dims[0] as usize).max(1);
        let Some(row) = encode_rows(self.kind, &values, cols, bytes) else {
            return Ok(());
        };
        let name = &self.tensor.name;
        let row_values = values.chunks_exact(cols).nth(row).unwrap_or_default();
        let largest = row_values.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
        match row_values.iter().all(|x| x.is_finite()) {
            true => Err(format!(
                "tensor {name} has values up to {largest:e}, which are out of range for {}; use bf16 or f32",
                self.kind.name()
            )),
            false => Err(format!(
                "tensor {name} has a non-finite value: the model is damaged; use an earlier checkpoint"
            )),
        }
    }
}
