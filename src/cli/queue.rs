//! `train --after RUN`: a run that begins when another one has ended.

use super::Context;
use super::exit::Failure;
use super::run_ref::named;
use crate::engine::After;
use crate::plan::start;
use crate::run::RunDir;
use std::path::Path;

/// The live run that a word means; `None`, with a note, if it has ended already.
///
/// # Errors
/// No run has that name.
pub fn live(word: &str, cx: &Context) -> anyhow::Result<Option<RunDir>> {
    let run = named(word, cx)?;
    if !run.is_alive() {
        errln!("note: {} has ended: this run begins now", run.folder());
        return Ok(None);
    }
    Ok(Some(run))
}

/// What an engine waits for, given the folder of that run.
///
/// # Errors
/// There is no run.
pub fn after(folder: &Path) -> Result<After, Failure> {
    let run = RunDir::open(folder).map_err(|e| Failure::run(&e))?;
    Ok(behind(run))
}

/// A place behind this run. Whether the machine has enough memory is asked after the wait, when that of the other run is free.
pub fn behind(run: RunDir) -> After {
    let check = |spec: &_, env: &_| {
        let refused = |refusal: start::Refusal| format!("{}; {}", refusal.what, refusal.hint);
        start::check(spec, env).map_err(refused)
    };
    After { run, check }
}
