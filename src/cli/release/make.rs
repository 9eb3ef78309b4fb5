//! A run or a checkpoint as a folder for others: exported, with the card of its run.

use super::super::exit::Failure;
use super::super::export::{MERGED, failed};
use super::super::{Context, card};
use super::Args;
use crate::base::files::write_atomic;
use crate::base::text::{one_line, shown};
use crate::engine::checkpoint::{STATE, manifest};
use crate::engine::export::{self, About, AdapterSource, Options, PEFT, Source};
use crate::hf;
use crate::release::{self, LayoutError};
use crate::run::RunDir;
use std::path::{Path, PathBuf};

/// Largest file with weights, bytes: that of transformers.
const SHARD: u64 = 5_000_000_000;

/// A folder of a run, with what only a resume needs.
pub fn is_checkpoint(folder: &Path) -> bool {
    folder.join(manifest::FILE).is_file() && folder.join(STATE).is_file()
}

/// The run that a checkpoint lies in.
pub fn run_of(checkpoint: &Path) -> Option<RunDir> {
    let checkpoint = std::fs::canonicalize(checkpoint).ok()?;
    RunDir::open(checkpoint.parent()?.parent()?).ok()
}

/// Writes the folder of `--to`.
pub fn export(
    checkpoint: &Path,
    run: Option<&RunDir>,
    args: &Args,
    cx: &Context,
) -> anyhow::Result<PathBuf> {
    let Some(to) = &args.to else {
        let what = format!(
            "{} is a run or a checkpoint, which must be exported first",
            one_line(&args.target)
        );
        return Err(Failure::user_error(what, "name an output folder: --to DIR").into());
    };
    export::check_free(to).map_err(|e| failed(&e))?;
    let about = match run {
        Some(run) => {
            let evals = args.evals.as_deref().unwrap_or(Path::new("evals"));
            card::about(run, checkpoint, evals, cx)?
        }
        None => About::default(),
    };
    let about = About {
        license: args.license.clone(),
        languages: args.languages.clone(),
        base_model: args.base_model.clone().or(about.base_model),
        ..about
    };
    let options = Options {
        dtype: args.dtype.clone().unwrap_or_else(|| "f32".into()),
        max_shard_bytes: SHARD,
    };
    match args.format.as_deref() == Some(PEFT.0) {
        true => {
            let source = AdapterSource::open(checkpoint, about.base_model.as_deref());
            let source = source.map_err(|e| failed(&e))?;
            export::export_adapter(&source, &options, &about, to).map_err(|e| failed(&e))?;
        }
        false => whole(checkpoint, &options, &about, to)?,
    }
    release::write_checksums(to).map_err(|e| layout_failed(&e))?;
    Ok(to.clone())
}

/// The model with what adapters make of it.
fn whole(checkpoint: &Path, options: &Options, about: &About, to: &Path) -> anyhow::Result<()> {
    let source = Source::open(checkpoint).map_err(|e| failed(&e))?;
    if source.from.adapter().is_some() {
        errln!("{MERGED}");
    }
    // What no class of transformers computes travels in llmtui's own format.
    let word = match hf::family_of(source.model.config()) {
        Some(_) => "hf",
        None => "safetensors",
    };
    let format = export::format(word).map_err(|e| failed(&e))?;
    export::export(&source, format, options, to).map_err(|e| failed(&e))?;
    let path = to.join(release::card::NAME);
    let text = export::card(&source, &options.dtype, about);
    write_atomic(&path, text.as_bytes()).map_err(|e| {
        let what = format!("{}: {e}", shown(&path));
        Failure::machine(one_line(&what), "check the folder and the free space there")
    })?;
    Ok(())
}

pub fn layout_failed(error: &LayoutError) -> Failure {
    let what = one_line(&error.to_string());
    match error {
        LayoutError::Io { .. } => Failure::machine(what, error.hint()),
        _ => Failure::user_error(what, error.hint()),
    }
}
