//! Mistakes at a resume, and runs that cannot be resumed in their current state.

use super::*;

/// A run that the machine ended before its first step has nothing to resume, but was preferred to one that has.
#[test]
fn a_resume_continues_the_run_that_made_progress() {
    let dir = tempfile::tempdir().unwrap();
    let train = [
        "train",
        "smoke",
        "--headless",
        "-s",
        "max_steps=9",
        "--stop-after",
        "3",
    ];
    let (code, out, printed) = llmtui(dir.path(), &train);
    assert_eq!(code, 0, "{out}{printed}");
    let runs = std::fs::read_dir(dir.path().join("runs")).unwrap();
    let older = runs
        .flatten()
        .find(|e| e.path().join("run.json").exists())
        .unwrap();
    let older = RunDir::open(&older.path()).unwrap();
    let spec = std::fs::read_to_string(older.spec_path()).unwrap();
    let clock = Arc::new(ManualClock::at(4_000_000_000_000));
    let newer = RunDir::create(&dir.path().join("runs"), "smoke", &spec, "", &*clock).unwrap();
    let (mut log, thread) = LogWriter::open(&newer.events_path(), clock, |_| {}).unwrap();
    let ended = r#"{"type":"Finished","outcome":"starved","step":0,"tokens":0,"seconds":0.1,"message":"PyTorch for llmtui is not installed"}"#;
    log.emit(serde_json::from_str::<Event>(ended).unwrap())
        .unwrap();
    drop(log);
    thread.finish().unwrap();
    let expected = format!("would resume {} from step 3", older.folder());
    for word in ["smoke", "auto"] {
        let (code, out, printed) = llmtui(dir.path(), &["train", "--resume", word, "--dry-run"]);
        assert_eq!(code, 0, "{printed}");
        assert!(out.contains(&expected), "{word}: {out}");
        assert!(
            printed.contains("passed over")
                && printed.contains("PyTorch for llmtui is not installed"),
            "{word}: {printed}"
        );
    }
    // A run named by its folder is meant; if there is no other one, it is used.
    let named = ["train", "--resume", &newer.folder(), "--dry-run"];
    let (_, out, printed) = llmtui(dir.path(), &named);
    assert!(
        out.contains(&format!("would resume {}", newer.folder())),
        "{out}{printed}"
    );
    std::fs::remove_dir_all(older.path()).unwrap();
    for word in ["smoke", "auto"] {
        let (_, out, printed) = llmtui(dir.path(), &["train", "--resume", word, "--dry-run"]);
        assert!(
            out.contains(&format!("would resume {}", newer.folder())),
            "{word}: {out}{printed}"
        );
    }
}

#[test]
fn a_rejected_resume_leaves_the_run_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let corpus: String = (0..400)
        .map(|i| format!("line {i} of {}. ", i * 7))
        .collect();
    std::fs::write(dir.path().join("own.txt"), &corpus).unwrap();
    let small = "train quickstart --headless -s data.path=own.txt -s max_steps=2 -s preflight.enabled=false -s n_layer=1 -s d_model=32 -s n_head=2";
    let small: Vec<&str> = small.split(' ').collect();
    let (code, _, printed) = llmtui(dir.path(), &small);
    assert_eq!(code, 0, "{printed}");
    std::fs::write(dir.path().join("own.txt"), "too short").unwrap();
    let run = std::fs::read_dir(dir.path().join("runs")).unwrap().next();
    let spec = RunDir::open(&run.unwrap().unwrap().path()).unwrap();
    let spec = || std::fs::read_to_string(spec.spec_path()).unwrap();
    let before = spec();
    let longer = "train --resume quickstart --headless -s max_steps=9";
    let longer: Vec<&str> = longer.split(' ').collect();
    let (code, out, printed) = llmtui(dir.path(), &longer);
    assert!(matches!(code, 2..=4), "{out}{printed}");
    assert!(out.contains("not resumed: the train split"), "{out}");
    assert!(printed.contains("its spec are unchanged"), "{printed}");
    assert_eq!(spec(), before);
    let (_, out, _) = llmtui(dir.path(), &["runs"]);
    assert!(out.contains("finished") && !out.contains("failed"), "{out}");
}

/// It trained nothing, ended well, and the run was reported to have done 6 of 1 steps.
#[test]
fn a_resume_to_fewer_epochs_than_are_done_leaves_the_run_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let corpus: String = (0..400)
        .map(|i| format!("line {i} of {}. ", i * 7))
        .collect();
    std::fs::write(dir.path().join("own.txt"), &corpus).unwrap();
    let small = "train quickstart --headless -s data.path=own.txt -s max_steps=6 -s preflight.enabled=false -s n_layer=1 -s d_model=32 -s n_head=2";
    let small: Vec<&str> = small.split(' ').collect();
    let (code, _, printed) = llmtui(dir.path(), &small);
    assert_eq!(code, 0, "{printed}");
    let run = std::fs::read_dir(dir.path().join("runs")).unwrap().next();
    let run = RunDir::open(&run.unwrap().unwrap().path()).unwrap();
    let files = || [run.spec_path(), run.asked_path()].map(|p| std::fs::read_to_string(p).unwrap());
    let before = files();
    let fewer = "train --resume quickstart --headless -s epochs=0.001";
    let fewer: Vec<&str> = fewer.split(' ').collect();
    let (code, out, printed) = llmtui(dir.path(), &fewer);
    assert_eq!(code, 2, "{out}{printed}");
    assert!(out.contains("nothing is left to train"), "{out}");
    assert!(printed.contains("its spec are unchanged"), "{printed}");
    assert_eq!(files(), before);
    let (_, out, _) = llmtui(dir.path(), &["runs"]);
    assert!(out.contains("finished") && out.contains("6/6"), "{out}");
}

#[test]
fn a_dead_engine_is_reported_by_diagnose_and_named_by_resume() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_at(dir.path(), "mine", 1);
    let clock = Arc::new(ManualClock::at(5_000));
    let (mut log, thread) = LogWriter::open(&run.events_path(), clock, |_| {}).unwrap();
    log.emit(Event::Hello {
        run: run.id().into(),
        engine: "0".into(),
        pid: 1,
        host: "h".into(),
    })
    .unwrap();
    drop(log);
    thread.finish().unwrap();
    let (code, out, _) = llmtui(dir.path(), &["diagnose", "mine"]);
    assert_eq!(code, 4);
    let resume = format!("llmtui resume {}", run.id());
    assert!(
        out.contains("crashed at step 0") && out.contains(&resume),
        "{out}"
    );
    let (_, out, _) = llmtui(dir.path(), &["diagnose", "mine", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&list[0]["id"], &list[0]["title"]),
        (&"verdict".into(), &"TOO EARLY".into())
    );
    assert_eq!(
        (&list[1]["id"], &list[1]["status"]),
        (&"engine".into(), &"fail".into())
    );
    fails(
        dir.path(),
        &["resume"],
        2,
        &["no live run", "crashed", &resume],
    );
}

#[test]
fn deleted_checkpoints_are_distinguished_from_missing_ones() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_at(dir.path(), "mine", 1);
    fails(
        dir.path(),
        &["export", "mine", "--to", "x"],
        2,
        &["ended before its first"],
    );
    let clock = Arc::new(ManualClock::at(1));
    let (mut sender, thread) = LogWriter::open(&run.events_path(), clock, |_| {}).unwrap();
    let saved = r#"{"type":"Checkpointed","step":20,"path":"checkpoints/step-000020","bytes":1,"best":true,"seconds":0.1}"#;
    sender
        .emit(serde_json::from_str::<Event>(saved).unwrap())
        .unwrap();
    drop(sender);
    thread.finish().unwrap();
    let verbs: [&[&str]; 3] = [
        &["chat", "mine"],
        &["export", "mine", "--to", "x"],
        &["train", "--branch", "mine"],
    ];
    for verb in verbs {
        fails(dir.path(), verb, 2, &["are gone", "step 20"]);
    }
}
