//! A model whose weights are read a parameter at a time, as [`ModelSource::load`] has them: no model is in memory as a whole.

use super::{ModelSource, SourceError};
use crate::hf::{Applied, HfError, Stored};
use crate::llama_cpp::GgufModel;
use crate::nn::{ParamInfo, param_infos};
use std::collections::BTreeMap;

/// A model on the disk, with the adapters that stand on it.
pub struct ByParameter<'a> {
    lowest: Lowest<'a>,
    /// The parameters of what lies lowest, by name.
    infos: BTreeMap<String, ParamInfo>,
    /// The lowest first.
    adapters: Vec<Applied>,
}

/// What adapters stand on.
enum Lowest<'a> {
    Folder(Box<Stored>),
    Gguf(&'a GgufModel),
}

impl<'a> ByParameter<'a> {
    /// Finds all parameters; reads adapters, but no other weights.
    ///
    /// # Errors
    /// As [`ModelSource::load`].
    pub fn open(source: &'a ModelSource) -> Result<ByParameter<'a>, SourceError> {
        let config = source.config();
        let on = |mut below: ByParameter<'a>| -> Result<ByParameter<'a>, SourceError> {
            if source.adapter().is_some() {
                below.adapters.push(Applied::open(source.path(), config)?);
            }
            Ok(below)
        };
        if let Some(base) = source.base() {
            return on(ByParameter::open(base)?);
        }
        let lowest = match source {
            ModelSource::Folder(folder) => {
                Lowest::Folder(Box::new(Stored::open(folder.path(), config)?))
            }
            ModelSource::Gguf(file) => Lowest::Gguf(file),
        };
        let infos = param_infos(config, config.vocab_size.unwrap_or_default());
        let infos = infos.into_iter().map(|info| (info.name.clone(), info));
        on(ByParameter {
            lowest,
            infos: infos.collect(),
            adapters: Vec::new(),
        })
    }

    /// The values of a parameter in f32, adapters merged.
    ///
    /// # Errors
    /// The files can no longer be read, or a GGUF file has a value that is not finite; it is no parameter of the model.
    pub fn read(&self, info: &ParamInfo) -> Result<Vec<f32>, SourceError> {
        self.read_under(&self.adapters, &info.name)
    }

    fn read_under(&self, adapters: &[Applied], name: &str) -> Result<Vec<f32>, SourceError> {
        let Some((last, below)) = adapters.split_last() else {
            let info = self.infos.get(name);
            let missing = || HfError::Model(format!("there is no parameter {name}"));
            let info = info.ok_or_else(missing)?;
            return Ok(match &self.lowest {
                Lowest::Folder(stored) => stored.read(info)?,
                Lowest::Gguf(file) => file.read_finite(info)?,
            });
        };
        last.apply(name, &mut || self.read_under(below, name))
    }

    /// Bytes of adapters, which are in memory.
    pub fn held_bytes(&self) -> u64 {
        self.adapters.iter().map(Applied::bytes).sum()
    }
}
