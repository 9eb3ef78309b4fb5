//! The start model in a draft: which values it decides, whatever the preset says.

use super::at;
use crate::spec::base::{FREE, base_folder, base_model};
use crate::spec::issue::Origin;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The model of `train.from` as it was when it was named.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StartModel {
    said: String,
    /// `{"model": …}`; `None` where it is not on this disk: the run reads it then.
    words: Option<Value>,
}

/// Where a draft's paths begin, and where models of the hub are.
#[derive(Debug, Clone, Default)]
pub(super) struct Folders {
    pub project_dir: PathBuf,
    pub home: Option<PathBuf>,
    pub hub_cache: Option<PathBuf>,
}

impl StartModel {
    /// The one that is named; `known` if it is that one.
    pub fn of(said: &Value, known: Option<StartModel>, folders: &Folders) -> Option<StartModel> {
        let said = said.as_str().filter(|said| !said.is_empty())?;
        if let Some(known) = known.filter(|known| known.said == said) {
            return Some(known);
        }
        let full = crate::base::paths::expand_home(
            Path::new(said),
            Path::new(""),
            folders.home.as_deref(),
        );
        let full = full.ok()?;
        let place = base_folder(
            &full.to_string_lossy(),
            &folders.project_dir,
            folders.hub_cache.as_deref(),
        );
        let words = place.and_then(|place| base_model(&place).ok());
        Some(StartModel {
            said: said.into(),
            words: words.map(|base| json!({"model": base.words})),
        })
    }

    /// Its value at a path that it decides: of what the program and its presets set, as they are for new models. A user's own
    /// value is held against it when the run starts. Null of a model that is not here.
    pub fn decides(&self, path: &str, origin: &Origin) -> Option<Value> {
        let given = *origin == Origin::Default || origin.is_shipped();
        let its = path.starts_with("model.") && !FREE.contains(&path);
        if !given || !its {
            return None;
        }
        Some(
            self.words
                .as_ref()
                .map_or(Value::Null, |words| at(words, path)),
        )
    }

    /// For the origin of its values.
    pub fn origin(&self) -> Origin {
        Origin::Model(self.said.clone())
    }
}
