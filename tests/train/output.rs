//! What a run prints: lines, events, exit codes; `preflight` and `bench` too.

use super::{Place, code, err, events, out};
use llmtui::run::log::read_all;
use llmtui::wire::{Event, Outcome};

#[test]
fn lines_describe_the_run_and_the_next_command() {
    let place = Place::new();
    let output = place.train(&[], &["--headless"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let text = out(&output);
    let run = place.run();
    for word in [
        "step 1/20  loss",
        "step 20/20",
        "val loss",
        "sample at step 20",
        "check ok",
        "finished at step 20",
        "llmtui chat",
        run.id(),
    ] {
        assert!(text.contains(word), "{word:?} is missing:\n{text}");
    }
    assert!(!text.contains('\x1b'));
}

#[test]
fn events_are_one_object_per_line_and_the_last_is_finished_with_the_loss() {
    let place = Place::new();
    let output = place.train(&[], &["--json"]);
    let reported = events(&out(&output));
    let logged = read_all(&place.run().events_path()).unwrap();
    assert_eq!(reported, logged, "the printed events are the logged ones");
    let Event::Finished {
        outcome: Outcome::Completed,
        step: 20,
        val_loss: Some(loss),
        ..
    } = reported.last().unwrap().event
    else {
        panic!("{:?}", reported.last())
    };
    assert!(loss.0 > 2.0 && loss.0 < 4.5);
    let numbers: Vec<u64> = reported.iter().map(|e| e.seq).collect();
    assert_eq!(numbers, (1..=reported.len() as u64).collect::<Vec<_>>());
}

#[test]
fn a_failed_check_is_exit_four_and_force_trains_anyway() {
    let place = Place::new();
    let output = place.train(&["model.init_std=1"], &["--headless"]);
    assert_eq!(code(&output), 4);
    assert!(out(&output).contains("check FAIL"), "{}", out(&output));
    let output = place.train(&["model.init_std=1"], &["--headless", "--force"]);
    assert_eq!(code(&output), 0);
}

#[test]
fn a_non_finite_loss_is_exit_four_with_a_suggestion() {
    let place = Place::new();
    let words = [
        "lr=10",
        "train.clip_norm=0",
        "optimizer.adamw.weight_decay=10",
        "schedule.cosine.warmup_steps=0",
        "max_steps=2000",
        "eval_every=0",
        "save_every=0",
        "preflight.enabled=false",
    ];
    let output = place.train(&words, &["--json"]);
    assert_eq!(code(&output), 4);
    let text = out(&output);
    let last = text.lines().last().unwrap();
    assert!(
        last.contains(r#""outcome":"failed""#) && last.contains("learning rate"),
        "{last}"
    );
}

#[test]
fn user_errors_are_exit_two_and_leave_no_run() {
    let place = Place::new();
    let cases: [&[&str]; 6] = [
        &["train", "smoke", "-s", "trian.max_steps=5", "--headless"],
        &["train", "absent", "--headless"],
        &["train", "smoke", "--stop-after", "0"],
        &["train", "--resume", "nowhere"],
        &["train", "smoke", "--resume", "nowhere"],
        &["train", "--resume", "auto", "-s", "lr=1"],
    ];
    for arguments in cases {
        let output = place.go(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", err(&output));
        assert!(!err(&output).is_empty(), "{arguments:?}");
    }
    assert!(!place.dir.path().join("runs").exists());
}

#[test]
fn preflight_prints_a_table_and_leaves_nothing() {
    let place = Place::new();
    let output = place.go(&["preflight", "smoke"]);
    assert_eq!(code(&output), 0, "{}", out(&output));
    assert!(out(&output).ends_with("ready to train\n"));
    assert_eq!(out(&output).lines().count(), 17);
    let output = place.go(&["preflight", "smoke", "-s", "model.init_std=1", "--json"]);
    assert_eq!(code(&output), 4);
    assert!(out(&output).contains(r#""id":"init_loss""#));
    assert!(!place.dir.path().join("runs").exists());
}

#[test]
fn a_bench_reports_every_field() {
    let output = Place::new().go(&[
        "bench",
        "train",
        "--size",
        "S",
        "--precision",
        "f32",
        "--seconds",
        "0",
        "--json",
    ]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let report: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    for field in [
        "tok_per_sec",
        "step_ms_median",
        "step_ms_min",
        "step_ms_max",
        "mfu",
        "first_step_s",
    ] {
        assert!(report[field].as_f64().unwrap() > 0.0, "{field}: {report}");
    }
    assert!(
        report["peak_gflops"]["f32"].as_f64().unwrap() > 0.0,
        "{report}"
    );
    let shares = report["kernels"].as_array().unwrap().iter();
    let sum: f64 = shares.map(|kernel| kernel["share"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{report}");
    assert_eq!(report["size"], "S");
    assert_eq!(report["precision"], "f32");
}
