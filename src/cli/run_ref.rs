//! Which run an argument means, and what its directory and log say.

use super::{Context, exit::Failure};
use crate::base::files::is_path_error;
use crate::base::ssh::shell_quote;
use crate::base::text::{one_line, shown};
use crate::pipeline::{self, PipelineDir};
use crate::run::checkpoints::step_in;
use crate::run::index::{ResolveError, RunStatus, RunSummary};
use crate::run::log::scan_events;
use crate::run::{CheckpointEntry, RunDir, RunError, RunState, Tail, index};
use crate::wire::{Event, Outcome};
use std::collections::BTreeSet;
use std::path::Path;

pub use super::run_spec::{check_kept_reference, restore, same_training, sources_of, spec_of};

/// What to do where `--runs-dir` names no folder.
pub const RUNS_DIR: &str = "name a folder with --runs-dir DIR";

/// The named run, or the newest live one.
pub fn find(word: Option<&str>, cx: &Context) -> anyhow::Result<RunDir> {
    match word {
        Some(word) => named(word, cx),
        None => index::newest_live(&cx.runs_dir)?.ok_or_else(|| {
            Failure::user_error(
                format!("no live run in {}", shown(&cx.runs_dir)),
                "llmtui runs",
            )
            .into()
        }),
    }
}

/// Resolves an argument to a run.
pub fn named(word: &str, cx: &Context) -> anyhow::Result<RunDir> {
    index::resolve(&cx.runs_dir, word).map_err(|e| not_found(word, &e, cx).into())
}

/// A word that means no run. Lists show pipelines beside runs, so it may be one.
pub fn not_found(word: &str, error: &ResolveError, cx: &Context) -> Failure {
    if let Some(failure) = a_checkpoint(word, &cx.runs_dir) {
        return failure;
    }
    // A path of a pipeline's file is one that is no run.
    let unknown = matches!(error, ResolveError::Unknown { .. } | ResolveError::Run(_));
    let dir = PipelineDir::resolve(&cx.runs_dir, word).ok();
    let state = dir.filter(|_| unknown).and_then(|dir| dir.state().ok());
    let Some(state) = state else {
        return match unknown && pipeline::text_of(word, &cx.spec_sources()).is_some() {
            true => never_started(word, cx),
            false => match error {
                ResolveError::Run(error) => Failure::run(error),
                ResolveError::Io { error: cause, path } => {
                    let hint = match is_path_error(cause) {
                        true => RUNS_DIR.to_string(),
                        false => format!("check the disk and the permissions of {}", shown(path)),
                    };
                    Failure::unwritten(error.to_string(), cause, hint)
                }
                _ => Failure::user_error(error.to_string(), "llmtui runs"),
            },
        };
    };
    let runs = state.stages.iter().filter_map(|stage| {
        let run = stage.run.as_ref()?;
        Some(one_line(&format!("{} ({})", run, stage.name)))
    });
    let runs: Vec<String> = runs.collect();
    let what = format!("{word:?} is a pipeline, but one run is needed");
    match runs.is_empty() {
        true => Failure::user_error(what, "none of its stages has a run yet: llmtui runs"),
        false => Failure::user_error(
            what,
            format!("name the run of a stage: {}", runs.join(", ")),
        ),
    }
}

/// A checkpoint, by its folder or as `RUN@STEP`, where a run is asked for.
fn a_checkpoint(word: &str, runs_dir: &Path) -> Option<Failure> {
    let path = std::path::absolute(word).ok()?;
    let folder = path.file_name()?.to_string_lossy().into_owned();
    let (run, step) = match step_in(&folder) {
        Some(step) => (RunDir::open(path.parent()?.parent()?).ok()?, step),
        None => {
            let (run, step) = word.rsplit_once('@')?;
            let step = whole_number(step).ok()?;
            (index::resolve(runs_dir, run).ok()?, step)
        }
    };
    if let Err(gone) = checkpoint_of(&run, Some(step)) {
        return Some(gone);
    }
    let what = format!("{word:?} is a checkpoint, but a run is needed");
    let branch = command("train --branch", run.path(), runs_dir);
    let id = one_line(&run.folder());
    let branch = branch.replacen(&id, &format!("{id}@{step}"), 1);
    let newest = run.checkpoints().last().map(|c| c.step);
    let hint = match newest == Some(step) {
        true => format!("it is the latest of {id}: name the run"),
        false => format!("the run is {id}; to continue from this step: {branch}"),
    };
    Some(Failure::user_error(what, hint))
}

/// Whether a word that means no run means a pipeline: one that was started, a file or a name.
pub fn means_a_pipeline(word: &str, cx: &Context) -> bool {
    PipelineDir::resolve(&cx.runs_dir, word).is_ok()
        || pipeline::text_of(word, &cx.spec_sources()).is_some()
}

/// Whether a word is the name or the file of a pipeline and of no preset.
pub fn names_a_pipeline(word: &str, cx: &Context) -> bool {
    let sources = cx.spec_sources();
    pipeline::text_of(word, &sources).is_some()
        && crate::spec::preset_text(word, &sources).is_none()
}

/// A pipeline's name or file where one that was started, or a run of it, is asked for.
fn never_started(word: &str, cx: &Context) -> Failure {
    let folder = shown(&cx.runs_dir);
    let what = format!("{word:?} is a pipeline, but none of that name was started in {folder}");
    let word = shell_quote(&one_line(word));
    Failure::user_error(
        what,
        format!("llmtui train {word}{}", options(&cx.runs_dir)),
    )
}

/// What a run that goes on or stops by itself leaves of its pipeline: how to go on with the stages behind it.
pub fn of_a_pipeline(run: &RunDir, runs_dir: &Path) -> Option<String> {
    let of = pipeline::membership(run, runs_dir)?;
    let resume = of.resume(runs_dir)?;
    Some(format!(
        "it is stage {} of pipeline {}: {resume} continues with the later stages",
        of.stage,
        one_line(&of.state.name)
    ))
}

/// A pipeline's name or file where a spec is asked for.
pub fn is_a_pipeline(word: &str) -> Failure {
    let what = format!("{word:?} is a pipeline, but one run is needed");
    let word = shell_quote(&one_line(word));
    let hint = format!(
        "llmtui train {word} --dry-run plans its stages; llmtui presets show {word} shows them"
    );
    Failure::user_error(what, hint)
}

/// Whether a word that means a run is its path, or its whole id or name.
pub fn is_whole_name(word: &str, run: &RunDir) -> bool {
    let own = run.header().ok().map(|header| [header.id, header.name]);
    let mut names = own.into_iter().flatten().chain([run.folder()]);
    is_path_of(word, &["run.json"]) || names.any(|name| name == word)
}

/// As a path a word is read where it leads to a folder with one of `files`, or has a slash.
pub fn is_path_of(word: &str, files: &[&str]) -> bool {
    let path = Path::new(word);
    let holds = |file: &&str| path.join(file).is_file();
    word.contains('/') && path.is_dir() || files.iter().any(holds)
}

/// A command on a run that works in the folder where this one was typed: with the run's name, and `--runs-dir` where that is
/// not the default; with its path where the name means another run.
pub fn command(verb: &str, run: &Path, runs_dir: &Path) -> String {
    let id = run.file_name().unwrap_or_default().to_string_lossy();
    let absolute = |path: &Path| std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    let folder = run.parent().and_then(|folder| absolute(folder).ok());
    let named = folder.is_some() && folder == absolute(runs_dir).ok();
    // What has that name in the working directory is found first.
    let found = index::resolve(runs_dir, &id);
    let own = found.map_or(true, |found| {
        absolute(found.path()).ok() == absolute(run).ok()
    });
    match named && own {
        true => format!("llmtui {verb} {}{}", shell_quote(&id), options(runs_dir)),
        false => {
            let here = std::env::current_dir().unwrap_or_default();
            let path = run.strip_prefix(here).unwrap_or(run);
            format!("llmtui {verb} {}", shell_quote(&path.to_string_lossy()))
        }
    }
}

/// What a command needs besides a run's name.
pub fn options(runs_dir: &Path) -> String {
    index::option(runs_dir)
}

/// What `--resume auto` finds.
pub struct Unfinished {
    /// The newest run that can go on.
    pub run: Option<RunDir>,
    /// A newer one that cannot, and why it ended.
    pub passed_over: Option<(RunDir, String)>,
}

/// The newest run that has steps left, is not alive, and passes `wanted`. One that failed before its first checkpoint
/// would only fail again; one that the machine ended before its first step gives way to an older one, which has something to go
/// on from. An attempt that a pipeline gave up is no run to go on with: its stage has another one.
pub fn newest_unfinished(
    runs_dir: &Path,
    wanted: &dyn Fn(&RunDir) -> bool,
) -> anyhow::Result<Unfinished> {
    let (runs, _unreadable) = index::list(runs_dir)?;
    let open = |status| !matches!(status, RunStatus::Live | RunStatus::Finished);
    let mut passed_over = None;
    let mut not_begun = None;
    let given_up: BTreeSet<String> = PipelineDir::list(runs_dir)
        .into_iter()
        .flat_map(|(_, state)| state.stages)
        .flat_map(|stage| stage.earlier_runs)
        .collect();
    let goes_on = |run: &&RunSummary| open(run.status) && !given_up.contains(&run.created_as);
    for summary in runs.iter().filter(goes_on) {
        match RunDir::open(&summary.path) {
            Ok(run) if !wanted(&run) => {}
            Ok(run) if summary.status == RunStatus::Failed && fails_again(&run) => {
                passed_over.get_or_insert_with(|| (run, one_line(&summary.message)));
            }
            Ok(run) if failed_before_first_step(&run) => {
                not_begun.get_or_insert_with(|| (run, one_line(&summary.message)));
            }
            Ok(run) if not_begun.is_some() && run.checkpoints().is_empty() => {}
            Ok(run) => {
                return Ok(Unfinished {
                    run: Some(run),
                    passed_over: passed_over.or(not_begun),
                });
            }
            Err(RunError::NotARun(_)) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(Unfinished {
        run: not_begun.map(|(run, _)| run),
        passed_over,
    })
}

impl Unfinished {
    /// What was passed over, and why it ended.
    pub fn passed_over_words(&self) -> Option<String> {
        let (run, why) = self.passed_over.as_ref()?;
        let words = format!("{} failed before its first checkpoint", run.folder());
        Some(match why.as_str() {
            "" => one_line(&words),
            why => one_line(&format!("{words}: {why}")),
        })
    }
}

/// It failed before its first step, and nothing of it is saved.
pub fn failed_before_first_step(run: &RunDir) -> bool {
    let failed = |run: RunSummary| run.status == RunStatus::Failed && run.step == 0;
    index::summarize(run).is_ok_and(failed) && run.checkpoints().is_empty()
}

/// Its data, its spec or its training ended it, and it has no checkpoint to go on from. What the machine or a bug ended
/// may go well the next time.
fn fails_again(run: &RunDir) -> bool {
    let its_own = matches!(
        last_outcome(run),
        Some(Outcome::Failed | Outcome::Refused | Outcome::Invalid)
    );
    its_own && run.checkpoints().is_empty()
}

/// How the newest engine process of a run ended.
pub fn last_outcome(run: &RunDir) -> Option<Outcome> {
    let mut last = None;
    // An unreadable log has no end.
    let _ = scan_events(&run.events_path(), &["Finished"], |event| {
        if let Event::Finished { outcome, .. } = event {
            last = Some(outcome);
        }
    });
    last
}

/// A run without a checkpoint: none was saved yet, or they are gone.
pub fn no_checkpoint(run: &RunDir) -> Failure {
    let mut last = None;
    // An unreadable log has none.
    let _ = scan_events(&run.events_path(), &["Checkpointed"], |event| {
        if let Event::Checkpointed { step, .. } = event {
            last = Some(step);
        }
    });
    let (id, folder) = (run.folder(), run.checkpoints_path());
    match last {
        Some(step) => Failure::user_error(
            format!(
                "the checkpoints of {id} are gone: its log lists one at step {step}, but {} has none",
                shown(&folder)
            ),
            "restore the folder from a copy, or train again",
        ),
        None if run.is_alive() => Failure::user_error(
            format!("the run {id} has no checkpoint yet"),
            "wait for the first one, or lower checkpoint.every",
        ),
        None => {
            let why = index::summarize(run).map(|summary| one_line(&summary.message));
            let why = why.ok().filter(|why| !why.is_empty());
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            // A name means its newest run, and an attempt that failed at once hides the run before it.
            let hint = match namesake(run) {
                Some(other) => format!("an earlier run of this name has one: {other}"),
                None => format!("llmtui train --resume {} continues it", shown(run.path())),
            };
            let what = format!("the run {id} ended before its first checkpoint{why}");
            Failure::user_error(what, hint)
        }
    }
}

/// The checkpoint that `RUN@STEP` names where `RUN` is one; `None` for other words.
pub fn at_step(word: &str, cx: &Context) -> Option<anyhow::Result<CheckpointEntry>> {
    let (run, step) = word.rsplit_once('@')?;
    let run = named(run, cx).ok()?;
    let found = whole_number(step).and_then(|step| checkpoint_of(&run, Some(step)));
    Some(found.map_err(Into::into))
}

/// The step of `RUN@STEP`.
///
/// # Errors
/// It is no number.
pub fn whole_number(text: &str) -> Result<u64, Failure> {
    let what = || {
        Failure::user_error(
            format!("`{text}` is not a step number"),
            "RUN@500 names the checkpoint at step 500",
        )
    };
    text.replace([',', '_'], "").parse().map_err(|_| what())
}

/// A run's checkpoint of a step, or its newest.
///
/// # Errors
/// There is none; the message says which there are.
pub fn checkpoint_of(run: &RunDir, step: Option<u64>) -> Result<CheckpointEntry, Failure> {
    let kept = run.checkpoints();
    let found = match step {
        Some(step) => kept.iter().find(|entry| entry.step == step),
        None => kept.last(),
    };
    found.cloned().ok_or_else(|| {
        let steps: Vec<String> = kept.iter().map(|entry| entry.step.to_string()).collect();
        match (step, steps.is_empty()) {
            (_, true) => no_checkpoint(run),
            (step, false) => Failure::user_error(
                format!(
                    "{} has no checkpoint at step {}",
                    run.folder(),
                    step.unwrap_or(0)
                ),
                format!("it keeps {}", steps.join(", ")),
            ),
        }
    })
}

/// The newest run beside this one that has its name and a checkpoint.
fn namesake(run: &RunDir) -> Option<String> {
    let name = run.header().ok()?.name;
    let (runs, _unreadable) = index::list(run.path().parent()?).ok()?;
    let named = runs
        .iter()
        .filter(|other| other.name == name && other.path != run.path());
    let kept = |path: &Path| RunDir::open(path).is_ok_and(|run| !run.checkpoints().is_empty());
    let other = named.map(|other| &other.path).find(|path| kept(path))?;
    Some(one_line(&other.file_name()?.to_string_lossy()))
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
    let (log, folder) = (run.events_path(), shown(run.path()));
    if error.kind() == std::io::ErrorKind::NotFound {
        return Failure::machine(
            format!(
                "{} is missing: the run has logged nothing yet, or the file was deleted",
                shown(&log)
            ),
            format!(
                "llmtui train --resume {folder} continues it; a deleted log can be restored only from a copy"
            ),
        );
    }
    let hint = "check that it is a file and readable";
    Failure::machine(format!("{}: {error}", shown(&log)), hint)
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
    state.damaged = tail.damaged();
    state.unknown += tail.newer();
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_a_run_so_that_it_is_found_from_here() {
        let dir = tempfile::tempdir().unwrap();
        let runs = dir.path().join("my runs");
        let clock = crate::base::clock::SystemClock::new();
        let run = RunDir::create(&runs, "a", "{}", "", &clock).unwrap();
        let (id, shown) = (run.id(), runs.display());
        assert_eq!(
            command("train --resume", run.path(), &runs),
            format!("llmtui train --resume {id} --runs-dir '{shown}'")
        );
        // Of another folder, and under another name.
        let path = run.path().display();
        let by_path = format!("llmtui chat '{path}'");
        assert_eq!(command("chat", run.path(), Path::new("runs")), by_path);
        let copy = runs.join("copy");
        std::fs::create_dir(&copy).unwrap();
        std::fs::copy(run.header_path(), copy.join("run.json")).unwrap();
        // A copy is found by its folder's name.
        let by_name = format!("llmtui chat copy --runs-dir '{shown}'");
        assert_eq!(command("chat", &copy, &runs), by_name);
        let found = index::resolve(&runs, "copy").unwrap();
        assert_eq!(found.path(), copy);
        assert_eq!(
            command("chat", Path::new("runs/demo-x"), Path::new("runs")),
            "llmtui chat demo-x"
        );
    }

    #[test]
    fn a_run_without_a_checkpoint_points_to_its_namesake_that_has_one() {
        let dir = tempfile::tempdir().unwrap();
        let clock = crate::base::clock::SystemClock::new();
        let create = || RunDir::create(dir.path(), "a", "{}", "", &clock).unwrap();
        let (trained, failed) = (create(), create());
        let hint = no_checkpoint(&failed).hint;
        assert!(hint.starts_with("llmtui train --resume "), "{hint}");
        let step = trained.checkpoints_path().join("step-000020");
        std::fs::create_dir_all(&step).unwrap();
        std::fs::write(step.join("manifest.json"), "{}").unwrap();
        let hint = no_checkpoint(&failed).hint;
        let id = trained.folder();
        assert_eq!(hint, format!("an earlier run of this name has one: {id}"));
    }

    #[test]
    fn a_checkpoint_in_place_of_a_run_is_met_with_its_run_and_with_a_branch() {
        let dir = tempfile::tempdir().unwrap();
        let clock = crate::base::clock::SystemClock::new();
        let run = RunDir::create(dir.path(), "a", "{}", "", &clock).unwrap();
        for step in [10, 20] {
            let folder = run.checkpoint_path(step);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("manifest.json"), "{}").unwrap();
            std::fs::write(folder.join("state.json"), "{}").unwrap();
        }
        let id = run.folder();
        let old = run.checkpoints()[0].path.display().to_string();
        for word in [&format!("{id}@10"), &old] {
            assert!(PipelineDir::resolve(dir.path(), word).is_err());
            assert!(index::resolve(dir.path(), word).is_err());
            let failure = a_checkpoint(word, dir.path()).unwrap();
            assert!(failure.what.contains("is a checkpoint"), "{failure:?}");
            let branch = format!("train --branch {id}@10");
            assert!(failure.hint.contains(&branch), "{failure:?}");
        }
        for gone in [format!("{id}@9"), old.replace("step-000010", "step-000009")] {
            let failure = a_checkpoint(&gone, dir.path()).unwrap();
            assert!(
                failure.what.contains("no checkpoint at step 9"),
                "{failure:?}"
            );
            assert!(failure.hint.contains("it keeps 10, 20"), "{failure:?}");
        }
        let newest = a_checkpoint(&format!("{id}@20"), dir.path()).unwrap();
        assert!(newest.hint.contains("name the run"), "{newest:?}");
    }
}
