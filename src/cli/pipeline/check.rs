//! Stages that do not train, checked before the first one begins: their subcommands would refuse the same values after hours.

use crate::base::near::{did_you_mean, nearest};
use crate::base::text::one_line;
use crate::cli::exit::Failure;
use crate::cli::tokenizer::{KINDS, Planned};
use crate::cli::{Context, eval, export};
use crate::engine::export::{ExportError, PEFT};
use crate::pipeline::{Export, Pipeline, TrainTokenizer, Work};
use crate::spec;
use crate::tasks;
use std::collections::HashMap;

/// # Errors
/// A task that does not exist, a format or a type of weights that `llmtui export` does not write, a tokenizer that cannot be
/// learned; with its stage.
pub fn stages(pipeline: &Pipeline, skip: &[String], cx: &Context) -> anyhow::Result<()> {
    for stage in &pipeline.stages {
        if skip.contains(&stage.name) {
            continue;
        }
        let checked = match &stage.work {
            Work::Eval(config) => config
                .tasks
                .iter()
                .try_for_each(|task| tasks::load(task.trim(), &cx.env).map(drop))
                .map_err(|e| ("tasks", eval::failed(&e))),
            Work::Export(config) => exported(config),
            Work::Tokenizer(config) => learned(config),
            Work::Train(_) | Work::Report(_) => Ok(()),
        };
        checked.map_err(|(key, failure)| Failure {
            what: format!(
                "stage {}: {}.{key}: {}",
                stage.name,
                stage.work.word(),
                failure.what
            ),
            ..failure
        })?;
    }
    Ok(())
}

/// A tokenizer whose files are not there would fail behind the trainings in front of it.
fn learned(config: &TrainTokenizer) -> Result<(), (&'static str, Failure)> {
    let kind = config.kind.as_str();
    if KINDS.contains(&kind) {
        return Planned::of(config).map(drop);
    }
    let near = nearest(kind, KINDS.iter().copied());
    let what = format!("unknown kind of tokenizer `{}`", one_line(kind));
    let hint = match near {
        Some(near) => format!("{} There are {}", did_you_mean(near), KINDS.join(", ")),
        None => format!("there are {}", KINDS.join(", ")),
    };
    Err(("kind", Failure::user_error(what, hint)))
}

/// Whether the model of an export stage has adapters, where it writes those alone; `adapts` says it of each stage that trains.
///
/// # Errors
/// It has none.
pub fn adapter(
    pipeline: &Pipeline,
    at: usize,
    skip: &[String],
    adapts: &HashMap<String, bool>,
) -> Result<(), Failure> {
    let stage = &pipeline.stages[at];
    let Work::Export(config) = &stage.work else {
        return Ok(());
    };
    if config.format != PEFT.0 || skip.contains(&stage.name) {
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
