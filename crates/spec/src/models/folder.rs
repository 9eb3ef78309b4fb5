//! A Hugging Face folder as a model source, and the facts about one that this build cannot run.

use super::{ModelSource, SourceError};
use crate::base::files::{is_absent, read_plain, read_small};
use crate::base::text::one_line;
use crate::data::tokenizer::{self, Marks};
use crate::hf::{self, HfError, TokenIds};
use crate::llama_cpp::{GgufModel, is_gguf};
use crate::nn::{HeadKind, Model, ModelConfig};
use serde_json::{Map, Value};
use std::io;
use std::path::{Path, PathBuf};

/// Larger files of these names are something else.
const MAX_JSON: u64 = 1 << 20;

/// A folder whose config.json has been read.
pub struct Folder {
    path: PathBuf,
    family: String,
    config: ModelConfig,
    ids: TokenIds,
    /// The model under an adapter that is all that the folder holds.
    base: Option<Box<ModelSource>>,
}

/// Whether a folder holds an adapter and no weights to put it on.
pub fn is_adapter_alone(path: &Path) -> bool {
    let has = |name: &str| path.join(name).is_file();
    has(hf::ADAPTER_CONFIG) && !has(hf::WEIGHTS) && !has(hf::INDEX)
}

/// The model that an adapter says it belongs to: as it is written, or from the adapter's folder.
pub(super) fn base_of(path: &Path) -> Result<PathBuf, SourceError> {
    let config = json(&path.join(hf::ADAPTER_CONFIG)).unwrap_or_default();
    let Some(said) = config["base_model_name_or_path"].as_str() else {
        return Err(no_base(path, "does not say whose"));
    };
    let places = [PathBuf::from(said), path.join(said)];
    let found = places.into_iter().find(|place| place.exists());
    found.ok_or_else(|| no_base(path, &format!("its base {} was not found", one_line(said))))
}

/// What the adapter in a folder was trained on, where that is on this machine.
pub fn under(adapter: &Path) -> Option<PathBuf> {
    base_of(adapter).ok()
}

/// The same, as far as it can be known.
///
/// # Errors
/// The adapter's file is there and cannot be read, or its base cannot be looked up.
pub fn find_under(adapter: &Path) -> io::Result<Option<PathBuf>> {
    let config = match read_small(&adapter.join(hf::ADAPTER_CONFIG), MAX_JSON) {
        Ok(bytes) => serde_json::from_slice::<Value>(&bytes)?,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(said) = config["base_model_name_or_path"].as_str() else {
        return Ok(None);
    };
    for place in [PathBuf::from(said), adapter.join(said)] {
        match place.metadata() {
            Ok(_) => return Ok(Some(place)),
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// What to know of a model that its files do not tell plainly: a key that another program would read, a part that is left out; of an adapter alone also of what
/// it stands on.
pub fn notes(model: &Path) -> Vec<String> {
    let (mut at, mut notes) = (Some(model.to_path_buf()), Vec::new());
    for _ in 0..=super::MAX_ADAPTERS {
        let Some(place) = at else { break };
        notes.extend(hf::ignored_in(&place));
        if is_gguf(&place) {
            let file = GgufModel::open(&place).ok();
            notes.extend(file.and_then(|file| file.left_out()));
        }
        at = is_adapter_alone(&place).then(|| under(&place)).flatten();
    }
    notes
}

pub(super) fn no_base(path: &Path, why: &str) -> SourceError {
    SourceError::NoModel {
        path: path.into(),
        what: format!("has an adapter but no model: {}", one_line(why)),
        fix: "llmtui merge --base MODEL --adapter DIR --to DIR merges the two; llmtui chat MODEL --adapter DIR chats with them".into(),
    }
}

impl Folder {
    /// # Errors
    /// This build cannot run the model that its config.json describes.
    pub(super) fn open(path: &Path) -> Result<Folder, HfError> {
        Ok(Folder {
            path: path.into(),
            family: family(path),
            config: hf::read_config(path)?,
            ids: hf::token_ids(path)?,
            base: None,
        })
    }

    /// An adapter alone, over the model that it belongs to.
    pub(super) fn over(path: &Path, base: ModelSource) -> Folder {
        let own = hf::positions_in(path, base.config());
        let mut config = own.unwrap_or_else(|| base.config().clone());
        // It may have been trained on more tokens than the base has. What is wrong with it is reported as it is loaded.
        let peft = hf::Peft::find(path).ok();
        let tables = peft.as_ref().and_then(|p| p.vocab_size(config.d_model));
        config.vocab_size = config.vocab_size.max(tables);
        // A reward model's stands on a model that writes, whose head it replaces.
        if peft.is_some_and(|peft| peft.scores()) {
            config.head = HeadKind::Score;
        }
        Folder {
            path: path.into(),
            family: base.family().into(),
            config,
            ids: base.token_ids(),
            base: Some(Box::new(base)),
        }
    }

    /// The model under the adapter, where an adapter is all that the folder holds.
    pub fn base(&self) -> Option<&ModelSource> {
        self.base.as_deref()
    }

    /// The model under the adapter, where an adapter is all that the folder holds, in f32 and with this one's kind of head.
    ///
    /// # Errors
    /// As [`ModelSource::load`].
    pub(super) fn load_under(&self) -> Result<Option<Model>, SourceError> {
        let Some(base) = &self.base else {
            return Ok(None);
        };
        let model = base.load()?;
        let scores = self.config.is_reward_model() && !base.config().is_reward_model();
        Ok(Some(match scores {
            true => model.scoring().map_err(HfError::from)?,
            false => model,
        }))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn family(&self) -> &str {
        &self.family
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The model class of transformers that its files are for; `None` in llmtui's own format.
    pub fn class(&self) -> Option<&'static str> {
        match &self.base {
            Some(base) if base.config().head == self.config.head => base.class(),
            Some(_) => hf::family_of(&self.config).map(|family| family.class_of(&self.config)),
            None => hf::class_in(&self.path).ok().flatten(),
        }
    }

    pub fn token_ids(&self) -> TokenIds {
        self.ids.clone()
    }

    /// By generation_config.json and config.json; a file that is absent or silent is no fault.
    pub fn ends(&self) -> Vec<u32> {
        let ends = hf::generation_ends(&self.path).into_iter();
        let below = self.base.as_ref().map(|base| base.ends());
        let below = below.unwrap_or_default();
        ends.chain(self.ids.eos.iter().copied())
            .chain(below)
            .collect()
    }

    /// What `generate` starts from: an adapter alone may leave it to its base.
    pub fn generation(&self) -> Option<Map<String, Value>> {
        let below = || self.base.as_ref().and_then(|base| base.generation());
        hf::read_generation(&self.path).or_else(below)
    }

    pub fn has_tokenizer(&self) -> bool {
        let below = self.base.as_ref().is_some_and(|base| base.has_tokenizer());
        tokenizer::has_tokenizer(&self.path) || below
    }

    pub fn has_chat_template(&self) -> bool {
        let below = self
            .base
            .as_ref()
            .is_some_and(|base| base.has_chat_template());
        has_chat_template(&self.path) || below
    }
}

/// Whether a model folder brings a chat template.
pub fn has_chat_template(folder: &Path) -> bool {
    Marks::of_folder(folder).is_ok_and(|marks| marks.chat_template.is_some())
}

fn family(folder: &Path) -> String {
    let config = json(&folder.join(hf::CONFIG)).unwrap_or_default();
    one_line(config["model_type"].as_str().unwrap_or("unknown"))
}

fn json(path: &Path) -> Option<Value> {
    let length = std::fs::metadata(path).ok()?.len();
    let text = (length <= MAX_JSON).then(|| read_plain(path).ok())??;
    serde_json::from_slice(&text).ok()
}

/// What a folder says of a model whose config this build does not understand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// `model_type` of its config.json.
    pub family: String,
    /// By the size of its weights.
    pub n_params: Option<u64>,
    pub has_chat_template: bool,
}

/// Reads it; `None` if a path is no folder of a model, or its config.json cannot be read.
pub fn outline(path: &Path) -> Option<Outline> {
    let config = json(&path.join(hf::CONFIG))?;
    let dtype = config["torch_dtype"].as_str().or(config["dtype"].as_str());
    let bytes_each = match dtype {
        Some("bfloat16" | "float16") => 2,
        _ => 4,
    };
    Some(Outline {
        family: family(path),
        n_params: weight_bytes(path).map(|bytes| bytes / bytes_each),
        has_chat_template: has_chat_template(path),
    })
}

/// Bytes of a folder's weights, in one file or in shards; `None` if there are none.
fn weight_bytes(folder: &Path) -> Option<u64> {
    let is_weights = |name: &str| name.starts_with("model") && name.ends_with(".safetensors");
    let files = std::fs::read_dir(folder).ok()?.flatten();
    let weights = files.filter(|file| is_weights(&file.file_name().to_string_lossy()));
    let bytes: u64 = weights
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum();
    (bytes > 0).then_some(bytes)
}
