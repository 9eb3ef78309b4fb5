//! Pipelines by name: embedded ones, the user's, the project's; or a file.

use super::{Parsed, Pipeline, PipelineError, Work};
use crate::base::files::read_small_text;
use crate::base::paths::{expand_home, is_yaml};
use crate::embed;
use crate::spec::{SpecSources, yaml};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Largest file that is read, bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Most entries of a folder that are looked at, and most files that are read.
const MAX_ENTRIES: usize = 5_000;
const MAX_READ: usize = 100;

/// The pipeline that `word` names, if it names one: a file with `stages:`, or a pipeline's name. Another file or name is none.
///
/// # Errors
/// It is one, and something in it is wrong.
pub fn find(word: &str, sources: &SpecSources) -> Result<Option<Pipeline>, PipelineError> {
    let parsed = read(word, sources)?;
    parsed.map(Parsed::whole).transpose()
}

/// The same as far as it can be read.
///
/// # Errors
/// Nothing of it can be looked at.
pub fn read(word: &str, sources: &SpecSources) -> Result<Option<Parsed>, PipelineError> {
    let Some((label, text)) = text_of(word, sources) else {
        return Ok(None);
    };
    let stem = Path::new(&label).file_stem().unwrap_or_default();
    let mut parsed = Parsed::of(&label, &stem.to_string_lossy(), &text)?;
    match expand(&mut parsed.pipeline, &label, sources) {
        Err(error) if parsed.faults.is_empty() => Err(error),
        _ => Ok(Some(parsed)),
    }
}

/// `~` at the beginning of the paths that a pipeline says itself. Those of its specs are expanded with their specs.
fn expand(
    pipeline: &mut Pipeline,
    label: &str,
    sources: &SpecSources,
) -> Result<(), PipelineError> {
    let whole = |said: &Path| expand_home(said, &sources.project_dir, sources.home.as_deref());
    for (at, stage) in pipeline.stages.iter_mut().enumerate() {
        let expanded = match &mut stage.work {
            Work::Tokenizer(config) => config
                .files
                .iter_mut()
                .try_for_each(|file| whole(file).map(|full| *file = full)),
            Work::Eval(config) => {
                let mut files = config.tasks.iter_mut().filter(|task| is_yaml(task));
                files.try_for_each(|task| {
                    whole(Path::new(task)).map(|full| *task = full.to_string_lossy().into_owned())
                })
            }
            Work::Train(_) | Work::Export(_) | Work::Report(_) => Ok(()),
        };
        expanded.map_err(|(what, hint)| {
            let place = format!("{label}: stage {} ({})", at + 1, stage.name);
            PipelineError::invalid(place, what, hint)
        })?;
    }
    Ok(())
}

/// Label and text of the pipeline that `word` names.
pub fn text_of(word: &str, sources: &SpecSources) -> Option<(String, String)> {
    let is_path = word.contains('/') || word.ends_with(".yaml") || word.ends_with(".yml");
    if is_path {
        // A `~` that cannot be expanded is reported where the word is read as a spec.
        let home = sources.home.as_deref();
        let path = expand_home(Path::new(word), &sources.project_dir, home).ok()?;
        let text = read_small_text(&sources.project_dir.join(path), MAX_BYTES).ok()?;
        return Pipeline::is_one(&text).then(|| (word.to_string(), text));
    }
    for folder in folders(sources) {
        let path = folder.join(format!("{word}.yaml"));
        if let Ok(text) = read_small_text(&path, MAX_BYTES) {
            return Some((path.display().to_string(), text));
        }
    }
    let label = format!("pipelines/{word}.yaml");
    embed::text(&label).map(|text| (label, text.to_string()))
}

/// Every pipeline with a name, and where it stands.
pub fn names(sources: &SpecSources) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for label in embed::list("pipelines") {
        if let Some(name) = stem(Path::new(label)) {
            found.insert(name, label.to_string());
        }
    }
    for folder in folders(sources).into_iter().rev() {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            if let Some(name) = stem(&path) {
                found.insert(name, path.display().to_string());
            }
        }
    }
    found
}

/// The files of a folder that have pipelines in them, by name. A list of stages without names is another program's.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.take(MAX_ENTRIES).map(|entry| entry.path());
    let is_named = |path: &PathBuf| path.to_str().is_some_and(is_yaml);
    let mut found: Vec<PathBuf> = paths.filter(is_named).collect();
    found.sort();
    found.truncate(MAX_READ);
    found.retain(|path| read_small_text(path, MAX_BYTES).is_ok_and(|text| has_stages(&text)));
    found
}

fn has_stages(text: &str) -> bool {
    let value = yaml::parse(text).unwrap_or_default();
    let are_named = |list: &Vec<Value>| {
        !list.is_empty() && list.iter().all(|stage| stage.get("name").is_some())
    };
    let mut values = value.as_object().into_iter().flatten();
    let listed = values.any(|(_, value)| value.as_array().is_some_and(are_named));
    listed && Pipeline::is_one(text)
}

/// The project's before the user's.
fn folders(sources: &SpecSources) -> Vec<PathBuf> {
    let user = sources.config_dir.iter().map(|dir| dir.join("pipelines"));
    std::iter::once(sources.project_dir.join("pipelines"))
        .chain(user)
        .collect()
}

fn stem(path: &Path) -> Option<String> {
    let is_yaml = path.extension().is_some_and(|ending| ending == "yaml");
    let name = path.file_stem()?.to_str()?;
    is_yaml.then(|| name.to_string())
}
