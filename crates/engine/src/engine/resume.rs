//! A resume: the checkpoint to continue from, and warnings about differences from the state at the stop.

use super::checkpoint::fingerprint::Match;
use super::checkpoint::{self, CheckpointError, Fault, Fingerprint, Found, SavedState, Store};
use super::emit::Port;
use super::state::{Settings, TrainState};
use super::{EngineError, EngineJob};
use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::data::Dataset;
use crate::run::Parent;
use crate::run::compare::settings;
use crate::run::log::scan_events;
use crate::spec::RunSpec;
use crate::wire::{Best, Event};
use serde_json::Value;
use std::io;
use std::path::Path;

/// How a log says that a resume dropped the moments of its checkpoint.
pub const FRESH_OPTIMIZER: &str =
    "the optimizer begins afresh: its state in the checkpoint is dropped";

/// Where the run will continue, if its newest checkpoint is intact.
pub(super) fn begun_at(job: &EngineJob) -> u64 {
    let saved = job
        .resume
        .then(|| checkpoint::store::list(&job.run_dir.checkpoints_path()));
    saved.and_then(|all| Some(all.first()?.step)).unwrap_or(0)
}

/// Takes up the newest whole checkpoint and says which broken ones were passed over. Without any checkpoint the run begins
/// at step 0; with nothing but broken ones it does not: that is for the user to decide.
pub(super) fn resume(
    job: &EngineJob,
    port: &mut Port<'_>,
    data: &Dataset,
    state: &mut TrainState,
    store: &mut Store,
) -> Result<Option<u64>, EngineError> {
    let Some(Found { step, path }) = newest_or_fresh(job, port, store)? else {
        return Ok(None);
    };
    let before = last_start(job);
    if let Some((_, was)) = &before {
        warn_of_edits(job, port, step, was);
    }
    if let Some(what) = log_lost(job, step) {
        let hint = "the training is not touched by it; the curves begin behind that step";
        port.warn(step, "log_lost", what, hint);
    }
    // Another text may have another vocabulary: the data are compared before weights of other shapes are read.
    let saved = checkpoint::read_state(&path)?;
    if saved.progress.step != step {
        return Err(EngineError::Setup(format!(
            "{} is of step {}, not of step {step}: it does not belong there; delete that checkpoint",
            path.join(checkpoint::STATE).display(),
            saved.progress.step
        )));
    }
    let words = vocabularies(&path, state);
    let now = Fingerprint::of(&job.spec, data).with(&state.models);
    let other = other_data(
        job,
        (step, &saved.fingerprint),
        &now,
        port,
        words.as_deref(),
    )?;
    let was = before.as_ref().map(|(_, spec)| spec);
    load_for(job, &path, state, Loaded::Begins(step)).map_err(|e| match &other {
        // No --force makes weights of another vocabulary fit.
        Some(_) => EngineError::Setup(format!(
            "the checkpoint does not fit the changed data, even with --force: {e}; restore the data, or begin a new run"
        )),
        None => misfit(step, e, was, &job.spec),
    })?;
    if let Some(why) = other {
        port.warn(step, "data_changed", why, "continued because of --force");
    }
    adjust_loaded(job, port, store, state, Loaded::Begins(step))?;
    if let Some(words) = before.and_then(|(steps, _)| replanned(steps, job, state)) {
        port.note(step, words);
    }
    Ok(Some(step))
}

/// What a state was loaded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loaded {
    /// The checkpoint of this step, from which this process begins.
    Begins(u64),
    /// Another one.
    Other(u64),
}

/// Loads a checkpoint: without its moments where the resume drops them, so that they may be of another optimizer.
///
/// # Errors
/// As [`checkpoint::load`].
pub(super) fn load_for(
    job: &EngineJob,
    path: &Path,
    state: &mut TrainState,
    from: Loaded,
) -> Result<SavedState, CheckpointError> {
    match job.fresh_optimizer && matches!(from, Loaded::Begins(_)) {
        true => checkpoint::load_without_moments(path, state),
        false => checkpoint::load(path, state),
    }
}

/// Adjusts a state that was just loaded from a checkpoint, at a resume and whenever the run goes back to it.
///
/// # Errors
/// Those of the optimizers.
pub(super) fn adjust_loaded(
    job: &EngineJob,
    port: &mut Port<'_>,
    store: &Store,
    state: &mut TrainState,
    from: Loaded,
) -> Result<(), EngineError> {
    let (Loaded::Begins(step) | Loaded::Other(step)) = from;
    // The best of then may have been pruned since.
    let stands = |best: &Best| store.has_checkpoint(best.step);
    let progress = &mut state.progress;
    progress.best_saved = progress.best_saved.take().filter(stands);
    let parent = job.run_dir.header().ok().and_then(|header| header.parent);
    if parent.is_some_and(|parent| parent.step == step) {
        // Another run's checkpoint: what that run measured best is kept there, if anywhere.
        progress.best = progress.best.take().filter(stands);
        progress.stale = 0;
    }
    if job.fresh_optimizer && from == Loaded::Begins(step) {
        // Of an average and its weights, training continues with the weights.
        state.show_average(false)?;
        state.reset_optimizer(&job.spec)?;
        port.note(step, FRESH_OPTIMIZER.into());
    }
    Ok(())
}

/// The newest whole checkpoint, or `None` where the run begins at step 0.
fn newest_or_fresh(
    job: &EngineJob,
    port: &mut Port<'_>,
    store: &mut Store,
) -> Result<Option<Found>, EngineError> {
    let (newest, faults) = store.newest_whole(u64::MAX);
    for fault in &faults {
        port.warn(
            0,
            "checkpoint_broken",
            fault.to_string(),
            "an older checkpoint is used instead; delete the broken one",
        );
    }
    if newest.is_some() {
        return Ok(newest);
    }
    // No --force makes it one: from step 0 it would be another training.
    if let Some(from) = job.run_dir.branched_from().filter(|from| from.step > 0) {
        return Err(EngineError::Setup(without_its_start(&from, faults.first())));
    }
    if let Some(fault) = faults.first() {
        return Err(EngineError::Setup(format!(
            "none of the {} checkpoints is whole ({fault}); delete them to start from step 0",
            faults.len()
        )));
    }
    let log = job.run_dir.events_path();
    let logged = last_logged_checkpoint(&log).map_err(|error| {
        EngineError::Setup(format!(
            "there is no checkpoint, and the log {} cannot be read ({error}): whether the run begins is not known; restore the log",
            shown(&log)
        ))
    })?;
    match logged {
        Some(step) if !job.force => Err(EngineError::Setup(format!(
            "the log lists a checkpoint of step {step}, but {} has none: restore the folder, or restart from step 0 with \
             --force",
            job.run_dir.checkpoints_path().display()
        ))),
        Some(step) => {
            let what =
                format!("the checkpoints up to step {step} are gone: the run restarts from step 0");
            port.warn(0, "checkpoints_gone", what, "restarted because of --force");
            Ok(None)
        }
        None => Ok(None),
    }
}

/// A branch without a whole checkpoint: making it was cut short, or its checkpoints are gone or damaged.
fn without_its_start(from: &Parent, fault: Option<&Fault>) -> String {
    let place = format!("{}@{}", one_line(&from.run), from.step);
    let what = match fault {
        Some(fault) => format!("none of its checkpoints is whole ({fault})"),
        None => "its first checkpoint is missing".into(),
    };
    format!(
        "this is a branch of {place}, and {what}: make the branch again: llmtui train --branch {place}"
    )
}

/// Says what `spec.yaml` has otherwise than the spec that the process before began with.
fn warn_of_edits(job: &EngineJob, port: &mut Port<'_>, step: u64, was: &Value) {
    if let Some(changes) = edited(was, &job.spec) {
        port.warn(
            step,
            "spec_edited",
            format!("spec.yaml was changed since the run trained last: {changes}"),
            "put the old values back, or start a new run with other settings: llmtui train --branch RUN -s KEY=VALUE",
        );
    }
}

/// Whether the run goes on as it would have without a stop; says what differs, and refuses other data. Returns what the data are
/// otherwise, where the run goes on because of --force. `vocabularies`: what makes that impossible.
fn other_data(
    job: &EngineJob,
    (step, saved): (u64, &Fingerprint),
    now: &Fingerprint,
    port: &mut Port<'_>,
    vocabularies: Option<&str>,
) -> Result<Option<String>, EngineError> {
    let of_data = !saved.same_data(now);
    match saved.compare(now) {
        Match::Exact => Ok(None),
        Match::Inexact(why) => {
            port.warn(
                step,
                "not_bit_exact",
                format!(
                    "the continuation will not have the same bits as an uninterrupted run: {why}"
                ),
                "set engine, train.threads and train.precision as they were to continue exactly; on a newer processor, LLMTUI_SIMD limits the instructions",
            );
            Ok(None)
        }
        Match::Different(why) if job.force => Ok(Some(why)),
        Match::Different(why) => {
            let way = match vocabularies {
                Some(sizes) => format!("{sizes}; restore the data, or begin a new run"),
                None => format!(
                    "restore {}, or llmtui train --resume {} --force",
                    match of_data {
                        true => "the data",
                        false => "the teacher",
                    },
                    job.run_dir.word()
                ),
            };
            let of = match of_data {
                true => named(&job.spec),
                false => String::new(),
            };
            Err(EngineError::Setup(format!(
                "cannot continue from step {step}: {why}{of}; {way}"
            )))
        }
    }
}

/// The vocabulary of a checkpoint beside that of the run, where they have other sizes: no weights fit then.
fn vocabularies(checkpoint: &Path, state: &TrainState) -> Option<String> {
    let config = crate::base::files::read_small(&checkpoint.join(crate::hf::CONFIG), 1 << 20);
    let config: Value = serde_json::from_slice(&config.ok()?).ok()?;
    let was = config.get("vocab_size")?.as_u64()?;
    let is = state.models.policy.shape().vocab_size as u64;
    (was != is).then(|| {
        let [was, is] = [was, is].map(human::grouped);
        format!("the vocabulary has {is} tokens, that of the checkpoint {was}")
    })
}

/// A checkpoint that is whole and does not fit the run's spec.
fn misfit(step: u64, error: CheckpointError, was: Option<&Value>, is: &RunSpec) -> EngineError {
    use super::checkpoint::CheckpointError as Cause;
    let of_the_disk = matches!(
        error,
        Cause::Write { .. } | Cause::Model(crate::hf::HfError::Io { .. })
    );
    match was.and_then(|was| edited(was, is)) {
        _ if of_the_disk => error.into(),
        Some(changes) => EngineError::Setup(format!(
            "the checkpoint of step {step} does not fit spec.yaml, which was changed since the run trained last: {changes}; put the \
             old values back, or start a new run with these"
        )),
        None => EngineError::Setup(format!(
            "the checkpoint of step {step} does not fit the run: {error}{}",
            // A branch with another optimizer that ended before its first save.
            match error {
                Cause::Tensors(_) => "; --fresh-optimizer continues without its moments",
                _ => "",
            }
        )),
    }
}

/// Steps before a checkpoint that are missing in the log. A kill may cost the newest lines, of steps that are not logged
/// each. Nor does one that cannot be read, which is another sentence.
fn log_lost(job: &EngineJob, step: u64) -> Option<String> {
    // A branch begins with a checkpoint and an empty log.
    let parent = job.run_dir.header().ok().and_then(|header| header.parent);
    let begins_here = parent.is_some_and(|parent| parent.step == step);
    let mut told = if begins_here { step } else { 0 };
    let kinds = [
        "Stepped",
        "Evaluated",
        "Checkpointed",
        "RolledBack",
        "RescueUndone",
        "Finished",
    ];
    let read = scan(&job.run_dir.events_path(), &kinds, |event| match event {
        Event::Stepped { step, .. }
        | Event::Evaluated { step, .. }
        | Event::Checkpointed { step, .. }
        | Event::Finished { step, .. } => told = told.max(step),
        Event::RolledBack { step } | Event::RescueUndone { step, .. } => told = step,
        _ => {}
    });
    if let Err(error) = read {
        let path = job.run_dir.events_path();
        return Some(format!(
            "the log {} cannot be read ({error}): what was changed while the run trained is not known",
            shown(&path)
        ));
    }
    let first = human::grouped(told + 1);
    let steps = match told + 1 == step {
        true => format!("step {first}"),
        false => format!("steps {first} to {}", human::grouped(step)),
    };
    let lost = told + job.spec.train.log_every.max(1) <= step;
    lost.then(|| format!("the log of {steps} is lost"))
}

/// The data of a spec, where somebody named them.
fn named(spec: &RunSpec) -> String {
    let sources = spec.data.all_sources();
    let names: Vec<String> = sources.iter().map(|s| one_line(&s.to_string())).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" ({})", names.join(", ")),
    }
}

/// The events of these kinds in the run's log; a run without a log has none.
///
/// # Errors
/// The log is there and cannot be read.
fn scan(log: &Path, kinds: &[&str], seen: impl FnMut(Event)) -> io::Result<()> {
    match scan_events(log, kinds, seen) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        read => read,
    }
}

/// The last step and the spec that the process before began with.
fn last_start(job: &EngineJob) -> Option<(u64, Value)> {
    let mut before = None;
    // Of an unreadable log `log_lost` warns, here and below.
    let _ = scan(&job.run_dir.events_path(), &["Started"], |event| {
        if let Event::Started {
            max_steps, spec, ..
        } = event
        {
            before = Some((max_steps, spec));
        }
    });
    before
}

/// What a spec says otherwise than the one before, but for where it computes and for how long: `seed 1 → 2`.
fn edited(was: &Value, is: &RunSpec) -> Option<String> {
    // Read by today's rules: of an older program's spec, defaults are filled in.
    let was = RunSpec::from_yaml(&was.to_string()).ok()?;
    let plain = |spec: &RunSpec| spec.clone().on_threads(None).to_step(1).in_steps();
    let specs = [plain(&was).to_value(), plain(is).to_value()];
    let machine = |path: &str| {
        let engine = path == "engine" || path.starts_with("engine.");
        engine || path == "train.activation_checkpointing"
    };
    let shown =
        |value: &Option<Value>| one_line(&crate::spec::shown(value.as_ref().unwrap_or_default()));
    let changes: Vec<String> = settings(&[&specs[0], &specs[1]])
        .into_iter()
        .filter(|setting| !machine(&setting.path))
        .map(|setting| {
            let (was, is) = (shown(&setting.values[0]), shown(&setting.values[1]));
            format!("{} {was} → {is}", setting.path)
        })
        .collect();
    (!changes.is_empty()).then(|| changes.join(", "))
}

/// What another last step than that of the process before means.
fn replanned(before: u64, job: &EngineJob, state: &TrainState) -> Option<String> {
    let now = job.spec.train.max_steps;
    if before == now {
        return None;
    }
    let of_plan = |max_steps| human::number(state.lr(&job.spec.clone().to_step(max_steps)));
    let (is, was) = (of_plan(now), of_plan(before));
    let mut words = format!(
        "the last step is {} now, it was {}",
        human::grouped(now),
        human::grouped(before)
    );
    if is != was {
        words.push_str(&format!(
            ": the {} schedule is recomputed, and the learning rate of the next update is {is}, of the old plan {was}",
            job.spec.schedule.entry().id,
        ));
    }
    Some(words)
}

/// The settings that `Adjust` can change, as recorded in the log. A crash loses what was changed after the checkpoint.
pub(super) fn settings_told(job: &EngineJob) -> Settings {
    let spec = &job.spec;
    let mut told = [
        ("lr", spec.optimizer.lr()),
        ("clip_norm", spec.train.clip_norm),
    ];
    let _ = scan(&job.run_dir.events_path(), &["Adjusted"], |event| {
        if let Event::Adjusted { key, new, .. } = event {
            let known = told.iter_mut().find(|(known, _)| *known == key);
            known.into_iter().for_each(|(_, value)| *value = new.0);
        }
    });
    told
}

/// Step of the newest checkpoint that the log acknowledges.
///
/// # Errors
/// The log is there and cannot be read.
fn last_logged_checkpoint(log: &Path) -> io::Result<Option<u64>> {
    let mut last = None;
    scan(log, &["Checkpointed", "RolledBack"], |event| match event {
        Event::Checkpointed { step, .. } => last = Some(step),
        // Restarted from step 0: earlier checkpoints are discarded.
        Event::RolledBack { step: 0 } => last = None,
        _ => {}
    })?;
    Ok(last)
}

/// Whether the log acknowledges the checkpoint of `step`, and if so, as the best; what the run went back behind does not count.
pub(super) fn logged_as_best(job: &EngineJob, step: u64) -> Option<bool> {
    let mut logged = None;
    let kinds = ["Checkpointed", "RolledBack"];
    let _ = scan(&job.run_dir.events_path(), &kinds, |event| match event {
        Event::Checkpointed { step: at, best, .. } if at == step => {
            logged = Some(best || logged == Some(true));
        }
        Event::RolledBack { step: to } if to < step => logged = None,
        _ => {}
    });
    logged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_missing_has_no_checkpoint_and_an_unreadable_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("events.jsonl");
        assert_eq!(last_logged_checkpoint(&log).unwrap(), None);
        // A folder cannot be read as a file, also by root.
        std::fs::create_dir(&log).unwrap();
        assert!(last_logged_checkpoint(&log).is_err());
    }
}
