//! An adapter's two files for publication: rewritten with another base name or dtype, and checked against each other as PEFT
//! does.

use super::super::safetensors::{TensorHead, write_with};
use super::super::{Dtype, HfError, pretty};
use super::description::MAX_BYTES;
use super::join::{Join, Joins};
use super::peft::{HEAD, TABLES, in_text_model};
use super::{
    A, ADAPTER_CONFIG, ADAPTER_WEIGHTS, B, FINGERPRINT, KEEPS_TIED, MAGNITUDE, PREFIX, Peft,
    part_of,
};
use crate::base::digest::hex;
use crate::base::files::read_small;
use crate::base::text::one_line;
use crate::nn::module_name;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

/// Values held at once.
const PIECE: usize = 1 << 18;

impl Peft {
    /// `rank 8, alpha 16`, or the ranges if they differ.
    pub fn sizes(&self) -> String {
        let modules = self.modules();
        let parameters = self.parameters();
        let modules = modules.iter().chain(parameters.values());
        let sizes = modules.map(|m| self.description.size_of(m));
        let (mut ranks, mut alphas): (Vec<usize>, Vec<f64>) =
            sizes.map(|size| (size.rank, size.alpha)).unzip();
        ranks.sort_unstable();
        alphas.sort_by(f64::total_cmp);
        format!(
            "{}, {}",
            span("rank", &ranks, self.description.lora.rank),
            span("alpha", &alphas, self.description.lora.alpha)
        )
    }

    /// `LoRA`, `rsLoRA`, `DoRA`, or the last two together.
    pub fn kind(&self) -> &'static str {
        match (self.description.lora.rslora, self.description.lora.dora) {
            (false, false) => "LoRA",
            (true, false) => "rsLoRA",
            (false, true) => "DoRA",
            (true, true) => "DoRA with rsLoRA's scale",
        }
    }

    /// The adapted matrices, by their names in the base; without those of experts.
    pub fn modules(&self) -> BTreeSet<String> {
        let names = self.file.names().filter_map(|name| name.strip_suffix(A));
        let modules = names.map(plain).filter(|module| !self.is_stack(module));
        modules.map(String::from).collect()
    }

    /// The distinct last parts of those names after joining: `q_proj`.
    pub fn targets(&self, joins: &Joins) -> BTreeSet<String> {
        let modules = self.modules();
        let own = modules.iter().filter(|module| !joins.has(module));
        let all = own.chain(joins.all().iter().map(|join| &join.name));
        let ends = all.filter_map(|name| name.rsplit('.').next());
        let parameters = self.parameters().into_values();
        let parameters = parameters.filter_map(|name| {
            let end = name.rsplit('.').next()?;
            Some(format!("experts.{end}"))
        });
        ends.map(String::from).chain(parameters).collect()
    }

    /// Parameters of the base that it contains in full: `model.embed_tokens`.
    pub fn whole(&self) -> BTreeSet<String> {
        let names = self.file.names().map(plain);
        let whole = names.filter(|name| part_of(name).is_none());
        whole.map(|name| module_name(name).to_string()).collect()
    }

    /// The number of values in its file.
    pub fn n_values(&self) -> u64 {
        let names = self.file.names();
        let len = |name| {
            let shape = self.file.shape(name).unwrap_or_default();
            shape.iter().product::<usize>() as u64
        };
        names.map(len).sum()
    }

    /// Checks that the file holds what the config promises: both factors of each matrix, with its rank, under names that
    /// `target_modules` finds.
    ///
    /// # Errors
    /// The first mismatch.
    pub fn check(&self) -> Result<(), HfError> {
        let (modules, parameters) = (self.modules(), self.parameters());
        if modules.is_empty() && parameters.is_empty() {
            return Err(self.wrong(format!("{ADAPTER_WEIGHTS} has no factor of LoRA")));
        }
        for name in sorted(self) {
            let Some((module, part)) = part_of(name) else {
                continue;
            };
            if part == MAGNITUDE {
                continue;
            }
            let is_stack = self.is_stack(plain(module));
            if !is_stack {
                self.size_of(name)?;
            }
            let other = format!("{module}{}", if part == A { B } else { A });
            self.must_have(name, &other)?;
            let lengths = [
                format!("{module}{MAGNITUDE}"),
                format!("{module}{MAGNITUDE}.weight"),
            ];
            if self.description.lora.dora
                && !is_stack
                && !lengths.iter().any(|name| self.file.contains(name))
            {
                let what = format!("use_dora is set, but {} is missing", one_line(&lengths[0]));
                return Err(self.wrong(what));
            }
        }
        self.check_targets(&modules)
    }

    /// A target without a tensor: the adapter for it is missing.
    fn check_targets(&self, modules: &BTreeSet<String>) -> Result<(), HfError> {
        let targets = &self.description.targets;
        if let Some(module) = modules.iter().find(|module| !targets.finds(module)) {
            return Err(self.untargeted(module));
        }
        let parameters = self.parameters();
        if let Some(parameter) = parameters.values().find(|name| !self.names_parameter(name)) {
            return Err(self.wrong(format!(
                "target_parameters does not name {}, which the file has factors of",
                one_line(parameter)
            )));
        }
        let has_end = |end: &&String| parameters.values().any(|name| name.ends_with(&***end));
        let mut idle = self.description.parameters.iter();
        if let Some(target) = idle.find(|end| !has_end(end)) {
            return Err(self.wrong(format!(
                "target_parameters names {}, and the file has no factors of it",
                one_line(target)
            )));
        }
        let names: Vec<&str> = modules.iter().map(String::as_str).collect();
        match targets.idle(&names) {
            Some(target) => Err(self.wrong(format!(
                "target_modules names {}, and the file has no factors of it",
                one_line(target)
            ))),
            None => Ok(()),
        }
    }

    /// Checks that all values are finite.
    ///
    /// # Errors
    /// A value is not, or the file cannot be read.
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

    /// SHA-256 of its tensors by name, independent of their order and dtype in the file: two files with the same digest are
    /// the same adapter.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn digest(&self) -> Result<String, HfError> {
        let mut hash = Sha256::new();
        for name in sorted(self) {
            hash.update(plain(name));
            hash.update(format!("{:?}", self.file.shape(name)));
            self.pieces::<HfError>(name, &mut |piece| {
                piece.iter().for_each(|x| hash.update(x.to_le_bytes()));
                Ok(())
            })?;
        }
        Ok(hex(&hash.finalize()))
    }

    /// Every value of a tensor, piece by piece.
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

    /// The embeddings in the file that are also the head of its base, according to the base's config.json next to it. PEFT copies
    /// what it saves in full and loses the tie, so other programs need both.
    ///
    /// # Errors
    /// That file cannot be read.
    pub fn tied_table(&self, folder: &Path) -> Result<Option<String>, HfError> {
        let ties = super::super::read_config(folder)?.ties_head();
        let head = self.file.names().any(|name| plain(name) == HEAD);
        let mut names = self.file.names();
        let table = names.find(|name| TABLES.contains(&&*in_text_model(plain(name))));
        Ok(table.filter(|_| ties && !head).map(String::from))
    }

    /// `adapter_config.json` with another base, a head next to the embeddings if they are `tied`, and joined matrices;
    /// everything else unchanged.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn config_json(
        &self,
        base: Option<&str>,
        tied: Option<&str>,
        joins: &Joins,
    ) -> Result<String, HfError> {
        let mut config = self.json()?;
        if !joins.is_empty() {
            self.describe_joined(joins, &mut config);
        }
        config["base_model_name_or_path"] = base.into();
        if tied.is_some()
            && let Some(saved) = config["modules_to_save"].as_array_mut()
        {
            saved.push("lm_head".into());
            // Two copies of the values need no tie.
            if let Some(config) = config.as_object_mut() {
                config.remove(KEEPS_TIED);
            }
        }
        Ok(pretty(&config))
    }

    /// Writes `adapter_model.safetensors` again, under the same names, with the digest of its base; if `tied` names
    /// the embeddings, with the same values as a head; with matrices joined as in `joins`.
    ///
    /// # Errors
    /// Those of the writer; values out of range for `dtype`.
    pub fn write(
        &self,
        dtype: Dtype,
        tied: Option<&str>,
        joins: &Joins,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let shape = |name: &str| self.file.shape(name).unwrap_or_default().to_vec();
        let is_joined = |name: &str| part_of(plain(name)).is_some_and(|(m, _)| joins.has(m));
        let own = sorted(self).into_iter().filter(|name| !is_joined(name));
        let theirs = |name: &str| match joins.table(plain(name)) {
            Some(table) => format!("{PREFIX}{table}"),
            None => name.to_string(),
        };
        let own = own.map(|name| (theirs(name), shape(name), Origin::Own(name)));
        let mut tensors: Vec<(String, Vec<usize>, Origin<'_>)> = own.collect();
        for join in joins.all() {
            let heads = self.joined_heads(join).into_iter();
            tensors
                .extend(heads.map(|(name, shape, part)| (name, shape, Origin::Joined(join, part))));
        }
        let head = |table| (format!("{PREFIX}{HEAD}"), shape(table), Origin::Own(table));
        tensors.extend(tied.map(head));
        let head = |(name, shape, _): &(String, Vec<usize>, _)| TensorHead {
            name: name.clone(),
            shape: shape.clone(),
            dtype,
        };
        let heads: Vec<TensorHead> = tensors.iter().map(head).collect();
        let words: Vec<(&str, &str)> = self
            .base_fingerprint()
            .map(|base| (FINGERPRINT, base))
            .into_iter()
            .collect();
        write_with(out, &heads, &words, &mut |sink| {
            let mut put = |piece: &[f32]| sink.put(piece).map_err(Written::Refused);
            let mut written = tensors.iter().map(|(_, _, origin)| match origin {
                Origin::Own(name) => self.pieces(name, &mut put),
                Origin::Joined(join, part) => put(&self.joined_values(join, part)?),
            });
            written.try_for_each(|one| one).map_err(Written::into)
        })
    }
}

/// Where a tensor's values are.
enum Origin<'a> {
    /// Under this name in the file.
    Own(&'a str),
    /// In several tensors: this one of a joined matrix's three.
    Joined(&'a Join, &'static str),
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

/// `rank 8`, or `ranks 2 to 8`; the values are sorted, `common` is used if there are none.
fn span<T: Display + PartialEq + Copy>(word: &str, values: &[T], common: T) -> String {
    match (values.first(), values.last()) {
        (Some(least), Some(most)) if least != most => format!("{word}s {least} to {most}"),
        (least, _) => format!("{word} {}", least.copied().unwrap_or(common)),
    }
}

/// Files have no fixed tensor order.
fn sorted(peft: &Peft) -> Vec<&str> {
    let mut names: Vec<&str> = peft.file.names().collect();
    names.sort_unstable();
    names
}

fn plain(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}
