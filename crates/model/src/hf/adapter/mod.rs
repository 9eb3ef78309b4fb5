//! Adapters in PEFT's format: `adapter_config.json` and `adapter_model.safetensors`, next to the model that they belong to.

mod applied;
mod description;
mod factors;
mod files;
mod join;
mod joined;
mod names;
mod patterns;
mod peft;
mod stacked;
mod sum;
#[cfg(test)]
mod tests;

pub use applied::Applied;
pub use join::{JoinError, Joins};
pub use peft::{AdapterError, Peft};
pub use sum::attach_sum;

use super::safetensors::{TensorFile, TensorFileError, TensorHead, write_with};
use super::{HfError, pretty};
use crate::kernels::errors::io_error;
use crate::nn::adapter::{RankAlpha, Whole};
use crate::nn::{AdapterConfig, Model, ParamInfo, Role, role::AttentionRole};
use names::Sizes;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

pub const ADAPTER_CONFIG: &str = "adapter_config.json";
pub const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";

/// Prefix of module names in the file.
const PREFIX: &str = "base_model.model.";
const A: &str = ".lora_A.weight";
const B: &str = ".lora_B.weight";
/// Of `adapter_config.json`: PEFT saves the embeddings once and ties the head to them.
const KEEPS_TIED: &str = "ensure_weight_tying";
/// Of `adapter_config.json`: parameters with adapters, those of experts.
const PARAMETERS: &str = "target_parameters";
/// The one module that is read in full, in addition to factors.
const SCORE: &str = "score.weight";
const MAGNITUDE: &str = ".lora_magnitude_vector";
/// Metadata key of the file with the fingerprint of the base's weights.
const FINGERPRINT: &str = "base_fingerprint";

/// `adapter_config.json` as text; `None` for a model without adapters. `base` is the location of the base model.
pub fn adapter_json(model: &Model, base: Option<&str>) -> Option<String> {
    let AdapterConfig::Lora(lora) = model.adapter()?;
    let params = model.params();
    let stacks = stacked::matrices_of(params.adapters());
    let adapted = params.adapters().iter();
    let modules = adapted.filter_map(|info| info.name.strip_suffix(A));
    let mut sizes: Sizes = modules
        .filter(|module| !stacks.contains(module))
        .map(|module| (module.to_string(), lora.size_of(module)))
        .collect();
    let matrices = params.base().iter();
    let matrices = matrices.filter_map(|info| info.name.strip_suffix(".weight"));
    let common = RankAlpha {
        rank: lora.rank,
        alpha: lora.alpha,
    };
    let targets = names::targets(&sizes, matrices);
    let layout = stacked::Layout::of(model.config()).filter(|_| !stacks.is_empty());
    if let Some(layout) = &layout {
        let of_stacks = |module: &&str| (layout.parameter(module), lora.size_of(module));
        sizes.extend(stacks.iter().map(of_stacks));
    }
    let (ranks, alphas) = names::patterns(&sizes, common);
    // GPT-2 stores its matrices as (in, out).
    let fused = |info: &ParamInfo| info.role == Role::Attention(AttentionRole::QueryKeyValue);
    let is_turned = params.base().iter().any(fused);
    let saves_table = lora.modules_to_save.contains(&Whole::Embeddings);
    let mut config = json!({
        "peft_type": "LORA",
        "task_type": match reward_head(model) {
            Some(_) => "SEQ_CLS",
            None => "CAUSAL_LM",
        },
        "base_model_name_or_path": base,
        "inference_mode": true,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": targets,
        "fan_in_fan_out": is_turned,
        "bias": "none",
        "use_rslora": lora.rslora,
        "use_dora": lora.dora,
        "rank_pattern": ranks,
        "alpha_pattern": alphas,
        "modules_to_save": saved_modules(model, &lora.modules_to_save),
    });
    if let Some(layout) = &layout {
        let targets = stacked::targets(layout, model.config(), &stacks);
        config[PARAMETERS] = targets.into_iter().collect();
    }
    // Else PEFT loads the table beside a head that stays the base's.
    if saves_table && model.config().ties_head() {
        config[KEEPS_TIED] = true.into();
    }
    Some(pretty(&config))
}

/// The modules saved in full, by the last part of their names.
fn saved_modules(model: &Model, whole: &[Whole]) -> Option<Vec<String>> {
    let mut names: Vec<String> = saved(model, whole)
        .filter_map(|info| {
            let module = info.name.strip_suffix(".weight")?;
            module.rsplit('.').next().map(String::from)
        })
        .collect();
    names.sort();
    (!names.is_empty()).then_some(names)
}

/// The parameters of the base that train together with the adapters.
fn saved<'a>(model: &'a Model, whole: &'a [Whole]) -> impl Iterator<Item = &'a ParamInfo> {
    let asked = |info: &&ParamInfo| {
        let is = |whole: &Whole| match whole {
            Whole::Embeddings => info.role == Role::Embedding,
            Whole::Head => info.role == Role::Head,
        };
        info.name == SCORE || whole.iter().any(is)
    };
    model.params().base().iter().filter(asked)
}

/// The head of a reward model.
fn reward_head(model: &Model) -> Option<&ParamInfo> {
    model.params().base().iter().find(|info| info.name == SCORE)
}

/// Writes `adapter_model.safetensors` in f32.
///
/// # Errors
/// Those of the writer.
pub fn write_adapter(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    let whole = match model.adapter() {
        Some(AdapterConfig::Lora(lora)) => &lora.modules_to_save[..],
        None => &[],
    };
    let infos: Vec<&ParamInfo> = saved(model, whole)
        .chain(model.params().adapters())
        .collect();
    let files = InFiles::of(model);
    let heads: Vec<TensorHead> = infos
        .iter()
        .map(|info| TensorHead::f32(files.name(info), files.shape(info)))
        .collect();
    let base = model.base_fingerprint().map_err(io_error)?;
    let params = model.params();
    let written = params.read_held(|weights| {
        write_with(out, &heads, &[(FINGERPRINT, &base)], &mut |sink| {
            infos.iter().try_for_each(|info| {
                let place = params.place(info);
                let place =
                    place.ok_or_else(|| io::Error::other("a quantized table is not saved"))?;
                match files.b_of_experts(info) {
                    Some((layout, rank, is_wide)) => {
                        sink.put(&layout.b_in_file(&weights[place], rank, is_wide))
                    }
                    None => sink.put(&weights[place]),
                }
            })
        })
    });
    written.map_err(io_error)?
}

/// How a file has the parameters of a model's adapter.
struct InFiles {
    layout: Option<stacked::Layout>,
    /// Matrices of experts by our names, and whether both of their block have adapters.
    stacks: BTreeMap<String, bool>,
}

impl InFiles {
    fn of(model: &Model) -> InFiles {
        let all = stacked::matrices_of(model.params().adapters());
        let both = |module: &&str| (module.to_string(), stacked::has_both(module, &all));
        InFiles {
            layout: stacked::Layout::of(model.config()),
            stacks: all.iter().map(both).collect(),
        }
    }

    /// Of a factor of experts: the layout, the matrix, whether both of its block have adapters, and which factor it is.
    fn stack<'a>(
        &self,
        info: &'a ParamInfo,
    ) -> Option<(stacked::Layout, &'a str, bool, &'static str)> {
        let (module, part) = stacked::matrix_of(&info.name)?;
        Some((self.layout?, module, *self.stacks.get(module)?, part))
    }

    fn name(&self, info: &ParamInfo) -> String {
        match self.stack(info) {
            Some((layout, module, both, part)) => layout.name(module, both, part),
            None => format!("{PREFIX}{}", info.name),
        }
    }

    fn shape(&self, info: &ParamInfo) -> Vec<usize> {
        match self.stack(info) {
            Some((layout, _, _, B)) => layout.b_shape(&info.shape),
            _ => info.shape.clone(),
        }
    }

    /// Of the second factor of experts: the layout, the rank, and whether it is of gate and up.
    fn b_of_experts(&self, info: &ParamInfo) -> Option<(stacked::Layout, usize, bool)> {
        let (layout, module, _, part) = self.stack(info)?;
        let rank = info.shape.get(1).copied()?;
        (part == B).then(|| (layout, rank, stacked::is_wide(module)))
    }
}

/// Fills the adapters of a model from a folder written by [`write_adapter`]; every factor must be present with its
/// shape, and the base must match if one is recorded. On an error nothing is changed.
///
/// # Errors
/// No such file, or one of another adapter or base.
pub fn read_adapter(folder: &Path, model: &mut Model) -> Result<(), HfError> {
    let infos = model.params().adapters().to_vec();
    let path = folder.join(ADAPTER_WEIGHTS);
    let file = TensorFile::open(&path)?;
    let files = InFiles::of(model);
    for info in &infos {
        file.expect(&files.name(info), &files.shape(info))?;
    }
    if let Some(base) = file.word(FINGERPRINT)
        && model.base_fingerprint()? != base
    {
        let what =
            "its base's weights differ from this model's: the base file was changed or replaced";
        return Err(HfError::Config {
            path,
            what: what.into(),
        });
    }
    let held = model.params().first_held();
    model.params_mut().write_held(|weights| {
        infos.iter().try_for_each(|info| {
            let part = &mut weights[info.offset - held..][..info.len];
            file.read_into(&files.name(info), &files.shape(info), part)?;
            if let Some((layout, rank, is_wide)) = files.b_of_experts(info) {
                part.copy_from_slice(&layout.b_of_file(part, rank, is_wide));
            }
            Ok::<(), TensorFileError>(())
        })
    })??;
    Ok(())
}

/// The module of a factor or a magnitude, with its prefix, and which of the three it is; `None` for a table saved in full.
fn part_of(name: &str) -> Option<(&str, &'static str)> {
    let factor = [A, B].into_iter();
    let mut found = factor.filter_map(|end| Some((name.strip_suffix(end)?, end)));
    found.next().or_else(|| {
        let at = name.find(MAGNITUDE)?;
        Some((&name[..at], MAGNITUDE))
    })
}

/// Merges the adapters in a folder, if any, into the weights of their base. Returns whether there were any.
///
/// # Errors
/// An unsupported kind of adapter, or one for another model.
pub fn merge_adapter(folder: &Path, model: &mut Model) -> Result<bool, HfError> {
    if !folder.join(ADAPTER_CONFIG).is_file() {
        return Ok(false);
    }
    Peft::open(folder)?.merge_into(model, 1.0)?;
    Ok(true)
}

/// The same for these parameters of the model: see [`Model::base_of_vocabulary`].
///
/// # Errors
/// As [`merge_adapter`].
pub fn merge_adapter_of(
    folder: &Path,
    model: &mut Model,
    infos: &[ParamInfo],
) -> Result<bool, HfError> {
    if !folder.join(ADAPTER_CONFIG).is_file() {
        return Ok(false);
    }
    Peft::open(folder)?.merge_into_parts(model, infos, 1.0)?;
    Ok(true)
}
