//! What the wizard knows before its first question, what it asks its caller to inspect, and where Enter leads.

use crate::advisor::inspection::{self, ConfigFacts, DataFacts, Machine, ModelFacts};
use crate::advisor::reading::Sample;
use crate::base::paths::expand_home;
use crate::spec::{Draft, PresetGroup, SpecSources};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A preset that a spec may extend.
#[derive(Debug, Clone)]
pub struct PresetInfo {
    pub name: String,
    pub about: String,
    pub group: PresetGroup,
    pub draft: Draft,
}

/// What the wizard knows before the first question.
#[derive(Debug, Clone)]
pub struct Context {
    pub presets: Vec<PresetInfo>,
    pub machine: Machine,
    /// The best checkpoint of the newest run that has one, offered as the base model.
    pub newest_checkpoint: Option<String>,
    /// It has a chat template: it may be an instruct model.
    pub newest_chats: bool,
    /// Where the runs are whose names may stand for models; `None`: no names are looked up.
    pub runs_dir: Option<PathBuf>,
    /// Where downloaded models are.
    pub hub_cache: Option<PathBuf>,
    /// What `~` means at the beginning of a path.
    pub home: Option<PathBuf>,
}

impl Context {
    /// Answers with the newest checkpoint offered as the model to start from, where none was named.
    pub(super) fn offered(&self, mut answers: super::Answers) -> super::Answers {
        if answers.start_path.is_empty() {
            answers.start_path = self.newest_checkpoint.clone().unwrap_or_default();
        }
        answers
    }

    /// Reads the presets. Presets that fail to load are left out: the list of presets reports
    /// them. `checkpoints` are the best of each run, the newest run first; reward models among them, and models whose
    /// vocabulary cannot write plain text, are no base models.
    pub fn gather(
        sources: &SpecSources,
        checkpoints: impl IntoIterator<Item = String>,
        machine: Machine,
    ) -> Context {
        Context::gather_for(inspection::PLAIN, sources, checkpoints, machine)
    }

    /// The same for data of which this is a piece: a base model can write it.
    pub fn gather_for(
        sample: &str,
        sources: &SpecSources,
        checkpoints: impl IntoIterator<Item = String>,
        machine: Machine,
    ) -> Context {
        let mut checkpoints = checkpoints.into_iter();
        let newest_checkpoint = checkpoints.find(|folder| {
            let folder = Path::new(folder);
            crate::models::writes(folder) && inspection::can_write(folder, sample)
        });
        let presets = crate::spec::presets(sources)
            .into_iter()
            .filter_map(|preset| {
                let draft = Draft::open(&preset.name, sources).ok()?;
                Some(PresetInfo {
                    name: preset.name,
                    about: crate::base::text::one_line(&preset.about),
                    group: preset.group,
                    draft,
                })
            })
            .collect();
        let chats =
            |folder: &String| crate::models::has_chat_template(std::path::Path::new(folder));
        Context {
            presets,
            machine,
            newest_chats: newest_checkpoint.as_ref().is_some_and(chats),
            newest_checkpoint,
            runs_dir: None,
            hub_cache: sources.hub_cache.clone(),
            home: sources.home.clone(),
        }
    }
}

/// A path the caller should inspect before the wizard continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InspectRequest {
    Data(PathBuf),
    /// With a sample of the data that it is to learn from.
    Model {
        path: PathBuf,
        sample: Arc<Sample>,
    },
    /// Another tool's config.
    Config {
        path: PathBuf,
        /// The method that it is for, where the user says one.
        method: Option<String>,
        hub_cache: Option<PathBuf>,
    },
}

/// What was found there.
#[derive(Debug, Clone, PartialEq)]
pub enum Inspection {
    Data(PathBuf, Result<DataFacts, String>),
    Model(PathBuf, Result<ModelFacts, String>),
    Config(PathBuf, Result<ConfigFacts, String>),
    /// What was typed as a model is a run, or an id of the hub: its checkpoint or its place in the cache, or why there is none.
    Run(PathBuf, Result<PathBuf, String>),
}

impl Inspection {
    /// What was found, in a line; nothing where the next question shows it.
    pub fn summary(&self) -> Option<String> {
        match self {
            Inspection::Data(_, Ok(facts)) if facts.note.is_empty() => Some(facts.summary()),
            Inspection::Data(_, Ok(facts)) => Some(format!("{}; {}", facts.summary(), facts.note)),
            Inspection::Model(_, Ok(facts)) => Some(facts.summary()),
            _ => None,
        }
    }
}

impl InspectRequest {
    /// Inspects it. Reads files. What was typed is kept: a saved spec has its `~`, and means another home elsewhere.
    pub fn now(self, home: Option<&Path>) -> Inspection {
        let full = |said: &Path| {
            let full = expand_home(said, Path::new(""), home);
            full.map_err(|(what, fix)| format!("{what}; {fix}"))
        };
        match self {
            InspectRequest::Data(path) => {
                let facts = full(&path).and_then(|path| inspection::data(&path));
                Inspection::Data(path, facts)
            }
            InspectRequest::Model { path, sample } => {
                let facts = full(&path).and_then(|path| inspection::model(&path, &sample));
                Inspection::Model(path, facts)
            }
            InspectRequest::Config {
                path,
                method,
                hub_cache,
            } => {
                let (method, cache) = (method.as_deref(), hub_cache.as_deref());
                let facts =
                    full(&path).and_then(|path| inspection::config(&path, method, cache, home));
                Inspection::Config(path, facts)
            }
        }
    }
}

/// The result of Enter.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The question stays; its error says why.
    Stay,
    Moved,
    /// Its result goes to [`Wizard::on_inspected`](super::Wizard::on_inspected).
    Look(InspectRequest),
    /// Run the checks of this spec, and report them with [`Wizard::checked`](super::Wizard::checked) and [`Wizard::checks_over`](super::Wizard::checks_over).
    Check {
        name: String,
        yaml: String,
    },
    /// Train this now; `force`: even though a check failed.
    Start {
        name: String,
        yaml: String,
        force: bool,
    },
    Save {
        path: PathBuf,
        yaml: String,
    },
    /// Open all values in the editor.
    Edit,
    /// Back from the first question.
    Close,
}
