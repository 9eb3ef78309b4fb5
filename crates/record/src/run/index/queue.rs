//! Runs that wait for each other, by what their logs say.

use super::{open_all, scan};
use crate::base::text::one_line;
use crate::run::RunDir;
use std::path::Path;

/// The run that another one waits for, or waited for when it ended before its turn. `None` once its turn has come, and where that
/// run is not beside it.
pub fn waits_for(run: &RunDir) -> Option<RunDir> {
    let folder = folder_waited_for(run)?;
    let name = Path::new(&folder).file_name()?;
    RunDir::open(&run.path().parent()?.join(name)).ok()
}

fn folder_waited_for(run: &RunDir) -> Option<String> {
    let size = std::fs::metadata(run.events_path()).ok()?.len();
    scan::read(run, size).ok()?.queued_after
}

/// The last run of the queue behind this one: itself, where no live run beside it waits for it. Of several that wait for the same
/// run the newest counts.
pub fn end_of_queue(run: &RunDir) -> RunDir {
    let beside = run.path().parent().map(open_all);
    let beside = beside.and_then(Result::ok).unwrap_or_default();
    let live = beside.into_iter().flatten().filter(RunDir::is_alive);
    let mut waiting: Vec<(String, RunDir)> = live
        .filter_map(|run| Some((folder_waited_for(&run)?, run)))
        .collect();
    // Names begin with a date.
    waiting.sort_by_key(|(_, run)| run.folder());
    let mut last = run.clone();
    let behind = |waiting: &[(String, RunDir)], last: &RunDir| {
        let name = one_line(&last.folder());
        waiting.iter().rposition(|(after, _)| *after == name)
    };
    while let Some(at) = behind(&waiting, &last) {
        last = waiting.remove(at).1;
    }
    last
}
