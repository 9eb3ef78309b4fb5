//! Stages in order: each builds on the one before it.

use super::{MINE, Place, code, err, out};
use serde_json::Value;

#[test]
fn stages_run_in_order_and_each_starts_from_the_previous_one() {
    let place = Place::new(MINE);
    let planned = place.go(&["train", "mine.yaml", "--dry-run"]);
    assert_eq!(code(&planned), 0, "{}", err(&planned));
    assert!(out(&planned).contains("again") && out(&planned).contains("dry run"));
    assert!(!place.dir.path().join("runs").exists());

    let output = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert_eq!(place.words(), ["done"; 4]);
    let printed = out(&output);
    for word in [
        "stage 1 of 4: base (train)",
        "stage 4 of 4: report",
        "all stages done",
        "llmtui chat",
    ] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
    let state = place.state();
    let run = |stage: usize| state["stages"][stage]["run"].as_str().unwrap().to_string();
    let header =
        std::fs::read_to_string(place.dir.path().join("runs").join(run(1)).join("run.json"));
    let header: Value = serde_json::from_str(&header.unwrap()).unwrap();
    assert_eq!(
        (&header["parent"]["run"], &header["name"]),
        (&Value::from(run(0)), &Value::from("mine-again"))
    );
    assert_ne!(place.weights(0), place.weights(1));

    let report = std::fs::read_to_string(place.folder().join("report.html")).unwrap();
    assert!(
        report.contains("mine-base")
            && report.contains("mine-again")
            && !report.contains("src=\"http")
    );
    let exported = std::fs::read_dir(place.folder().join("gguf")).unwrap();
    assert!(
        exported
            .flatten()
            .any(|file| file.file_name().to_string_lossy().ends_with(".gguf"))
    );
    let listed = out(&place.go(&["runs"]));
    assert!(listed.contains("finished, 4 of 4 stages"), "{listed}");

    // All is done: nothing is repeated. A single stage can be.
    let again = place.go(&["train", "--resume", "mine", "--headless"]);
    assert_eq!(code(&again), 0, "{}", err(&again));
    assert!(!out(&again).contains("stage 1 of 4"));
    let shown = place.go(&["train", "--resume", "mine", "--dry-run", "--redo", "base"]);
    assert!(out(&shown).contains("nothing started"), "{}", out(&shown));
    assert_eq!(place.words(), ["done"; 4], "a dry run changes nothing");
    let redone = place.go(&["train", "--resume", "mine", "--headless", "--redo", "gguf"]);
    assert!(out(&redone).contains("stage 3 of 4: gguf") && !out(&redone).contains("stage 4"));
    let markdown = place.go(&["report", "mine", "--to", "report.md"]);
    assert_eq!(code(&markdown), 0, "{}", err(&markdown));
    let markdown = std::fs::read_to_string(place.dir.path().join("report.md")).unwrap();
    assert!(markdown.starts_with("# mine\n") && markdown.contains("again (train)"));
}

/// Later stages build on its checkpoint: that it is useless must not be visible only in its log.
#[test]
fn a_diverged_stage_is_reported_with_the_command_to_redo_it() {
    let place = Place::new(
        "name: hot\nstages:\n  - {name: base, train: quickstart, set: {max_steps: 60, lr: 3, preflight.enabled: false}}\n",
    );
    let output = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let printed = err(&output);
    assert!(printed.contains("stage base ended DIVERGED"), "{printed}");
    assert!(
        printed.contains("--redo base -s base.KEY=VALUE"),
        "{printed}"
    );
    let table = out(&output);
    assert!(table.contains("done, DIVERGED"), "{table}");
    let listed = place.go(&["runs"]);
    assert!(out(&listed).contains("done, DIVERGED"), "{}", out(&listed));
}
