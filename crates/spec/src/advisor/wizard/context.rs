//! What the wizard knows before its first question, what it asks its caller to inspect, and where Enter leads.

use crate::advisor::inspection::{self, ConfigFacts, DataFacts, Letters, Machine, ModelFacts};
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

/// A checkpoint that may be offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub path: String,
    /// It has a chat template: it may be an instruct model.
    pub chats: bool,
    pub letters: Letters,
}

/// Checkpoints that are looked at until one writes any text.
const LOOKED_AT: usize = 16;

/// Those among which one is for any data: the newest of each vocabulary.
fn offers(checkpoints: impl IntoIterator<Item = String>) -> Vec<Offer> {
    let mut offers: Vec<Offer> = Vec::new();
    let models = checkpoints
        .into_iter()
        .filter(|path| crate::models::writes(Path::new(path)));
    for path in models.take(LOOKED_AT) {
        let Some(letters) = Letters::of(Path::new(&path)) else {
            continue;
        };
        let last = letters == Letters::Any;
        if offers.iter().all(|offer| offer.letters != letters) {
            offers.push(Offer {
                chats: crate::models::has_chat_template(Path::new(&path)),
                letters,
                path,
            });
        }
        if last {
            break;
        }
    }
    offers
}

/// What the wizard knows before the first question.
#[derive(Debug, Clone)]
pub struct Context {
    pub presets: Vec<PresetInfo>,
    pub machine: Machine,
    /// The best checkpoints of runs of which one is offered as the model to start from, the newest run's first.
    pub offers: Vec<Offer>,
    /// What stands for data that are not known yet.
    pub sample: String,
    /// Where the runs are whose names may stand for models; `None`: no names are looked up.
    pub runs_dir: Option<PathBuf>,
    /// Where downloaded models are.
    pub hub_cache: Option<PathBuf>,
    /// What `~` means at the beginning of a path.
    pub home: Option<PathBuf>,
}

impl Context {
    /// Answers with a checkpoint offered as the model to start from, where none was named.
    pub(super) fn offered(&self, mut answers: super::Answers) -> super::Answers {
        if answers.start_path.is_empty() {
            answers.start_path = self.offer_for(&self.sample);
        }
        answers
    }

    /// The newest checkpoint whose vocabulary has these letters; empty where none has.
    pub(super) fn offer_for(&self, letters: &str) -> String {
        let offer = self
            .offers
            .iter()
            .find(|offer| offer.letters.write(letters));
        offer.map_or_else(String::new, |offer| offer.path.clone())
    }

    /// The checkpoint at a path, where it is one that is offered.
    pub(super) fn offer(&self, path: &str) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.path == path)
    }

    /// Reads the presets. Presets that fail to load are left out: the list of presets reports
    /// them. `checkpoints` are the best of each run, the newest run first; reward models among them, and models whose
    /// tokenizer cannot be read, are no base models.
    pub fn gather(
        sources: &SpecSources,
        checkpoints: impl IntoIterator<Item = String>,
        machine: Machine,
    ) -> Context {
        Context::gather_for(inspection::PLAIN, sources, checkpoints, machine)
    }

    /// The same, with a piece of the data of the last time: as long as no others are known, a base model can write it.
    pub fn gather_for(
        sample: &str,
        sources: &SpecSources,
        checkpoints: impl IntoIterator<Item = String>,
        machine: Machine,
    ) -> Context {
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
        Context {
            presets,
            machine,
            offers: offers(checkpoints),
            sample: sample.into(),
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
