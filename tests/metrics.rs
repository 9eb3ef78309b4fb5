//! `llmtui metrics` on a short training: files that our own readers of other programs' logs read as the same curves.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use llmtui::base::clock::{SystemClock, pause};
use llmtui::run::{RunDir, RunState, index};
use llmtui::watch::{ExternalRun, Mapping, find};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const STEPS: u64 = 12;

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llmtui"));
    command
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("HOME", dir)
        .env("XDG_RUNTIME_DIR", dir)
        .stdin(Stdio::null());
    command
}

/// Exit code, standard output, standard error.
fn llmtui(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let out = command(dir, args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        out.status.code().unwrap(),
        text(out.stdout),
        text(out.stderr),
    )
}

fn train(dir: &Path) -> Child {
    let small = [
        "n_layer=1",
        "n_head=1",
        "d_model=8",
        "seq_len=8",
        "micro_batch_size=1",
        "max_steps=12",
        "threads=1",
        "eval_every=4",
        "sample_every=0",
        "preflight.enabled=false",
    ];
    let set = small.iter().flat_map(|word| ["-s", word]);
    let mut args = vec!["train", "quickstart", "--headless"];
    args.extend(set);
    command(dir, &args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn the_run(dir: &Path) -> Option<RunDir> {
    let (runs, _) = index::list(&dir.join("runs")).ok()?;
    RunDir::open(&runs.first()?.path).ok()
}

fn watched(path: &Path) -> RunState {
    let found = find(path, None).unwrap();
    let mut watched = ExternalRun::open(found, Mapping::default(), Box::new(SystemClock::new()));
    let mut state = RunState::new();
    watched.read_all(|envelope| state.apply(envelope)).unwrap();
    state
}

fn points(state: &RunState, id: &str) -> Vec<(u64, f32)> {
    let series = state.series.get(id).unwrap_or_else(|| panic!("{id}"));
    series.recent().map(|p| (p.step, p.value as f32)).collect()
}

fn fails(dir: &Path, args: &[&str], phrases: &[&str]) {
    let (code, _, said) = llmtui(dir, args);
    assert_eq!(code, 2, "{args:?}: {said}");
    for phrase in phrases {
        assert!(said.contains(phrase), "{args:?}: {phrase:?}: {said}");
    }
}

#[test]
fn a_run_is_handed_to_other_programs_while_it_is_live_and_at_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path();
    let mut engine = train(here);
    let run = loop {
        match the_run(here) {
            Some(run) if run.events_path().exists() => break run,
            _ => pause(Duration::from_millis(20)),
        }
    };
    let id = run.folder();
    // Live, or just ended: it ends with the run.
    let live = ["metrics", &id, "--tensorboard", "tb", "--follow"];
    let (code, out, said) = llmtui(here, &live);
    assert_eq!(code, 0, "{said}");
    assert!(engine.wait().unwrap().success());
    let events = here.join(out.trim());
    assert!(events.starts_with(here.join("tb").join(&id)), "{out}");

    let ours = llmtui::run::log::read_all(&run.events_path()).unwrap();
    let ours = RunState::from_events(&ours);
    assert_eq!(ours.step, STEPS);
    let files = ["curves.csv", "curves.jsonl", "trainer_state.json"];
    for file in files {
        let (code, out, said) = llmtui(here, &["metrics", &id, "--to", file]);
        assert_eq!((code, out.trim()), (0, file), "{said}");
    }
    let all: Vec<PathBuf> = files.iter().map(|f| here.join(f)).chain([events]).collect();
    for path in all {
        let read = watched(&path);
        for metric in ["train/loss", "val/loss", "lr", "grad_norm"] {
            assert_eq!(
                points(&read, metric),
                points(&ours, metric),
                "{path:?}: {metric}"
            );
        }
    }

    let (_, table, _) = llmtui(here, &["metrics", &id]);
    assert!(
        table.starts_with("metric ") && table.contains("\ntrain/loss "),
        "{table}"
    );
    let (_, json, _) = llmtui(here, &["metrics", &id, "--json", "--metric", "val/l*"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["metrics"].as_array().unwrap().len(), 1, "{json}");
    let lowest = ours.best_evaluation().unwrap();
    assert_eq!(json["metrics"][0]["best"]["value"], lowest.val_loss());
    let stream = [
        "metrics", &id, "--to", "-", "--format", "jsonl", "-f", "--metric", "lr",
    ];
    let (code, lines, _) = llmtui(here, &stream);
    assert_eq!((code, lines.lines().count() as u64), (0, STEPS), "{lines}");
    // Another program's log is read as well.
    let (code, foreign, said) = llmtui(here, &["metrics", "curves.csv", "--metric", "train/*"]);
    assert!(
        code == 0 && foreign.contains("train/loss"),
        "{foreign}{said}"
    );

    let m = |more: &[&'static str]| {
        [&["metrics", &id][..], more]
            .concat()
            .iter()
            .map(|w| w.to_string())
            .collect::<Vec<_>>()
    };
    for (more, phrases) in [
        (
            &["--to", "curves.csv"][..],
            &["curves.csv already exists", "--force"][..],
        ),
        (&["--tensorboard", "tb"], &["already exists", "--force"]),
        (&["--to", "x.txt"], &["does not say its format", ".csv"]),
        (&["--to", "-"], &["does not name a format", "jsonl"]),
        (
            &["--to", "-", "--format", "csv", "-f"],
            &["csv cannot be followed", "jsonl"],
        ),
        (&["--to", "-", "--format", "tfevents"], &["binary"]),
        (
            &["--to", "a", "--format", "xml"],
            &["unknown --format `xml`", "trainer_state"],
        ),
        (&["-f"], &["--follow writes", "--tensorboard"]),
        (
            &["--metric", "loss"],
            &["no metric of the run fits --metric loss", "train/loss"],
        ),
        (
            &["--to", "no/x.csv"],
            &["its folder does not exist", "mkdir -p"],
        ),
    ] {
        let args = m(more);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        fails(here, &args, phrases);
    }
    let again = ["metrics", &id, "--to", "curves.csv", "--force"];
    assert_eq!(llmtui(here, &again).0, 0);
}
