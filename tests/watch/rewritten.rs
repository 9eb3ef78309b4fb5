//! Logs that grow, are written anew or are rotated while they are followed, and the table that is written of one.

use super::{drain, llmtui, points, watched};
use llmtui::run::RunState;
use std::path::Path;

#[test]
fn a_growing_log_is_followed_and_a_rewritten_one_starts_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("train.log");
    let line = |step: u32| {
        format!(
            "step {step:05}/00100 ({step}.00%) | loss: {:.4} | dt: 10.0ms\n",
            5.0 - f64::from(step) * 0.01
        )
    };
    std::fs::write(&path, (1..=30).map(line).collect::<String>()).unwrap();
    let mut log = watched(dir.path(), None, &[]);
    let mut events = drain(&mut log);
    assert_eq!(RunState::from_events(&events).step, 30);
    let add = |text: &str| {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    // Half a line is not read.
    add("step 00031/00100 (31.00%) | lo");
    events.extend(drain(&mut log));
    assert_eq!(RunState::from_events(&events).step, 30);
    add("ss: 1.5 | dt: 10.0ms\n");
    events.extend(drain(&mut log));
    let state = RunState::from_events(&events);
    assert_eq!(
        (state.latest("train/loss"), state.latest("step_ms")),
        (Some(1.5), Some(10.0))
    );
    assert_eq!(state.progress(), Some(0.31));
    // Resumed from step 20 into the same file, then started again.
    add(&line(21));
    events.extend(drain(&mut log));
    assert_eq!(
        points(&RunState::from_events(&events), "train/loss").len(),
        21
    );
    std::fs::write(&path, line(1)).unwrap();
    events.extend(drain(&mut log));
    let state = RunState::from_events(&events);
    assert_eq!(points(&state, "train/loss"), [(1, 4.99)]);
    let note = |state: &RunState| state.marks.iter().any(|m| m.text.contains("written anew"));
    assert!(note(&state), "{:?}", state.marks);
}

#[test]
fn a_log_that_was_rotated_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("train.log");
    let lines = |steps: std::ops::RangeInclusive<u32>| -> String {
        steps
            .map(|step| format!("step {step} | loss 2.5\n"))
            .collect()
    };
    std::fs::write(&path, lines(1..=100)).unwrap();
    let mut log = watched(&path, None, &[]);
    let mut events = drain(&mut log);
    std::fs::rename(&path, dir.path().join("train.log.1")).unwrap();
    std::fs::write(&path, lines(101..=150)).unwrap();
    events.extend(drain(&mut log));
    let state = RunState::from_events(&events);
    assert_eq!((points(&state, "train/loss").len(), state.step), (150, 150));
}

/// As Lightning's CSVLogger: the table is written anew, in the same file, when a metric is logged for the first time.
#[test]
fn a_table_that_gets_a_column_far_behind_is_read_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.csv");
    let norms: Vec<String> = (0..8)
        .map(|i| format!("layers/block_{i}/attention/grad_norm"))
        .collect();
    let (names, cells) = (norms.join(","), ["0.5"; 8].join(","));
    let row = |step: u32| format!("{cells},{step},2.5");
    let before: String = (0..20).map(|step| row(step) + "\n").collect();
    std::fs::write(&path, format!("{names},step,train/loss\n{before}")).unwrap();
    let mut log = watched(&path, None, &[]);
    let mut events = drain(&mut log);
    let anew: String = (0..20)
        .map(|step| format!("{cells},{step},,2.5,\n"))
        .collect();
    let table = format!(
        "{names},step,train/accuracy,train/loss,val/loss\n{anew}{cells},20,0.25,2.25,2.75\n"
    );
    std::fs::write(&path, table).unwrap();
    events.extend(drain(&mut log));
    let state = RunState::from_events(&events);
    assert_eq!(points(&state, "train/loss").last(), Some(&(20, 2.25)));
    assert_eq!(points(&state, "val/loss"), [(20, 2.75)]);
    assert_eq!(points(&state, "accuracy"), [(20, 0.25)]);
}

#[test]
fn the_table_of_a_log_without_times_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("train.log");
    std::fs::write(&path, "step 1 | loss 2.5\nstep 2 | loss 2.25\n").unwrap();
    let told = |path: &Path, format: &str| {
        let args = [
            "metrics",
            path.to_str().unwrap(),
            "--to",
            "-",
            "--format",
            format,
        ];
        String::from_utf8(llmtui(&args).stdout).unwrap()
    };
    assert_eq!(
        told(&path, "csv"),
        "step,time,train/loss\n1,,2.5\n2,,2.25\n"
    );
    assert!(!told(&path, "jsonl").contains("time"));
    let timed = dir.path().join("log.jsonl");
    std::fs::write(
        &timed,
        "{\"step\": 1, \"loss\": 2.5, \"time\": 1700000000}\n",
    )
    .unwrap();
    assert_eq!(
        told(&timed, "csv"),
        "step,time,train/loss\n1,1700000000,2.5\n"
    );
}
