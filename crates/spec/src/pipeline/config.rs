//! `stages:` as written: what each stage does, and what it starts from.

use super::PipelineError;
use crate::base::json;
use crate::spec::yaml;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
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
    /// Text files or folders of them.
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPipeline {
    name: Option<String>,
    #[serde(default)]
    about: String,
    stages: Vec<Value>,
}

/// `from: scratch`: fresh weights.
const SCRATCH: &str = "scratch";
const KINDS: &str = "train, tokenizer, eval, export or report";

impl Pipeline {
    /// Reads a pipeline; `label` names the text in errors, `stem` the pipeline where the text does not.
    ///
    /// # Errors
    /// The first thing that is wrong, with its stage.
    pub fn parse(label: &str, stem: &str, text: &str) -> Result<Pipeline, PipelineError> {
        let bad = |what: String, hint: &str| PipelineError::Invalid {
            place: label.into(),
            what,
            hint: hint.into(),
        };
        let value = yaml::parse(text).map_err(|e| bad(e.to_string(), "fix the YAML"))?;
        let raw: RawPipeline = json::read(&value).map_err(|e| {
            bad(
                e.to_string(),
                "the keys of a pipeline are name, about and stages",
            )
        })?;
        let name = raw.name.unwrap_or_else(|| stem.to_string());
        if !is_name(&name) {
            let what = format!("name: {name:?} is not letters, digits and dashes");
            return Err(bad(what, "name: speedrun"));
        }
        if raw.stages.is_empty() {
            return Err(bad(
                "stages: the list is empty".into(),
                "stages: [{name: base, train: quickstart}]",
            ));
        }
        let mut stages: Vec<Stage> = Vec::new();
        for (at, value) in raw.stages.iter().enumerate() {
            let stage = one(value, &stages).map_err(|(what, hint)| {
                let name = value.get("name").and_then(Value::as_str).unwrap_or("?");
                bad(format!("stage {} ({name}): {what}", at + 1), &hint)
            })?;
            stages.push(stage);
        }
        Ok(Pipeline {
            name,
            about: raw.about,
            stages,
        })
    }

    /// Whether a text is a pipeline rather than a spec.
    pub fn is_one(text: &str) -> bool {
        yaml::parse(text).is_ok_and(|value| value.get("stages").is_some())
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
        let bad = |what: String, hint: &str| PipelineError::Invalid {
            place: format!("-s {word}"),
            what,
            hint: hint.into(),
        };
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
            // By its other name the same setting may stand there with another value.
            let short = key.strip_prefix("train.");
            train
                .set
                .remove(&short.map_or_else(|| format!("train.{key}"), String::from));
            train.set.insert(key.into(), value);
            return Ok(stage.into());
        }
        let (before, rest) = self.stages.split_at_mut(at);
        let mut written = rest[0].to_value();
        written[rest[0].work.word()][key] = value;
        rest[0] = one(&written, before).map_err(|(what, hint)| bad(what, &hint))?;
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

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.len() <= 32 && name.chars().all(plain)
}

type Wrong = (String, String);

fn wrong(what: impl Into<String>, hint: &str) -> Wrong {
    (what.into(), hint.to_string())
}

fn one(value: &Value, before: &[Stage]) -> Result<Stage, Wrong> {
    let raw: Raw = json::read(value).map_err(|e| {
        wrong(e.to_string(), "a stage has a name, one of train, tokenizer, eval, export, report, and with train also set and from")
    })?;
    own_name(&raw.name, before)?;
    one_kind(&raw)?;
    Ok(Stage {
        name: raw.name.clone(),
        work: work(raw, before)?,
    })
}

/// A name that is one, and that no stage before has.
fn own_name(name: &str, before: &[Stage]) -> Result<(), Wrong> {
    if !is_name(name) {
        let what = format!("name: {name:?} is not letters, digits and dashes");
        return Err(wrong(what, "name: base"));
    }
    if name == SCRATCH {
        let what = format!("name: {SCRATCH} is reserved by `from` for random weights");
        return Err(wrong(what, "name: base"));
    }
    match before.iter().any(|stage| stage.name == name) {
        true => Err(wrong(
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
        0 => return Err(wrong("it does nothing", KINDS)),
        _ => {
            return Err(wrong(
                "it does several things at once",
                "one stage for each",
            ));
        }
    }
    match raw.train.is_none() && (!raw.set.is_empty() || raw.from.is_some()) {
        true => Err(wrong(
            "set and from are only for training stages",
            "leave them out",
        )),
        false => Ok(()),
    }
}

fn work(raw: Raw, before: &[Stage]) -> Result<Work, Wrong> {
    let all_known = |names: &[String]| {
        names.iter().try_for_each(|name| known(name, before))?;
        at_least_one(before)
    };
    if let Some(spec) = raw.train {
        if !spec.is_string() && !spec.is_object() {
            return Err(wrong(
                "train: neither a preset name nor a spec",
                "train: quickstart",
            ));
        }
        return Ok(Work::Train(Train {
            spec,
            set: raw.set,
            from: start(raw.from, before)?,
        }));
    }
    if let Some(value) = raw.tokenizer {
        return Ok(Work::Tokenizer(typed(&value)?));
    }
    if let Some(value) = raw.eval {
        let eval: Evaluate = typed(&value)?;
        all_known(&eval.models)?;
        return Ok(Work::Eval(eval));
    }
    if let Some(value) = raw.export {
        let export: Export = typed(&value)?;
        all_known(export.model.as_slice())?;
        return Ok(Work::Export(export));
    }
    let report: Report = typed(raw.report.as_ref().unwrap_or(&Value::Null))?;
    let format = report.format.as_deref();
    match format.is_none_or(|f| ["html", "md"].contains(&f)) {
        true => Ok(Work::Report(report)),
        false => Err(wrong(
            "report.format: neither html nor md",
            "report: {format: html}",
        )),
    }
}

/// `from`: a stage before, or `scratch`; the newest model where nobody says.
fn start(from: Option<String>, before: &[Stage]) -> Result<StageModel, Wrong> {
    let newest = || {
        before
            .iter()
            .rev()
            .find(|stage| matches!(stage.work, Work::Train(_)))
    };
    match from.as_deref() {
        Some(SCRATCH) => Ok(StageModel::Spec),
        Some(name) => known(name, before).map(|()| StageModel::Stage(name.into())),
        None => Ok(newest().map_or(StageModel::Spec, |stage| {
            StageModel::Stage(stage.name.clone())
        })),
    }
}

/// A map, or nothing at all.
fn typed<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, Wrong> {
    let value = match value {
        Value::Null => &Value::Object(Map::new()),
        value => value,
    };
    json::read(value).map_err(|e| (e.to_string(), "see docs/pipelines.md".to_string()))
}

fn known(name: &str, before: &[Stage]) -> Result<(), Wrong> {
    let trained: HashSet<&str> = before
        .iter()
        .filter(|stage| matches!(stage.work, Work::Train(_)))
        .map(|stage| stage.name.as_str())
        .collect();
    if trained.contains(name) {
        return Ok(());
    }
    let mut names: Vec<&str> = trained.into_iter().collect();
    names.sort_unstable();
    let hint = match names.as_slice() {
        [] => "scratch".to_string(),
        names => names.join(", "),
    };
    Err((format!("{name:?} is not an earlier training stage"), hint))
}

fn at_least_one(before: &[Stage]) -> Result<(), Wrong> {
    match before
        .iter()
        .any(|stage| matches!(stage.work, Work::Train(_)))
    {
        true => Ok(()),
        false => Err((
            "no earlier stage produces a model".into(),
            "put it after a training stage".into(),
        )),
    }
}
