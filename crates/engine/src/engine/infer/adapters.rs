//! Several adapters on one base, one active at a time: inactive factors stay in their files, the base is loaded once, in any
//! format.

use crate::base::text::one_line;
use crate::hf::{ADAPTER_CONFIG, AdapterError, HfError, Peft, positions_in};
use crate::kernels::errors::error_text;
use crate::models::ModelSource;
use crate::nn::{Model, ParamInfo, Table};
use crate::run::checkpoints::FOLDER;
use std::path::{Path, PathBuf};

/// The adapters that a model can be asked with.
#[derive(Debug, Default)]
pub struct Adapters {
    held: Vec<(String, Peft)>,
    /// Tables of the base whose places the adapter that answers has taken (modules_to_save).
    aside: Vec<(ParamInfo, Table)>,
}

/// One base has one set of positions at a time.
fn other_positions(folder: &Path) -> HfError {
    HfError::Config {
        path: folder.join(ADAPTER_CONFIG),
        what: "it was trained at other RoPE scaling than the adapter before it: ask one of them, or merge each with llmtui merge".into(),
    }
}

impl Adapters {
    /// Those of these folders. The first is put beside the model, which has none.
    ///
    /// # Errors
    /// One is not there, belongs to another model, or can only be merged.
    pub fn open(folders: &[PathBuf], model: &mut Model) -> Result<Adapters, AdapterError> {
        let mut adapters = Adapters::default();
        for folder in folders {
            let peft = Peft::find(folder)?;
            if peft.scores() && !model.config().is_reward_model() {
                return Err(AdapterError::Scores(folder.clone()));
            }
            if !adapters.held.is_empty() && positions_in(folder, model.config()).is_some() {
                return Err(other_positions(folder).into());
            }
            peft.make_room(model)?;
            peft.check_detachable(model)?;
            peft.check_values()?;
            let name = adapters.name_for(folder);
            adapters.held.push((name, peft));
        }
        if let Some((_, first)) = adapters.held.first() {
            adapters.aside = first.attach_for_inference(model)?;
        }
        Ok(adapters)
    }

    /// A model for inference with its own adapter, if it has one, and these.
    ///
    /// # Errors
    /// As [`Adapters::open`]; what the source says.
    pub fn over<E: From<AdapterError> + From<crate::models::SourceError>>(
        source: &ModelSource,
        folders: &[PathBuf],
    ) -> Result<(Model, Adapters), E> {
        let mut all = folders.to_vec();
        all.extend(source.adapter().map(Path::to_path_buf));
        if all.is_empty() {
            return Ok((source.load_for_inference()?, Adapters::default()));
        }
        let mut model = source.base_for_inference()?;
        match Adapters::open(&all, &mut model) {
            Ok(adapters) => Ok((model, adapters)),
            // One that can only be merged answers as part of the weights.
            Err(_) if folders.is_empty() => {
                drop(model);
                Ok((source.load_for_inference()?, Adapters::default()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What to know of the first `named`: that they were trained on other weights than the model's. Those that say nothing
    /// of their base are taken at their word.
    ///
    /// # Errors
    /// Weights that cannot be read.
    pub fn of_other_bases(&self, model: &Model, named: usize) -> Result<Vec<String>, AdapterError> {
        let named = self.held.iter().take(named);
        let told: Vec<_> = named
            .filter_map(|(name, peft)| Some((name, peft, peft.base_fingerprint()?)))
            .collect();
        if told.is_empty() {
            return Ok(Vec::new());
        }
        let ours = model.base_fingerprint().map_err(HfError::from)?;
        let others = told.into_iter().filter(|(.., theirs)| *theirs != ours);
        let words = others.map(|(name, peft, _)| {
            let base = peft.base().map(|base| format!(": {}", one_line(base)));
            format!(
                "warning: {name} is an adapter of another base{}; its answers here will differ",
                base.unwrap_or_default()
            )
        });
        Ok(words.collect())
    }

    pub fn names(&self) -> Vec<String> {
        self.held.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Takes the model's adapter away, and puts the one of this name beside it.
    ///
    /// # Errors
    /// A sentence: the name is unknown, or memory is short.
    pub fn switch(&mut self, model: &mut Model, name: Option<&str>) -> Result<(), String> {
        let wanted = match name {
            None => None,
            Some(name) => {
                let found = self.held.iter().find(|(own, _)| own == name);
                let known = || match self.held.is_empty() {
                    true => "this model has none".to_string(),
                    false => format!("it has {}", self.names().join(", ")),
                };
                Some(found.ok_or_else(|| format!("unknown adapter `{name}`; {}", known()))?)
            }
        };
        model.remove_adapters().map_err(error_text)?;
        for (info, table) in self.aside.drain(..) {
            let replaced = model.replace_table(&info, table);
            replaced.map_err(error_text)?;
        }
        if let Some((_, peft)) = wanted {
            self.aside = peft
                .attach_for_inference(model)
                .map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// The folder's name, or its run's; another one's is counted.
    fn name_for(&self, folder: &Path) -> String {
        let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.into());
        let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
        let parent = whole.parent();
        let run = parent
            .filter(|p| p.ends_with(FOLDER))
            .and_then(Path::parent);
        let plain = run
            .and_then(name)
            .or_else(|| name(&whole))
            .unwrap_or_else(|| ADAPTER_CONFIG.into());
        let plain = crate::base::text::one_line(&plain);
        let taken = |name: &str| self.held.iter().any(|(own, _)| own == name);
        let mut counted = plain.clone();
        for n in 2.. {
            if !taken(&counted) {
                break;
            }
            counted = format!("{plain}-{n}");
        }
        counted
    }
}
