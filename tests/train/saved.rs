//! What a run leaves on the disk: its checkpoints where its output or the disk ends, and what `gc` frees.

use super::{PROGRAM, Place, code, err, events, out};
use llmtui::run::log::read_all;
use llmtui::wire::{Event, Outcome};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn gc_shows_first_and_keeps_what_is_needed() {
    let place = Place::new();
    let output = place.train(&["save_every=4", "keep_last=9"], &["--json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let run = place.run();
    let steps = || -> Vec<u64> { run.checkpoints().iter().map(|c| c.step).collect() };
    let all = steps();
    assert!(all.len() > 2, "{all:?}");
    let debris = run.checkpoints_path().join(".tmp-step-000099");
    std::fs::create_dir(&debris).unwrap();
    std::fs::write(debris.join("model.safetensors"), [0; 5_000]).unwrap();
    let halves = run.path().with_file_name(".del-2026-11-21-1422-old");
    std::fs::create_dir(&halves).unwrap();
    let shown = place.go(&["gc"]);
    assert_eq!(code(&shown), 0, "{}", err(&shown));
    for words in [
        run.id(),
        "checkpoint of step 4",
        ".tmp-step-000099",
        ".del-2026",
        "--yes",
    ] {
        assert!(out(&shown).contains(words), "{words}: {}", out(&shown));
    }
    assert_eq!(
        (steps(), debris.exists()),
        (all, true),
        "nothing was deleted"
    );
    let listed = out(&place.go(&["gc", "--json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["deleted"], false);
    let paths = listed["items"].as_array().unwrap().iter();
    let paths: Vec<&str> = paths.map(|item| item["path"].as_str().unwrap()).collect();
    assert!(
        paths.iter().any(|path| path.ends_with(".tmp-step-000099")),
        "{paths:?}"
    );
    let best = run.best_checkpoint().unwrap().step;
    let done = place.go(&["gc", "--yes"]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    let mut kept = vec![best, 20];
    kept.dedup();
    assert_eq!(
        (steps(), debris.exists(), halves.exists()),
        (kept, false, false)
    );
    let again = place.go(&["gc", run.id()]);
    assert_eq!(out(&again), "nothing to free\n");
}

#[test]
fn a_closed_output_pipe_ends_the_run_after_a_checkpoint_without_a_panic() {
    let place = Place::new();
    let mut child = place
        .command(&[
            "train",
            "smoke",
            "-s",
            "max_steps=100000",
            "-s",
            "eval_every=0",
            "--json",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in &mut lines {
        if line.unwrap().contains("Stepped") {
            break;
        }
    }
    drop(lines);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(!err(&output).contains("panic"), "{}", err(&output));
    let log = read_all(&place.run().events_path()).unwrap();
    let Event::Finished {
        outcome: Outcome::Stopped,
        step,
        ..
    } = log.last().unwrap().event
    else {
        panic!("{:?}", log.last())
    };
    let saved = place.run().checkpoints();
    assert_eq!(saved.last().map(|c| c.step), Some(step));
}

#[test]
fn checkpoints_that_do_not_fit_cost_a_warning_each_and_the_last_one_the_success() {
    let place = Place::new();
    // Files may grow to 128 KiB here: the log fits, the weights do not.
    let script = format!(
        "ulimit -f 128; exec {PROGRAM} train smoke --json -s data.val_fraction=0.01 -s preflight.enabled=false \
         -s d_model=64 -s checkpoint.every=5"
    );
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(place.dir.path())
        .env("XDG_RUNTIME_DIR", place.dir.path())
        .output()
        .unwrap();
    assert_eq!(code(&output), 3, "{}", err(&output));
    let reported = events(&out(&output));
    let Event::Finished {
        outcome, message, ..
    } = &reported.last().unwrap().event
    else {
        panic!("{:?}", reported.last());
    };
    assert_eq!(*outcome, Outcome::Starved);
    assert!(
        message.contains("step 20 could not be saved") && message.contains("--resume"),
        "{message}"
    );
    let warned: Vec<u64> = reported
        .iter()
        .filter_map(|e| match &e.event {
            Event::Warned { step, code, .. } if code == "checkpoint_failed" => Some(*step),
            _ => None,
        })
        .collect();
    assert_eq!(warned, [5, 10, 15]);
    let left = std::fs::read_dir(place.run().checkpoints_path()).unwrap();
    assert_eq!(left.count(), 0, "no leftovers");
    // Nothing was saved, so the run is unfinished: with free space it is trained again, to its end.
    let again = place.go(&["train", "--resume", "auto"]);
    assert_eq!(code(&again), 0, "{}", err(&again));
    assert_eq!(place.run().checkpoints().last().unwrap().step, 20);
}
