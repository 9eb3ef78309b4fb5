//! Stages that do not train, checked before the first one begins: their subcommands would refuse the same values after hours.

use crate::cli::exit::Failure;
use crate::cli::{Context, eval, export};
use crate::engine::export::{ExportError, FORMATS, PEFT};
use crate::pipeline::{Export, Pipeline, Work};
use crate::tasks;

/// # Errors
/// A task that does not exist, a format or a type of weights that `llmtui export` does not write; with its stage.
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
            Work::Tokenizer(_) | Work::Train(_) | Work::Report(_) => Ok(()),
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

fn exported(config: &Export) -> Result<(), (&'static str, Failure)> {
    let known = FORMATS.iter().map(|format| (format.word, format.dtypes));
    let mut known = known.chain([(PEFT.0, PEFT.2)]);
    let said = config.format.as_str();
    let word = match said {
        "" => export::DEFAULT,
        said => said,
    };
    let Some((format, dtypes)) = known.clone().find(|(known, _)| *known == word) else {
        let words: Vec<&str> = known.by_ref().map(|(word, _)| word).collect();
        let what = format!("{said:?} is no format; there are {}", words.join(", "));
        return Err(("format", Failure::yours(what, "llmtui export --help")));
    };
    match &config.dtype {
        Some(said) if !dtypes.contains(&said.as_str()) => {
            let error = ExportError::Dtype {
                format,
                said: crate::base::text::one_line(said),
                known: dtypes.join(", "),
            };
            Err(("dtype", export::failed(&error)))
        }
        _ => Ok(()),
    }
}
