//! Stages that do not train, checked before the first one begins: their subcommands would refuse the same values after hours.

use super::failed;
use crate::base::near::{nearest, unknown};
use crate::base::paths::expand_home;
use crate::base::text::one_line;
use crate::cli::exit::{Exit, Failure};
use crate::cli::tokenizer::{KINDS, Planned};
use crate::cli::{Context, eval, export, model_ref};
use crate::engine::export::{ExportError, PEFT};
use crate::llama_cpp::check_model;
use crate::nn::ModelConfig;
use crate::pipeline::{
    Export, Fault, Pipeline, PipelineError, Places, Train, TrainTokenizer, Work,
};
use crate::spec::{self, SpecSources};
use crate::tasks;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The format of llama.cpp.
const GGUF: &str = "gguf";

/// What is wrong with stages, all of it.
#[derive(Default)]
pub struct Faults {
    found: Vec<(usize, Fault)>,
    /// The stages that have one.
    stages: HashSet<String>,
    /// The file itself has some: it has to be mended, and nothing is downloaded until then.
    in_file: bool,
}

impl Faults {
    /// Adds what is wrong with stage `at`, or a value of it.
    ///
    /// # Errors
    /// What the machine lacks is said at once.
    pub fn add(
        &mut self,
        places: &Places,
        (at, stage): (usize, &str),
        key: &str,
        failure: Failure,
    ) -> Result<(), Failure> {
        if failure.exit != Exit::UserError {
            return Err(failure);
        }
        let place = places.of_stage(at, stage, key);
        let fault = Fault::new(place, failure.what, failure.hint);
        self.found.push((at, fault));
        self.stages.insert(stage.into());
        Ok(())
    }

    /// Adds what is wrong with the file, and its stages that cannot be looked at.
    pub fn unread(&mut self, faults: Vec<(usize, Fault)>, stages: Vec<String>) {
        self.in_file = !faults.is_empty();
        self.found.splice(0..0, faults);
        self.stages.extend(stages);
    }

    /// Adds what is wrong with the stages that are named as reward models.
    pub fn judges(&mut self, pipeline: &Pipeline, places: &Places, sources: &SpecSources) {
        for (at, fault) in pipeline.judge_faults(places, sources) {
            self.stages.insert(pipeline.stages[at].name.clone());
            self.found.push((at, fault));
        }
    }

    /// A stage that cannot be looked at, for what an earlier one has.
    pub fn spread(&mut self, stage: &str) {
        self.stages.insert(stage.into());
    }

    pub fn has(&self, stage: &str) -> bool {
        self.stages.contains(stage)
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Whether a stage starts from a model that would have to be downloaded for a file at fault.
    pub fn waits_for_a_download(&self, train: &Train, cx: &Context) -> bool {
        let lacks = |word: &str| model_ref::would_download(word, &train.words(), cx);
        self.in_file && train.spec.as_str().is_some_and(lacks)
    }

    /// Whether every stage can be looked at.
    pub fn hide_nothing(&self) -> bool {
        self.stages.is_empty()
    }

    /// # Errors
    /// There are some; each has its line, its cause and its fix.
    pub fn check(mut self) -> Result<(), Failure> {
        self.found.sort_by_key(|(at, _)| *at);
        let found: Vec<Fault> = self.found.into_iter().map(|(_, fault)| fault).collect();
        match found.is_empty() {
            true => Ok(()),
            false => Err(failed(&PipelineError::Invalid(found))),
        }
    }
}

/// Tasks that do not exist, formats and types of weights that `llmtui export` does not write, tokenizers that cannot be
/// learned; each with its stage.
///
/// # Errors
/// The machine is the cause.
pub fn stages(
    pipeline: &Pipeline,
    skip: &[String],
    places: &Places,
    cx: &Context,
) -> Result<Faults, Failure> {
    let mut faults = Faults::default();
    for (at, stage) in pipeline.stages.iter().enumerate() {
        if skip.contains(&stage.name) {
            continue;
        }
        let unknown = |task: &String| tasks::load(task.trim(), &cx.env).err();
        let wrong: Vec<(&str, Failure)> = match &stage.work {
            Work::Eval(config) => {
                let unknown = config.tasks.iter().filter_map(unknown);
                unknown.map(|e| ("tasks", eval::failed(&e))).collect()
            }
            Work::Export(config) => exported(config).err().into_iter().collect(),
            Work::Tokenizer(config) => learned(config).err().into_iter().collect(),
            Work::Train(_) | Work::Report(_) => Vec::new(),
        };
        for (key, failure) in wrong {
            let key = format!("{}.{key}", stage.work.word());
            let failure = Failure {
                what: format!("stage {}: {key}: {}", stage.name, failure.what),
                ..failure
            };
            faults.add(places, (at, &stage.name), &key, failure)?;
        }
    }
    Ok(faults)
}

/// A tokenizer whose files are not there would fail behind the trainings in front of it.
pub fn learned(config: &TrainTokenizer) -> Result<(), (&'static str, Failure)> {
    let kind = config.kind.as_str();
    if KINDS.contains(&kind) {
        return Planned::of(config).map(drop);
    }
    let near = nearest(kind, KINDS.iter().copied());
    let (what, hint) = unknown("kind of tokenizer", kind, near, &KINDS);
    Err(("kind", Failure::user_error(what, hint)))
}

/// Whether an export stage can write the model that it will be given: adapters where it writes those alone, an architecture that
/// llama.cpp has where it writes GGUF. `adapts` and `models` have what the stages before it train.
///
/// # Errors
/// It cannot.
pub fn exports(
    pipeline: &Pipeline,
    at: usize,
    skip: &[String],
    adapts: &HashMap<String, bool>,
    models: &HashMap<String, (ModelConfig, usize)>,
) -> Result<(), Failure> {
    let stage = &pipeline.stages[at];
    let Work::Export(config) = &stage.work else {
        return Ok(());
    };
    let is_gguf = config.format == GGUF;
    let wants_adapters = config.format == PEFT.0;
    if !is_gguf && !wants_adapters || skip.contains(&stage.name) {
        return Ok(());
    }
    // Where nobody names it, it is the newest model.
    let newest = || {
        let before = pipeline.stages[..at].iter().rev();
        let mut trained = before.filter(|s| adapts.contains_key(&s.name));
        let found = trained.find(|s| !skip.contains(&s.name));
        found.map(|s| s.name.clone())
    };
    let Some(model) = config.model.clone().or_else(newest) else {
        return Ok(());
    };
    if is_gguf {
        let made = models.get(&model);
        let fits = made.map_or(Ok(()), |(config, vocab)| check_model(config, *vocab));
        return fits.map_err(|error| {
            Failure::user_error(
                format!("stage {}: the model of stage {model}: {error}", stage.name),
                format!("-s {}.format=safetensors, or another model", stage.name),
            )
        });
    }
    match adapts.get(&model) {
        Some(false) => Err(Failure::user_error(
            format!(
                "stage {}: export.format: {} writes adapters, and stage {model} trains all weights",
                stage.name, PEFT.0
            ),
            format!("-s {}.format=hf, or -s {model}.adapter=lora", stage.name),
        )),
        _ => Ok(()),
    }
}

/// Keys of `-s` for stages whose runs have not begun: their specs are read only then.
///
/// # Errors
/// A key that no spec has.
pub fn keys(pipeline: &Pipeline, words: &[String]) -> Result<(), Failure> {
    for word in words {
        let path = word.split_once('=').map_or(word.as_str(), |(path, _)| path);
        let Some((stage, key)) = path.split_once('.') else {
            continue;
        };
        let trains = pipeline.stage(stage.trim());
        if !trains.is_some_and(|(_, stage)| matches!(stage.work, Work::Train(_))) {
            continue;
        }
        if let Err(hint) = spec::key_is_known(key.trim()) {
            let what = format!("-s {}: unknown setting {}", one_line(word), one_line(key));
            return Err(Failure::user_error(what, hint));
        }
    }
    Ok(())
}

/// Keys of a training stage that no spec has, and data that are not there: all that is known of one whose start model is at fault.
pub fn of_its_words(train: &Train, cx: &Context) -> impl Iterator<Item = (String, Failure)> {
    let unknown = train.set.keys().filter_map(|key| {
        let hint = spec::key_is_known(key.trim()).err()?;
        let what = format!("unknown key `{}`", one_line(key));
        Some((format!("set.{key}"), Failure::user_error(what, hint)))
    });
    unknown.chain(missing_data(train, cx))
}

/// A stage with what decides on its model and its vocabulary alone; `None` where it says nothing else.
pub fn without_training(train: &Train) -> Option<Train> {
    let kept = |all: &Map<String, Value>| -> Map<String, Value> {
        let all = all.iter().filter(|(key, _)| shapes_the_model(key));
        all.map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    let sound = Train {
        spec: match &train.spec {
            Value::Object(all) => Value::Object(kept(all)),
            word => word.clone(),
        },
        set: kept(&train.set),
        from: train.from.clone(),
    };
    let says_less = sound.spec != train.spec || sound.set.len() < train.set.len();
    says_less.then_some(sound)
}

fn shapes_the_model(key: &str) -> bool {
    const SECTIONS: [&str; 6] = ["extends", "method", "model", "adapter", "data", "engine"];
    const SETTINGS: [&str; 4] = [
        "train",
        "train.from",
        "train.dequantize",
        "train.resize_vocab",
    ];
    let key = key.trim().replace('-', "_");
    let path = spec::alias::resolve(&key).unwrap_or(&key);
    let section = path.split('.').next().unwrap_or(path);
    SECTIONS.contains(&section) || SETTINGS.contains(&path)
}

fn missing_data(train: &Train, cx: &Context) -> Option<(String, Failure)> {
    const PATH: &str = "data.path";
    let said = train.set.get(PATH)?.as_str()?;
    let sources = cx.spec_sources();
    let home = sources.home.as_deref();
    let path = expand_home(Path::new(said), &sources.project_dir, home).ok()?;
    let is_pattern = said.contains(['*', '?', '[']);
    let is_there = is_pattern || sources.project_dir.join(path).exists();
    (!is_there).then(|| {
        let what = format!("{} does not exist", one_line(said));
        let hint = "check the path: relative paths start from the working directory";
        (format!("set.{PATH}"), Failure::user_error(what, hint))
    })
}

fn exported(config: &Export) -> Result<(), (&'static str, Failure)> {
    let format = match config.format.as_str() {
        "" => export::DEFAULT,
        said => said,
    };
    crate::engine::export::check(format, config.dtype.as_deref()).map_err(|error| {
        let key = match error {
            ExportError::Dtype { .. } => "dtype",
            _ => "format",
        };
        (key, export::failed(&error))
    })
}
