//! `stages:` as written: what each stage does, and what it starts from.

use super::{Fault, Parsed, PipelineError};
use crate::base::json;
use crate::base::near::{did_you_mean, nearest};
use crate::base::text::one_line;
use crate::spec::{key_is_known, set_over, yaml};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Several stages in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    /// Names its folder and its runs.
    pub name: String,
    /// One sentence on what it makes.
    pub about: String,
    pub stages: Vec<Stage>,
}

/// One stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// Letters, digits, dashes; unique.
    pub name: String,
    pub work: Work,
}

/// What a stage does.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    Tokenizer(TrainTokenizer),
    Train(Train),
    Eval(Evaluate),
    Export(Export),
    Report(Report),
}

pub use train::{StageModel, Train};

mod train {
    use super::{Map, Value};

    /// A run.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Train {
        /// A preset's name, a file, or a spec written in place.
        pub spec: Value,
        /// Values as `-s` says them.
        pub set: Map<String, Value>,
        pub from: StageModel,
    }

    /// The model that a stage starts from.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum StageModel {
        /// What the spec says: fresh weights, or its own `train.from`.
        Spec,
        /// The best checkpoint of an earlier stage, by name.
        Stage(String),
    }
}

/// A tokenizer for the stages that follow: `llmtui tokenizer train`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainTokenizer {
    /// Texts, files with rows, or folders of them.
    pub files: Vec<PathBuf>,
    #[serde(default = "bpe")]
    pub kind: String,
    #[serde(default)]
    pub vocab_size: Option<u32>,
    /// A chat template whose markers become special tokens.
    #[serde(default)]
    pub chat_markers: Option<String>,
}

fn bpe() -> String {
    "bpe".into()
}

/// Tasks for the models of earlier stages: `llmtui eval`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Evaluate {
    /// Empty: those that `llmtui eval` asks where nobody says.
    pub tasks: Vec<String>,
    pub limit: Option<u64>,
    /// Names of stages. Empty: every training stage before this one.
    pub models: Vec<String>,
}

/// A model as others read it: `llmtui export`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Export {
    /// `hf`, `gguf`, …; empty: the default of `llmtui export`.
    pub format: String,
    pub dtype: Option<String>,
    /// The stage whose model it is; the last training stage where nobody says.
    pub model: Option<String>,
}

/// All stages as one document: `llmtui report`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Report {
    /// `html` or `md`.
    pub format: Option<String>,
}

/// A stage as YAML has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    train: Option<Value>,
    tokenizer: Option<Value>,
    eval: Option<Value>,
    export: Option<Value>,
    report: Option<Value>,
    #[serde(default)]
    set: Map<String, Value>,
    from: Option<String>,
}

/// `from: scratch`: fresh weights.
const SCRATCH: &str = "scratch";
const KINDS: &str = "train, tokenizer, eval, export or report";
pub(super) const STAGES: &str = "stages";
/// The keys of a stage.
const OF_STAGE: [&str; 8] = [
    "name",
    "train",
    "tokenizer",
    "eval",
    "export",
    "report",
    "set",
    "from",
];

impl Pipeline {
    /// Reads a pipeline; `label` names the text in errors, `stem` the pipeline where the text does not.
    ///
    /// # Errors
    /// Everything that is wrong, with its line and its stage.
    pub fn parse(label: &str, stem: &str, text: &str) -> Result<Pipeline, PipelineError> {
        Parsed::of(label, stem, text)?.whole()
    }

    /// Whether a text is a pipeline rather than a spec; a misspelt `stages:` is the pipeline's to report.
    pub fn is_one(text: &str) -> bool {
        let has_stages = |(key, value): (&String, &Value)| {
            let is_stage = |item: &Value| item.get("name").is_some();
            let are_stages = || {
                value
                    .as_array()
                    .is_some_and(|list| list.iter().all(is_stage))
            };
            key == STAGES || (nearest(key, [STAGES]).is_some() && are_stages())
        };
        let value = yaml::parse(text).unwrap_or_default();
        value
            .as_object()
            .is_some_and(|map| map.iter().any(has_stages))
    }

    /// The same as YAML, with every changed value in its place.
    pub fn to_yaml(&self) -> String {
        let stages: Vec<Value> = self.stages.iter().map(Stage::to_value).collect();
        yaml::write(&json!({"name": self.name, "about": self.about, "stages": stages}))
    }

    /// The stage called `name`.
    pub fn stage(&self, name: &str) -> Option<(usize, &Stage)> {
        self.stages
            .iter()
            .enumerate()
            .find(|(_, stage)| stage.name == name)
    }

    /// Changes one value of a stage, as `-s STAGE.KEY=VALUE` says: of a stage that trains a value of its spec, of another one a value
    /// under its word. Returns the stage.
    ///
    /// # Errors
    /// The word names no stage, or a value that the stage cannot have.
    pub fn set(&mut self, word: &str) -> Result<String, PipelineError> {
        let bad =
            |what: String, hint: &str| PipelineError::invalid(format!("-s {word}"), what, hint);
        let usage = "-s STAGE.KEY=VALUE, for example -s base.max_steps=100";
        let (path, value) = word
            .split_once('=')
            .ok_or_else(|| bad("there is no `=`".into(), usage))?;
        let names: Vec<&str> = self.stages.iter().map(|s| s.name.as_str()).collect();
        let names = names.join(", ");
        let (stage, key) = path
            .split_once('.')
            .ok_or_else(|| bad(format!("which stage? There are {names}"), usage))?;
        let (stage, key) = (stage.trim(), key.trim());
        let value = yaml::parse_value(value).map_err(|e| bad(e.to_string(), usage))?;
        let at = self.stages.iter().position(|s| s.name == stage);
        let at = at.ok_or_else(|| {
            bad(
                format!("{stage:?} is not a stage; there are {names}"),
                usage,
            )
        })?;
        if let Work::Train(train) = &mut self.stages[at].work {
            // What the file says is a lower layer: the new word replaces it under every name, and what contradicts it.
            set_over(&mut train.set, key, value);
            return Ok(stage.into());
        }
        let (before, rest) = self.stages.split_at_mut(at);
        let mut written = rest[0].to_value();
        written[rest[0].work.word()][key] = value;
        let before: Vec<Before> = before.iter().map(Before::of).collect();
        match one(&written, &before) {
            (Some(changed), wrong) if wrong.is_empty() => rest[0] = changed,
            (_, wrong) => {
                let wrong = wrong.into_iter();
                let faults =
                    wrong.map(|wrong| Fault::new(format!("-s {word}"), wrong.what, wrong.hint));
                return Err(PipelineError::Invalid(faults.collect()));
            }
        }
        Ok(stage.into())
    }

    /// The stages that train, in order.
    pub fn trained(&self) -> impl Iterator<Item = &Stage> {
        self.stages
            .iter()
            .filter(|stage| matches!(stage.work, Work::Train(_)))
    }
}

impl Stage {
    fn to_value(&self) -> Value {
        let mut map = Map::from_iter([("name".to_string(), json!(self.name))]);
        let word = self.work.word().to_string();
        match &self.work {
            Work::Train(train) => {
                map.insert(word, train.spec.clone());
                if !train.set.is_empty() {
                    map.insert("set".into(), json!(train.set));
                }
                let from = match &train.from {
                    StageModel::Spec => SCRATCH,
                    StageModel::Stage(name) => name,
                };
                map.insert("from".into(), json!(from));
            }
            Work::Tokenizer(config) => drop(map.insert(word, json!(config))),
            Work::Eval(config) => drop(map.insert(word, json!(config))),
            Work::Export(config) => drop(map.insert(word, json!(config))),
            Work::Report(config) => drop(map.insert(word, json!(config))),
        }
        Value::Object(map)
    }
}

impl Work {
    /// Its word in the file.
    pub fn word(&self) -> &'static str {
        match self {
            Work::Tokenizer(_) => "tokenizer",
            Work::Train(_) => "train",
            Work::Eval(_) => "eval",
            Work::Export(_) => "export",
            Work::Report(_) => "report",
        }
    }
}

impl Train {
    /// `set` as `-s` words, each of which is read back as its value: a string as it is where that says the same, anything else as
    /// JSON, which is YAML.
    pub fn words(&self) -> Vec<String> {
        let word = |(key, value): (&String, &Value)| match value {
            Value::String(text) if yaml::parse_value(text).ok().as_ref() == Some(value) => {
                format!("{key}={text}")
            }
            value => format!("{key}={value}"),
        };
        self.set.iter().map(word).collect()
    }
}

pub(super) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.len() <= 32 && name.chars().all(plain)
}

/// Something wrong with a stage: the key, the problem, and how to mend it.
pub(super) struct Wrong {
    pub key: String,
    pub what: String,
    pub hint: String,
}

fn wrong(key: &str, what: impl Into<String>, hint: impl Into<String>) -> Wrong {
    Wrong {
        key: key.into(),
        what: what.into(),
        hint: hint.into(),
    }
}

/// What later stages know of an earlier one.
pub(super) struct Before {
    pub name: String,
    trains: bool,
}

impl Before {
    pub fn of(stage: &Stage) -> Before {
        Before {
            name: stage.name.clone(),
            trains: matches!(stage.work, Work::Train(_)),
        }
    }
}

/// Whether a stage is one that trains, as far as can be seen: what it does may be the misspelt key.
pub(super) fn trains(value: &Value) -> bool {
    let others = ["tokenizer", "eval", "export", "report"];
    others.iter().all(|word| value.get(word).is_none())
}

/// A stage as far as it can be read, without the keys that it cannot have; and everything that is wrong with it.
pub(super) fn one(value: &Value, before: &[Before]) -> (Option<Stage>, Vec<Wrong>) {
    let mut value = value.clone();
    if !value.is_object() {
        let what = "a stage is a map with a name";
        let wrong = wrong("", what, "{name: base, train: quickstart}");
        return (None, vec![wrong]);
    }
    let mut found = without_unknown(&mut value, &OF_STAGE);
    let is_misspelt = !found.is_empty();
    for wrong in &mut found {
        if key_is_known(&wrong.key).is_ok() {
            wrong.hint = format!("set: {{{}: …}}", wrong.key);
        }
    }
    let raw: Raw = match json::read(&value) {
        Ok(raw) => raw,
        Err(error) => {
            let hint = "a stage has a name, one of train, tokenizer, eval, export, report, and with train also set and from";
            found.push(wrong(&error.path().to_string(), error.to_string(), hint));
            return (None, found);
        }
    };
    let name = raw.name.clone();
    let unnamed = own_name(&name, before).err();
    let unclear = one_kind(&raw).err();
    let is_clear = unnamed.is_none() && unclear.is_none();
    found.extend(unnamed);
    match unclear {
        // What it does may be the misspelt key.
        Some(nothing) if nothing.key.is_empty() && is_misspelt => return (None, found),
        other => found.extend(other),
    }
    match work(raw, before, &mut found) {
        Ok(work) => (is_clear.then_some(Stage { name, work }), found),
        Err(wrong) => {
            found.extend(wrong);
            (None, found)
        }
    }
}

/// Takes the keys out of a map that it cannot have, and says so of each.
pub(super) fn without_unknown(value: &mut Value, keys: &[&str]) -> Vec<Wrong> {
    let Value::Object(map) = value else {
        return Vec::new();
    };
    let unknown: Vec<String> = map
        .keys()
        .filter(|key| !keys.contains(&key.as_str()))
        .cloned()
        .collect();
    let said = |key: &String| {
        map.remove(key);
        let free = keys
            .iter()
            .copied()
            .filter(|known| !map.contains_key(*known));
        let hint = match nearest(key, free) {
            Some(near) => did_you_mean(near),
            None => format!("the keys here are {}", keys.join(", ")),
        };
        wrong(key, format!("unknown key `{}`", one_line(key)), hint)
    };
    unknown.iter().map(said).collect()
}

/// A name that is one, and that no stage before has.
fn own_name(name: &str, before: &[Before]) -> Result<(), Wrong> {
    if !is_name(name) {
        let what = format!("name: {name:?} is not letters, digits and dashes");
        return Err(wrong("name", what, "name: base"));
    }
    if name == SCRATCH {
        let what = format!("name: {SCRATCH} is reserved by `from` for random weights");
        return Err(wrong("name", what, "name: base"));
    }
    match before.iter().any(|stage| stage.name == name) {
        true => Err(wrong(
            "name",
            "its name is taken",
            "give each stage a distinct name",
        )),
        false => Ok(()),
    }
}

/// A stage does one thing, and only a training has settings and a start.
fn one_kind(raw: &Raw) -> Result<(), Wrong> {
    let kinds = [
        &raw.train,
        &raw.tokenizer,
        &raw.eval,
        &raw.export,
        &raw.report,
    ];
    match kinds.iter().filter(|kind| kind.is_some()).count() {
        1 => {}
        0 => return Err(wrong("", "it does nothing", KINDS)),
        _ => {
            let what = "it does several things at once";
            return Err(wrong("name", what, "one stage for each"));
        }
    }
    match raw.train.is_none() && (!raw.set.is_empty() || raw.from.is_some()) {
        true => Err(wrong(
            if raw.set.is_empty() { "from" } else { "set" },
            "set and from are only for training stages",
            "leave them out",
        )),
        false => Ok(()),
    }
}

/// What a stage does; keys that it cannot have are added to `found`.
fn work(raw: Raw, before: &[Before], found: &mut Vec<Wrong>) -> Result<Work, Vec<Wrong>> {
    let all_known = |names: &[String], key: &str| -> Result<(), Vec<Wrong>> {
        let unknown = names
            .iter()
            .filter_map(|name| known(name, key, before).err());
        let unknown: Vec<Wrong> = unknown.collect();
        match unknown.is_empty() {
            true => at_least_one(before).map_err(|wrong| vec![wrong]),
            false => Err(unknown),
        }
    };
    if let Some(spec) = raw.train {
        if !spec.is_string() && !spec.is_object() {
            let what = "train: neither a preset name nor a spec";
            return Err(vec![wrong("train", what, "train: quickstart")]);
        }
        return Ok(Work::Train(Train {
            spec,
            set: raw.set,
            from: start(raw.from, before).map_err(|wrong| vec![wrong])?,
        }));
    }
    if let Some(value) = raw.tokenizer {
        let keys = ["files", "kind", "vocab_size", "chat_markers"];
        return Ok(Work::Tokenizer(typed(value, "tokenizer", &keys, found)?));
    }
    if let Some(value) = raw.eval {
        let eval: Evaluate = typed(value, "eval", &["tasks", "limit", "models"], found)?;
        all_known(&eval.models, "eval.models")?;
        return Ok(Work::Eval(eval));
    }
    if let Some(value) = raw.export {
        let export: Export = typed(value, "export", &["format", "dtype", "model"], found)?;
        all_known(export.model.as_slice(), "export.model")?;
        return Ok(Work::Export(export));
    }
    let report: Report = typed(raw.report.unwrap_or_default(), "report", &["format"], found)?;
    let format = report.format.as_deref();
    match format.is_none_or(|f| ["html", "md"].contains(&f)) {
        true => Ok(Work::Report(report)),
        false => Err(vec![wrong(
            "report.format",
            "report.format: neither html nor md",
            "report: {format: html}",
        )]),
    }
}

/// `from`: a stage before, or `scratch`; the newest model where nobody says.
fn start(from: Option<String>, before: &[Before]) -> Result<StageModel, Wrong> {
    let newest = || before.iter().rev().find(|stage| stage.trains);
    match from.as_deref() {
        Some(SCRATCH) => Ok(StageModel::Spec),
        Some(name) => known(name, "from", before).map(|()| StageModel::Stage(name.into())),
        None => Ok(newest().map_or(StageModel::Spec, |stage| {
            StageModel::Stage(stage.name.clone())
        })),
    }
}

/// A map, or nothing at all; keys that it cannot have are added to `found`.
fn typed<T: serde::de::DeserializeOwned>(
    mut value: Value,
    word: &str,
    keys: &[&str],
    found: &mut Vec<Wrong>,
) -> Result<T, Vec<Wrong>> {
    if value.is_null() {
        value = Value::Object(Map::new());
    }
    if !value.is_object() {
        let what = format!("{word}: a map of its values is expected");
        return Err(vec![wrong(
            word,
            what,
            format!("its keys are {}", keys.join(", ")),
        )]);
    }
    let mut unknown = without_unknown(&mut value, keys);
    let is_misspelt = !unknown.is_empty();
    for wrong in &mut unknown {
        wrong.key = format!("{word}.{}", wrong.key);
        wrong.what = format!("{word}: {}", wrong.what);
    }
    found.extend(unknown);
    json::read::<T>(&value).map_err(|error| {
        // What it lacks may be the misspelt key.
        if is_misspelt && error.to_string().starts_with("missing field") {
            return Vec::new();
        }
        let dot = match error.path().iter().next() {
            Some(_) => ".",
            None => ": ",
        };
        let key = format!("{word}.{}", error.path());
        let what = format!("{word}{dot}{error}");
        vec![wrong(&key, what, "docs/pipelines.md lists its values")]
    })
}

fn known(name: &str, key: &str, before: &[Before]) -> Result<(), Wrong> {
    let mut names: Vec<&str> = before
        .iter()
        .filter(|stage| stage.trains && is_name(&stage.name))
        .map(|stage| stage.name.as_str())
        .collect();
    if names.contains(&name) {
        return Ok(());
    }
    names.sort_unstable();
    let hint = match (nearest(name, names.iter().copied()), names.as_slice()) {
        (Some(near), _) => did_you_mean(near),
        (None, []) if key == "from" => format!("{}, instead of `from`", outside(name)),
        (None, names) if key == "from" => {
            format!(
                "{}; or from: {SCRATCH} with {}",
                names.join(", "),
                outside(name)
            )
        }
        (None, []) => "put it after a training stage".to_string(),
        (None, names) => names.join(", "),
    };
    let what = format!("{name:?} is not an earlier training stage");
    Err(wrong(key, what, hint))
}

/// How a stage starts from what no stage makes: `from` means stages alone.
fn outside(name: &str) -> String {
    let name = one_line(name);
    format!("set: {{train.from: {name}}} for a model or a run that is there already")
}

fn at_least_one(before: &[Before]) -> Result<(), Wrong> {
    match before.iter().any(|stage| stage.trains) {
        true => Ok(()),
        false => Err(wrong(
            "name",
            "no earlier stage produces a model",
            "put it after a training stage",
        )),
    }
}
