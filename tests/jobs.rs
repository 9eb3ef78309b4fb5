//! Files for SLURM and SkyPilot: equal to the stored ones (`tests/jobs`, `LLMTUI_UPDATE_DOCS=1` rewrites them), and end to end
//! with a fake SLURM: started, warned, requeued, resumed and completed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test may fail loudly, waits for other processes, and says what it skips"
)]

use llmtui::run::{RunState, Tail};
use llmtui::wire::{Envelope, Event, Outcome};
use llmtui::workers::job::{Goal, Job, Sky, Slurm, script, task};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_llmtui");
/// No wait here takes longer, however busy the machine is.
const TIMEOUT: Duration = Duration::from_secs(300);

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/jobs")
        .join(name);
    if std::env::var_os("LLMTUI_UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{name}");
}

fn job(goal: Goal, gpus: usize) -> Job {
    Job {
        name: "my 1st run".into(),
        goal,
        nodes: 1,
        gpus,
        cpus: 16,
    }
}

fn slurm() -> Slurm {
    Slurm {
        time: Some("08:00:00".into()),
        gpu: None,
        partition: Some("gpu,long".into()),
        memory: None,
        options: Vec::new(),
        llmtui: "/opt/bin/llmtui".into(),
        folder: "/home/o'neill/my project".into(),
        runs_dir: "/scratch/o'neill/runs & more".into(),
    }
}

#[test]
fn other_sbatch_options_and_the_planned_memory_are_requested() {
    let with = |options: &[&str]| {
        let options = options.iter().map(ToString::to_string).collect();
        let slurm = Slurm {
            memory: Some(48),
            options,
            ..slurm()
        };
        script(&job(spec(), 0), &slurm)
    };
    assert!(with(&[]).contains("#SBATCH --mem=48G\n"));
    let named = with(&["account=lab", "mem-per-cpu=4G"]);
    assert!(named.contains("#SBATCH --account=lab\n#SBATCH --mem-per-cpu=4G\n"));
    assert!(!named.contains("--mem=48G"));
}

fn spec() -> Goal {
    Goal::Spec {
        spec: "it's $mine.yaml".into(),
        set: vec![
            "engine=torch".into(),
            "data.path=/data/a b/\"x\".txt".into(),
        ],
    }
}

#[test]
fn scripts_and_tasks_match_the_stored_ones() {
    golden("spec.sh", &script(&job(spec(), 4), &slurm()));
    let plain = Slurm {
        time: Some("10".into()),
        partition: None,
        ..slurm()
    };
    let run = Goal::Run("/scratch/o'neill/runs & more/2026-11-24-x-k3qf".into());
    golden("run.sh", &script(&job(run, 0), &plain));
    let nodes = Job {
        nodes: 4,
        ..job(spec(), 8)
    };
    golden("nodes.sh", &script(&nodes, &slurm()));
    let sky = Sky {
        accelerator: Some("H100".into()),
        bucket: Some("s3://mine/runs".into()),
        llmtui: "/opt/my bin/llmtui".into(),
        folder: "/home/o'neill/my \"project\"".into(),
        installs_torch: true,
    };
    golden("spec.yaml", &task(&job(spec(), 4), &sky));
}

#[test]
fn bash_parses_every_script() {
    let goals = [spec(), Goal::Run("/a b/it's".into())];
    for goal in goals {
        let text = script(&job(goal, 2), &slurm());
        let Ok(out) = Command::new("bash").args(["-n", "-c", &text]).output() else {
            println!("skipped: no bash here");
            return;
        };
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
}

const SPEC: &str = "
extends: quickstart
name: tiny
model: {n_layer: 1, n_head: 1, d_model: 8, seq_len: 8}
train: {max_steps: 3000, micro_batch_size: 1, threads: 1, log_every: 1}
eval: {every: 0}
sample: {every: 0}
checkpoint: {every: 1000}
preflight: {enabled: false}
health: {enabled: false}
";

/// A project in a folder with an awkward name, and a SLURM in PATH.
struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let bench = Bench { dir };
        std::fs::create_dir_all(bench.project()).unwrap();
        std::fs::create_dir_all(bench.path("play")).unwrap();
        std::fs::write(bench.project().join("my spec.yaml"), SPEC).unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn project(&self) -> PathBuf {
        self.path("it's a \"project\"")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let fakes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jobs");
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .current_dir(self.project())
            .env_clear()
            .env("PATH", format!("{}:{path}", fakes.display()))
            .env("PLAY", self.path("play"))
            .env("HOME", self.dir.path())
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .stdin(Stdio::null());
        command
    }

    fn llmtui(&self, args: &[&str]) -> Output {
        self.command(PROGRAM).args(args).output().unwrap()
    }

    /// Submits a script to the SLURM in PATH; `None` without bash.
    fn submit(&self, script: &str) -> Option<Child> {
        if Command::new("bash").arg("--version").output().is_err() {
            println!("skipped: no bash here");
            return None;
        }
        Some(self.command("sbatch").arg(script).spawn().unwrap())
    }

    fn runs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.project().join("runs"));
        let paths = entries.into_iter().flatten().map(|e| e.unwrap().path());
        paths.filter(|path| path.is_dir()).collect()
    }

    fn events(&self) -> Vec<Envelope> {
        let Some(run) = self.runs().pop() else {
            return Vec::new();
        };
        let Ok(mut tail) = Tail::open(&run.join("events.jsonl")) else {
            return Vec::new();
        };
        std::iter::from_fn(|| tail.next_event().unwrap()).collect()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("play/job.log")).unwrap_or_default()
    }

    /// Waits until something holds.
    fn until(&self, what: &str, holds: impl Fn(&Bench) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < TIMEOUT, "{what}: {}", self.log());
            llmtui::base::clock::pause(Duration::from_millis(10));
        }
    }

    fn signal_batch(&self, signal: Signal) {
        let pid = std::fs::read_to_string(self.path("play/batch.pid")).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn outcomes(events: &[Envelope]) -> Vec<Outcome> {
    let ends = events.iter().filter_map(|e| match &e.event {
        Event::Finished { outcome, .. } => Some(*outcome),
        _ => None,
    });
    ends.collect()
}

fn steps(events: &[Envelope]) -> usize {
    let stepped = |e: &&Envelope| matches!(e.event, Event::Stepped { .. });
    events.iter().filter(stepped).count()
}

#[test]
fn a_job_is_warned_requeued_and_continues_to_its_last_step() {
    let bench = Bench::new();
    let asked = [
        "engine",
        "script",
        "my spec.yaml",
        "--slurm",
        "--to",
        "job.sh",
        "--time",
        "04:00:00",
    ];
    let out = bench.llmtui(&asked);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(
        text(&out.stderr).contains("sbatch job.sh"),
        "{}",
        text(&out.stderr)
    );
    // It is not overwritten.
    let again = bench.llmtui(&asked);
    assert_eq!(again.status.code(), Some(2), "{}", text(&again.stderr));
    let Some(mut slurm) = bench.submit("job.sh") else {
        return;
    };
    bench.until("steps", |bench| steps(&bench.events()) >= 3);
    bench.signal_batch(Signal::USR1);
    let status = slurm.wait().unwrap();
    assert!(status.success(), "{}", bench.log());
    let events = bench.events();
    assert_eq!(
        outcomes(&events),
        [Outcome::Stopped, Outcome::Completed],
        "{}",
        bench.log()
    );
    let state = RunState::from_events(&events);
    assert_eq!((state.step, state.word()), (3000, "finished"));
    // One run, started twice, that continued where it stopped: no step was repeated.
    assert_eq!(bench.runs().len(), 1);
    let begun = std::fs::read_to_string(bench.path("play/begun")).unwrap();
    assert_eq!(begun, "0\n1\n");
    assert!(steps(&events) <= 3000, "{}", steps(&events));
    // A run that was only created begins at step 0; the second allocation continues from the first one's save.
    let back = events.iter().filter_map(|e| match e.event {
        Event::RolledBack { step } => Some(step),
        _ => None,
    });
    let back: Vec<u64> = back.collect();
    assert!(back.len() == 2 && back[0] == 0 && back[1] >= 3, "{back:?}");
    let left = std::fs::read_dir(bench.project().join("runs")).unwrap();
    let notes = left.filter(|e| {
        e.as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with(".job")
    });
    assert_eq!(notes.count(), 0);
    let state = bench.llmtui(&["engine", "state", "tiny"]);
    assert_eq!(text(&state.stdout), "finished\n");
    // A completed run has nothing left to do.
    let out = bench.llmtui(&["engine", "script", "tiny", "--slurm"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(
        text(&out.stderr).contains("completed all its steps"),
        "{}",
        text(&out.stderr)
    );
}

/// A partition without requeues: what it says is in the job's log, with the command that continues, and nothing is lost.
#[test]
fn a_job_that_may_not_be_requeued_says_how_its_run_goes_on() {
    let bench = Bench::new();
    std::fs::write(bench.path("play/refuses"), "").unwrap();
    let to = [
        "engine",
        "script",
        "my spec.yaml",
        "--slurm",
        "--to",
        "job.sh",
    ];
    let out = bench.llmtui(&to);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let Some(mut slurm) = bench.submit("job.sh") else {
        return;
    };
    bench.until("steps", |bench| steps(&bench.events()) >= 3);
    bench.signal_batch(Signal::USR1);
    assert_eq!(slurm.wait().unwrap().code(), Some(1), "{}", bench.log());
    let log = bench.log();
    assert!(log.contains("disabled by its partition"), "{log}");
    let continues = "job: not requeued; continue with: llmtui engine script ";
    let rest = log
        .split(continues)
        .nth(1)
        .unwrap_or_else(|| panic!("{log}"));
    assert!(rest.trim_end().ends_with("--slurm"), "{log}");
    // What it names can be continued.
    let script = bench.llmtui(&["engine", "script", "tiny", "--slurm"]);
    assert!(script.status.success(), "{}", text(&script.stderr));
    assert_eq!(outcomes(&bench.events()), [Outcome::Stopped], "{log}");
}

#[test]
fn a_cancelled_job_saves_and_is_not_requeued_and_its_run_can_go_on() {
    let bench = Bench::new();
    let out = bench.llmtui(&[
        "engine",
        "script",
        "my spec.yaml",
        "--slurm",
        "--to",
        "job.sh",
    ]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let Some(mut slurm) = bench.submit("job.sh") else {
        return;
    };
    bench.until("steps", |bench| steps(&bench.events()) >= 3);
    bench.signal_batch(Signal::TERM);
    assert!(slurm.wait().unwrap().success(), "{}", bench.log());
    assert_eq!(outcomes(&bench.events()), [Outcome::Stopped]);
    assert!(
        bench.log().contains("stopped on request"),
        "{}",
        bench.log()
    );
    let saved = std::fs::read_dir(bench.runs()[0].join("checkpoints")).unwrap();
    assert!(saved.count() > 0);
    let out = bench.llmtui(&["engine", "script", "tiny", "--slurm", "--to", "more.sh"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let mut slurm = bench.submit("more.sh").unwrap();
    assert!(slurm.wait().unwrap().success(), "{}", bench.log());
    assert_eq!(
        outcomes(&bench.events()),
        [Outcome::Stopped, Outcome::Completed]
    );
    assert_eq!(bench.runs().len(), 1);
}

#[test]
fn a_run_that_fails_ends_its_job_with_its_status() {
    let bench = Bench::new();
    let own = SPEC.replace("name: tiny", "name: tiny\ndata: {path: mine.txt}");
    let data = bench.project().join("mine.txt");
    std::fs::write(&data, "to be or not to be, ".repeat(200)).unwrap();
    std::fs::write(bench.project().join("my spec.yaml"), own).unwrap();
    let out = bench.llmtui(&[
        "engine",
        "script",
        "my spec.yaml",
        "--slurm",
        "--to",
        "job.sh",
    ]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    std::fs::remove_file(data).unwrap();
    let Some(mut slurm) = bench.submit("job.sh") else {
        return;
    };
    assert_eq!(slurm.wait().unwrap().code(), Some(2), "{}", bench.log());
    assert!(bench.log().contains("mine.txt"), "{}", bench.log());
    assert!(!bench.path("play/requeue").exists());
}

#[test]
fn impossible_jobs_are_rejected_before_they_are_queued() {
    let bench = Bench::new();
    for (words, phrase) in [
        (
            &["my spec.yaml", "--slurm", "--gpus", "2"][..],
            "would be idle",
        ),
        (
            &[
                "my spec.yaml",
                "--slurm",
                "--gpus",
                "2",
                "-s",
                "engine=torch",
            ],
            "micro_batch_size 1 is shared",
        ),
        (
            &[
                "my spec.yaml",
                "--slurm",
                "--gpus",
                "2",
                "-s",
                "engine=torch",
                "-s",
                "engine.torch.ranks=4",
            ],
            "engine.torch.ranks is 4",
        ),
        (
            &["my spec.yaml", "--slurm", "--nodes", "2"],
            "runs on one machine",
        ),
        (
            &[
                "my spec.yaml",
                "--slurm",
                "--nodes",
                "2",
                "-s",
                "engine=torch",
                "-s",
                "engine.torch.ranks=3",
                "-s",
                "micro_batch_size=4",
            ],
            "on each of 2 nodes",
        ),
        (&["my spec.yaml", "--slurm", "--time", "soon"], "HH:MM:SS"),
        (
            &["my spec.yaml", "--slurm", "--partition", "a b"],
            "letters, digits",
        ),
        (
            &[
                "my spec.yaml",
                "--slurm",
                "--partition",
                "x\n#SBATCH --wrap=y",
            ],
            "letters, digits",
        ),
        (&["my spec.yaml"], "--slurm"),
        (&["nowhere", "--slurm"], "no preset or file"),
        (&["my spec.yaml", "--slurm", "-s", "n_layers=x"], "n_layer"),
        (
            &[
                "my spec.yaml",
                "--slurm",
                "-s",
                "data.path=https://me:secret@host/x.txt",
            ],
            "password or a token",
        ),
        (
            &["my spec.yaml", "--skypilot", "-s", "engine=torch"],
            "needs a GPU type",
        ),
        (
            &["../x.yaml", "--skypilot"],
            "outside the working directory",
        ),
    ] {
        std::fs::write(bench.path("x.yaml"), SPEC).unwrap();
        let out = bench.llmtui(&[&["engine", "script"], words].concat());
        let printed = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{words:?}: {printed}");
        assert!(printed.contains(phrase), "{words:?}: {printed}");
        assert!(!printed.contains("secret@"), "{printed}");
        assert!(out.stdout.is_empty(), "{words:?}");
    }
    let words = [
        "engine",
        "script",
        "my spec.yaml",
        "--slurm",
        "-s",
        "engine=torch",
    ];
    let four = [
        &words[..],
        &["-s", "engine.torch.ranks=4", "-s", "micro_batch_size=4"],
    ]
    .concat();
    let printed = text(&bench.llmtui(&four).stdout);
    assert!(
        printed.contains("#SBATCH --gpus-per-node=4\n")
            && printed.contains("#SBATCH --cpus-per-task=16\n"),
        "{printed}"
    );
    assert!(
        printed.contains("-s engine=torch -s engine.torch.ranks=4"),
        "{printed}"
    );
    let named = [&four[..], &["--gpu", "h100"]].concat();
    let printed = text(&bench.llmtui(&named).stdout);
    assert!(
        printed.contains("#SBATCH --gpus-per-node=h100:4\n"),
        "{printed}"
    );
    // SkyPilot uploads only the working directory.
    let elsewhere = tempfile::tempdir().unwrap();
    let text_of_mine = elsewhere.path().join("mine.txt");
    std::fs::write(&text_of_mine, "To be, or not to be.").unwrap();
    let path = format!("data.path={}", text_of_mine.display());
    let sky = ["engine", "script", "shakespeare", "--skypilot", "-s", &path];
    let out = bench.llmtui(&sky);
    let printed = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{printed}");
    assert!(printed.contains("mine.txt is outside"), "{printed}");
    // Options that SLURM would ignore are rejected, not skipped.
    for extra in [
        &["--bucket", "s3://a/b"][..],
        &["-s", "engine=candle", "--gpu", "h100"],
    ] {
        let out = bench.llmtui(&[&words[..4], extra].concat());
        assert_eq!(out.status.code(), Some(2), "{extra:?}");
    }
}
