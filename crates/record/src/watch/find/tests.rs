//! Finding logs of other programs.

use super::*;
use std::time::{Duration, UNIX_EPOCH};

/// A folder with checkpoints of these steps, each written so many seconds after the first.
fn run(checkpoints: &[(u64, u64)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (step, at) in checkpoints {
        let folder = dir.path().join(format!("checkpoint-{step}"));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("trainer_state.json");
        // Each holds the history up to its step.
        let steps = checkpoints.iter().map(|(step, _)| step);
        let entries: Vec<String> = steps
            .filter(|at| *at <= step)
            .map(|at| format!("{{\"step\": {at}, \"loss\": 2.5}}"))
            .collect();
        let history = entries.join(", ");
        let state = format!("{{\"global_step\": {step}, \"log_history\": [{history}]}}");
        std::fs::write(&path, state).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_700_000_000 + at))
            .unwrap();
    }
    dir
}

fn step_of(found: &Found) -> Option<u64> {
    checkpoint(found.path.parent().unwrap())
}

#[test]
fn the_checkpoints_of_one_folder_are_one_run_and_the_highest_is_taken() {
    for at in [[0, 0, 0], [2, 1, 0], [0, 300, 600]] {
        let dir = run(&[(20, at[0]), (90, at[1]), (100, at[2])]);
        let found = find(dir.path(), None).unwrap();
        assert_eq!((step_of(&found), found.others), (Some(100), 0), "{at:?}");
        // The source of the log takes the same one.
        let mut source = (found.format.open)(&found.path, found.named, &Default::default());
        let mut items = Vec::new();
        source.poll(&mut items).unwrap();
        let values = items.into_iter().rev().find_map(|item| match item {
            crate::watch::Item::Readings { values, .. } => Some(values),
            _ => None,
        });
        assert!(values.unwrap().contains(&("step".into(), 100.0)), "{at:?}");
    }
    // A run that went on from an earlier checkpoint.
    let resumed = run(&[(20, 0), (100, 300), (30, 600)]);
    assert_eq!(step_of(&find(resumed.path(), None).unwrap()), Some(30));
}

#[test]
fn of_several_runs_the_one_that_is_shown_gives_the_name() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("hf1");
    for (name, at) in [("run-a", 0), ("run-b", 300)] {
        let made = run(&[(20, at)]);
        std::fs::create_dir_all(&root).unwrap();
        std::fs::rename(made.path(), root.join(name)).unwrap();
    }
    let found = find(&root, None).unwrap();
    assert_eq!((found.name.as_str(), found.others), ("run-b", 1));
    assert_eq!(find(&root.join("run-a"), None).unwrap().name, "run-a");
}

#[test]
fn a_run_is_named_by_what_tells_it_from_others() {
    let dir = tempfile::tempdir().unwrap();
    let name = |named: &str, log: &str| {
        let (named, log) = (dir.path().join(named), dir.path().join(log));
        std::fs::create_dir_all(log.parent().unwrap()).unwrap();
        name_of(&named, &log)
    };
    for (log, expected) in [
        ("tmp/gpt2-lr3e4.jsonl", "gpt2-lr3e4"),
        ("logs/baseline.csv", "baseline"),
        ("bert/run-7.log", "run-7"),
        ("bert/trainer_state.json", "bert"),
        ("bert/llmtui.jsonl", "bert"),
        ("bert/logs/metrics.csv", "bert"),
        ("bert/output/checkpoint-20/trainer_state.json", "bert"),
        ("bert/runs/events.out.tfevents.1.host", "bert"),
    ] {
        assert_eq!(name(log, log), expected, "{log}");
    }
    for (folder, log, expected) in [
        ("bert", "bert/run-7.log", "bert"),
        ("bert", "bert/output/log.txt", "bert"),
        ("outputs", "outputs/baseline.csv", "baseline"),
        ("gpt/output", "gpt/output/trainer_state.json", "gpt"),
        (
            "gpt/tb",
            "gpt/tb/run-neqv/events.out.tfevents.1.host",
            "run-neqv",
        ),
        (
            "gpt/tb",
            "gpt/tb/version_0/events.out.tfevents.1.host",
            "gpt",
        ),
        ("gpt/tb", "gpt/tb/events.out.tfevents.1.host", "gpt"),
    ] {
        assert_eq!(name(folder, log), expected, "{folder} {log}");
    }
    // If nothing distinguishes it, its folder's name is used.
    assert_eq!(
        name_of(Path::new("/tmp/log.txt"), Path::new("/tmp/log.txt")),
        "tmp"
    );
}

#[test]
fn a_log_is_known_by_its_end_and_by_one_long_line() {
    let dir = tempfile::tempdir().unwrap();
    let format = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        find(&path, None).ok().map(|found| found.format.entry.id)
    };
    let before = "[rank0] NCCL INFO Channel 0 : 0 1 2 3\n".repeat(5_000);
    assert_eq!(format("a.log", &before), None);
    assert_eq!(
        format("b.log", &format!("{before}step 1 | loss 3.5\n")),
        Some("text")
    );
    let wide: String = (0..5_000)
        .map(|i| format!("\"grads/layer-{i}\": 0.5, "))
        .collect();
    let line = format!("{{{wide}\"step\": 1, \"loss\": 3.5}}\n");
    assert!(line.len() as u64 > HEAD);
    assert_eq!(format("c.jsonl", &line), Some("jsonl"));
}

#[test]
fn a_run_before_its_first_step_is_expected_to_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for (name, bytes) in [("a.log", "Loading\n"), ("b.jsonl", ""), ("c.log", "\0\0")] {
        std::fs::write(path(name), bytes).unwrap();
    }
    let id = |name: &str| expected(&path(name)).map(|found| found.format.entry.id);
    assert_eq!(
        [id("a.log"), id("b.jsonl"), id("c.log")],
        [Some("text"), Some("jsonl"), None]
    );
    std::fs::remove_file(path("c.log")).unwrap();
    assert_eq!(expected(dir.path()).unwrap().path, path("a.log"));
    assert!(find(dir.path(), None).is_err());
    // Standard error alone may have been kept.
    std::fs::write(path("c.err"), "step 1 | loss 3.5\n").unwrap();
    assert_eq!(find(dir.path(), None).unwrap().path, path("c.err"));
}

#[test]
fn curves_that_tensorboard_keeps_in_folders_within_a_run_are_of_that_run() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["x", "x/loss_a", "x/loss_b", "y"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        std::fs::write(dir.path().join(folder).join("events.out.tfevents.1"), "").unwrap();
    }
    let found = find(&dir.path().join("x"), None).unwrap();
    assert_eq!(found.path, dir.path().join("x/events.out.tfevents.1"));
    assert_eq!(found.others, 0, "{found:?}");
    for (newest, at) in [("x", 2_000_000_000), ("y", 2_000_000_009)] {
        let path = dir.path().join(newest).join("events.out.tfevents.1");
        let file = std::fs::File::options().append(true).open(path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(at))
            .unwrap();
        assert_eq!(find(dir.path(), None).unwrap().others, 1, "{newest}");
    }
}

#[test]
fn other_folders_are_other_runs() {
    let dir = run(&[(10, 0), (20, 0)]);
    let of = run(&[(10, 0), (20, 0)]);
    std::fs::create_dir(dir.path().join("b")).unwrap();
    for step in [10, 20] {
        let name = format!("checkpoint-{step}");
        std::fs::rename(of.path().join(&name), dir.path().join("b").join(&name)).unwrap();
    }
    assert_eq!(find(dir.path(), None).unwrap().others, 1);
}

#[test]
fn logs_of_other_programs_are_other_runs_but_not_those_within_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let write = |log: &str, text: &str| {
        let path = dir.path().join(log);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let csv = "step,loss\n1,2.5\n2,2.25\n";
    let json = "{\"step\": 1, \"loss\": 2.5}\n{\"step\": 2, \"loss\": 2.25}\n";
    let state = "{\"global_step\": 1, \"log_history\": [{\"step\": 1, \"loss\": 2.5}]}";
    write("trl/checkpoint-1/trainer_state.json", state);
    write("trl/logs/metrics.csv", csv);
    assert_eq!(find(dir.path(), None).unwrap().others, 0);
    write("lightning/version_0/metrics.csv", csv);
    write("mine/log.jsonl", json);
    let found = find(dir.path(), None).unwrap();
    assert_eq!(found.others, 2, "{found:?}");
    // Only those of a format that was named.
    let wanted = found.format.entry.id;
    assert_eq!(find(dir.path(), Some(wanted)).unwrap().others, 0);
}
