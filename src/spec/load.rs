//! From a name and a few words to a [`RunSpec`]: open, lay the layers upon each other, judge, fill in.

use super::issue::{Issue, Origin, Origins, SpecErrors};
use super::layer::{self, Setting};
use super::merge::Merged;
use super::presets::{self, Source, SpecSources};
use super::{RunConfig, RunSpec, base, validate, yaml};
use serde_json::Value;

/// A spec ready to run, and how it came about.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub spec: RunSpec,
    /// Where each said value came from.
    pub origins: Origins,
    /// What was said, defaults left out: a spec file of its own, for `asked.yaml`.
    pub asked: String,
}

/// Loads a preset or a file, lays `overrides` (`key=value`) on top and validates. Every issue is reported at once.
pub fn load(
    target: &str,
    overrides: &[String],
    sources: &SpecSources,
) -> Result<Loaded, SpecErrors> {
    let files = presets::open(target, sources).map_err(SpecErrors::one)?;
    finish(files, target, overrides, sources)
}

/// [`load`] for a text that stands in no file yet; relative paths start from the project's folder.
pub fn load_text(label: &str, text: &str, sources: &SpecSources) -> Result<Loaded, SpecErrors> {
    let files = presets::open_text(label, text, sources).map_err(SpecErrors::one)?;
    finish(files, label, &[], sources)
}

/// The models of the hub that a spec names, as it says them: they have to be in the cache before it is loaded. What is
/// wrong with the spec is not this function's matter.
pub fn hub_models(target: &str, overrides: &[String], sources: &SpecSources) -> Vec<String> {
    let mut issues = Vec::new();
    let Ok(files) = presets::open(target, sources) else {
        return Vec::new();
    };
    let mut merged = merge_files(files, &mut issues);
    merged.lay(layer::from_words(overrides, &mut issues), &mut issues);
    base::wanted(&merged.value, sources)
}

/// Lays files upon each other, lowest first.
pub(super) fn merge_files(files: Vec<Source>, issues: &mut Vec<Issue>) -> Merged {
    let mut merged = Merged::default();
    for mut file in files {
        let mut value = std::mem::take(&mut file.value);
        if let Some(map) = value.as_object_mut() {
            map.shift_remove("extends");
        }
        let mut layer = layer::from_file(&file.label, &file.text, value, issues);
        if !layer.settings.iter().any(|s| s.path == ["name"]) {
            layer.settings.push(name_from(&file.stem, &file.label));
        }
        merged.lay(layer, issues);
    }
    merged
}

fn finish(
    files: Vec<Source>,
    target: &str,
    overrides: &[String],
    sources: &SpecSources,
) -> Result<Loaded, SpecErrors> {
    let mut issues = Vec::new();
    let mut merged = merge_files(files, &mut issues);
    merged.lay(layer::from_words(overrides, &mut issues), &mut issues);
    let heading = format!(
        "# What was asked for: {target}{}\n",
        overrides
            .iter()
            .map(|w| format!(" -s {}", crate::base::text::one_line(w)))
            .collect::<String>()
    );
    let asked = heading + &yaml::write(&merged.value);
    base::lay(&mut merged, sources, &mut issues);
    let config = typed(&merged.value, &mut issues);
    if let Some(config) = &config {
        // Rules between values are checked even when single values are wrong, as far as a config can be made.
        validate::rules(config, &merged.origins, &mut issues);
        validate::files(config, &sources.project_dir, &merged.origins, &mut issues);
    }
    SpecErrors::check(issues)?;
    let config = config.ok_or_else(|| SpecErrors::one(unexpected("the spec could not be read")))?;
    let spec = RunSpec::resolve(validate::absolute(config, &sources.project_dir));
    Ok(Loaded {
        spec,
        origins: merged.origins,
        asked,
    })
}

/// Reads a complete `spec.yaml` back. Files it names are not looked for: a finished run may be shown without its data.
pub(super) fn reread(text: &str) -> Result<RunSpec, SpecErrors> {
    let name = "spec.yaml";
    let value = yaml::parse(text).map_err(|e| SpecErrors::one(unexpected(&e.to_string())))?;
    let mut issues = Vec::new();
    let mut merged = Merged::default();
    let layer = layer::from_file(name, text, value, &mut issues);
    merged.lay(layer, &mut issues);
    let config = typed(&merged.value, &mut issues);
    if let Some(config) = &config {
        validate::rules(config, &merged.origins, &mut issues);
    }
    SpecErrors::check(issues)?;
    let config = config.ok_or_else(|| SpecErrors::one(unexpected("the spec could not be read")))?;
    Ok(RunSpec::resolve(config))
}

fn name_from(stem: &str, label: &str) -> Setting {
    let name: String = stem
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '-'
            }
        })
        .take(64)
        .collect();
    Setting {
        path: vec!["name".into()],
        value: Value::String(name),
        origin: Origin::File {
            name: label.to_string(),
            line: None,
        },
        said: "name".into(),
    }
}

/// The typed config. The checks before leave nothing for this to find; what it finds all the same is an issue.
pub(super) fn typed(value: &Value, issues: &mut Vec<Issue>) -> Option<RunConfig> {
    match serde_path_to_error::deserialize::<_, RunConfig>(value) {
        Ok(config) => Some(config),
        Err(error) => {
            issues.push(Issue {
                origin: Origin::Default,
                path: error.path().to_string(),
                what: error.inner().to_string(),
                hint: String::new(),
            });
            None
        }
    }
}

fn unexpected(what: &str) -> Issue {
    Issue {
        origin: Origin::File {
            name: "spec.yaml".into(),
            line: None,
        },
        path: String::new(),
        what: what.to_string(),
        hint: String::new(),
    }
}
