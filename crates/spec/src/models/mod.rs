//! Where a model comes from: a Hugging Face folder (a checkpoint is one), a GGUF file, or the hub. Only here is asked which of
//! them a path is; everything else asks the [`ModelSource`]. Runs are looked up by name in `cli`; what the files hold is read
//! by `hf` and `llama_cpp`.

mod by_parameter;
mod fetch;
mod folder;
mod gguf_files;
mod scorer;

pub use by_parameter::ByParameter;
pub use fetch::{Fetched, HubModel, Parts, cached, fetch, hub_model, repo};
pub use folder::{
    Folder, Outline, find_under, has_chat_template, is_adapter_alone, notes, outline, under,
};
pub use scorer::{AnswerRead, RewardModel};

use crate::base::text::{one_line, shown};
use crate::data::tokenizer;
use crate::hf::{self, HfError, TokenIds};
use crate::llama_cpp::{GgufModel, ModelFileError, PartName};
pub use crate::llama_cpp::{
    files_by_name, files_of, first_name, first_part, is_gguf, one_per_model,
};
use crate::nn::{Model, ModelConfig, param_infos};
use crate::run::checkpoints::{FOLDER, name_of as name_of_step, step_in};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// A folder that is there on every machine, in the place of a model that an earlier stage of a pipeline is still to train:
/// nothing is looked for in it.
pub const TO_COME: &str = "/";

/// What a model lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A folder with a config.json.
    Folder,
    /// A GGUF file, which may be one of several with one model.
    Gguf,
}

/// A model on this disk whose description has been read; its weights are read when they are asked for.
pub enum ModelSource {
    Folder(Box<Folder>),
    Gguf(Box<GgufModel>),
}

/// Why there is no model at a path, or none that this build can run.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{} does not exist", shown(.0))]
    Absent(PathBuf),
    #[error("{} {what}", shown(path))]
    NoModel {
        path: PathBuf,
        what: String,
        fix: String,
    },
    #[error(transparent)]
    Folder(#[from] HfError),
    #[error(transparent)]
    File(#[from] ModelFileError),
}

/// What a model at a path is called: a folder or file by its own name, of which only `.gguf` is an ending (`Qwen2.5-0.5B` has
/// none) or that of a part (`-00001-of-00003.gguf`); a checkpoint by its run and step; a folder of the hub's cache, which is named after a commit, by its repository.
pub fn name_of(path: &Path) -> String {
    let part = |path: Option<&Path>| {
        let name = path.and_then(Path::file_name).unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    // `.` and `..` have no name of their own.
    let resolved = match path.file_name() {
        None => std::fs::canonicalize(path).unwrap_or_default(),
        Some(_) => path.to_path_buf(),
    };
    let (own, above) = (part(Some(&resolved)), resolved.parent());
    let over = || part(above.and_then(Path::parent));
    let name = match part(above).as_str() {
        FOLDER if !over().is_empty() => format!("{}-{own}", over()),
        "snapshots" => match over().strip_prefix("models--") {
            Some(repo) => repo.rsplit("--").next().unwrap_or(repo).to_string(),
            None => own,
        },
        _ if path.is_dir() => own,
        _ => match (
            PartName::of(&resolved),
            own.len().checked_sub(".gguf".len()),
        ) {
            (Some(part), _) => part.stem().to_string(),
            (None, Some(at))
                if own.is_char_boundary(at) && own[at..].eq_ignore_ascii_case(".gguf") =>
            {
                own[..at].to_string()
            }
            _ => own,
        },
    };
    match name.is_empty() {
        true => "model".into(),
        false => name,
    }
}

/// Adapters that may stand on each other: DPO on SFT on a file is two.
pub const MAX_ADAPTERS: usize = 8;

/// What may be named where a model is wanted.
const FORMS: &str = "name a checkpoint folder such as runs/…/checkpoints/step-001000, a Hugging Face model folder, a .gguf file, or a hub id (org/name), for a GGUF file with which one (org/name:Q4_K_M)";

impl SourceError {
    /// What to do about it.
    pub fn hint(&self) -> &str {
        match self {
            SourceError::Absent(_) => FORMS,
            SourceError::NoModel { fix, .. } => fix,
            SourceError::Folder(HfError::Io { .. }) => FORMS,
            SourceError::Folder(_) => {
                "docs/models.md lists the supported families and the files they need"
            }
            SourceError::File(_) => {
                "download the file again (of a model in several parts, all of them), or use the model's Hugging Face folder; docs/models.md lists what is supported"
            }
        }
    }
}

/// What lies at a path, by its name and its first bytes.
///
/// # Errors
/// Nothing, or something else than a model.
pub fn kind(path: &Path) -> Result<Kind, SourceError> {
    let no_model = |what: String, fix: &str| SourceError::NoModel {
        path: path.into(),
        what: one_line(&what),
        fix: fix.into(),
    };
    if path.is_dir() {
        if path.join(hf::CONFIG).is_file() || path.join(hf::ADAPTER_CONFIG).is_file() {
            return Ok(Kind::Folder);
        }
        if let Some((what, fix)) = of_a_run(path, path) {
            return Err(no_model(what.into(), &fix));
        }
        let what = format!(
            "holds no {}; {}",
            hf::CONFIG,
            hf::why_no_weights(&names(path))
        );
        return Err(no_model(what, FORMS));
    }
    if !path.exists() {
        return Err(SourceError::Absent(path.into()));
    }
    if is_gguf(path) {
        return Ok(Kind::Gguf);
    }
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() => return Err(no_model("is not a plain file".into(), FORMS)),
        Ok(meta) if meta.len() == 0 => {
            return Err(no_model(
                "is empty".into(),
                "download or write the file again",
            ));
        }
        _ => {}
    }
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    match &*ending.to_lowercase() {
        "gguf" => {
            let what = "is not a GGUF file despite its name: it does not start with GGUF";
            Err(no_model(what.into(), "download the file again"))
        }
        "bin" | "pt" | "pth" | "ckpt" => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let what = format!("is not a model: {}", hf::why_no_weights(&[name.into()]));
            Err(no_model(what, FORMS))
        }
        "safetensors" => {
            let what = format!("has weights but no {}", hf::CONFIG);
            Err(no_model(what, "name the folder that contains the file"))
        }
        _ => {
            let what = "is neither a model folder nor a GGUF file".to_string();
            Err(no_model(what, FORMS))
        }
    }
}

/// Where the tokenizer of a model lies, by names alone: beside it, or beside what an adapter alone stands on.
pub fn tokenizer_place(model: &Path) -> PathBuf {
    let mut at = model.to_path_buf();
    for _ in 0..MAX_ADAPTERS {
        let elsewhere = is_adapter_alone(&at) && !tokenizer::has_tokenizer(&at);
        match under(&at).filter(|_| elsewhere) {
            Some(base) => at = base,
            None => break,
        }
    }
    at
}

/// Whether a model lies there that writes texts: no reward model, and one that this build can run.
pub fn writes(path: &Path) -> bool {
    ModelSource::open(path).is_ok_and(|source| !source.config().is_reward_model())
}

/// What is wrong with a run's folder, or its folder of checkpoints, in a model's place, and what to write instead: one of
/// its checkpoints. `said` is the folder as the user wrote it.
pub fn of_a_run(said: &Path, full: &Path) -> Option<(&'static str, String)> {
    let newest = |folder: &Path| {
        let steps = names(folder).into_iter().filter_map(|name| step_in(&name));
        steps.max().map(name_of_step)
    };
    let (what, newest) = match full.join("run.json").is_file() {
        true => {
            let folder = Path::new(FOLDER);
            let newest = newest(&full.join(folder)).map(|name| folder.join(name));
            ("is a run, not a model", newest)
        }
        false => {
            let newest = newest(full)?;
            ("holds checkpoints of a run", Some(newest.into()))
        }
    };
    let fix = match newest {
        Some(newest) => format!("its newest checkpoint: {}", said.join(newest).display()),
        None => "a checkpoint of it, once there is one".into(),
    };
    Some((what, fix))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    // An error that names one of them names the same each time: of several parts of a model, the first.
    names.sort();
    names
}

impl ModelSource {
    /// Reads the description of the model at a path.
    ///
    /// # Errors
    /// There is no model, or none that this build can run: see [`SourceError::hint`].
    pub fn open(path: &Path) -> Result<ModelSource, SourceError> {
        ModelSource::open_below(path, 0)
    }

    /// `above`: adapters that stand on it.
    fn open_below(path: &Path, above: usize) -> Result<ModelSource, SourceError> {
        Ok(match kind(path)? {
            Kind::Folder if folder::is_adapter_alone(path) => {
                if above == MAX_ADAPTERS {
                    let why =
                        format!("it has more than {MAX_ADAPTERS} adapters below it, or a cycle");
                    return Err(folder::no_base(path, &why));
                }
                let base = ModelSource::open_below(&folder::base_of(path)?, above + 1)?;
                ModelSource::Folder(Box::new(Folder::over(path, base)))
            }
            Kind::Folder => ModelSource::Folder(Box::new(Folder::open(path)?)),
            Kind::Gguf => ModelSource::Gguf(Box::new(GgufModel::open(path)?)),
        })
    }

    /// The same for a model that is to be loaded: its weights lie there too. Reads none of them.
    ///
    /// # Errors
    /// As [`ModelSource::open`]; the folder has a description alone.
    pub fn open_whole(path: &Path) -> Result<ModelSource, SourceError> {
        let source = ModelSource::open(path)?;
        match source.missing_weights() {
            Some((path, why)) => Err(SourceError::NoModel {
                path: path.into(),
                what: format!("has a model config but no weights; {}", one_line(&why)),
                fix: "put the weights next to it, or name another model: a checkpoint folder such as runs/…/checkpoints/step-001000, a .gguf file, or a hub id (org/name), which is downloaded whole".into(),
            }),
            None => Ok(source),
        }
    }

    /// The folder that lacks its weights or some of them, and why it has none.
    fn missing_weights(&self) -> Option<(&Path, String)> {
        let ModelSource::Folder(folder) = self else {
            return None;
        };
        if let Some(base) = folder.base() {
            return base.missing_weights();
        }
        let path = folder.path();
        if path.join(hf::WEIGHTS).is_file() {
            return None;
        }
        let index = path.join(hf::INDEX);
        if !index.is_file() {
            return Some((path, hf::why_no_weights(&names(path))));
        }
        // An index that cannot be read is the loader's to tell.
        let shards = hf::shards_of(&index).unwrap_or_default();
        let absent = shards.iter().find(|shard| !path.join(shard).is_file())?;
        let why = format!("{} names {absent}, which is missing", hf::INDEX);
        Some((path, why))
    }

    pub fn path(&self) -> &Path {
        match self {
            ModelSource::Folder(folder) => folder.path(),
            ModelSource::Gguf(file) => file.path(),
        }
    }

    /// What an adapter alone stands on; none of a model with weights of its own.
    pub fn base(&self) -> Option<&ModelSource> {
        match self {
            ModelSource::Folder(folder) => folder.base(),
            ModelSource::Gguf(_) => None,
        }
    }

    /// Where its tokenizer lies: an adapter alone may leave it to its base.
    pub fn tokenizer_path(&self) -> &Path {
        match self {
            ModelSource::Folder(folder) => match folder.base() {
                Some(base) if !tokenizer::has_tokenizer(folder.path()) => base.tokenizer_path(),
                _ => folder.path(),
            },
            ModelSource::Gguf(file) => file.path(),
        }
    }

    /// Where the tokenizer lies of this model with adapters on it, `vocab_size` rows in all: its own place, unless an adapter was
    /// trained on more tokens and brings its tokenizer.
    pub fn tokenizer_of<'a>(&'a self, vocab_size: usize, adapters: &'a [PathBuf]) -> &'a Path {
        let has_grown = Some(vocab_size) > self.config().vocab_size;
        let mut brought = adapters.iter().filter(|at| tokenizer::has_tokenizer(at));
        match brought.next().filter(|_| has_grown) {
            Some(folder) => folder,
            None => self.tokenizer_path(),
        }
    }

    /// Its name by its place: see [`name_of`].
    pub fn name(&self) -> String {
        name_of(self.path())
    }

    /// `model_type` of its config.json, or the architecture in the file.
    pub fn family(&self) -> &str {
        match self {
            ModelSource::Folder(folder) => folder.family(),
            ModelSource::Gguf(file) => file.architecture(),
        }
    }

    /// The model class of transformers that its files are for, or that computes the same; `None` if none does.
    pub fn class(&self) -> Option<&'static str> {
        match self {
            ModelSource::Folder(folder) => folder.class(),
            ModelSource::Gguf(file) => {
                let config = file.config();
                hf::family_of(config).map(|family| family.class_of(config))
            }
        }
    }

    /// With the vocabulary size filled in.
    pub fn config(&self) -> &ModelConfig {
        match self {
            ModelSource::Folder(folder) => folder.config(),
            ModelSource::Gguf(file) => file.config(),
        }
    }

    pub fn n_params(&self) -> u64 {
        let infos = param_infos(self.config(), 0);
        infos.iter().map(|info| info.len as u64).sum()
    }

    /// Begin, end and padding.
    pub fn token_ids(&self) -> TokenIds {
        match self {
            ModelSource::Folder(folder) => folder.token_ids(),
            ModelSource::Gguf(file) => {
                let special = file.special_tokens();
                TokenIds {
                    bos: special.bos,
                    eos: special.ends,
                    pad: special.pad,
                }
            }
        }
    }

    /// The tokens that `generate` of transformers would begin and end with: those that end an answer are a list of
    /// generation_config.json, or of config.json where that one is silent.
    pub fn generation_ids(&self) -> TokenIds {
        let ids = self.token_ids();
        let ends = self.generation().map(|settings| hf::ends_of(&settings));
        match ends.filter(|ends| !ends.is_empty()) {
            Some(eos) => TokenIds { eos, ..ids },
            None => ids,
        }
    }

    /// Tokens that end an answer.
    pub fn ends(&self) -> Vec<u32> {
        match self {
            ModelSource::Folder(folder) => folder.ends(),
            ModelSource::Gguf(file) => file.answer_ends(),
        }
    }

    /// The settings of its generation_config.json, if it has one.
    pub fn generation(&self) -> Option<Map<String, Value>> {
        match self {
            ModelSource::Folder(folder) => folder.generation(),
            ModelSource::Gguf(_) => None,
        }
    }

    /// Whether there is a tokenizer beside it or in it.
    pub fn has_tokenizer(&self) -> bool {
        match self {
            ModelSource::Folder(folder) => folder.has_tokenizer(),
            // llama.cpp's names for having none.
            ModelSource::Gguf(file) => {
                let kind = file.metadata().str("tokenizer.ggml.model");
                kind.is_some_and(|kind| !matches!(kind, "no_vocab" | "none"))
            }
        }
    }

    pub fn has_chat_template(&self) -> bool {
        match self {
            ModelSource::Folder(folder) => folder.has_chat_template(),
            ModelSource::Gguf(file) => file.metadata().str("tokenizer.chat_template").is_some(),
        }
    }

    /// The number formats of its weights, most bytes first, where they stay as the file has them.
    pub fn formats(&self) -> Option<Vec<&'static str>> {
        match self {
            ModelSource::Folder(folder) => folder.base().and_then(ModelSource::formats),
            ModelSource::Gguf(file) => {
                Some(file.formats().into_iter().map(|(name, _)| name).collect())
            }
        }
    }

    /// Whether weights are stored in blocks with a scale, from which floats only come back by dequantizing.
    pub fn is_quantized(&self) -> bool {
        matches!(self, ModelSource::Gguf(file) if file.is_quantized())
    }

    /// Bytes of weights that stay in a file's formats; `None` where they are f32 in any case.
    pub fn packed_bytes(&self) -> Option<u64> {
        match self {
            ModelSource::Folder(_) => None,
            ModelSource::Gguf(file) => file.is_packed().then(|| file.weight_bytes()),
        }
    }

    /// The model in f32, which can be trained; an adapter beside a folder's weights is merged.
    ///
    /// # Errors
    /// The weights do not fit the description, hold a non-finite value, or do not fit into memory.
    pub fn load(&self) -> Result<Model, SourceError> {
        Ok(match self {
            ModelSource::Folder(folder) => match folder.load_under()? {
                Some(mut model) => {
                    hf::merge_adapter(folder.path(), &mut model)?;
                    model
                }
                None => hf::load(folder.path())?,
            },
            ModelSource::Gguf(file) => file.dequantized()?,
        })
    }

    /// The folder of the adapter that comes with it.
    pub fn adapter(&self) -> Option<&Path> {
        match self {
            ModelSource::Folder(folder) => {
                let path = folder.path();
                path.join(hf::ADAPTER_CONFIG).is_file().then_some(path)
            }
            ModelSource::Gguf(_) => None,
        }
    }

    /// Every adapter that stands in it, the lowest first, and what the lowest stands on.
    pub fn chain(&self) -> (&ModelSource, Vec<PathBuf>) {
        let (mut at, mut adapters) = (self, Vec::new());
        loop {
            adapters.extend(at.adapter().map(Path::to_path_buf));
            let below = match at {
                ModelSource::Folder(folder) => folder.base(),
                ModelSource::Gguf(_) => None,
            };
            match below {
                Some(below) => at = below,
                None => break,
            }
        }
        adapters.reverse();
        (at, adapters)
    }

    /// The model for inference as it stands under one more adapter: one of its own is merged, for two do not stand beside
    /// the weights at once.
    fn under_adapter(&self) -> Result<Model, SourceError> {
        match self.adapter() {
            Some(_) => self.load(),
            None => self.load_for_inference(),
        }
    }

    /// The model for inference without that adapter.
    ///
    /// # Errors
    /// As [`ModelSource::load_for_inference`].
    pub fn base_for_inference(&self) -> Result<Model, SourceError> {
        if self.config().is_reward_model() {
            return self.load_for_inference();
        }
        match self {
            ModelSource::Folder(folder) => match folder.base() {
                Some(base) => base.under_adapter(),
                None => self.load_base(),
            },
            ModelSource::Gguf(_) => self.load_for_inference(),
        }
    }

    /// The model in f32 without the adapter that may lie beside its weights.
    ///
    /// # Errors
    /// As [`ModelSource::load`].
    pub fn load_base(&self) -> Result<Model, SourceError> {
        match self {
            ModelSource::Folder(folder) => match folder.base() {
                Some(base) => base.load(),
                None => Ok(hf::load_base(folder.path())?),
            },
            ModelSource::Gguf(_) => self.load(),
        }
    }

    /// The model for inference alone: a file's weights stay in its formats, and an adapter without weights of its own stands
    /// beside them.
    ///
    /// # Errors
    /// As [`ModelSource::load`].
    pub fn load_for_inference(&self) -> Result<Model, SourceError> {
        if self.config().is_reward_model() {
            return Err(SourceError::NoModel {
                path: self.path().into(),
                what: "is a reward model: it scores completions and cannot generate".into(),
                fix: "llmtui score MODEL FILE scores completions with it; as a reward: rewards=[{model: {path: MODEL}}]".into(),
            });
        }
        match self {
            ModelSource::Folder(folder) => match folder.base() {
                Some(base) => {
                    let mut model = base.under_adapter()?;
                    hf::Peft::find(folder.path())
                        .and_then(|peft| Ok(peft.attach_for_inference(&mut model).map(drop)?))
                        .map_err(|e| folder::no_base(folder.path(), &e.to_string()))?;
                    Ok(model)
                }
                None => self.load(),
            },
            ModelSource::Gguf(file) => Ok(file.quantized()?),
        }
    }

    /// Fills the weights of a model of the same config, in f32; an adapter beside a folder's weights is merged. A reward
    /// model takes all but its head from a model that writes, and keeps the head that it has.
    ///
    /// # Errors
    /// As [`ModelSource::load`]; the model's parameters are others.
    pub fn fill(&self, model: &mut Model) -> Result<(), SourceError> {
        if model.config().is_reward_model() && !self.config().is_reward_model() {
            let own = self.load()?;
            return model
                .copy_trunk(&own)
                .map_err(|e| SourceError::Folder(e.into()));
        }
        let config = model.config().clone();
        match self {
            ModelSource::Folder(folder) => {
                match folder.base() {
                    // The adapter was trained on more tokens than what it stands on has.
                    Some(base) if base.config().vocab_size < self.config().vocab_size => {
                        base.fill_grown(model)?;
                    }
                    Some(base) => base.fill(model)?,
                    None => hf::read_weights(folder.path(), model)?,
                }
                hf::merge_adapter(folder.path(), model)?;
            }
            ModelSource::Gguf(file) => file.fill(model)?,
        }
        // Weights alone: an adapter brings the positions of its training.
        model.set_positions(&config);
        Ok(())
    }

    /// The same for a model whose vocabulary may be larger than this one: further rows of embeddings and head begin as
    /// [`Model::begin_rows`] says.
    ///
    /// # Errors
    /// As [`ModelSource::fill`].
    pub fn fill_grown(&self, model: &mut Model) -> Result<(), SourceError> {
        let (rows, all) = (
            self.config().vocab_size.unwrap_or_default(),
            model.shape().vocab_size,
        );
        if rows >= all {
            return self.fill(model);
        }
        if model.config().is_reward_model() && !self.config().is_reward_model() {
            let mut own = self.load()?;
            let grown = own.grow_vocabulary(all);
            return grown
                .and_then(|()| model.copy_trunk(&own))
                .map_err(|e| SourceError::Folder(e.into()));
        }
        let config = model.config().clone();
        let infos = model.base_of_vocabulary(rows);
        match self {
            ModelSource::Folder(folder) => {
                match folder.base() {
                    Some(base) => base.fill_grown(model)?,
                    None => hf::read_weights_of(folder.path(), model, &infos)?,
                }
                hf::merge_adapter_of(folder.path(), model, &infos)?;
            }
            ModelSource::Gguf(file) => file.fill_parts(model, &infos)?,
        }
        model.set_positions(&config);
        model
            .begin_rows(rows)
            .map_err(|e| SourceError::Folder(e.into()))
    }
}

#[cfg(test)]
mod tests;
