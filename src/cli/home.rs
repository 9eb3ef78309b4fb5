//! `llmtui` without a subcommand: the workbench at a terminal, otherwise the quickstart headless.

use super::{Context, exit::Exit, train};
use crate::ui::{self, UiOptions, What};

pub fn run(cx: &Context) -> anyhow::Result<Exit> {
    if cx.stdin_is_terminal && cx.stdout_is_terminal {
        return workbench(What::Home, cx);
    }
    train::run(train::Args::quickstart(), cx)
}

/// Opens the workbench; leaving it does not stop a run.
pub fn workbench(open: What, cx: &Context) -> anyhow::Result<Exit> {
    ui::run(UiOptions {
        runs_dir: cx.runs_dir.clone(),
        open,
        ascii: cx.ascii,
        theme: cx.theme.clone(),
        env: cx.env.clone(),
        hardware: cx.recording()?,
        measure: super::probe::measure,
        sources: cx.spec_sources(),
    })?;
    Ok(Exit::Done)
}
