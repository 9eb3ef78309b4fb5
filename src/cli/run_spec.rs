//! The spec of a run as its folder holds it: read whole or not at all, and restored from the log where it is gone.

use super::Context;
use super::exit::Failure;
use crate::base::files::{is_path_error, not_read, read_plain_text, write_atomic};
use crate::base::ssh::shell_quote;
use crate::base::text::{one_line, shown};
use crate::engine::{check_reference, keeps_reference};
use crate::run::RunDir;
use crate::run::log::scan_events;
use crate::spec::{RunSpec, SpecSources};
use crate::wire::Event;
use std::io::ErrorKind;

/// The resolved spec the run was created with.
pub fn spec_of(run: &RunDir) -> anyhow::Result<RunSpec> {
    let path = run.spec_path();
    let copy = "restore the file from a copy of the run";
    let text = read_plain_text(&path).map_err(|e| {
        let (what, fix) = not_read(&path, &e);
        let of_the_file = is_path_error(&e) || e.kind() == ErrorKind::InvalidData;
        Failure::machine(what, if of_the_file { copy.into() } else { fix })
    })?;
    let spec = RunSpec::from_yaml(&text).map_err(|e| {
        let what = format!("{}: {e}", shown(&path));
        Failure::user_error(what, format!("correct it, or {copy}"))
    })?;
    let mut logged = None;
    let lost = RunSpec::missing_settings(&text, || {
        logged = logged_spec(run);
        logged.clone()
    })?;
    match lost.is_empty() {
        true => Ok(spec),
        false => Err(incomplete(run, &text, &lost, logged.is_some()).into()),
    }
}

/// Whether a spec makes this run: how many threads compute it is the machine's matter, and so is an engine that was left open.
pub fn same_training(run: &RunSpec, spec: &RunSpec) -> bool {
    let plain = |spec: &RunSpec| match spec.train.epochs {
        // A run knows what its epochs come to, a spec does not.
        Some(_) => spec.clone().on_threads(None).to_step(0),
        None => spec.clone().on_threads(None),
    };
    plain(run) == plain(&spec.clone().with_engine_of(run))
}

/// Where the spec of a run is loaded again from, to change it: its `health.reference_run` may be gone, for the run keeps the curve.
pub fn sources_of(run: &RunDir, spec: &RunSpec, cx: &Context) -> SpecSources {
    let path = spec.health.reference_run.clone();
    SpecSources {
        kept_reference: path.filter(|_| keeps_reference(run, spec)),
        ..cx.spec_sources()
    }
}

/// Refuses a spec that changed so that the curve which `run` keeps of a deleted reference run does not serve any more.
///
/// # Errors
/// Its reference run is gone, and the curve is of another run or for another length.
pub fn check_kept_reference(run: &RunDir, spec: &RunSpec) -> Result<(), Failure> {
    let path = spec.health.reference_run.as_ref();
    match path.is_some_and(|path| !path.exists()) {
        true => {
            check_reference(spec, Some(run)).map_err(|(what, fix)| Failure::user_error(what, fix))
        }
        false => Ok(()),
    }
}

/// A spec of which a part is lost: with the rest, and defaults for that part, another training would go on.
fn incomplete(run: &RunDir, text: &str, lost: &[String], logged: bool) -> Failure {
    const NAMED: usize = 4;
    let path = run.spec_path();
    let what = match text.trim().is_empty() {
        true => format!("{} is empty", shown(&path)),
        false => {
            let named = lost.iter().take(NAMED).map(String::as_str);
            let named: Vec<&str> = named.collect();
            let more = match lost.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!(
                "{} is incomplete: it lacks {}{more}, and defaults would train another way",
                shown(&path),
                named.join(", ")
            )
        }
    };
    let hint = match logged {
        true => format!(
            "move it away (mv {file} {file}.damaged); then llmtui train --resume {} takes the spec that its log holds",
            run.word(),
            file = shell_quote(&one_line(&path.to_string_lossy()))
        ),
        false => "restore the file from a copy of the run".into(),
    };
    Failure::user_error(what, hint)
}

/// The spec that the newest engine of a run began with, as recorded in its log.
fn logged_spec(run: &RunDir) -> Option<serde_json::Value> {
    let mut last = None;
    // An unreadable log has none.
    let _ = scan_events(&run.events_path(), &["Started"], |event| {
        if let Event::Started { spec, .. } = event {
            last = Some(spec);
        }
    });
    last.filter(serde_json::Value::is_object)
}

/// Restores what is lost of a run's small files from its log, and says so: `spec.yaml` where it is gone. What `run.json` said is
/// read from the log anyway, and written when an engine takes the run.
///
/// # Errors
/// The log has no spec that can be trained, or the disk.
pub fn restore(run: &RunDir) -> anyhow::Result<()> {
    if run.is_alive() {
        return Ok(());
    }
    if run.lost_its_header() {
        errln!(
            "note: run.json of {} was missing or damaged; restored from the log",
            one_line(&run.folder())
        );
    }
    let path = run.spec_path();
    let gone = std::fs::symlink_metadata(&path).is_err_and(|e| e.kind() == ErrorKind::NotFound);
    let Some(spec) = gone.then(|| logged_spec(run)).flatten() else {
        return Ok(());
    };
    // By the rules of a spec: what the log holds may be of another program.
    let spec = RunSpec::from_yaml(&spec.to_string())?;
    write_atomic(&path, spec.to_yaml().as_bytes()).map_err(|e| Failure::not_written(&path, &e))?;
    errln!(
        "note: {} was missing; restored from the last spec in the run's log",
        shown(&path)
    );
    Ok(())
}
