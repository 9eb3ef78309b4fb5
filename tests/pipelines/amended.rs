//! What a resume changes in a pipeline, and runs of stages that are trained without it.

use super::{LONG, Place, code, err, out};
use serde_json::Value;

const THREE: &str = "name: three
stages:
  - {name: base, train: arithmetic, set: {max_steps: 5, micro_batch_size: 4, eval.batches: 1, train.threads: 1}}
  - {name: bad, train: arithmetic, set: {max_steps: 5, micro_batch_size: 4, eval.batches: 1, train.threads: 1,
      eval.tasks: [gone.yaml]}}
  - {name: exam, eval: {tasks: [fine.yaml], models: [base, bad]}}
  - {name: hf, export: {model: bad}}
";

impl Place {
    /// Output of `runs --json`: the objects of runs, and those of pipelines.
    fn listed(&self) -> (Vec<Value>, Vec<Value>) {
        let lines = out(&self.go(&["runs", "--json"]));
        let objects = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        objects.partition(|object: &Value| object.get("pipeline").is_none())
    }
}

/// Seconds of a stage, as lists show them, and those of its run.
fn times(place: &Place, stage: usize) -> (f64, f64) {
    let (runs, pipelines) = place.listed();
    let stage = &pipelines[0]["stages"][stage];
    let run = runs.iter().find(|run| run["id"] == stage["run"]).unwrap();
    let seconds = |of: &Value| of["seconds"].as_f64().unwrap();
    (seconds(stage), seconds(run))
}

#[test]
fn a_resume_cannot_omit_a_stage_that_others_need() {
    let place = Place::new(THREE).with_tasks();
    let failed = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&failed), 2, "{}{}", out(&failed), err(&failed));
    assert_eq!(place.words(), ["done", "failed", "waiting", "waiting"]);
    let printed = err(&failed);
    assert!(
        printed.contains("--skip bad --skip exam --skip hf also skips"),
        "{printed}"
    );
    let (stage, run) = times(&place, 0);
    assert!(run > 0.0 && (stage - run).abs() < 1e-6, "{stage} {run}");

    let resume = |arguments: &[&str]| {
        let words = [&["train", "--resume", "three"], arguments].concat();
        place.go(&words)
    };
    for (arguments, says) in [
        (&["--skip", "bad"][..], "stage exam needs the model of bad"),
        (
            &["--skip", "bad", "--skip", "exam"],
            "stage hf needs the model of bad",
        ),
        (&["--skip", "bad"], "-s exam.models=[base]"),
        (
            &["--skip", "base", "--redo", "base"],
            "contradict each other",
        ),
        (
            &[
                "--skip",
                "bad",
                "--skip",
                "exam",
                "--skip",
                "hf",
                "-s",
                "bad.lr=1e-4",
            ],
            "stage bad is skipped",
        ),
    ] {
        for extra in ["--headless", "--dry-run"] {
            let refused = resume(&[arguments, &[extra]].concat());
            assert_eq!(code(&refused), 2, "{arguments:?}: {}", out(&refused));
            let printed = err(&refused);
            assert!(printed.contains(says), "{arguments:?}: {printed}");
        }
        assert_eq!(place.words(), ["done", "failed", "waiting", "waiting"]);
    }
    // The same at a fresh start.
    for arguments in [
        &["--skip", "bad", "-s", "hf.model=base"][..],
        &["--skip", "base", "--redo", "base"],
    ] {
        let refused = place.go(&[&["train", "mine.yaml", "--headless"], arguments].concat());
        assert_eq!(code(&refused), 2, "{arguments:?}: {}", out(&refused));
    }

    // Shows what would be done, not what was.
    let changes = [
        "--skip",
        "bad",
        "--skip",
        "hf",
        "-s",
        "exam.models=[base]",
        "--redo",
        "base",
    ];
    let shown = resume(&[&changes[..], &["--dry-run"]].concat());
    assert_eq!(code(&shown), 0, "{}", err(&shown));
    let printed = out(&shown);
    assert!(printed.contains("would do: base, exam\n"), "{printed}");
    let row = |name: &str| printed.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(
        row("base").contains("waiting") && row("bad").contains("skipped"),
        "{printed}"
    );
    assert_eq!(place.words(), ["done", "failed", "waiting", "waiting"]);
}

/// They failed hours later, behind the stages in front of them, and stayed in the pipeline's file.
#[test]
fn values_for_a_stage_that_is_to_begin_are_checked_at_a_resume() {
    let place = Place::new(
        "name: later
stages:
  - {name: base, train: smoke, set: {max_steps: 2, train.threads: 1}}
  - {name: exam, eval: {tasks: [gone.yaml]}}
  - {name: two, train: smoke, set: {max_steps: 2, train.threads: 1}}
",
    )
    .with_tasks();
    let failed = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&failed), 2, "{}{}", out(&failed), err(&failed));
    assert_eq!(place.words(), ["done", "failed", "waiting"]);
    let asked = || std::fs::read_to_string(place.folder().join("pipeline.yaml")).unwrap();
    let before = asked();
    let resume = |arguments: &[&str]| {
        let words = [&["train", "--resume", "later", "--skip", "exam"], arguments].concat();
        place.go(&words)
    };
    for (set, says) in [
        ("two.lr=abc", "found the text `abc`"),
        ("two.micro_batch_size=100000000", "stage two"),
        ("two.n_layer=3", "the model of stage base has 2"),
    ] {
        for extra in ["--headless", "--dry-run"] {
            let refused = resume(&["-s", set, extra]);
            assert_eq!(code(&refused), 2, "{set}: {}", out(&refused));
            assert!(err(&refused).contains(says), "{set}: {}", err(&refused));
        }
    }
    assert_eq!(asked(), before);
    // What a stage that is done was made from may be gone.
    let spec = before.replacen("train: smoke", "train: gone.yaml", 1);
    std::fs::write(place.folder().join("pipeline.yaml"), spec).unwrap();
    let planned = resume(&["-s", "two.lr=1e-4", "--skip", "base", "--dry-run"]);
    assert_eq!(code(&planned), 0, "{}", err(&planned));
    assert!(out(&planned).contains("would do: two"), "{}", out(&planned));
    let said = err(&planned);
    assert!(said.contains("stage base is done"), "{said}");
}

/// The export of a stage failed for good once the checkpoint of then was pruned.
#[test]
fn stages_behind_a_run_that_went_on_take_its_best_checkpoint_of_now() {
    let place = Place::new(LONG).with_tasks();
    place.stop_in_the_second();
    let base = place.run(0);
    let made = || {
        place.state()["stages"][0]["made"]
            .as_str()
            .unwrap()
            .to_string()
    };
    let run = base.to_str().unwrap();
    let longer = ["train", "--resume", run, "-s", "max_steps=40", "--headless"];
    let output = place.go(&longer);
    assert_eq!(code(&output), 0, "{}", err(&output));
    std::fs::remove_dir_all(made()).unwrap();
    let output = place.go(&["train", "--resume", "long", "--skip", "more", "--headless"]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    assert_eq!(place.words(), ["done", "skipped", "done"]);
    // The run of the stage that was left out is half trained.
    let id = base.file_name().unwrap().to_str().unwrap();
    let next = format!("llmtui chat {id}");
    assert!(out(&output).contains(&next), "{}", out(&output));
}

#[test]
fn a_value_rejected_by_the_engine_leaves_the_run_of_its_stage_as_it_was() {
    let place = Place::new(LONG).with_tasks();
    place.stop_in_the_second();
    let run = place.run(1);
    let files =
        || ["spec.yaml", "asked.yaml"].map(|file| std::fs::read_to_string(run.join(file)).unwrap());
    let before = files();
    // Rejected before the run's files are changed, or by the engine afterwards.
    for (python, reported) in [
        ("/nowhere/python", "no Python found"),
        ("/bin/false", "its spec are unchanged"),
    ] {
        let set = format!("more.engine={{torch: {{python: {python}}}}}");
        let refused = place.go(&["train", "--resume", "long", "-s", &set, "--headless"]);
        assert_ne!(code(&refused), 0, "{python}: {}", out(&refused));
        let printed = err(&refused);
        assert!(printed.contains(reported), "{python}: {printed}");
        assert_eq!(files(), before, "{python}");
        assert_eq!(place.words(), ["done", "failed", "waiting"], "{python}");
        let kept = &place.state()["stages"][1];
        assert!(kept.get("amended").is_none(), "{kept}");
    }
}

#[test]
fn a_stage_that_trains_without_its_pipeline_keeps_its_time_and_names_it() {
    let place = Place::new(LONG).with_tasks();
    place.stop_in_the_second();
    let run = place.run(1);
    let run = run.to_str().unwrap();
    let goes_on =
        |printed: &str| printed.contains("stage more") && printed.contains("llmtui train --resume");
    let resumed = place.go(&["resume", run]);
    assert_eq!(code(&resumed), 0, "{}", err(&resumed));
    assert!(goes_on(&err(&resumed)), "{}", err(&resumed));
    let stopped = place.go(&["stop", run]);
    assert_eq!(code(&stopped), 0, "{}", err(&stopped));
    assert!(goes_on(&out(&stopped)), "{}", out(&stopped));
    let (stage, own) = times(&place, 1);
    assert!((stage - own).abs() < 1e-6, "{stage} {own}");
    let listed = out(&place.go(&["runs"]));
    assert!(listed.contains("llmtui train --resume"), "{listed}");

    // As left by a process that was killed while it ran the stage.
    let path = place.folder().join("state.json");
    let state = std::fs::read_to_string(&path).unwrap();
    let at = state.find("\"more\"").unwrap();
    let (before, after) = state.split_at(at);
    let killed = after.replacen("\"stopped\"", "\"running\"", 1);
    std::fs::write(&path, format!("{before}{killed}")).unwrap();
    let listed = out(&place.go(&["runs"]));
    assert!(
        listed.contains("the process that drove it has died"),
        "{listed}"
    );
    let row = listed
        .lines()
        .find(|line| line.trim().starts_with("more "))
        .unwrap();
    assert!(row.contains("stopped"), "the run's own state: {row}");
}

#[test]
fn a_report_mentions_a_deleted_run() {
    let text = "name: two\nstages:\n  - {name: base, train: smoke, set: {train.threads: 1}}\n  \
        - {name: more, train: smoke, set: {train.threads: 1}}\n";
    let place = Place::new(text);
    let output = place.go(&["train", "mine.yaml", "--headless"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let gone = place.run(0);
    let id = gone.file_name().unwrap().to_str().unwrap();
    let removed = place.go(&["rm", "--yes", id]);
    assert_eq!(code(&removed), 0, "{}", err(&removed));
    assert!(
        err(&removed).contains("is stage base of pipeline"),
        "{}",
        err(&removed)
    );
    let report = place.go(&["report", "two", "--to", "report.md"]);
    assert_eq!(code(&report), 0, "{}", err(&report));
    assert!(
        err(&report).contains("the run of stage base is gone"),
        "{}",
        err(&report)
    );
    let written = std::fs::read_to_string(place.dir.path().join("report.md")).unwrap();
    assert!(
        written.contains("its run is gone") && written.contains("two-more"),
        "{written}"
    );
    // Of a pipeline deleted with its runs nothing remains.
    let all = place.go(&["rm", "--yes", "two"]);
    assert!(
        code(&all) == 0 && !err(&all).contains("which stays"),
        "{}",
        err(&all)
    );
}

#[test]
fn a_pipeline_that_was_never_started_is_distinguished_from_one_that_was() {
    let place = Place::new(LONG);
    for words in [
        &["report", "speedrun"][..],
        &["rm", "--yes", "speedrun"],
        &["train", "--resume", "speedrun", "--headless"],
    ] {
        let refused = place.go(words);
        assert_eq!(code(&refused), 2, "{words:?}: {}", out(&refused));
        let printed = err(&refused);
        assert!(
            printed.contains("none of that name was started in runs")
                && printed.contains("try: llmtui train speedrun\n"),
            "{words:?}: {printed}"
        );
    }
}
