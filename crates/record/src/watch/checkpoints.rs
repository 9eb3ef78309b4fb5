//! Folders of checkpoints as transformers names them, and which of the states in them is the newest.

use crate::base::clock::UnixMillis;
use std::path::Path;

/// Logs that changed within so many milliseconds of each other are of the same run.
pub const TOGETHER: u64 = 60_000;

/// The step of a checkpoint's folder, as transformers names it.
pub fn checkpoint(folder: &Path) -> Option<u64> {
    let name = folder.file_name()?.to_str()?;
    name.strip_prefix("checkpoint-")?.parse().ok()
}

/// The state that was written last; of those of one moment that of the highest step.
pub fn newest<P: AsRef<Path>>(
    states: impl Iterator<Item = (UnixMillis, P)>,
) -> Option<(UnixMillis, P)> {
    states.max_by_key(|(changed, path)| (*changed, step_of(path)))
}

/// The step of a state's checkpoint; a file beside the checkpoints is written after the last one.
fn step_of(path: &impl AsRef<Path>) -> u64 {
    let step = path.as_ref().parent().and_then(checkpoint);
    step.unwrap_or(u64::MAX)
}

/// The newest state of a run among its checkpoints: of those that changed together the one of the highest step, because copies
/// have any order in time.
pub fn furthest<P: AsRef<Path>>(
    states: impl Iterator<Item = (UnixMillis, P)>,
) -> Option<(UnixMillis, P)> {
    let states: Vec<(UnixMillis, P)> = states.collect();
    let last = states.iter().map(|(changed, _)| *changed).max()?;
    states
        .into_iter()
        .filter(|(changed, _)| last.0 - changed.0 <= TOGETHER)
        .max_by_key(|(changed, path)| (step_of(path), *changed))
}
