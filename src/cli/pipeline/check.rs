//! Stages that do not train, checked before the first one begins: their subcommands would refuse the same values after hours.

use crate::cli::exit::Failure;
use crate::cli::{Context, eval, export};
use crate::engine::export::ExportError;
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
