//! The subject of the checks: a folder, its kind of model, its files and its card.

use super::card::Card;
use super::error::SubjectError;
use super::files::{self, Entry};
use crate::hf;
use crate::models::{ModelSource, kind, one_per_model};
use std::path::{Path, PathBuf};

/// The kind of model in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// config.json with weights.
    Model,
    /// An adapter and no weights to put it on.
    Adapter,
    /// GGUF files and no config.json.
    Gguf,
}

impl Form {
    pub fn words(self) -> &'static str {
        match self {
            Form::Model => "a model folder",
            Form::Adapter => "an adapter",
            Form::Gguf => "GGUF files",
        }
    }
}

/// A folder to be checked.
pub struct Subject {
    pub folder: PathBuf,
    pub form: Form,
    /// Every file, by name.
    pub files: Vec<Entry>,
    /// README.md; `None` without one.
    pub card: Option<Card>,
    pub here: LocalEnv,
}

/// What this machine provides.
#[derive(Debug, Clone, Default)]
pub struct LocalEnv {
    /// Bytes that a model may take.
    pub room: u64,
    /// The hub's cache, where the base of an adapter may lie.
    pub cache: Option<PathBuf>,
}

impl Subject {
    /// Looks at a folder.
    ///
    /// # Errors
    /// It cannot be read, or no model lies in it.
    pub fn open(folder: &Path, here: &LocalEnv) -> Result<Subject, SubjectError> {
        let files = files::list(folder)?;
        let has = |name: &str| files.iter().any(|file| file.name == name);
        let any_gguf = files.iter().any(|file| file.is_gguf());
        let form = match () {
            () if has(hf::CONFIG) => Form::Model,
            () if has(hf::ADAPTER_CONFIG) => Form::Adapter,
            () if any_gguf => Form::Gguf,
            () => {
                // Names what is missing, and what was found instead.
                kind(folder)?;
                Form::Model
            }
        };
        Ok(Subject {
            card: Card::of_folder(folder),
            folder: folder.into(),
            form,
            files,
            here: here.clone(),
        })
    }

    /// Paths that hold a model each: the folder, or every GGUF file; of a model in several parts the first.
    pub fn models(&self) -> Vec<PathBuf> {
        match self.form {
            Form::Model | Form::Adapter => vec![self.folder.clone()],
            Form::Gguf => {
                let files = self.files.iter().filter(|file| file.is_gguf());
                let paths = files.map(|file| self.folder.join(&file.name));
                one_per_model(paths.collect())
            }
        }
    }

    /// How a path is called in findings: relative to the folder, and the folder itself by its description.
    pub fn place(&self, path: &Path) -> String {
        match path.strip_prefix(&self.folder) {
            Ok(inner) if !inner.as_os_str().is_empty() => inner.display().to_string(),
            _ => match self.form {
                Form::Model => hf::CONFIG.into(),
                Form::Adapter => hf::ADAPTER_CONFIG.into(),
                Form::Gguf => path.display().to_string(),
            },
        }
    }

    /// The model under an adapter, where it is on this machine: a path, or the hub's copy in the cache.
    pub fn base(&self) -> Option<PathBuf> {
        let said = hf::Peft::find(&self.folder).ok()?.base()?.to_string();
        let places = [PathBuf::from(&said), self.folder.join(&said)];
        let near = places.into_iter().find(|place| place.exists());
        near.or_else(|| crate::hub::cached_model(self.here.cache.as_deref()?, &said, None))
    }

    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.files.iter().find(|file| file.name == name)
    }

    /// Bytes that computing with a model takes, about: its weights as they are held, and a tenth for the rest.
    pub fn need(source: &ModelSource) -> u64 {
        let weights = source.packed_bytes().unwrap_or(4 * source.n_params());
        weights + weights / 10
    }
}
