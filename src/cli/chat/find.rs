//! The folder or file that a word of the command line means.

use crate::cli::exit::Failure;
use crate::cli::{Context, attach};
use std::path::{Path, PathBuf};

/// A `.gguf` file, a model folder, or the best checkpoint of a run.
pub fn model(word: &str, cx: &Context) -> anyhow::Result<PathBuf> {
    let path = Path::new(word);
    if path.join("config.json").is_file() || path.is_file() {
        return Ok(path.into());
    }
    if path.is_dir() && !path.join("run.json").is_file() {
        let what =
            format!("{word} is neither a model folder (no config.json) nor a run (no run.json)");
        return Err(Failure::yours(what, "llmtui runs").into());
    }
    let run = attach::named(word, cx)?;
    match run.best_checkpoint() {
        Some(checkpoint) => Ok(checkpoint.path),
        None => {
            let what = format!("the run {} has no checkpoint yet", run.id());
            let hint = "wait for its first one, or lower checkpoint.every";
            Err(Failure::yours(what, hint).into())
        }
    }
}
