//! Checks that prevent expensive mistakes, run in about a second before the first step. One file per check, one word in
//! [`CHECKS`]; a failed one names the fault and its likely cause.

mod answers_end;
mod causal_mask;
mod disk_room;
mod earlier;
mod init_loss;
mod longest;
mod overfit;
mod overlap;
mod rewards;
mod round_trip;
mod same_seed;
mod samples;
mod settings;
mod supervised;
mod token_ids;
mod token_shift;
mod tools;

use super::checkpoint::CheckpointError;
use super::context::RunContext;
use super::state::TrainState;
use super::teacher;
use super::{EngineError, EngineJob};
use crate::base::clock::Clock;
use crate::base::finding::{Finding, Status};
use crate::base::human;
use crate::base::paths::Env;
use crate::base::text::shown;
use crate::data::{Batch, DataEnv, Dataset};
use crate::run::log::scan_events;
use crate::spec::RunSpec;
use crate::wire::{Event, Outcome, Phase};
#[cfg(test)]
pub(super) use disk_room::checkpoint as checkpoint_size;
use earlier::Earlier;
pub use overlap::overlap;
use std::path::{Path, PathBuf};

/// The inputs of the checks. They change nothing of the run: they train a copy.
pub struct Subject<'a> {
    pub spec: &'a RunSpec,
    pub data: &'a Dataset,
    /// The state before the first step. Weights and moments are only read; gradients are scratch.
    pub state: &'a mut TrainState,
    /// A second model of the same seed, for checks that train; made by the first check that needs one.
    pub twin: Option<TrainState>,
    /// A folder that does not exist yet and may be filled; removed afterwards.
    pub scratch: PathBuf,
    /// Where checkpoints will be written.
    pub room: &'a Path,
    pub clock: &'a dyn Clock,
    /// Processes that share the rows of a micro-batch, where that is known.
    pub ranks: Option<u64>,
    /// Computes on after a failed check: the run begins in spite of it.
    pub all: bool,
    /// Why the checks that compute are left out; empty where they are made.
    pub left_out: String,
    /// Results of checks that compute, made shortly before.
    earlier: Option<Earlier>,
}

/// One check.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    pub id: &'static str,
    pub title: &'static str,
    /// Computes with the model: seconds to minutes where it is large.
    pub computes: bool,
    /// An error means that the check could not be made, which fails it.
    pub run: fn(&mut Subject<'_>) -> Result<Finding, EngineError>,
}

/// Every check, in the order in which they run: cheap ones (the data, the settings, the disk), then those that compute.
pub const CHECKS: &[Check] = &[
    token_shift::CHECK,
    token_ids::CHECK,
    supervised::CHECK,
    tools::CHECK,
    answers_end::CHECK,
    longest::CHECK,
    overlap::CHECK,
    rewards::CHECK,
    settings::CHECK,
    disk_room::CHECK,
    init_loss::CHECK,
    causal_mask::CHECK,
    same_seed::CHECK,
    overfit::CHECK,
    round_trip::CHECK,
];

/// One finished check.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    pub finding: Finding,
    pub seconds: f64,
    /// The title of the check that begins now; none after the last one.
    pub next: Option<&'static str>,
    /// The machine, not the spec, is what failed it: the disk, memory.
    pub of_the_machine: bool,
}

/// Runs the checks; `on_check` is called after each and may stop them by returning false. After a failure, the expensive checks are
/// reported as skipped unless the subject asks for all.
pub fn check_all(subject: &mut Subject<'_>, on_check: &mut dyn FnMut(&Checked) -> bool) {
    let mut failed: Option<&str> = None;
    let earlier = subject.earlier.take();
    let mut rest = CHECKS.iter().peekable();
    while let Some(check) = rest.next() {
        let begun = subject.clock.elapsed();
        let mut of_the_machine = false;
        let known = earlier.as_ref().filter(|_| check.computes);
        let known = known.and_then(|earlier| earlier.of(check.id));
        let left_out =
            (check.computes && !subject.left_out.is_empty()).then_some(&subject.left_out);
        let found = match (failed.filter(|_| check.computes && !subject.all), known) {
            _ if left_out.is_some() => Finding::unknown(left_out.cloned().unwrap_or_default(), ""),
            (Some(title), _) => Finding::unknown(
                format!("not run, because a check failed: {title}"),
                "fix that one first",
            ),
            (None, Some(found)) => found.clone(),
            (None, None) => (check.run)(subject).unwrap_or_else(|error| {
                of_the_machine = error.outcome() == Outcome::Starved;
                broken(&error, subject.room)
            }),
        };
        if found.status == Status::Fail {
            failed = failed.or(Some(check.title));
        }
        let checked = Checked {
            finding: found.named(check.id, check.title),
            seconds: (subject.clock.elapsed() - begun).as_secs_f64(),
            next: rest.peek().map(|next| next.title),
            of_the_machine,
        };
        if !on_check(&checked) {
            break;
        }
    }
    let _ = std::fs::remove_dir_all(&subject.scratch);
    // The twin is as large as the run's own state; training begins without it.
    subject.twin = None;
    crate::kernels::pages::give_back();
}

/// A check that could not be made to its end: because of the machine, as the run itself could not be, or of a bug.
fn broken(error: &EngineError, room: &Path) -> Finding {
    match error {
        EngineError::Checkpoint(error @ CheckpointError::Write { source, .. }) => Finding::fail(
            format!("{} does not take a checkpoint: {source}", shown(room)),
            "",
            error.fix(room),
        ),
        error if error.outcome() == Outcome::Starved => Finding::fail(error.to_string(), "", ""),
        error => {
            let evidence = format!("the check itself broke: {error}");
            Finding::fail(evidence, "", "see the message")
        }
    }
}

/// FNV-1a over the bits.
fn hash(values: &[f32]) -> u64 {
    values.iter().fold(0xcbf2_9ce4_8422_2325, |h, x| {
        (h ^ u64::from(x.to_bits())).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Runs the checks of a spec by themselves, without a run; it would have so many ranks. `room` is the folder whose disk will hold the
/// checkpoints. A run of the same that begins soon takes the results of those that compute.
///
/// # Errors
/// The data or the model cannot be read.
pub fn check_spec(
    (spec, ranks): (&RunSpec, Option<u64>),
    env: &Env,
    room: &Path,
    clock: &dyn Clock,
    on_check: &mut dyn FnMut(&Checked),
) -> Result<(), EngineError> {
    let data = spec.open_data(&DataEnv::from_env(env))?;
    let pass = data.micro_steps_per_epoch(spec.train.micro_batch_size);
    let spec = &spec.clone().on_data(pass);
    let mut state = TrainState::fresh(spec, &data)?;
    if let Some(loaded) = teacher::load(spec, &data)? {
        state.models.teacher = Some(loaded.identity);
        state.models.policy.set_teacher(Some(loaded.teacher));
    }
    let key = earlier::key(spec, &data, &state);
    let scratch = room.join(format!(".preflight-{}", std::process::id()));
    let mut subject = Subject {
        spec,
        data: &data,
        state: &mut state,
        twin: None,
        scratch,
        room,
        clock,
        ranks,
        all: false,
        left_out: String::new(),
        earlier: None,
    };
    let mut findings = Vec::new();
    check_all(&mut subject, &mut |checked| {
        findings.push(checked.finding.clone());
        on_check(checked);
        true
    });
    if let Some(key) = key {
        earlier::keep(env, key, clock.now(), findings);
    }
    Ok(())
}

/// The checks before a run's first step: a failed one ends the run unless it is forced.
pub(super) fn gate(cx: &mut RunContext<'_, '_>) -> Result<(), EngineError> {
    cx.port.enter(Phase::Preflight, cx.step());
    let job: &EngineJob = cx.job;
    let clock = cx.port.clock.clone();
    let room = job.run_dir.checkpoints_path();
    let mut failed: Vec<String> = Vec::new();
    let mut starved: Option<String> = None;
    let remote = cx.state.models.remote.as_ref();
    let ranks = remote.map(|remote| remote.ranks() as u64);
    let n_params = cx.state.models.policy.n_params();
    let left_out = too_large(remote.is_some(), n_params).unwrap_or_default();
    let key = match left_out.is_empty() {
        true => earlier::key(cx.spec, &cx.data, &cx.state),
        // Its weights are read for nothing.
        false => None,
    };
    let earlier = key.and_then(|key| earlier::find(&job.env, &key, clock.now()));
    if let Some(earlier) = &earlier {
        let ago = human::duration(earlier.age);
        let what = "preflight: the checks that compute were made";
        let words = format!("{what} {ago} ago, of the same spec, data and weights: not made again");
        cx.port.note(cx.state.progress.step, words);
    }
    let mut subject = Subject {
        spec: cx.spec,
        data: &cx.data,
        state: &mut cx.state,
        twin: None,
        // The prefix is one that the next start clears away, should we be killed in between.
        scratch: room.join(".tmp-preflight"),
        room: &room,
        clock: &*clock,
        ranks,
        all: job.force,
        left_out,
        earlier,
    };
    let port = &mut *cx.port;
    check_all(&mut subject, &mut |checked| {
        if checked.finding.status == Status::Fail {
            // A title says what passes.
            let Finding {
                evidence,
                cause,
                fix,
                ..
            } = &checked.finding;
            if checked.of_the_machine {
                let told = [evidence.to_string(), fix.clone()];
                let told: Vec<String> = told.into_iter().filter(|s| !s.is_empty()).collect();
                starved.get_or_insert(told.join("; "));
            }
            failed.push(match cause.is_empty() {
                true => evidence.to_string(),
                false => format!("{evidence}: {cause}"),
            });
        }
        port.emit(checked.clone().into());
        !port.stop_pending()
    });
    if failed.is_empty() || job.force {
        return Ok(());
    }
    if let Some(why) = starved {
        return Err(EngineError::Machine(why));
    }
    Err(EngineError::Refused(format!(
        "preflight failed: {}; --force trains anyway",
        failed.join("; ")
    )))
}

/// Why checks that compute are not made: they train a twin on the processor, which for a model that needs GPUs would take hours.
pub fn too_large(on_ranks: bool, n_params: usize) -> Option<String> {
    const MOST: usize = 50_000_000;
    (on_ranks && n_params > MOST).then(|| {
        format!(
            "not made with engine: torch, where a copy of {} parameters would train on the CPU",
            human::short(n_params as f64)
        )
    })
}

/// The settings, reviewed again at a resume: one with another last step makes other passes over its data than the log says.
pub(super) fn review_again(cx: &mut RunContext<'_, '_>) {
    let mut logged = None;
    // A log that cannot be read has no advice to correct.
    let _ = scan_events(&cx.job.run_dir.events_path(), &["Checked"], |event| {
        if let Event::Checked { finding, .. } = event
            && finding.id == settings::CHECK.id
        {
            logged = Some(finding.evidence.to_string());
        }
    });
    let remote = cx.state.models.remote.as_ref();
    let ranks = remote.map(|remote| remote.ranks() as u64);
    let found = settings::of(cx.spec, &cx.data, ranks);
    if logged.is_some_and(|before| before != found.evidence.to_string()) {
        let checked = Checked {
            finding: found.named(settings::CHECK.id, settings::CHECK.title),
            seconds: 0.0,
            next: None,
            of_the_machine: false,
        };
        cx.port.emit(checked.into());
    }
}

impl From<Checked> for Event {
    fn from(checked: Checked) -> Event {
        Event::Checked {
            finding: checked.finding.into(),
            seconds: checked.seconds,
            next: checked.next.map(String::from),
        }
    }
}

/// Why checks of the rows' answers say nothing of such a run.
const OWN_ANSWERS: &str = "the policy writes the answers: none of the rows' is a target";

impl Subject<'_> {
    /// The first training batch, cut to at most `rows` sequences.
    fn first_batch(&self, rows: usize) -> Batch {
        let rows = rows.clamp(1, self.spec.train.micro_batch_size);
        self.batch(0, rows)
    }

    /// A training batch. Where the policy writes the answers, all of a row counts, its prompt too: checks of the wiring need targets, and
    /// rows may be prompts alone.
    fn batch(&self, micro_step: u64, rows: usize) -> Batch {
        let mut batch = self.data.train_batch(self.spec.seed, micro_step, rows);
        if self.answers_are_its_own() && !batch.mask.is_empty() {
            let (len, filled) = (batch.seq_len.max(1), &batch.filled);
            let counts = |at: usize| {
                let end = filled.get(at / len);
                end.is_none_or(|end| (at % len) + 1 < *end as usize)
            };
            batch.mask = (0..batch.targets.len()).map(counts).collect();
        }
        batch
    }

    /// Whether the policy learns from answers that it writes, and never from those of the rows.
    fn answers_are_its_own(&self) -> bool {
        self.spec.method.on_policy().is_some() && self.spec.rollout.cold_start_steps == 0
    }

    /// A second state made from the same spec.
    fn twin(&mut self) -> Result<&mut TrainState, EngineError> {
        let twin = match self.twin.take() {
            Some(twin) => twin,
            None => {
                let mut twin = TrainState::fresh(self.spec, self.data)?;
                // The same one: it is large, and nothing changes it.
                let teacher = self.state.models.policy.teacher().cloned();
                twin.models.policy.set_teacher(teacher);
                twin
            }
        };
        Ok(self.twin.insert(twin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A large model on GPUs had none of its checks made, also not those that read its data.
    #[test]
    fn of_a_large_model_on_ranks_only_what_computes_is_left_out() {
        use crate::base::clock::SystemClock;
        use crate::engine::tests::tiny;
        assert_eq!(too_large(false, usize::MAX), None);
        assert_eq!(too_large(true, 50_000_000), None);
        let why = too_large(true, 1_200_000_000).unwrap();
        assert!(why.contains("B parameters"), "{why}");
        let (spec, data) = tiny(&[]);
        let mut state = TrainState::fresh(&spec, &data).unwrap();
        let (clock, room) = (SystemClock::new(), tempfile::tempdir().unwrap());
        let mut subject = Subject {
            spec: &spec,
            data: &data,
            state: &mut state,
            twin: None,
            scratch: room.path().join("scratch"),
            room: room.path(),
            clock: &clock,
            ranks: Some(1),
            all: false,
            left_out: why.clone(),
            earlier: None,
        };
        let mut found = Vec::new();
        check_all(&mut subject, &mut |checked| {
            found.push(checked.finding.clone());
            true
        });
        assert!(subject.twin.is_none(), "nothing was trained");
        for (check, finding) in CHECKS.iter().zip(&found) {
            let is_left_out = finding.evidence.to_string() == why;
            assert_eq!(is_left_out, check.computes, "{finding:?}");
        }
        let failed = found.iter().find(|finding| finding.status == Status::Fail);
        assert_eq!(failed, None);
    }

    #[test]
    fn a_check_that_the_disk_stops_is_no_broken_check() {
        let source = std::io::Error::from(std::io::ErrorKind::FileTooLarge);
        let error = EngineError::Checkpoint(CheckpointError::Write { step: 0, source });
        assert_eq!(error.outcome(), Outcome::Starved);
        let found = broken(&error, Path::new("/runs/x/checkpoints"));
        let evidence = found.evidence.to_string();
        assert!(
            evidence.contains("does not take a checkpoint"),
            "{evidence}"
        );
        assert!(found.fix.contains("ulimit -f"), "{found:?}");
        let bug = broken(&EngineError::Compute("shapes".into()), Path::new("/x"));
        assert!(bug.evidence.to_string().contains("itself broke"), "{bug:?}");
    }
}
