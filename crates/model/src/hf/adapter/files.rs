//! An adapter's two files as they go to others: written again with another name for the base or another type of numbers,
//! and held against each other, as PEFT will.

use super::super::safetensors::{TensorHead, write_with};
use super::super::{Dtype, HfError, config, disk_tensors, family_in, pretty, read_json};
use super::peft::{HEAD, TABLES};
use super::{A, ADAPTER_CONFIG, ADAPTER_WEIGHTS, B, FINGERPRINT, MAGNITUDE, PREFIX, Peft};
use crate::base::files::read_small;
use crate::base::text::one_line;
use crate::nn::adapter::Lora;
use crate::nn::param_infos;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

/// Largest `adapter_config.json` that is read.
pub(super) const MAX_BYTES: u64 = 1 << 20;
/// Values that are held at once.
const PIECE: usize = 1 << 18;

impl Peft {
    /// Rank, alpha, dropout and what else its description says; without targets, which [`Peft::modules`] names.
    pub fn lora(&self) -> &Lora {
        &self.lora
    }

    /// `LoRA`, `rsLoRA`, `DoRA`, or the last two at once.
    pub fn kind(&self) -> &'static str {
        match (self.lora.rslora, self.lora.dora) {
            (false, false) => "LoRA",
            (true, false) => "rsLoRA",
            (false, true) => "DoRA",
            (true, true) => "DoRA with rsLoRA's scale",
        }
    }

    /// The matrices that it changes, by their names in the base.
    pub fn modules(&self) -> BTreeSet<String> {
        let names = self.file.names().filter_map(|name| name.strip_suffix(A));
        names.map(|name| plain(name).to_string()).collect()
    }

    /// The ends of those names, each once: `q_proj`.
    pub fn targets(&self) -> BTreeSet<String> {
        let modules = self.modules();
        let ends = modules.iter().filter_map(|name| name.rsplit('.').next());
        ends.map(String::from).collect()
    }

    /// Parameters of the base that it brings whole: `model.embed_tokens`.
    pub fn whole(&self) -> BTreeSet<String> {
        let names = self.file.names().map(plain);
        let whole = names.filter(|name| part_of(name).is_none());
        whole
            .map(|name| name.trim_end_matches(".weight").to_string())
            .collect()
    }

    /// How many values its file has.
    pub fn n_values(&self) -> u64 {
        let names = self.file.names();
        let len = |name| {
            let shape = self.file.shape(name).unwrap_or_default();
            shape.iter().product::<usize>() as u64
        };
        names.map(len).sum()
    }

    /// Whether the file holds what the description promises: both factors of each matrix, of its rank, under names that
    /// `target_modules` finds.
    ///
    /// # Errors
    /// The first thing that is otherwise.
    pub fn check(&self) -> Result<(), HfError> {
        let modules = self.modules();
        if modules.is_empty() {
            return Err(self.wrong(format!("{ADAPTER_WEIGHTS} has no factor of LoRA")));
        }
        for name in sorted(self) {
            let Some((module, part)) = part_of(name) else {
                continue;
            };
            let shape = self.file.shape(name).unwrap_or_default();
            let rank = match part {
                A => shape.first(),
                B => shape.get(1),
                _ => continue,
            };
            if rank != Some(&self.lora.rank) {
                return Err(self.wrong(format!(
                    "r is {}, and {} has shape {shape:?}",
                    self.lora.rank,
                    one_line(name)
                )));
            }
            let other = format!("{module}{}", if part == A { B } else { A });
            if !self.file.contains(&other) {
                return Err(self.wrong(format!(
                    "{} is there and {} is not",
                    one_line(name),
                    one_line(&other)
                )));
            }
            let lengths = [
                format!("{module}{MAGNITUDE}"),
                format!("{module}{MAGNITUDE}.weight"),
            ];
            if self.lora.dora && !lengths.iter().any(|name| self.file.contains(name)) {
                let what = format!("use_dora, and {} is not there", one_line(&lengths[0]));
                return Err(self.wrong(what));
            }
        }
        self.check_targets(&modules)
    }

    /// PEFT compares whole names and ends of names; a tensor that no target finds is left out without a word.
    fn check_targets(&self, modules: &BTreeSet<String>) -> Result<(), HfError> {
        let config = self.json()?;
        // One text is a pattern or `all-linear`.
        let Some(targets) = config["target_modules"].as_array() else {
            return Ok(());
        };
        let targets: Vec<&str> = targets.iter().filter_map(Value::as_str).collect();
        let finds = |target: &str, module: &str| {
            let end = module.strip_suffix(target);
            end.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let lost = modules
            .iter()
            .find(|module| !targets.iter().any(|target| finds(target, module)));
        if let Some(module) = lost {
            return Err(self.wrong(format!(
                "target_modules does not name {}, which the file has factors of",
                one_line(module)
            )));
        }
        let idle = targets
            .iter()
            .find(|target| !modules.iter().any(|module| finds(target, module)));
        match idle {
            Some(target) => Err(self.wrong(format!(
                "target_modules names {}, and the file has no factors of it",
                one_line(target)
            ))),
            None => Ok(()),
        }
    }

    /// Whether all its values are numbers.
    ///
    /// # Errors
    /// One is not, or the file cannot be read.
    pub fn check_values(&self) -> Result<(), HfError> {
        let wrong = |name: &str, at: usize, value: f32| {
            self.wrong(format!(
                "{}: value {at} is {value}: it comes from a run that diverged, or is damaged",
                one_line(name)
            ))
        };
        for name in sorted(self) {
            let mut first = 0;
            self.pieces(
                name,
                &mut |piece| match piece.iter().position(|x| !x.is_finite()) {
                    Some(at) => Err(wrong(name, first + at, piece[at])),
                    None => {
                        first += piece.len();
                        Ok(())
                    }
                },
            )?;
        }
        Ok(())
    }

    /// Every value of a tensor, some at a time.
    fn pieces<E: From<HfError>>(
        &self,
        name: &str,
        take: &mut dyn FnMut(&[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let shape = self.file.shape(name).unwrap_or_default().to_vec();
        let len: usize = shape.iter().product();
        let mut values = vec![0.0; PIECE.min(len)];
        for first in (0..len).step_by(PIECE) {
            let piece = &mut values[..PIECE.min(len - first)];
            let read = self.file.read_part(name, &shape, first, piece);
            read.map_err(HfError::from)?;
            take(piece)?;
        }
        Ok(())
    }

    fn json(&self) -> Result<Value, HfError> {
        let path = self.folder.join(ADAPTER_CONFIG);
        let text = read_small(&path, MAX_BYTES).map_err(|source| HfError::Io {
            path: path.clone(),
            source,
        })?;
        let value = serde_json::from_slice(&text);
        value.map_err(|e| self.wrong(one_line(&e.to_string())))
    }

    /// The embeddings in the file that are the head of its base, too, by the base's config.json beside it. PEFT makes a copy
    /// of what it saves whole and forgets that the two are one, so others need both.
    ///
    /// # Errors
    /// That file cannot be read.
    pub fn tied_table(&self, folder: &Path) -> Result<Option<String>, HfError> {
        let ties = super::super::read_config(folder)?.ties_head();
        let head = self.file.names().any(|name| plain(name) == HEAD);
        let mut names = self.file.names();
        let table = names.find(|name| TABLES.contains(&plain(name)));
        Ok(table.filter(|_| ties && !head).map(String::from))
    }

    /// `adapter_config.json` with another base, and a head beside the embeddings where `tied` names these; everything else
    /// as it is.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn config_json(&self, base: Option<&str>, tied: Option<&str>) -> Result<String, HfError> {
        let mut config = self.json()?;
        config["base_model_name_or_path"] = base.into();
        if tied.is_some()
            && let Some(saved) = config["modules_to_save"].as_array_mut()
        {
            saved.push("lm_head".into());
        }
        Ok(pretty(&config))
    }

    /// Writes `adapter_model.safetensors` again, under the names that it has, with the digest of its base; where `tied` names
    /// the embeddings, with the same values as a head.
    ///
    /// # Errors
    /// What the writer says; values out of range for `dtype`.
    pub fn write(&self, dtype: Dtype, tied: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
        // The name in the new file, and in this one.
        let mut names: Vec<(String, &str)> = sorted(self)
            .into_iter()
            .map(|name| (name.to_string(), name))
            .collect();
        names.extend(tied.map(|table| (format!("{PREFIX}{HEAD}"), table)));
        let heads: Vec<TensorHead> = names
            .iter()
            .map(|(name, from)| TensorHead {
                name: name.clone(),
                shape: self.file.shape(from).unwrap_or_default().to_vec(),
                dtype,
            })
            .collect();
        let words: Vec<(&str, &str)> = self
            .base_fingerprint()
            .map(|base| (FINGERPRINT, base))
            .into_iter()
            .collect();
        write_with(out, &heads, &words, &mut |sink| {
            let mut put = |piece: &[f32]| sink.put(piece).map_err(Written::Refused);
            let mut written = names.iter().map(|(_, from)| self.pieces(from, &mut put));
            written.try_for_each(|one| one).map_err(Written::into)
        })
    }

    /// Which of its matrices the base's class in transformers does not have under that name, as where Phi-3 keeps queries,
    /// keys and values in one. The base's config.json lies beside the adapter, in checkpoints.
    ///
    /// # Errors
    /// That file cannot be read.
    pub fn misnamed(&self, folder: &Path) -> Result<Option<String>, HfError> {
        let value = read_json(folder)?;
        let config = config::read(&value).map_err(|what| HfError::Config {
            path: folder.join(super::super::CONFIG),
            what,
        })?;
        let infos = param_infos(&config, config.vocab_size.unwrap_or(1));
        let tensors = disk_tensors(family_in(&value, &config), &config, &infos);
        let theirs: BTreeSet<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
        let mut own = self.modules().into_iter();
        Ok(own.find(|module| !theirs.contains(format!("{module}.weight").as_str())))
    }
}

/// Why a tensor was not written.
enum Written {
    Unread(HfError),
    Refused(io::Error),
}

impl From<HfError> for Written {
    fn from(error: HfError) -> Written {
        Written::Unread(error)
    }
}

impl From<Written> for io::Error {
    fn from(error: Written) -> io::Error {
        match error {
            Written::Unread(error) => io::Error::other(error),
            Written::Refused(error) => error,
        }
    }
}

/// Tensors come in no order.
fn sorted(peft: &Peft) -> Vec<&str> {
    let mut names: Vec<&str> = peft.file.names().collect();
    names.sort_unstable();
    names
}

fn plain(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// The module of a factor or a magnitude, with what stands in front, and which of the three it is; `None` for a table that is
/// kept whole.
fn part_of(name: &str) -> Option<(&str, &'static str)> {
    let factor = [A, B].into_iter();
    let mut found = factor.filter_map(|end| Some((name.strip_suffix(end)?, end)));
    found.next().or_else(|| {
        let at = name.find(MAGNITUDE)?;
        Some((&name[..at], MAGNITUDE))
    })
}
