//! A run that is repeatedly killed without warning ends with the numbers of one that never was: the real program,
//! real signals, real files.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

use llmtui::base::clock::{Clock, SystemClock};
use llmtui::base::rng::{Rng, Stream};
use llmtui::metrics::{self, Repeatable};
use llmtui::run::RunDir;
use llmtui::run::log::{Tail, read_all};
use llmtui::wire::{Event, Outcome, Values};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_llmtui");
/// No wait here takes longer, however busy the machine is.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Poll interval of a killer.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// The working directory of the program, with its runs and sockets.
struct Place {
    dir: tempfile::TempDir,
    /// A preset and its settings.
    spec: &'static [&'static str],
    max_steps: u64,
    save_every: u64,
}

const SMOKE: &[&str] = &["smoke", "-s", "data.val_fraction=0.01"];
/// A few steps of supervised training, then rollouts: most of a step's time is generation.
const ANSWERS: &[&str] = &[
    "rloo-sort",
    "-s",
    "rollout.cold_start_steps=10",
    "-s",
    "rewards=[exact, {length: {limit: 12}}]",
    "-s",
    "train.micro_batch_size=16",
    "-s",
    "eval.batches=1",
    "-s",
    "sample_every=0",
];

/// PPO with two epochs of each rollout, and a reward program that reports when it scores: kills hit a chosen phase.
macro_rules! ppo {
    ($critic:literal) => {
        &[
            "rloo-sort",
            "-s",
            concat!("method={ppo: {critic: ", $critic, ", kl_target: 1.0}}"),
            "-s",
            "rollout.cold_start_steps=4",
            "-s",
            "rollout.group_size=1",
            "-s",
            "rollout.epochs=2",
            "-s",
            concat!(
                "rewards=[exact, {command: {run: 'while read -r line; do ",
                ": > \"$XDG_RUNTIME_DIR/scores\"; sleep 0.01; echo 0.5; done'}}]"
            ),
            "-s",
            "train.micro_batch_size=16",
            "-s",
            "eval.batches=1",
            "-s",
            "sample_every=0",
        ]
    };
}
const PPO: [&[&str]; 2] = [ppo!("separate"), ppo!("shared")];

impl Place {
    fn new(spec: &'static [&'static str], max_steps: u64, save_every: u64) -> Place {
        let dir = tempfile::tempdir().unwrap();
        Place {
            dir,
            spec,
            max_steps,
            save_every,
        }
    }

    fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .arg("train")
            .args(arguments)
            .args(["--headless", "--json", "--runs-dir"])
            .arg(self.dir.path().join("runs"))
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    fn fresh(&self) -> Command {
        let words = [
            "threads=1".to_string(),
            "eval_every=7".into(),
            "preflight.enabled=false".into(),
            format!("max_steps={}", self.max_steps),
            format!("save_every={}", self.save_every),
        ];
        let mut arguments = self.spec.to_vec();
        arguments.extend(words.iter().flat_map(|w| ["-s", w.as_str()]));
        self.program(&arguments)
    }

    fn resumed(&self) -> Command {
        self.program(&["--resume", "auto"])
    }

    fn run(&self) -> Option<RunDir> {
        let entry = std::fs::read_dir(self.dir.path().join("runs"))
            .ok()?
            .next()?;
        RunDir::open(&entry.ok()?.path()).ok()
    }

    fn events(&self) -> PathBuf {
        self.run().unwrap().events_path()
    }

    /// Whether the reward program has got an answer since the last call.
    fn scores(&self) -> bool {
        std::fs::remove_file(self.dir.path().join("scores")).is_ok()
    }

    /// The folder of a save in progress.
    fn save_goes_on(&self) -> bool {
        let Some(run) = self.run() else { return false };
        let entries = std::fs::read_dir(run.checkpoints_path());
        let mut names = entries.into_iter().flatten().flatten();
        names.any(|e| e.file_name().to_string_lossy().starts_with(".tmp-step-"))
    }
}

/// When the process is killed.
#[derive(Debug, Clone, Copy)]
enum StepPosition {
    /// Once this step is in the log.
    Step(u64),
    /// While a checkpoint after this step is being written.
    Save(u64),
    /// While the reward program is scoring an answer, after this step.
    Scoring(u64),
}

/// Kills the process at this moment. False if it ended before.
fn kill_at(place: &Place, child: &mut Child, moment: StepPosition) -> bool {
    let clock = SystemClock::new();
    let mut log = None;
    let mut step = 0;
    while clock.elapsed() < TIMEOUT {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if log.is_none() {
            log = place
                .run()
                .and_then(|run| Tail::open(&run.events_path()).ok());
        }
        while let Some(envelope) = log.as_mut().and_then(|l| l.next_event().unwrap()) {
            step = match envelope.event {
                Event::Stepped { step, .. } | Event::RolledBack { step } => step,
                _ => step,
            };
        }
        let strike = match moment {
            StepPosition::Step(at) => step >= at,
            StepPosition::Save(behind) => step >= behind && place.save_goes_on(),
            StepPosition::Scoring(behind) => step >= behind && place.scores(),
        };
        if strike {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
        llmtui::base::clock::pause(POLL_INTERVAL);
    }
    panic!("nothing happened")
}

/// One line of the loss log: step, kind, and the bits of each reproducible reading.
type Line = (u64, &'static str, Vec<(String, u64)>);

fn loss_log(events: &Path) -> Vec<Line> {
    let mut log: Vec<Line> = Vec::new();
    for envelope in read_all(events).unwrap() {
        match envelope.event {
            Event::RolledBack { step } => log.retain(|line| line.0 <= step),
            Event::Stepped { step, values, .. } => log.push((step, "step", bits(&values))),
            Event::Evaluated { step, values, .. } => log.push((step, "eval", bits(&values))),
            _ => {}
        }
    }
    // A run that was killed before its first checkpoint starts again, and repeats the evaluation before the first step.
    log.dedup();
    log
}

fn bits(values: &Values) -> Vec<(String, u64)> {
    const OF_ANSWERS: [&str; 6] = [
        "policy_loss",
        "loss/value_avg",
        "val/var_explained",
        "reward",
        "eval/pass@1",
        "completions/mean_length",
    ];
    let repeats = |id: &str| {
        metrics::find(id).is_some_and(|m| m.repeatable == Repeatable::Yes)
            || OF_ANSWERS.contains(&id)
    };
    let kept = values.iter().filter(|(id, _)| repeats(id));
    kept.map(|(id, x)| (id.clone(), x.0.to_bits())).collect()
}

/// Every file of the newest checkpoint, by name.
fn newest_checkpoint(place: &Place) -> Vec<(String, Vec<u8>)> {
    let newest = place.run().unwrap().checkpoints().pop().unwrap();
    assert_eq!(newest.step, place.max_steps);
    let entries = std::fs::read_dir(newest.path).unwrap();
    let read = |e: std::fs::DirEntry| {
        let name = e.file_name().to_string_lossy().into_owned();
        (name, std::fs::read(e.path()).unwrap())
    };
    let mut files: Vec<_> = entries.map(|e| read(e.unwrap())).collect();
    files.sort();
    files
}

/// Kills `kills` times at random moments, every `save_share`th time during a save, then lets the run end. Returns how
/// many kills actually hit a save.
fn torture(place: &Place, kills: u64, save_share: u64) -> u64 {
    let mut rng = Rng::new(2026, Stream::Test, kills, 0);
    let (mut reached, mut inside) = (0, 0);
    for kill in 0..kills {
        let mut command = if place.run().is_none() {
            place.fresh()
        } else {
            place.resumed()
        };
        let mut child = command.spawn().unwrap();
        // Moments move forward, so that the run makes progress; the remaining steps are divided among the remaining kills.
        let stride = 2 * (place.max_steps - reached) / (kills - kill + 1);
        let at = (reached + 1 + rng.below(stride.max(1))).min(place.max_steps - 1);
        let moment = if kill % save_share == save_share - 1 {
            StepPosition::Save(reached.saturating_sub(place.save_every))
        } else {
            reached = at;
            StepPosition::Step(at)
        };
        assert!(
            kill_at(place, &mut child, moment),
            "{moment:?}: ended early"
        );
        inside += u64::from(place.save_goes_on());
    }
    assert!(place.resumed().status().unwrap().success());
    inside
}

fn compare(killed: &Place) {
    let straight = Place::new(killed.spec, killed.max_steps, killed.save_every);
    assert!(straight.fresh().status().unwrap().success());
    assert_eq!(loss_log(&straight.events()), loss_log(&killed.events()));
    let (a, b) = (newest_checkpoint(&straight), newest_checkpoint(killed));
    for (a, b) in a.iter().zip(&b) {
        assert!(a == b, "{} and {} differ", a.0, b.0);
    }
    assert_eq!(a.len(), b.len());
}

#[test]
fn three_kills_do_not_change_the_numbers() {
    let place = Place::new(SMOKE, 60, 5);
    torture(&place, 3, 3);
    compare(&place);
    // Nothing is left of the interrupted writes.
    assert!(!place.save_goes_on());
    let numbers = read_all(&place.events()).unwrap();
    let gapless = numbers
        .windows(2)
        .all(|pair| pair[1].seq == pair[0].seq + 1);
    assert!(gapless);
    assert!(matches!(
        numbers.last().unwrap().event,
        Event::Finished {
            outcome: Outcome::Completed,
            ..
        }
    ));
}

#[test]
fn kills_during_rollouts_do_not_change_the_numbers() {
    let place = Place::new(ANSWERS, 40, 5);
    torture(&place, 3, 3);
    compare(&place);
    let rewards = loss_log(&place.events()).into_iter();
    let learned = rewards.filter(|line| line.2.iter().any(|(id, _)| id == "reward"));
    assert_eq!(learned.count(), 30);
}

/// Once a step is in the log, what follows is an update on the current answers or, after the second of a rollout, the
/// generation of new ones: steps 4, 6, 8 … end before a rollout.
#[test]
fn kills_while_ppo_generates_scores_and_trains_do_not_change_the_numbers() {
    for spec in PPO {
        let place = Place::new(spec, 14, 3);
        let (writing, training) = (StepPosition::Step(6), StepPosition::Step(7));
        let mut child = place.fresh().spawn().unwrap();
        assert!(kill_at(&place, &mut child, writing), "{spec:?}");
        for moment in [
            StepPosition::Scoring(8),
            training,
            StepPosition::Scoring(10),
        ] {
            place.scores();
            let mut child = place.resumed().spawn().unwrap();
            assert!(kill_at(&place, &mut child, moment), "{moment:?} {spec:?}");
        }
        assert!(place.resumed().status().unwrap().success());
        compare(&place);
        let learned = loss_log(&place.events()).into_iter();
        let values = learned.filter(|line| line.2.iter().any(|(id, _)| id == "loss/value_avg"));
        assert_eq!(values.count(), 10, "{spec:?}");
    }
}

/// `cargo test --release --test resume -- --ignored`
#[test]
#[ignore = "takes a quarter of a minute, longer in a debug build"]
fn forty_kills_a_quarter_of_them_during_a_save() {
    let place = Place::new(SMOKE, 800, 5);
    let inside = torture(&place, 40, 3);
    assert!(inside >= 8, "only {inside} kills hit a save");
    compare(&place);
}
