//! Runs that go on: by name, by `auto`, with other threads, on the engine that was chosen.

use super::{Place, code, err, events, out};
use llmtui::run::RunDir;
use llmtui::wire::Event;

#[test]
fn stop_after_and_resume_form_one_run_and_print_only_new_events() {
    let place = Place::new();
    let output = place.train(&[], &["--json", "--stop-after", "7"]);
    assert_eq!(code(&output), 0);
    assert!(
        out(&output)
            .lines()
            .last()
            .unwrap()
            .contains(r#""outcome":"stopped""#)
    );
    let id = place.run().id().to_string();
    let output = place.train(&["lr=0.5"], &["--resume", &id]);
    assert_eq!(code(&output), 2, "a run keeps its spec: {}", err(&output));
    let output = place.go(&["train", "--resume", &id, "-s", "lr=0.5"]);
    assert_eq!(code(&output), 2, "{}", err(&output));
    assert!(err(&output).contains("--branch"), "{}", err(&output));
    let output = place.train(&[], &["--json", "--resume", &id]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let reported = events(&out(&output));
    assert!(
        matches!(reported[0].event, Event::Hello { .. }),
        "{:?}",
        reported[0]
    );
    let first = reported.iter().find_map(|e| match e.event {
        Event::Stepped { step, .. } => Some(step),
        _ => None,
    });
    assert_eq!(first, Some(8));
    let output = place.go(&["train", "--resume", "auto"]);
    assert_eq!(code(&output), 2, "a finished run does not go on by itself");
    let logged = std::fs::metadata(place.run().events_path()).unwrap().len();
    let output = place.go(&["train", "--resume", &id]);
    assert_eq!(code(&output), 2, "nor by its name");
    assert!(
        err(&output).contains("has completed all its steps"),
        "{}",
        err(&output)
    );
    assert_eq!(
        std::fs::metadata(place.run().events_path()).unwrap().len(),
        logged
    );
}

#[test]
fn a_resume_accepts_other_threads_and_an_impossible_one_is_exit_two() {
    let place = Place::new();
    let output = place.train(&["threads=1"], &["--json", "--stop-after", "7"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let id = place.run().id().to_string();
    let spec = std::fs::read(place.run().spec_path()).unwrap();
    let resume = ["train", "--resume", &id, "--json", "--stop-after", "9"];
    let output = place.go(&[&resume[..], &["-s", "threads=2"]].concat());
    assert_eq!(code(&output), 0, "{}", err(&output));
    // It is reported, and the run's own spec is unchanged.
    assert!(out(&output).contains("not_bit_exact"), "{}", out(&output));
    assert_eq!(std::fs::read(place.run().spec_path()).unwrap(), spec);
    let output = place.go(&["train", "--resume", &id, "-s", "threads=none"]);
    assert_eq!(code(&output), 2, "{}", err(&output));
    for checkpoint in place.run().checkpoints() {
        std::fs::remove_file(checkpoint.path.join("model.safetensors")).unwrap();
    }
    let output = place.go(&["train", "--resume", &id, "--json"]);
    assert_eq!(code(&output), 2, "{}", err(&output));
    assert!(
        out(&output).contains(r#""outcome":"invalid""#),
        "{}",
        out(&output)
    );
}

#[test]
fn a_run_that_failed_on_its_data_at_once_is_skipped_by_auto() {
    let place = Place::new();
    // A text too short for a row makes no run: this one shrinks before its run begins.
    let fail = |place: &Place| {
        let text = |text: &str| std::fs::write(place.dir.path().join("tiny.txt"), text).unwrap();
        let made = ["train", "smoke", "-s", "data.path=tiny.txt"];
        text("ab\n");
        let before = std::fs::read_dir(place.dir.path().join("runs")).map_or(0, Iterator::count);
        let output = place.go(&[&made[..], &["--headless"]].concat());
        assert_eq!(code(&output), 2, "{}", err(&output));
        assert!(
            err(&output).contains("one window takes"),
            "{}",
            err(&output)
        );
        let after = std::fs::read_dir(place.dir.path().join("runs")).map_or(0, Iterator::count);
        assert_eq!(before, after, "no run is made");
        text(&"a sentence\n".repeat(200));
        let output = place.go(&[&made[..], &["--no-start"]].concat());
        assert_eq!(code(&output), 0, "{}", err(&output));
        text("ab\n");
        let run = RunDir::open(&place.dir.path().join(out(&output).trim())).unwrap();
        let output = place.go(&["train", "--resume", run.id(), "--headless"]);
        assert_eq!(code(&output), 2, "{}", err(&output));
        run.folder()
    };
    let auto = ["train", "--resume", "auto", "--headless"];
    let refused = fail(&place);
    let output = place.go(&auto);
    let printed = err(&output);
    assert_eq!(code(&output), 2, "{printed}");
    assert!(
        printed.contains("no run in runs can be resumed") && printed.contains(&refused),
        "{printed}"
    );
    assert!(
        printed.contains("failed before its first checkpoint"),
        "{printed}"
    );
    // Nothing was learned, so `gc` offers to delete all of it.
    let shown = out(&place.go(&["gc"]));
    let words = "the whole run, which failed before its first step";
    assert!(shown.contains(&refused) && shown.contains(words), "{shown}");
    assert!(place.run().path().is_dir(), "nothing was deleted");
    let done = place.go(&["gc", "--yes"]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    let runs = std::fs::read_dir(place.dir.path().join("runs")).unwrap();
    assert_eq!(runs.count(), 0);
    // A stopped run is resumed, though a newer one was rejected.
    let stopped = Place::new();
    let output = stopped.train(&[], &["--headless", "--stop-after", "5"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    fail(&stopped);
    let output = stopped.go(&auto);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("passed over: "), "{}", err(&output));
    assert!(
        out(&output).contains("resumed from step 5"),
        "{}",
        out(&output)
    );
}

#[test]
fn a_requeued_job_continues_its_run_on_the_engine_chosen_at_the_start() {
    let place = Place::new();
    let engine = ["engine=auto"];
    let output = place.train(&engine, &["--headless", "--stop-after", "5"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("engine auto is"), "{}", err(&output));
    let asked = std::fs::read_to_string(place.run().path().join("asked.yaml")).unwrap();
    assert!(asked.contains("# engine auto is"), "{asked}");
    let output = place.train(&engine, &["--headless", "--resume", "auto"]);
    assert!(
        out(&output).contains("resumed from step 5"),
        "{}",
        out(&output)
    );
    let runs = std::fs::read_dir(place.dir.path().join("runs")).unwrap();
    assert_eq!(runs.count(), 1);
}

#[test]
fn an_engine_left_open_is_chosen_whichever_way_a_run_begins() {
    let place = Place::new();
    let spec = || std::fs::read_to_string(place.run().path().join("spec.yaml")).unwrap();
    let begins = ["--headless", "--resume", "auto", "--stop-after", "5"];
    let output = place.train(&["engine=auto"], &begins);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("engine auto is"), "{}", err(&output));
    assert!(!spec().contains("engine: auto"), "{}", spec());
    let run = place.run().id().to_string();
    let goes_on = ["train", "--headless", "--resume", &run, "-s", "engine=auto"];
    let output = place.go(&goes_on);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("engine auto is"), "{}", err(&output));
    assert!(!spec().contains("engine: auto"), "{}", spec());
}
