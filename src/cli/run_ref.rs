//! Which run an argument means, and what its directory and log say.

use super::{Context, exit::Failure};
use crate::run::index::RunStatus;
use crate::run::{RunDir, RunError, RunState, Tail, index};
use crate::spec::RunSpec;
use crate::wire::Event;
use std::path::Path;

/// The named run, or the newest live one.
pub fn find(word: Option<&str>, cx: &Context) -> anyhow::Result<RunDir> {
    match word {
        Some(word) => named(word, cx),
        None => index::newest_live(&cx.runs_dir)?.ok_or_else(|| {
            Failure::yours(
                format!("no live run in {}", cx.runs_dir.display()),
                "llmtui runs",
            )
            .into()
        }),
    }
}

/// Resolves an argument to a run.
pub fn named(word: &str, cx: &Context) -> anyhow::Result<RunDir> {
    index::resolve(&cx.runs_dir, word)
        .map_err(|e| Failure::yours(e.to_string(), "llmtui runs").into())
}

/// The newest run that has steps left, is not alive, and passes `wanted`.
pub fn newest_unfinished(
    runs_dir: &Path,
    wanted: &dyn Fn(&RunDir) -> bool,
) -> anyhow::Result<Option<RunDir>> {
    let (runs, _unreadable) = index::list(runs_dir)?;
    let open = |status| !matches!(status, RunStatus::Live | RunStatus::Finished);
    for summary in runs.iter().filter(|run| open(run.status)) {
        match RunDir::open(&summary.path) {
            Ok(run) if wanted(&run) => return Ok(Some(run)),
            Ok(_) | Err(RunError::NotARun(_)) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(None)
}

/// The resolved spec the run was created with.
pub fn spec_of(run: &RunDir) -> anyhow::Result<RunSpec> {
    let path = run.spec_path();
    let text = std::fs::read_to_string(&path)
        .map_err(|e| Failure::machine(format!("{}: {e}", path.display()), ""))?;
    RunSpec::from_yaml(&text)
        .map_err(|e| Failure::yours(format!("{}: {e}", path.display()), "").into())
}

/// A run without a checkpoint: none was saved yet, or they are gone.
pub fn no_checkpoint(run: &RunDir) -> Failure {
    let mut last = None;
    // A log that cannot be read tells of none.
    let _ = index::scan_events(&run.events_path(), &["Checkpointed"], |event| {
        if let Event::Checkpointed { step, .. } = event {
            last = Some(step);
        }
    });
    let (id, folder) = (run.folder(), run.checkpoints_path());
    match last {
        Some(step) => Failure::yours(
            format!(
                "the checkpoints of {id} are gone: its log tells of one of step {step}, {} holds none",
                folder.display()
            ),
            "bring the folder back from a copy, or train again",
        ),
        None if run.is_alive() => Failure::yours(
            format!("the run {id} has no checkpoint yet"),
            "wait for the first one, or lower checkpoint.every",
        ),
        None => Failure::yours(
            format!("the run {id} ended before its first checkpoint"),
            format!("llmtui train --resume {} trains on", run.path().display()),
        ),
    }
}

/// The fold over the whole log.
///
/// # Errors
/// The log is missing or cannot be read.
pub fn fold(run: &RunDir) -> anyhow::Result<RunState> {
    fold_from(run, 0).map_err(|e| no_log(run, &e).into())
}

/// A log that is not there, or cannot be read.
pub fn no_log(run: &RunDir, error: &std::io::Error) -> Failure {
    let (log, folder) = (run.events_path(), run.path().display());
    if error.kind() == std::io::ErrorKind::NotFound {
        return Failure::machine(
            format!(
                "{} is missing: the run has logged nothing yet, or the file was deleted",
                log.display()
            ),
            format!(
                "llmtui train --resume {folder} trains on; a deleted log comes back only from a copy of it"
            ),
        );
    }
    let hint = "check that it is a file, and who may read it";
    Failure::machine(format!("{}: {error}", log.display()), hint)
}

/// # Errors
/// No engine holds the run, and it has no log.
pub fn check_log(run: &RunDir) -> Result<(), Failure> {
    match std::fs::metadata(run.events_path()) {
        // A live engine may not have written its first line yet.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && run.is_alive() => Ok(()),
        Err(e) => Err(no_log(run, &e)),
        Ok(_) => Ok(()),
    }
}

/// Bytes of log that a run has so far.
pub fn logged(run: &RunDir) -> u64 {
    std::fs::metadata(run.events_path()).map_or(0, |log| log.len())
}

/// The fold over the log behind `offset` bytes: of one engine process, where the log was so long when that began.
pub fn fold_from(run: &RunDir, offset: u64) -> std::io::Result<RunState> {
    let mut state = RunState::new();
    let mut tail = Tail::open_at(&run.events_path(), offset)?;
    while let Some(envelope) = tail.next_event()? {
        state.apply(&envelope);
    }
    Ok(state)
}
