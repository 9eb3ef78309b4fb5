//! Runs for a comparison: whole logs folded, ours and those of other programs.

use crate::base::clock::SystemClock;
use crate::base::files::read_plain_text;
use crate::base::text::shown;
use crate::run::compare::Track;
use crate::run::objective::Contents;
use crate::run::{RunDir, RunError, index};
use crate::spec::RunSpec;
use crate::ui::rows::ComparedRun;
use crate::watch::{ExternalRun, Mapping, find};
use std::io::ErrorKind;
use std::path::Path;

/// Folds the log at a path: a run's directory, or a log of another program.
///
/// # Errors
/// A sentence: it is neither, or cannot be read.
pub fn read_track(path: &Path) -> Result<Track, String> {
    let told = |e: std::io::Error| match e.kind() {
        ErrorKind::NotFound => format!("{} has no log", shown(path)),
        _ => format!("{}: {e}", shown(path)),
    };
    match RunDir::open(path) {
        Ok(run) => return Track::of_run(&run).map_err(told),
        Err(RunError::NotARun(_)) => {}
        Err(RunError::Io { .. }) if path.is_file() => {}
        Err(e) => return Err(e.to_string()),
    }
    let found = find(path, None).map_err(|e| e.to_string())?;
    let mut track = Track::new(&found.name);
    let mut watched = ExternalRun::open(found, Mapping::default(), Box::new(SystemClock::new()));
    watched
        .read_all(|envelope| track.apply(envelope))
        .map_err(told)?;
    Ok(track)
}

/// What a run of ours came to, without reading its whole log; `None` for logs of other programs, and where the folder cannot be
/// read.
pub fn read_entrant(path: &Path) -> Option<ComparedRun> {
    let run = RunDir::open(path).ok()?;
    let text = read_plain_text(run.spec_path()).ok()?;
    let spec = RunSpec::from_yaml(&text).ok()?.to_value();
    Some(ComparedRun {
        contents: Contents::of_run(&run, &spec),
        spec,
        run: index::summarize(&run).ok()?,
    })
}
