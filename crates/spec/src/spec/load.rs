//! From a name and overrides to a [`RunSpec`]: open, merge the layers, validate, fill in defaults.

use super::base::PendingModel;
use super::issue::{Issue, Origin, Origins, SpecErrors};
use super::layer::{self, Setting};
use super::merge::{Merged, judge};
use super::presets::{self, Source, SpecSources};
use super::schema::{self, Kind, Node};
use super::{
    PresetGroup, RunConfig, RunSpec, aside, base, config_paths, home, implied, relative_paths,
    validate, yaml,
};
use crate::base::near::{did_you_mean, nearest};
use crate::base::text::one_line;
use crate::models;
use crate::rewards::FIX;
use serde_json::Value;
use std::borrow::Cow;
use std::path::Path;

/// A validated spec with its origins.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub spec: RunSpec,
    /// The origin of each value that was set.
    pub origins: Origins,
    /// The values that were set, without defaults: a spec file of its own, for `asked.yaml`.
    pub asked: String,
    /// What files say of members that they do not choose, a line each.
    pub set_aside: Vec<String>,
}

impl Loaded {
    /// Values that changed because a higher layer changed another one, each with its reason; what was not read, and what to know of
    /// the start model.
    pub fn notes(&self) -> Vec<String> {
        let value = self.spec.to_value();
        let implied = self.origins.iter().filter_map(|(path, origin)| {
            let Origin::Implied(how) = origin else {
                return None;
            };
            let value = value.pointer(&format!("/{}", path.replace('.', "/")))?;
            let key = path.rsplit('.').next().unwrap_or(path);
            let value = match value {
                Value::Null => "none".into(),
                value => value.to_string(),
            };
            Some(format!("{key} {value}: {how}"))
        });
        let others = [self.other_context(), self.unfilled()];
        let start = self.spec.train.from.as_deref().map(models::notes);
        let start = start.into_iter().flatten();
        let start = start.map(|note| format!("train.from: {note}"));
        let all = implied.chain(others.into_iter().flatten());
        all.chain(self.set_aside.iter().cloned())
            .chain(start)
            .collect()
    }

    /// A template is for a model and data of the user's: what it trains without them.
    fn unfilled(&self) -> Option<String> {
        let spec = &self.spec;
        if spec.group != PresetGroup::Template {
            return None;
        }
        let made_up = matches!(self.origins.get("data.sources"), Origin::File { .. })
            && matches!(self.origins.get("data.path"), Origin::Default);
        if spec.train.from.is_some() {
            return made_up.then(|| {
                format!(
                    "{} is a template: without data it trains the start model on synthetic rows; -s data.path=FILE trains it on yours",
                    spec.name
                )
            });
        }
        let rows = match made_up {
            true => {
                " on synthetic rows; -s train.from=MODEL -s data.path=FILE trains yours on your data"
            }
            false => "; -s train.from=MODEL trains yours",
        };
        Some(format!(
            "{} is a template: without a start model it trains a new small model{rows}",
            spec.name
        ))
    }

    /// Checkpoints and exports of a run with shorter rows than its start model say that length, where positions depend on it; and
    /// what longer ones come to where positions need no scaling.
    fn other_context(&self) -> Option<String> {
        let base = base::base_model(self.spec.train.from.as_deref()?).ok()?;
        let (ours, theirs) = (self.spec.model.seq_len, base.seq_len());
        let kept = self.spec.model.context_len >= Some(theirs);
        let shorter = (ours < theirs && !kept).then(|| {
            format!("model.seq_len {ours} becomes the context of the trained model; the start model's is {theirs}")
        });
        shorter.or_else(|| base.extrapolated(ours))
    }
}

/// Loads a preset or a file, applies `overrides` (`key=value`) and validates. All issues are reported at once.
///
/// # Errors
/// All issues of the files and overrides, each with its origin and a fix.
pub fn load(
    target: &str,
    overrides: &[String],
    sources: &SpecSources,
) -> Result<Loaded, SpecErrors> {
    load_on(target, overrides, None, sources)
}

/// The same, to start from a model that is still to be trained, if one is given.
///
/// # Errors
/// As [`load`].
pub fn load_on(
    target: &str,
    overrides: &[String],
    start: Option<PendingModel<'_>>,
    sources: &SpecSources,
) -> Result<Loaded, SpecErrors> {
    let files = presets::open(target, sources).map_err(SpecErrors::one)?;
    finish(files, target, &[overrides], start, sources)
}

/// [`load`] with two layers of overrides: what `above` says replaces what `overrides` say, as these replace a file.
///
/// # Errors
/// As [`load`].
pub fn load_over(
    target: &str,
    overrides: &[String],
    above: &[String],
    sources: &SpecSources,
) -> Result<Loaded, SpecErrors> {
    let files = presets::open(target, sources).map_err(SpecErrors::one)?;
    finish(files, target, &[overrides, above], None, sources)
}

/// [`load`] for a text that is not in a file yet; relative paths start from the working directory.
///
/// # Errors
/// As [`load`].
pub fn load_text(label: &str, text: &str, sources: &SpecSources) -> Result<Loaded, SpecErrors> {
    load_text_with(label, text, &[], sources)
}

/// The same with overrides (`key=value`).
///
/// # Errors
/// As [`load`].
pub fn load_text_with(
    label: &str,
    text: &str,
    overrides: &[String],
    sources: &SpecSources,
) -> Result<Loaded, SpecErrors> {
    load_text_on(label, text, overrides, None, sources)
}

/// The same, to start from a model that is still to be trained, if one is given.
///
/// # Errors
/// As [`load`].
pub fn load_text_on(
    label: &str,
    text: &str,
    overrides: &[String],
    start: Option<PendingModel<'_>>,
    sources: &SpecSources,
) -> Result<Loaded, SpecErrors> {
    let files = presets::open_text(label, text, sources).map_err(SpecErrors::one)?;
    finish(files, label, &[overrides], start, sources)
}

/// Hub models that a spec refers to, as written: they must be in the cache before it is loaded. Other problems of the
/// spec are ignored here.
pub fn hub_models(target: &str, overrides: &[String], sources: &SpecSources) -> Vec<String> {
    let mut issues = Vec::new();
    let Ok(files) = presets::open(target, sources) else {
        return Vec::new();
    };
    let mut merged = merge_files(files, &sources.project_dir, &mut issues);
    merged.apply_layer(layer::from_words(overrides, &mut issues), &mut issues);
    base::required_downloads(&merged.value, sources)
}

/// The model that a spec starts from, as its files and overrides say; other problems of the spec are ignored here.
pub fn start_of(target: &str, overrides: &[String], sources: &SpecSources) -> Option<String> {
    let mut issues = Vec::new();
    let files = presets::open(target, sources).ok()?;
    let mut merged = merge_files(files, &sources.project_dir, &mut issues);
    merged.apply_layer(layer::from_words(overrides, &mut issues), &mut issues);
    let said = merged.value.pointer("/train/from")?.as_str()?;
    Some(said.to_string())
}

/// Merges files, lowest first. `here` is the working directory, where paths start anyway.
pub(super) fn merge_files(files: Vec<Source>, here: &Path, issues: &mut Vec<Issue>) -> Merged {
    let mut merged = Merged::default();
    for mut file in files {
        let mut value = std::mem::take(&mut file.value);
        if let Some(map) = value.as_object_mut() {
            map.shift_remove("extends");
        }
        let mut layer = layer::from_file(&file.label, &file.text, value, issues);
        let elsewhere = !file.folder.as_os_str().is_empty() && file.folder != here;
        if elsewhere {
            relative_paths::anchor(&mut layer.settings, &file.folder);
        }
        if !layer.settings.iter().any(|s| s.path == ["name"]) {
            layer.settings.push(name_from(&file.stem, &file.label));
        }
        let gone = aside::set_aside(&mut layer).into_iter();
        let gone = gone.chain(std::mem::take(&mut layer.notes));
        merged
            .set_aside
            .extend(gone.map(|line| format!("{}: {line}", one_line(&file.label))));
        merged.apply_layer(layer, issues);
    }
    merged
}

fn finish(
    files: Vec<Source>,
    target: &str,
    overrides: &[&[String]],
    start: Option<PendingModel<'_>>,
    sources: &SpecSources,
) -> Result<Loaded, SpecErrors> {
    let mut issues = Vec::new();
    let mut merged = merge_files(files, &sources.project_dir, &mut issues);
    for words in overrides {
        merged.apply_layer(layer::from_words(words, &mut issues), &mut issues);
    }
    let heading = format!(
        "# Requested: {target}{}\n",
        overrides
            .iter()
            .flat_map(|words| words.iter())
            .map(|w| format!(" -s {}", crate::base::text::one_line(w)))
            .collect::<String>()
    );
    let mut asked = merged.value.clone();
    // It is read again from a run's folder.
    relative_paths::anchor_all(&mut asked, &sources.project_dir);
    let asked = heading + &yaml::write(&asked);
    implied::settle(&mut merged);
    match start {
        Some(start) => base::apply_pending(&mut merged, start, &mut issues),
        None => base::apply(&mut merged, sources, &mut issues),
    }
    let config = readable(&merged.value, &merged.origins, &mut issues);
    let config = config.map(|config| home::expand(config, &merged, sources, &mut issues));
    if let Some(config) = &config {
        // Rules between values are checked even if single values are invalid, as far as a config can be built.
        validate::rules(config, &merged.origins, &mut issues);
        validate::files(config, sources, &merged.origins, &mut issues);
    }
    SpecErrors::check(issues)?;
    let config = config.ok_or_else(|| SpecErrors::one(unexpected("the spec could not be read")))?;
    let spec = RunSpec::resolve(config_paths::absolute(config, &sources.project_dir));
    Ok(Loaded {
        spec,
        origins: merged.origins,
        asked,
        set_aside: merged.set_aside,
    })
}

/// Reads a complete `spec.yaml` back. Referenced files are not checked: a finished run can be shown without its data.
pub(super) fn reread(text: &str) -> Result<RunSpec, SpecErrors> {
    let name = "spec.yaml";
    let value = yaml::parse(text).map_err(|e| SpecErrors::one(unexpected(&e.to_string())))?;
    let mut issues = Vec::new();
    let mut merged = Merged::default();
    let layer = layer::from_file(name, text, value, &mut issues);
    merged.apply_layer(layer, &mut issues);
    let config = typed(&merged.value, &merged.origins, &mut issues);
    if let Some(config) = &config {
        validate::rules(config, &merged.origins, &mut issues);
    }
    SpecErrors::check(issues)?;
    let config = config.ok_or_else(|| SpecErrors::one(unexpected("the spec could not be read")))?;
    Ok(RunSpec::resolve(config))
}

/// The settings of a written spec, each in its place, and none that it does not say.
pub(super) fn as_written(text: &str) -> Result<Value, SpecErrors> {
    let value = yaml::parse(text).map_err(|e| SpecErrors::one(unexpected(&e.to_string())))?;
    let (mut issues, mut merged) = (Vec::new(), Merged::default());
    let layer = layer::from_file("spec.yaml", text, value, &mut issues);
    merged.apply_layer(layer, &mut issues);
    SpecErrors::check(issues)?;
    Ok(merged.value)
}

/// A word in the characters and the length of a spec's name.
pub(super) fn plain_name(word: &str) -> String {
    let own = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let plain = word.chars().map(|c| if own(c) { c } else { '-' });
    plain.take(64).collect()
}

fn name_from(stem: &str, label: &str) -> Setting {
    Setting {
        path: vec!["name".into()],
        value: Value::String(plain_name(stem)),
        origin: Origin::File {
            name: label.to_string(),
            line: None,
        },
        said: "name".into(),
    }
}

/// The typed config. The earlier checks should leave nothing to find here but items of lists, which their own types read; anything
/// found is an issue.
pub(super) fn typed(
    value: &Value,
    origins: &Origins,
    issues: &mut Vec<Issue>,
) -> Option<RunConfig> {
    let before = issues.len();
    readable(value, origins, issues).filter(|_| issues.len() == before)
}

/// The same without the rewards that cannot be read, each an issue: the rules for the other values hold without them. A faulty item
/// of another list leaves no config, and its neighbours are read.
fn readable(value: &Value, origins: &Origins, issues: &mut Vec<Issue>) -> Option<RunConfig> {
    const REWARDS: &str = "rewards";
    let mut value = Cow::Borrowed(value);
    // Faulty items by list and place, in the order in which they were taken out.
    let mut gone: Vec<(String, usize)> = Vec::new();
    loop {
        let error = match crate::base::json::read::<RunConfig>(&value) {
            Ok(config) => {
                let rewards_alone = gone.iter().all(|(list, _)| list == REWARDS);
                return rewards_alone.then_some(config);
            }
            Err(error) => error,
        };
        let path = error.path().to_string();
        let (what, hint) = misfit(&value, &path, &error.inner().to_string());
        let item = item_of(&path);
        // The place that it has in the spec.
        let path = match &item {
            Some((list, at, rest)) => {
                let mut at = *at;
                let taken = gone.iter().filter(|(other, _)| other == list);
                let mut taken: Vec<usize> = taken.map(|(_, place)| *place).collect();
                taken.sort_unstable();
                at += taken
                    .iter()
                    .fold(0, |n, place| n + usize::from(*place <= at + n));
                gone.push((list.clone(), at));
                format!("{list}[{at}]{rest}")
            }
            None => path.clone(),
        };
        issues.push(Issue {
            origin: origins.nearest(&path),
            path,
            what,
            hint,
        });
        let (list, at, _) = item?;
        let pointer = format!("/{}", list.replace('.', "/"));
        let items = value.to_mut().pointer_mut(&pointer)?.as_array_mut()?;
        if at >= items.len() {
            return None;
        }
        items.remove(at);
    }
}

/// `data.sources[2].weight`: the list, the place in it, and what follows.
fn item_of(path: &str) -> Option<(String, usize, &str)> {
    let (list, rest) = path.split_once('[')?;
    let (at, rest) = rest.split_once(']')?;
    Some((list.to_string(), at.parse().ok()?, rest))
}

/// What is wrong with a value in a list of sections, which only its type reads: in the words for any other setting, and what
/// belongs there.
fn misfit(value: &Value, path: &str, error: &str) -> (String, String) {
    let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
    let node = schema::root().within(path);
    if let (Some(node), Some(value)) = (node, value.pointer(&pointer)) {
        // Sections with a reader of their own say what they read.
        let is_section = matches!(node.kind, Kind::Object(_)) && !error.contains("expected struct");
        if let (false, Err(wrong)) = (is_section, judge(node, value.clone())) {
            return wrong;
        }
    }
    // Readers of their own name the fix behind the fault.
    if let Some((what, fix)) = error.split_once(FIX) {
        return (one_line(what), one_line(fix));
    }
    let around = path.rsplit_once('.').map_or("", |(around, _)| around);
    let section = node.or_else(|| schema::root().within(around));
    let named = |before: &str| Some(error.strip_prefix(before)?.split('`').next()?.to_string());
    let fields = section.map_or(&[][..], Node::children).iter();
    let fields: Vec<&str> = fields.map(|(name, _)| name.as_str()).collect();
    let example = match section.map_or_else(String::new, Node::example) {
        none if none.is_empty() => none,
        example => format!("write {example}"),
    };
    match (named("missing field `"), named("unknown field `")) {
        (Some(key), _) => (format!("{key} is missing"), example),
        (_, Some(key)) => {
            let hint = nearest(&key, fields).map_or(example, did_you_mean);
            (format!("unknown key {}", one_line(&key)), hint)
        }
        _ => (one_line(error), example),
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
