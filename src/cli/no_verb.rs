//! A preset, a file or a run that stands where a subcommand belongs: which one was probably meant.

use super::exit::Exit;
use crate::base::ssh::quoted;
use crate::base::text::one_line;
use crate::data::source::is_data_file;
use crate::spec::SpecSources;
use crate::{models, pipeline, plan, run};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::path::Path;

/// Prints a usage error, and what to write instead where that is known. Help and version go to standard output and
/// succeed; a usage error is a user error.
pub fn usage(error: &clap::Error, sources: &SpecSources) -> Exit {
    let _ = error.print();
    if !error.use_stderr() {
        return Exit::Done;
    }
    if let Some(meant) = verb(error).and_then(|word| meant(word, sources)) {
        tell!("\n  try: {}", one_line(&meant));
    }
    Exit::Yours
}

/// What stands in place of this program's own subcommand.
fn verb(error: &clap::Error) -> Option<&str> {
    let own = || {
        let usage = error.get(ContextKind::Usage).map(ToString::to_string);
        usage.is_some_and(|usage| usage.contains("llmtui [OPTIONS]"))
    };
    match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(word) if error.kind() == ErrorKind::InvalidSubcommand && own() => {
            Some(word)
        }
        _ => None,
    }
}

fn meant(word: &str, sources: &SpecSources) -> Option<String> {
    let (path, said) = (Path::new(word), quoted(word));
    let is_run = || {
        let runs = Path::new(super::RUNS_DIR);
        path.join("run.json").is_file() || run::index::resolve(runs, word).is_ok()
    };
    if models::kind(path).is_ok() {
        return Some(format!("llmtui chat {said}"));
    }
    if plan::target::is_spec(word, sources) && !is_data_file(path)
        || pipeline::find(word, sources).is_ok_and(|found| found.is_some())
    {
        return Some(format!("llmtui train {said}"));
    }
    if path.exists() && is_data_file(path) {
        return Some(format!("llmtui train quickstart -s data.path={said}"));
    }
    is_run().then(|| format!("llmtui attach {said}"))
}
