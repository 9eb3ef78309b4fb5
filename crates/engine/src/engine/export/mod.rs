//! Exports models: one file per format, one line in [`FORMATS`]. Output has a temporary name until it is complete.

mod adapter;
mod adapter_source;
mod card;
mod folder;
mod gguf;
mod hf;
mod safetensors;

pub use adapter::{PEFT, export_adapter};
pub use adapter_source::AdapterSource;
pub use card::{About, CardResult, adapter_card, card, gguf_card};
pub use folder::{Folder, Written};
pub use gguf::{check_gguf, tokenizer_keys};
pub(super) use hf::naming;

use crate::base::child::Child;
use crate::base::files::{not_made, not_read, sync_dir};
use crate::base::place::try_make;
use crate::data::render::padding;
use crate::data::tokenizer;
use crate::engine::checkpoint::{Fault, Manifest};
pub(super) use crate::hf::ValuesByTensor as Values;
use crate::hf::{AdapterError, Dtype, Outgoing, TokenIds};
use crate::models::{ModelSource, SourceError};
use crate::nn::{Model, ModelConfig};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A way to write a model.
pub struct Format {
    /// The word after `--format`.
    pub word: &'static str,
    /// One sentence on what comes out.
    pub summary: &'static str,
    /// The words after `--dtype` that it knows, the default first.
    pub dtypes: &'static [&'static str],
    /// Writes the model into an empty folder. Fails if the format cannot express the model, or the disk is full.
    write: fn(&Source, &Options, &mut Folder) -> Result<(), ExportError>,
}

/// Every format.
pub const FORMATS: &[&Format] = &[&hf::FORMAT, &safetensors::FORMAT, &gguf::FORMAT];

/// Types that safetensors files are written in.
const FLOATS: &[&str] = &["f32", "f16", "bf16"];

/// The model to export or measure: what it is, with its weights.
pub struct Source {
    /// Read as fields of the source.
    subject: Subject,
    /// In f32; as it answers where it was opened so.
    pub model: Model,
}

impl Deref for Source {
    type Target = Subject;

    fn deref(&self) -> &Subject {
        &self.subject
    }
}

/// A model without its weights: what its files and its card say.
pub struct Subject {
    /// Where it came from.
    pub from: ModelSource,
    pub config: ModelConfig,
    pub vocab_size: usize,
    /// Begin, end and padding, as its config.json says.
    pub ids: TokenIds,
    /// Where its tokenizer lies: a folder, or the GGUF file.
    pub tokenizer: PathBuf,
    /// Text of the token that pads, of a reward model.
    pub(super) padding: Option<String>,
    /// Of weights that were merged.
    pub(super) merge: Option<MergeOrigin>,
}

/// What merged weights are made of, by name.
pub(super) struct MergeOrigin {
    /// Of the merged model.
    pub name: String,
    pub base: Option<String>,
    /// How whole models were merged; none for adapters.
    pub method: Option<&'static str>,
    /// Adapters or models, each with its weight, in merge order.
    pub parts: Vec<(String, f64)>,
}

/// How it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// One of the format's words.
    pub dtype: String,
    /// Bytes of the largest file with weights.
    pub max_shard_bytes: u64,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("{0}")]
    Model(#[from] SourceError),
    #[error("{}", not_made(path, source).0)]
    Io { path: PathBuf, source: io::Error },
    /// A file beside the weights.
    #[error("{}", not_read(path, source).0)]
    Unread { path: PathBuf, source: io::Error },
    #[error("`{said}` is not a format; known are {known}")]
    Format { said: String, known: String },
    #[error("the format {format} has no type `{said}`; it has {known}")]
    Dtype {
        format: &'static str,
        said: String,
        known: String,
    },
    #[error("{0} already exists and is not empty")]
    Occupied(PathBuf),
    #[error("{0} exists and is not a folder")]
    NoFolder(PathBuf),
    #[error("the checkpoint is damaged: {0}")]
    Damaged(#[from] Fault),
    #[error("{0} has non-finite weights: it comes from a diverged run, or is damaged")]
    NotFinite(PathBuf),
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    #[error("{what}")]
    Cannot { what: String, fix: String },
}

impl ExportError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            ExportError::Model(error) => error.hint().into(),
            ExportError::Io { source, .. } if source.kind() == io::ErrorKind::InvalidData => {
                "--dtype bf16 holds values of any size".into()
            }
            ExportError::Io { path, source } => not_made(path, source).1,
            ExportError::Unread { path, source } => not_read(path, source).1,
            ExportError::Format { .. } | ExportError::Dtype { .. } => "llmtui export --help".into(),
            ExportError::Occupied(_) => "choose another folder, or delete this one".into(),
            ExportError::NoFolder(_) => {
                "name a new folder; with --format gguf also a file that ends in .gguf".into()
            }
            ExportError::Damaged(_) => Fault::HINT.into(),
            ExportError::NotFinite(_) => {
                "use an older checkpoint of the run, or download the model again".into()
            }
            ExportError::Adapter(AdapterError::Absent(_)) => {
                "name a run with adapters, or a PEFT folder; a fully trained model is exported whole: --format hf".into()
            }
            ExportError::Adapter(error @ AdapterError::Unread(_)) => error.hint(),
            ExportError::Adapter(_) => {
                "docs/models.md lists the supported adapters; --format hf exports them merged".into()
            }
            ExportError::Cannot { fix, .. } => fix.clone(),
        }
    }
}

/// The format of a word.
///
/// # Errors
/// The word is unknown; lists the known ones.
pub fn format(word: &str) -> Result<&'static Format, ExportError> {
    let found = FORMATS.iter().find(|format| format.word == word);
    found.copied().ok_or_else(|| ExportError::Format {
        said: crate::base::text::one_line(word),
        known: FORMATS
            .iter()
            .map(|format| format.word)
            .chain([PEFT.0])
            .collect::<Vec<_>>()
            .join(", "),
    })
}

/// Whether a format is known, that of adapters alone included, and has the type.
///
/// # Errors
/// It is not, or has not; lists what there is.
pub fn check(word: &str, dtype: Option<&str>) -> Result<(), ExportError> {
    let (word, dtypes) = match word == PEFT.0 {
        true => (PEFT.0, PEFT.2),
        false => format(word).map(|format| (format.word, format.dtypes))?,
    };
    dtype.map_or(Ok(()), |dtype| has_type(word, dtypes, dtype))
}

impl Source {
    /// A model with its weights in f32.
    ///
    /// # Errors
    /// There is none, or its files do not fit each other, or its weights are non-finite: whoever gets the file would find
    /// that out last.
    pub fn open(path: &Path) -> Result<Source, ExportError> {
        Self::open_with(path, &ModelSource::load)
    }

    /// The model with the same kernels as in training, evaluation and chat: quantized weights stay quantized (so matmuls round
    /// activations) and adapters unmerged, so that evaluation measures what is served.
    ///
    /// # Errors
    /// As [`Source::open`].
    pub fn open_for_inference(path: &Path) -> Result<Source, ExportError> {
        Self::open_with(path, &|from| match from.formats() {
            Some(_) => from.load_for_inference(),
            None => from.load(),
        })
    }

    fn open_with(
        path: &Path,
        load: &dyn Fn(&ModelSource) -> Result<Model, SourceError>,
    ) -> Result<Source, ExportError> {
        let from = Manifest::open_verified::<ExportError>(path)?;
        let model = load(&from)?;
        // Values of a quantized file are looked at where it is read.
        let finite = |weights: &[f32]| weights.iter().all(|x| x.is_finite());
        if !model.params().read_held(finite).unwrap_or(false) {
            return Err(ExportError::NotFinite(path.to_path_buf()));
        }
        let tokenizer = from.tokenizer_path().into();
        Ok(Source::new(from, model, tokenizer))
    }

    pub(super) fn new(from: ModelSource, model: Model, tokenizer: PathBuf) -> Source {
        let of = (model.config().clone(), model.shape().vocab_size);
        let subject = Subject::new(from, of, tokenizer);
        Source { subject, model }
    }

    /// The same of weights that were merged.
    #[must_use]
    pub(super) fn merged(mut self, merge: MergeOrigin) -> Source {
        self.subject.merge = Some(merge);
        self
    }
}

impl Subject {
    /// With the tokens that the files of `from` name. Of a reward model they say which one pads, because it is scored at the last
    /// token that is none; an adapter of one has that from the tokenizer.
    pub(super) fn new(
        from: ModelSource,
        (config, vocab_size): (ModelConfig, usize),
        tokenizer: PathBuf,
    ) -> Subject {
        let mut ids = from.token_ids();
        let mut padding = None;
        if config.is_reward_model() {
            (ids.pad, padding) = pads(&tokenizer, ids.pad).unzip();
        }
        Subject {
            from,
            config,
            vocab_size,
            ids,
            tokenizer,
            padding,
            merge: None,
        }
    }

    /// Its name: a merged model has its own.
    fn title(&self) -> String {
        let merged = self.merge.as_ref().map(|merge| merge.name.clone());
        merged.unwrap_or_else(|| self.from.name())
    }

    /// The repository of the hub whose copy in the cache these weights are, or were before adapters.
    fn base_id(&self) -> Option<String> {
        crate::hub::id_of_cached(self.from.chain().0.path())
    }
}

/// The token that pads for a reward model, `said` by its files or chosen, and its text; `None` also where the tokenizer cannot be
/// read.
fn pads(tokenizer: &Path, said: Option<u32>) -> Option<(u32, String)> {
    let tokenizer = tokenizer::load(tokenizer, &Child::of_this_program()).ok()?;
    let id = said.or_else(|| padding(&tokenizer))?;
    Some((id, tokenizer.token(id)?))
}

/// Said of a reward model whose tokenizer has no token to pad with.
const NO_PADDING: &str = "no token of its tokenizer can pad a batch, and an added one would change the vocabulary: score one text at a time";

/// Writes a model to the folder `to` and lists the files.
///
/// # Errors
/// The format cannot express the model, or the disk is full; no partial output is left.
pub fn export(
    source: &Source,
    format: &Format,
    options: &Options,
    to: &Path,
) -> Result<Vec<Written>, ExportError> {
    has_type(format.word, format.dtypes, &options.dtype)?;
    in_folder(to, &mut |folder| (format.write)(source, options, folder))
}

/// The same for weights that come one tensor after another: as a folder for transformers where one of its classes computes the model,
/// else for llmtui.
///
/// # Errors
/// As [`export`]; those of `values`.
pub(super) fn export_each(
    subject: &Subject,
    outgoing: &Outgoing,
    dtype: Dtype,
    to: &Path,
    values: Values<'_>,
) -> Result<Vec<Written>, ExportError> {
    in_folder(to, &mut |folder| {
        hf::write_each(subject, outgoing, dtype, folder, values)
    })
}

fn has_type(format: &'static str, dtypes: &[&'static str], said: &str) -> Result<(), ExportError> {
    match dtypes.contains(&said) {
        true => Ok(()),
        false => Err(no_type(format, dtypes, said)),
    }
}

fn no_type(format: &'static str, dtypes: &[&str], said: &str) -> ExportError {
    ExportError::Dtype {
        format,
        said: crate::base::text::one_line(said),
        known: dtypes.join(", "),
    }
}

/// Fills a folder beside its final name, and gives it that where all of it is there.
fn in_folder(
    to: &Path,
    fill: &mut dyn FnMut(&mut Folder) -> Result<(), ExportError>,
) -> Result<Vec<Written>, ExportError> {
    check_free(to)?;
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| ExportError::Io { path, source }
    };
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(parent).map_err(io(parent))?;
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let partial = parent.join(format!(".{name}.partial"));
    if partial.exists() {
        std::fs::remove_dir_all(&partial).map_err(io(to))?;
    }
    std::fs::create_dir(&partial).map_err(io(to))?;
    let mut folder = Folder::new(&partial);
    let done = fill(&mut folder).and_then(|()| {
        sync_dir(&partial).map_err(io(to))?;
        // An empty folder of the user's gives way.
        if to.exists() {
            std::fs::remove_dir(to).map_err(io(to))?;
        }
        std::fs::rename(&partial, to).map_err(io(to))?;
        sync_dir(parent).map_err(io(parent))
    });
    match done {
        Ok(()) => Ok(folder.written()),
        Err(error) => {
            let _ = std::fs::remove_dir_all(&partial);
            Err(error)
        }
    }
}

/// Whether a model can be written at `to`, asked before weights are read: nothing is overwritten.
///
/// # Errors
/// The destination exists, or the folder cannot be created.
pub fn check_free(to: &Path) -> Result<(), ExportError> {
    let path = to.to_path_buf();
    let empty = std::fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_none());
    match to.exists() && !empty {
        true if !to.is_dir() => Err(ExportError::NoFolder(path)),
        true => Err(ExportError::Occupied(path)),
        false => try_make(to).map_err(|source| ExportError::Io { path, source }),
    }
}

/// The type of a word that [`FLOATS`] has.
///
/// # Errors
/// It has no such word: a format that lists others does not ask this.
fn float(format: &'static str, options: &Options) -> Result<Dtype, ExportError> {
    options
        .dtype
        .parse()
        .map_err(|_| no_type(format, FLOATS, &options.dtype))
}

#[cfg(test)]
mod tests;
