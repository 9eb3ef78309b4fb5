//! Which run an argument means, and what its directory and log say.

use super::{Context, exit::Failure};
use crate::run::index::RunStatus;
use crate::run::{RunDir, RunError, RunState, Tail, index};
use crate::spec::RunSpec;
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

/// The fold over the whole log.
pub fn fold(run: &RunDir) -> std::io::Result<RunState> {
    fold_from(run, 0)
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
