//! Runs of a series (`ladder`, `sweep`): which earlier runs already are what one of its runs would be, the process that trains one,
//! and what it came to.

use super::Context;
use super::exit::{Exit, Failure};
use super::pipeline::{child, is_remote};
use super::run_ref::{self, same_training, spec_of};
use crate::base::clock::UnixMillis;
use crate::base::files::read_plain_text;
use crate::data::{DataEnv, source};
use crate::engine::FRESH_OPTIMIZER;
use crate::engine::checkpoint::fingerprint::Match;
use crate::engine::checkpoint::{self, Fingerprint};
use crate::run::RunDir;
use crate::run::index::{self, CHANGED_AT, RunStatus, RunSummary};
use crate::run::log::scan_events;
use crate::spec::RunSpec;
use crate::wire::{Event, Outcome};
use serde_json::json;
use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most entries of a folder of data that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// Fingerprints of the data of a series, which are read once: most of its runs train on the same.
#[derive(Default)]
pub struct SeenData(HashMap<String, Option<Fingerprint>>);

impl SeenData {
    /// What the data of a spec are now; `None` where they cannot be read.
    fn of(&mut self, spec: &RunSpec, cx: &Context) -> Option<&Fingerprint> {
        let (unit, seq_len) = (spec.method.needs().unit, spec.model.seq_len);
        let read_as = format!("{unit:?} {:?} {seq_len}", spec.usual_train_on());
        let key = json!([spec.to_value()["data"], read_as]).to_string();
        let read = || {
            let data = spec.open_data(&DataEnv::from_env(&cx.env)).ok()?;
            Some(Fingerprint::of(spec, &data))
        };
        self.0.entry(key).or_insert_with(read).as_ref()
    }

    /// Whether a run was trained on other data than those of the spec now. One without a checkpoint does not say what it read, and
    /// data at the hub are not downloaded to compare them.
    fn are_others(&mut self, run: &RunDir, spec: &RunSpec, cx: &Context) -> bool {
        let Some(newest) = run.checkpoints().pop() else {
            return false;
        };
        if is_remote(spec) {
            return false;
        }
        let Ok(saved) = checkpoint::read_state(&newest.path) else {
            return true;
        };
        let now = self.of(spec, cx);
        now.is_none_or(|now| matches!(saved.fingerprint.compare(now), Match::Different(_)))
    }
}

/// The runs of exactly this spec, newest first, whose data are as they found them and which nobody changed on their way.
fn same_runs(spec: &RunSpec, data: &mut SeenData, cx: &Context) -> Vec<(RunDir, RunSummary)> {
    let Ok((runs, _unreadable)) = index::list(&cx.runs_dir) else {
        return Vec::new();
    };
    // A branch goes on from a checkpoint; a run with `train.from` has a parent as well, and is one of its spec.
    let of_name = runs
        .into_iter()
        .filter(|run| run.name == spec.name && (run.parent.is_none() || !run.preset.is_empty()));
    let same = of_name.filter_map(|summary| {
        let run = RunDir::open(&summary.path).ok()?;
        let same = spec_of(&run).is_ok_and(|own| is_trial(&own, spec))
            && !changed_since(spec, summary.created)
            && !was_extended(&run)
            && !was_adjusted(&run)
            && !data.are_others(&run, spec, cx);
        same.then_some((run, summary))
    });
    same.collect()
}

/// Whether a run's own spec is that of a trial. Unlike a resume a trial has its threads as well: they may be what is tried.
fn is_trial(run: &RunSpec, spec: &RunSpec) -> bool {
    run.train.threads == spec.train.threads && same_training(run, spec)
}

/// What an earlier run of the same spec is to a series.
pub enum State {
    /// It ended by itself: with all its steps, or with a failure that would be the same again.
    Ended,
    /// It can go on from a checkpoint.
    Unfinished,
    Live,
    Nothing,
}

pub fn state(run: &RunDir, summary: &RunSummary) -> State {
    match summary.status {
        RunStatus::Finished => State::Ended,
        RunStatus::Live => State::Live,
        RunStatus::Failed if run_ref::last_outcome(run) == Some(Outcome::Failed) => State::Ended,
        RunStatus::Stopped | RunStatus::Crashed | RunStatus::Failed | RunStatus::Unreadable => {
            match run.checkpoints().is_empty() {
                true => State::Nothing,
                false => State::Unfinished,
            }
        }
        RunStatus::Empty => State::Nothing,
    }
}

/// What there is of a trial already.
pub struct Earlier<T> {
    /// Of the newest run that ended by itself and counts.
    pub ended: Option<T>,
    /// Else the newest one that can go on.
    pub begun: Option<RunDir>,
}

impl<T> Earlier<T> {
    pub fn none() -> Self {
        let (ended, begun) = (None, None);
        Earlier { ended, begun }
    }
}

/// Looks at the runs of a trial's spec; `counts` gives what is wanted of one that ended by itself, `None` where it is of no use.
///
/// # Errors
/// One of them trains now: a second one beside it would only take its time.
pub fn earlier<T>(
    spec: &RunSpec,
    data: &mut SeenData,
    cx: &Context,
    counts: impl Fn(&RunDir, &RunSummary) -> Option<T>,
) -> Result<Earlier<T>, Failure> {
    let mut begun = None;
    for (run, summary) in same_runs(spec, data, cx) {
        match state(&run, &summary) {
            State::Ended => {
                if let Some(ended) = counts(&run, &summary) {
                    let (ended, begun) = (Some(ended), None);
                    return Ok(Earlier { ended, begun });
                }
            }
            State::Unfinished => {
                begun.get_or_insert(run);
            }
            State::Live => return Err(is_live(&run, cx)),
            State::Nothing => {}
        }
    }
    let ended = None;
    Ok(Earlier { ended, begun })
}

fn is_live(run: &RunDir, cx: &Context) -> Failure {
    let what = format!("{} trains with the same settings now", run.folder());
    let attach = run_ref::command("attach", run.path(), &cx.runs_dir);
    let stop = run_ref::command("stop", run.path(), &cx.runs_dir);
    Failure::user_error(
        what,
        format!("{attach} shows it; {stop} ends it; --fresh trains another"),
    )
}

/// The engine of a run in a process of its own, which the signal of a stop reaches, and which a dashboard can attach to.
///
/// # Errors
/// This program cannot be found.
pub fn command(run: &RunDir, spec: &RunSpec, force: bool, cx: &Context) -> anyhow::Result<Command> {
    let mut command = child::this_program(cx)?;
    command.arg("train").arg("--resume").arg(run.path());
    command.arg("--headless").stdout(Stdio::null());
    if force {
        command.arg("--force");
    }
    // Threads are the machine's matter: a run's spec does not keep those of a resume.
    if let Some(threads) = spec.train.threads {
        command.args(["-s", &format!("threads={threads}")]);
    }
    Ok(command)
}

/// Whether a run was stopped before it trained: no step, and no checkpoint to go on from.
pub fn has_nothing(run: &RunDir, summary: &RunSummary) -> bool {
    let ended = matches!(summary.status, RunStatus::Empty | RunStatus::Stopped);
    ended && summary.step == 0 && summary.curve.is_empty() && run.checkpoints().is_empty()
}

/// Why a run of the series did not take all its steps, with its own exit code; without a hint.
pub fn ended_early(
    run: &RunDir,
    summary: &RunSummary,
    said: Option<String>,
    status: ExitStatus,
) -> Failure {
    let why = index::refusal(run).or(said);
    let why = why.unwrap_or_else(|| summary.message.clone());
    Failure {
        exit: unfinished(run_ref::last_outcome(run)),
        what: match why.is_empty() {
            true => format!("its process ended without a message ({status})"),
            false => why,
        },
        hint: String::new(),
    }
}

/// The exit code of a series whose run did not take all its steps: the run's own, unless that would be success.
fn unfinished(outcome: Option<Outcome>) -> Exit {
    match outcome.map(Exit::from) {
        None | Some(Exit::Done) => Exit::Machine,
        Some(exit) => exit,
    }
}

/// What a finished run came to.
pub struct Done {
    pub id: String,
    pub seconds: f64,
    /// Validation loss after the last step, nats per token.
    pub val_loss: f64,
}

/// What a run that took all its steps came to; `None` without a validation loss at its end.
pub fn finished(run: &RunDir, summary: &RunSummary) -> Option<Done> {
    let val_loss = (summary.status == RunStatus::Finished).then(|| last_loss(run))??;
    Some(Done {
        id: summary.id.clone(),
        seconds: summary.seconds,
        val_loss,
    })
}

fn last_loss(run: &RunDir) -> Option<f64> {
    let mut loss = None;
    scan_events(&run.events_path(), &["Finished"], |event| {
        // A resume that is refused leaves the run as it stood.
        if let Event::Finished {
            outcome, val_loss, ..
        } = event
            && !outcome.is_refusal()
        {
            loss = val_loss.map(|loss| loss.0);
        }
    })
    .ok()?;
    loss.filter(|loss: &f64| loss.is_finite())
}

/// Whether a resume gave it another length: its schedule is then that of no run of this length. What cannot be read may say so.
fn was_extended(run: &RunDir) -> bool {
    let of_the_machine = |word: &str| {
        let key = word.split('=').next().unwrap_or(word).trim();
        let key = key.replace('-', "_");
        let key = key.strip_prefix("train.").unwrap_or(&key);
        key == "threads" || key == "engine" || key.starts_with("engine.")
    };
    let Ok(asked) = read_plain_text(run.asked_path()) else {
        return true;
    };
    let changed = asked.lines().filter(|line| line.starts_with(CHANGED_AT));
    let mut words = changed.flat_map(|line| line.split(" -s ").skip(1));
    words.any(|word| !of_the_machine(word))
}

/// Whether somebody changed a setting of it while it trained, or dropped its optimizer's state. What cannot be read may have been.
fn was_adjusted(run: &RunDir) -> bool {
    let mut adjusted = false;
    let kinds = ["Adjusted", "Noted"];
    let read = scan_events(&run.events_path(), &kinds, |event| match event {
        Event::Adjusted { .. } => adjusted = true,
        Event::Noted { text, .. } => adjusted |= text == FRESH_OPTIMIZER,
        _ => {}
    });
    read.is_err() || adjusted
}

/// Whether a file that the spec names, by itself, by a pattern or by its folder, was written after `then`.
fn changed_since(spec: &RunSpec, then: UnixMillis) -> bool {
    let mut paths = spec.paths();
    paths.retain(|path| path != Path::new(&spec.data.cache));
    let then = UNIX_EPOCH + Duration::from_millis(then.0);
    paths.iter().any(|path| is_newer(path, then))
}

fn is_newer(path: &Path, then: SystemTime) -> bool {
    let is_later = |path: &Path, at: &dyn Fn(&Metadata) -> SystemTime| {
        // A link may lead elsewhere since.
        let both = [std::fs::metadata(path), std::fs::symlink_metadata(path)];
        both.iter().flatten().any(|meta| at(meta) > then)
    };
    if path.is_dir() {
        // A branch links the files of a checkpoint, which changes them and writes nothing.
        let inside = std::fs::read_dir(path).into_iter().flatten().flatten();
        let mut inside = inside.take(MAX_ENTRIES).map(|entry| entry.path());
        return is_later(path, &written) || inside.any(|path| is_later(&path, &written));
    }
    match source::files_of(path) {
        Ok(files) => files.iter().any(|file| is_later(file, &changed)),
        // What a pattern means cannot be listed; any other path leads nowhere.
        Err(_) => source::has_pattern(&path.to_string_lossy()),
    }
}

fn written(meta: &Metadata) -> SystemTime {
    meta.modified().unwrap_or(UNIX_EPOCH)
}

/// When it was written or took its place: a file that is moved or copied as it is keeps the time of writing.
fn changed(meta: &Metadata) -> SystemTime {
    let (seconds, nanos) = (meta.ctime(), meta.ctime_nsec());
    let since = Duration::new(
        u64::try_from(seconds).unwrap_or(0),
        u32::try_from(nanos).unwrap_or(0),
    );
    written(meta).max(UNIX_EPOCH + since)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run says what its epochs come to, so it was never found again: every epoch was trained once more.
    #[test]
    fn a_run_that_counts_in_epochs_is_that_of_its_spec() {
        let spec = |text: &str| RunSpec::from_yaml(text).unwrap();
        let asked = spec("train: {epochs: 3}");
        let run = asked.clone().on_data(100.0);
        assert_ne!(run.to_yaml(), asked.to_yaml());
        assert!(is_trial(&run, &asked));
        for other in [
            "train: {epochs: 2}",
            "train: {epochs: 3, threads: 2}",
            "seed: 3",
        ] {
            assert!(!is_trial(&run, &spec(other)), "{other}");
        }
        let steps = |n: u64| spec(&format!("train: {{max_steps: {n}}}"));
        assert!(is_trial(&steps(7), &steps(7)) && !is_trial(&steps(7), &steps(8)));
    }

    #[test]
    fn a_run_that_ended_early_gives_its_series_its_exit_code() {
        for (outcome, exit) in [
            (Some(Outcome::Stopped), Exit::Machine),
            (Some(Outcome::Failed), Exit::Training),
            (Some(Outcome::Invalid), Exit::UserError),
            (Some(Outcome::Starved), Exit::Machine),
            (None, Exit::Machine),
        ] {
            assert_eq!(unfinished(outcome), exit);
        }
    }

    #[test]
    fn a_file_that_any_part_of_the_spec_names_makes_a_run_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let spec = |text: &str| {
            let text = text.replace("AT", &dir.path().display().to_string());
            RunSpec::from_yaml(&text).unwrap()
        };
        let specs = [
            spec("data: {path: AT/a, tokenizer: {file: {path: AT/file}}}"),
            spec("data: {val_path: AT/file}"),
            spec("eval: {extra: [{name: x, source: {path: AT/file}}]}"),
            spec("train: {from: AT/model}"),
            spec(
                "method: {ppo: {critic_from: AT/model}}\nrewards: [{length: {}}]\nrollout: {max_new_tokens: 8}",
            ),
            spec(
                "method: {grpo: {}}\nrewards: [{model: {path: AT/model}}]\nrollout: {max_new_tokens: 8}",
            ),
        ];
        std::fs::write(dir.path().join("file"), "").unwrap();
        std::fs::create_dir(dir.path().join("model")).unwrap();
        std::fs::write(dir.path().join("model/weights"), "").unwrap();
        for spec in &specs {
            let yaml = spec.to_yaml();
            assert!(changed_since(spec, UnixMillis(0)), "{yaml}");
            assert!(!changed_since(spec, UnixMillis(u64::MAX >> 20)), "{yaml}");
        }
        assert!(!changed_since(&spec("seed: 7"), UnixMillis(0)));
        // Patterns over folders, of which one that means nothing cannot be compared.
        let later = UnixMillis(u64::MAX >> 20);
        for folder in ["corpus/a", "corpus/b/c"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
            std::fs::write(dir.path().join(folder).join("x.txt"), "").unwrap();
        }
        for pattern in ["corpus/*/x.txt", "corpus/**/*.txt"] {
            let spec = spec(&format!("data: {{path: AT/{pattern}}}"));
            assert!(changed_since(&spec, UnixMillis(0)), "{pattern}");
            assert!(!changed_since(&spec, later), "{pattern}");
        }
        assert!(changed_since(&spec("data: {path: AT/none/*.txt}"), later));
    }

    /// A text of another time under a new name, or behind a link that leads elsewhere now, was taken for the one of before.
    #[test]
    fn a_file_that_was_moved_or_linked_since_makes_a_run_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let named = |name: &str| {
            RunSpec::from_yaml(&format!("data: {{path: {}}}", at(name).display())).unwrap()
        };
        let old = UNIX_EPOCH + Duration::from_secs(1);
        let age = |name: &str| {
            let file = std::fs::File::open(at(name)).unwrap();
            file.set_modified(old).unwrap();
        };
        let then = UnixMillis(2_000);
        std::fs::write(at("a"), "").unwrap();
        age("a");
        std::fs::rename(at("a"), at("text")).unwrap();
        assert!(changed_since(&named("text"), then));
        std::fs::create_dir(at("folder")).unwrap();
        age("folder");
        assert!(!changed_since(&named("folder"), then));
        std::os::unix::fs::symlink(at("folder"), at("link")).unwrap();
        assert!(changed_since(&named("link"), then));
    }

    #[test]
    fn a_run_that_a_resume_made_longer_is_none_of_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let clock = crate::base::clock::SystemClock::new();
        let extended = |changes: &str| {
            let asked = format!("# Requested: smoke\n{changes}train: {{}}\n");
            let run = RunDir::create(dir.path(), "a", "{}", &asked, &clock).unwrap();
            was_extended(&run)
        };
        assert!(!extended(""));
        assert!(!extended(
            "# Changed at step 5: -s engine=candle -s train.threads=2\n"
        ));
        assert!(extended("# Changed at step 5: -s max_steps=120\n"));
        assert!(extended(
            "# Changed at step 5: -s epochs=2 -s engine.torch.ranks=2\n"
        ));
    }
}
