//! Opens the workbench for every verb that ends in it.

use super::{Context, exit::Exit, probe, run_ref};
use crate::ui::{self, UiOptions, What};
use std::io::Write;

/// Leaving it does not stop a run.
pub fn open(what: What, cx: &Context) -> anyhow::Result<Exit> {
    let left = ui::run(UiOptions {
        runs_dir: cx.runs_dir.clone(),
        open: what,
        ascii: cx.ascii,
        theme: cx.theme.clone(),
        env: cx.env.clone(),
        hardware: cx.recording()?,
        measure: probe::measure,
        sources: cx.spec_sources(),
    })?;
    if let Some(run) = left {
        let dot = if cx.env.utf8 { "·" } else { "-" };
        let attach = format!("llmtui attach {run}{}", run_ref::options(&cx.runs_dir));
        // The terminal may be gone: then nobody reads it.
        let _ = writeln!(std::io::stdout(), "{run} trains on {dot} {attach}");
    }
    Ok(Exit::Done)
}
