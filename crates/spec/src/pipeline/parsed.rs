//! A pipeline's file as far as it can be read: what is wrong with one stage hides nothing of the others.

use super::config::{Before, STAGES, Wrong, is_name, one, trains, without_unknown};
use super::{Fault, Pipeline, PipelineError, Places, Report, Stage, StageModel, Train, Work};
use crate::base::json;
use crate::spec::{describe, yaml};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The stages, and what is wrong with them.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// As many stages as in the file.
    pub pipeline: Pipeline,
    /// With the number of their stage, from 0.
    pub faults: Vec<(usize, Fault)>,
    /// The stages of which so much is wrong that the pipeline has nothing but their names.
    pub unread: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPipeline {
    name: Option<String>,
    about: Option<String>,
    stages: Vec<Value>,
}

/// The keys of a pipeline.
const TOP: [&str; 3] = ["name", "about", STAGES];
const KEYS: &str = "the keys of a pipeline are name, about and stages";

/// Keys with a value of another kind, and how they are written; `missing`: also that there are no stages.
fn wrong_kinds(value: &Value, missing: bool) -> Vec<Wrong> {
    let wrong = |key: &str, what: String, hint: &str| Wrong {
        key: key.into(),
        what,
        hint: hint.into(),
    };
    let mut found = Vec::new();
    for (key, hint) in [
        ("name", "name: speedrun"),
        ("about", "about: one sentence on what it makes"),
    ] {
        if let Some(value) = value
            .get(key)
            .filter(|value| !value.is_string() && !value.is_null())
        {
            let what = format!("{key} is one line of text, and this is {}", describe(value));
            found.push(wrong(key, what, hint));
        }
    }
    match value.get(STAGES) {
        Some(Value::Array(_)) => {}
        None if !missing => {}
        None => {
            let what = "a pipeline has stages, and this has none".into();
            found.push(wrong(
                STAGES,
                what,
                "stages: [{name: base, train: quickstart}]",
            ));
        }
        Some(stages) => {
            // Written as a map, its keys are the stages' names as a rule.
            let name = stages.as_object().and_then(|map| map.keys().next());
            let name = name
                .filter(|name| is_name(name))
                .map_or("base", String::as_str);
            let what = format!("stages is a list, and this is {}", describe(stages));
            let hint = format!(
                "one item for each stage, in order: `- name: {name}`, and under it `train: …`"
            );
            found.push(wrong(STAGES, what, &hint));
        }
    }
    found
}

impl Parsed {
    /// Reads a pipeline; `label` names the text in errors, `stem` the pipeline where the text does not.
    ///
    /// # Errors
    /// It has no stages that could be looked at.
    pub fn of(label: &str, stem: &str, text: &str) -> Result<Parsed, PipelineError> {
        let bad = |what: String, hint: &str| PipelineError::invalid(label, what, hint);
        let mut value = yaml::parse(text).map_err(|e| bad(e.to_string(), "fix the YAML"))?;
        let places = Places::of(label, text);
        let top = |wrong: Wrong| Fault::new(places.top(&wrong.key), wrong.what, wrong.hint);
        let unknown = without_unknown(&mut value, &TOP).into_iter().map(top);
        let mut faults: Vec<(usize, Fault)> = unknown.map(|fault| (0, fault)).collect();
        if !value.is_object() {
            let what = format!("a pipeline has keys, and this is {}", describe(&value));
            return Err(bad(what, KEYS));
        }
        // A misspelt key is what is missing.
        let missing = faults.is_empty();
        let wrong = wrong_kinds(&value, missing).into_iter().map(top);
        faults.extend(wrong.map(|fault| (0, fault)));
        let raw: RawPipeline = match json::read(&value) {
            Ok(raw) => raw,
            Err(_) if !faults.is_empty() => return Err(invalid(faults)),
            Err(error) => return Err(bad(error.to_string(), KEYS)),
        };
        let name = raw.name.unwrap_or_else(|| stem.to_string());
        if !is_name(&name) {
            let what = format!("name: {name:?} is not letters, digits and dashes");
            let fault = Fault::new(places.top("name"), what, "name: speedrun");
            faults.push((0, fault));
        }
        if raw.stages.is_empty() {
            let hint = "stages: [{name: base, train: quickstart}]";
            let fault = Fault::new(places.top(STAGES), "stages: the list is empty", hint);
            faults.push((0, fault));
        }
        let (stages, unread) = stages(&raw.stages, &places, &mut faults);
        Ok(Parsed {
            pipeline: Pipeline {
                name,
                about: raw.about.unwrap_or_default(),
                stages,
            },
            faults,
            unread,
        })
    }

    /// The pipeline, where nothing is wrong with it.
    ///
    /// # Errors
    /// Everything that is wrong, with its line and its stage.
    pub fn whole(self) -> Result<Pipeline, PipelineError> {
        match self.faults.is_empty() {
            true => Ok(self.pipeline),
            false => Err(invalid(self.faults)),
        }
    }
}

fn invalid(faults: Vec<(usize, Fault)>) -> PipelineError {
    PipelineError::Invalid(faults.into_iter().map(|(_, fault)| fault).collect())
}

/// A stage for each value, and the names of those that could not be read; what is wrong is added to `faults`.
fn stages(
    values: &[Value],
    places: &Places,
    faults: &mut Vec<(usize, Fault)>,
) -> (Vec<Stage>, Vec<String>) {
    let (mut stages, mut unread) = (Vec::new(), Vec::new());
    let mut before: Vec<Before> = Vec::new();
    for (at, value) in values.iter().enumerate() {
        let (stage, wrong) = one(value, &before);
        let name = value.get("name").and_then(Value::as_str).unwrap_or("?");
        faults.extend(wrong.into_iter().map(|wrong| {
            let place = places.of_stage(at, name, &wrong.key);
            let place = format!("{place}: stage {} ({name})", at + 1);
            (at, Fault::new(place, wrong.what, wrong.hint))
        }));
        let stage = stage.unwrap_or_else(|| {
            let free = before.iter().all(|stage| stage.name != name);
            let stage = placeholder(at, value, free.then_some(name));
            unread.push(stage.name.clone());
            stage
        });
        before.push(Before::of(&stage));
        stages.push(stage);
    }
    (stages, unread)
}

/// In the place of a stage that cannot be read: the others keep their numbers, and one that names it is not to blame.
fn placeholder(at: usize, value: &Value, name: Option<&str>) -> Stage {
    let work = match trains(value) {
        true => Work::Train(Train {
            spec: Value::Null,
            set: Map::new(),
            from: StageModel::Spec,
        }),
        false => Work::Report(Report::default()),
    };
    Stage {
        // A blank is in no name: no stage means this one.
        name: name.map_or_else(|| format!("stage {}", at + 1), String::from),
        work,
    }
}
