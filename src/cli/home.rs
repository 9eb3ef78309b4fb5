//! `llmtui` without a subcommand: the workbench at a terminal, otherwise the quickstart headless.

use super::{Context, exit::Exit, train};
use crate::ui::{self, UiOptions, What};
use std::io::Write;
use std::path::Path;

pub fn run(cx: &Context) -> anyhow::Result<Exit> {
    if cx.stdin_is_terminal && cx.stdout_is_terminal {
        return workbench(What::Home, cx);
    }
    train::run(train::Args::quickstart(), cx)
}

/// Opens the workbench; leaving it does not stop a run.
pub fn workbench(open: What, cx: &Context) -> anyhow::Result<Exit> {
    let left = ui::run(UiOptions {
        runs_dir: cx.runs_dir.clone(),
        open,
        ascii: cx.ascii,
        theme: cx.theme.clone(),
        env: cx.env.clone(),
        hardware: cx.recording()?,
        measure: super::probe::measure,
        sources: cx.spec_sources(),
    })?;
    if let Some(run) = left {
        let dot = if cx.env.utf8 { "·" } else { "-" };
        let attach = match cx.runs_dir.as_path() == Path::new("runs") {
            true => format!("llmtui attach {run}"),
            false => format!("llmtui --runs-dir {} attach {run}", cx.runs_dir.display()),
        };
        // The terminal may be gone: then nobody reads it.
        let _ = writeln!(std::io::stdout(), "{run} trains on {dot} {attach}");
    }
    Ok(Exit::Done)
}
