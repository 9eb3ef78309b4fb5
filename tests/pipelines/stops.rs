//! Pipelines that stop or fail, and how they go on.

use super::{LONG, MINE, Place, code, err, out};

#[test]
fn a_stopped_pipeline_resumes_to_the_same_weights() {
    let whole = Place::new(MINE);
    let skipped = ["--headless", "--skip", "gguf", "--skip", "report"];
    let output = whole.go(&[&["train", "mine.yaml"][..], &skipped].concat());
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(whole.words(), ["done", "done", "skipped", "skipped"]);

    let place = Place::new(MINE);
    let words = [&["train", "mine.yaml"][..], &skipped].concat();
    place.stop_when_saved(&words, "again");
    // On a fast machine the stage may have finished.
    let word = place.words()[1].clone();
    assert!(["stopped", "done"].contains(&word.as_str()), "{word}");

    // A single run that was stopped later is resumed first; after it the pipeline.
    let words = [
        "-s",
        "data.val_fraction=0.01",
        "--headless",
        "--stop-after",
        "3",
    ];
    let single = place.go(&[&["train", "smoke"][..], &words].concat());
    assert_eq!(code(&single), 0, "{}", err(&single));
    let first = out(&place.go(&["train", "--resume", "auto", "--headless"]));
    assert!(
        first.contains("step 20/20") && !first.contains("stage "),
        "{first}"
    );
    let output = place.go(&["train", "--resume", "auto", "--headless"]);
    if word == "stopped" {
        assert_eq!(code(&output), 0, "{}", err(&output));
        assert!(!out(&output).contains("stage 1 of 4"), "{}", out(&output));
    }
    assert_eq!(place.words(), ["done", "done", "skipped", "skipped"]);
    assert!(
        place.weights(1) == whole.weights(1),
        "the same bytes as without a stop"
    );
}

#[test]
fn a_stopped_stage_accepts_another_last_step_and_nothing_else() {
    let place = Place::new(LONG).with_tasks();
    place.stop_in_the_second();
    let asked = || std::fs::read_to_string(place.folder().join("pipeline.yaml")).unwrap();
    let before = asked();
    for extra in [&["--headless"][..], &["--dry-run"]] {
        let words = ["train", "--resume", "long", "-s", "more.lr=1e-5"];
        let refused = place.go(&[&words[..], extra].concat());
        assert_eq!(code(&refused), 2, "{}{}", out(&refused), err(&refused));
        let printed = err(&refused);
        assert!(
            printed.contains("stage more") && printed.contains("--redo more"),
            "{printed}"
        );
        assert_eq!(asked(), before, "it is not recorded");
    }
    let newest = || {
        let steps = std::fs::read_dir(place.run(1).join("checkpoints")).unwrap();
        let step = |name: String| name.strip_prefix("step-")?.parse::<u64>().ok();
        let steps = steps.flatten();
        steps
            .filter_map(|s| step(s.file_name().to_string_lossy().into_owned()))
            .max()
            .unwrap()
    };
    let words = [
        "train",
        "--resume",
        "long",
        "-s",
        "more.max_steps=5",
        "--headless",
    ];
    let short = place.go(&words);
    assert_eq!(code(&short), 2, "{}", out(&short));
    let printed = err(&short);
    assert!(
        printed.contains("nothing is left") && printed.contains("-s more.max_steps="),
        "{printed}"
    );
    let last = newest() + 10;
    let set = format!("more.max_steps={last}");
    let output = place.go(&["train", "--resume", "long", "-s", &set, "--headless"]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert_eq!((place.words(), newest()), (vec!["done".into(); 3], last));
}

#[test]
fn a_failed_stage_is_named_and_can_be_fixed() {
    let place = Place::new(
        "stages:
  - {name: base, train: arithmetic, set: {max_steps: 5, micro_batch_size: 4, eval.batches: 1}}
  - {name: sft, train: arithmetic, set: {max_steps: 5, micro_batch_size: 4, eval.batches: 1, eval.tasks: [gone.yaml]}}
",
    )
    .with_tasks();
    let output = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&output), 2, "{}{}", out(&output), err(&output));
    let printed = err(&output);
    assert!(
        printed.contains("stage 2 (sft) failed") && printed.contains("gone.jsonl"),
        "{printed}"
    );
    assert!(printed.contains("llmtui train --resume"), "{printed}");
    assert_eq!(place.words(), ["done", "failed"]);

    let wrong = place.go(&[
        "train",
        "--resume",
        "mine",
        "--headless",
        "-s",
        "base.max_steps=6",
    ]);
    assert!(
        code(&wrong) == 2 && err(&wrong).contains("--redo base"),
        "{}",
        err(&wrong)
    );
    let tasks = "sft.eval.tasks=[]";
    let mended = place.go(&["train", "--resume", "mine", "--headless", "-s", tasks]);
    assert_eq!(code(&mended), 0, "{}{}", out(&mended), err(&mended));
    assert_eq!(place.words(), ["done", "done"]);
}

/// The check before the third stage fails. `--force` was said in the first command, not at the resume.
#[test]
fn a_resumed_pipeline_keeps_its_force() {
    let text = "name: forced
stages:
  - {name: base, train: smoke, set: {train.threads: 1}}
  - {name: exam, eval: {tasks: [gone.yaml], limit: 2}}
  - {name: wild, train: smoke, from: scratch, set: {model.init_std: 1, max_steps: 2, train.threads: 1}}
";
    let resume = [
        "train",
        "--resume",
        "forced",
        "--headless",
        "--skip",
        "exam",
    ];
    for (force, ends) in [(&["--force"][..], 0), (&[], 4)] {
        let place = Place::new(text).with_tasks();
        let words = [&["train", "mine.yaml", "--headless"], force].concat();
        let begun = place.go(&words);
        assert_eq!(code(&begun), 2, "{}{}", out(&begun), err(&begun));
        assert_eq!(place.words(), ["done", "failed", "waiting"]);
        let resumed = place.go(&resume);
        let printed = err(&resumed);
        assert_eq!(code(&resumed), ends, "{}{printed}", out(&resumed));
        assert_eq!(
            printed.contains("by an earlier --force"),
            ends == 0,
            "{printed}"
        );
        // Said at a resume, it holds as well.
        let words = [&resume[..4], &["--force"]].concat();
        let again = place.go(&words);
        assert_eq!(code(&again), 0, "{}{}", out(&again), err(&again));
        assert_eq!(place.state()["force"], true);
        assert_eq!(place.words(), ["done", "skipped", "done"]);
    }
}

#[test]
fn a_failed_stage_keeps_its_cause_and_can_be_fixed() {
    let place = Place::new(LONG).with_tasks();
    let text = "name: sad\nstages:\n  - {name: base, train: smoke, set: {train.threads: 1}}\n  \
        - {name: exam, eval: {tasks: [gone.yaml], limit: 2}}\n";
    std::fs::write(place.dir.path().join("mine.yaml"), text).unwrap();
    let output = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&output), 2, "{}{}", out(&output), err(&output));
    let state = place.state();
    let message = state["stages"][1]["message"].as_str().unwrap();
    assert!(message.contains("gone.jsonl"), "{message}");
    // Reported once, by the stage.
    let printed = err(&output);
    assert_eq!(printed.matches("gone.jsonl").count(), 1, "{printed}");
    assert!(
        printed.contains("stage 2 (exam) failed\n  try: "),
        "{printed}"
    );
    let listed = out(&place.go(&["runs"]));
    assert!(listed.contains("gone.jsonl"), "{listed}");

    let set = "exam.tasks=[fine.yaml]";
    let output = place.go(&["train", "--resume", "sad", "-s", set, "--headless"]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert_eq!(place.words(), ["done"; 2]);

    // Lists show it next to runs: commands about a run explain what it is, and it is deleted as a whole.
    for verb in ["logs", "diagnose", "gc", "plan", "eval", "chat"] {
        let refused = place.go(&[verb, "sad"]);
        assert_eq!(code(&refused), 2, "{verb}: {}", out(&refused));
        let printed = err(&refused);
        assert!(
            printed.contains("is a pipeline") && printed.contains("(base)"),
            "{verb}: {printed}"
        );
    }
    // A disk without locks is a machine error, as when a run's folder cannot be deleted.
    let lock = place.folder().join("lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    let kept = place.go(&["rm", "--yes", "sad"]);
    assert_eq!(code(&kept), 3, "{}", err(&kept));
    assert_eq!(place.words(), ["done"; 2]);
    std::fs::remove_dir(&lock).unwrap();
    let gone = place.go(&["rm", "--yes", "sad"]);
    assert_eq!(code(&gone), 0, "{}", err(&gone));
    let left = std::fs::read_dir(place.dir.path().join("runs/pipelines")).unwrap();
    assert_eq!(left.count(), 0);
    let runs = std::fs::read_dir(place.dir.path().join("runs")).unwrap();
    let names: Vec<String> = runs
        .flatten()
        .map(|run| run.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(!names.iter().any(|name| name.contains("sad")), "{names:?}");
}
