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
    let note = |state: &RunState| state.marks.iter().any(|m| m.text.contains("overwritten"));
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

/// A table that begins with step 0 and is written anew: the new one is all there is.
#[test]
fn a_table_that_is_written_anew_has_no_step_twice() {
    let dir = tempfile::tempdir().unwrap();
    for (name, first, second) in [
        (
            "a.csv",
            "step,loss\n0,3\n1,2.5\n",
            "step,loss,val_loss\n0,4,4.5\n1,3.5,4\n",
        ),
        (
            "b.jsonl",
            "{\"step\": 0, \"loss\": 3}\n{\"step\": 1, \"loss\": 2.5}\n",
            "{\"step\": 0, \"loss\": 4}\n{\"step\": 1, \"loss\": 3.5}\n",
        ),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, first).unwrap();
        let mut log = watched(&path, None, &[]);
        let mut events = drain(&mut log);
        std::fs::write(&path, second).unwrap();
        events.extend(drain(&mut log));
        let state = RunState::from_events(&events);
        assert_eq!(points(&state, "train/loss"), [(0, 4.0), (1, 3.5)], "{name}");
    }
}

/// As the callback writes it, which appends: started three times in one folder, the last two between two looks. Then the file is
/// removed, and the next start has written more than the one before.
#[test]
fn a_run_that_was_started_again_twice_between_two_looks_is_the_last_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("llmtui.jsonl");
    let begin = |step: u32| {
        let config = format!(
            "{{\"learning_rate\": 0.001, \"notes\": \"{}\"}}",
            "x".repeat(400)
        );
        format!(
            "{{\"step\": {step}, \"event\": \"begin\", \"max_steps\": 90, \"config\": {config}}}\n"
        )
    };
    let row = |step: u32, loss: f64| format!("{{\"step\": {step}, \"loss\": {loss}}}\n");
    let mut text = [begin(0), row(5, 3.0), row(10, 2.5)].concat();
    std::fs::write(&path, &text).unwrap();
    let mut log = watched(&path, None, &[]);
    let mut events = drain(&mut log);
    // The second attempt comes to step 40, the third logs every 20 steps.
    text += &[begin(0), row(5, 3.25), row(40, 1.5), begin(0), row(20, 2.0)].concat();
    std::fs::write(&path, &text).unwrap();
    events.extend(drain(&mut log));
    let losses = |events: &[_]| points(&RunState::from_events(events), "train/loss");
    assert_eq!(losses(&events), [(20, 2.0)]);
    // Resumed from step 20: a continuation.
    text += &[begin(20), row(40, 1.75)].concat();
    std::fs::write(&path, &text).unwrap();
    events.extend(drain(&mut log));
    assert_eq!(losses(&events), [(20, 2.0), (40, 1.75)]);
    let rows: String = (1..=200).map(|step| row(step, 4.0)).collect();
    std::fs::write(&path, [begin(0), rows].concat()).unwrap();
    events.extend(drain(&mut log));
    let read = losses(&events);
    assert_eq!(
        (read.len(), read[0], read[199]),
        (200, (1, 4.0), (200, 4.0))
    );
}

/// Two attempts within a minute leave their checkpoints in one folder: the newest attempt is shown, not the furthest one.
#[test]
fn checkpoints_of_two_attempts_in_one_folder_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let save = |entries: &[(u32, f64)], at: u64| {
        let step = entries.last().unwrap().0;
        let folder = dir.path().join(format!("checkpoint-{step}"));
        std::fs::create_dir_all(&folder).unwrap();
        let entry = |(step, loss): &(u32, f64)| format!("{{\"step\": {step}, \"loss\": {loss}}}");
        let history: Vec<String> = entries.iter().map(entry).collect();
        let history = history.join(", ");
        let path = folder.join("trainer_state.json");
        let state = format!("{{\"global_step\": {step}, \"log_history\": [{history}]}}");
        std::fs::write(&path, state).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let begun = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
        file.set_modified(begun + std::time::Duration::from_secs(at))
            .unwrap();
    };
    let first = [(10, 3.0), (20, 2.5), (30, 2.0)];
    save(&first[..1], 0);
    save(&first, 10);
    let mut log = watched(dir.path(), Some("trainer_state"), &[]);
    let mut events = drain(&mut log);
    let losses = |events: &[_]| points(&RunState::from_events(events), "train/loss");
    assert_eq!(losses(&events).len(), 3);
    // A second attempt that logs less often, and a third that goes on from its checkpoint.
    save(&[(25, 2.75)], 20);
    events.extend(drain(&mut log));
    assert_eq!(losses(&events), [(25, 2.75)]);
    save(&[(25, 2.75), (28, 2.25)], 30);
    events.extend(drain(&mut log));
    assert_eq!(losses(&events), [(25, 2.75), (28, 2.25)]);
    save(&[(25, 2.75), (50, 1.5)], 40);
    events.extend(drain(&mut log));
    assert_eq!(losses(&events), [(25, 2.75), (50, 1.5)]);
    // Its newest checkpoint is deleted: nothing that was read is dropped.
    std::fs::remove_dir_all(dir.path().join("checkpoint-50")).unwrap();
    std::fs::remove_dir_all(dir.path().join("checkpoint-28")).unwrap();
    events.extend(drain(&mut log));
    assert_eq!(losses(&events).len(), 2);
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
