//! Series of runs: `llmtui ladder` and `llmtui sweep`, with what they reuse, reject and rank.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llmtui"));
    command.args(args).current_dir(dir).env_clear();
    command.env("HOME", dir).env("XDG_RUNTIME_DIR", dir);
    command.stdin(Stdio::null());
    command
}

fn llmtui(dir: &Path, args: &[&str]) -> Output {
    command(dir, args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A text without repeated passages: training text in the validation split would be rejected.
fn write_poem(dir: &Path) {
    let mut state = 1_u32;
    // Vowels and consonants alternate: something to learn.
    let letter = |at: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let letters = [b"aeiouy", b"bcdfgh"][at % 2];
        letters[(state >> 16) as usize % 6] as char
    };
    let poem: String = (0..20_000).map(letter).collect();
    std::fs::write(dir.join("poem.txt"), poem).unwrap();
}

/// A model of a few hundred weights.
const TINY: &str = "-s data.path=poem.txt -s d_model=16 -s n_layer=1 -s n_head=2 -s seq_len=8 -s micro_batch_size=1 -s grad_accum_steps=1";

#[test]
fn a_ladder_reuses_finished_runs_and_retrains_them_if_data_changed() {
    let dir = tempfile::tempdir().unwrap();
    write_poem(dir.path());
    let small = format!("quickstart {TINY} -s max_steps=1600");
    let ladder = |more: &str| {
        let words = format!("ladder {small}{more}");
        let words: Vec<&str> = words.split_whitespace().collect();
        let output = llmtui(dir.path(), &words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let runs = || std::fs::read_dir(dir.path().join("runs")).unwrap().count();
    let (first, reported) = ladder("");
    assert!(!first.contains("finished earlier"), "{first}{reported}");
    assert_eq!(runs(), 3);
    let (second, reported) = ladder("");
    assert!(
        second.contains("3 of 3 runs finished earlier"),
        "{second}{reported}"
    );
    assert!(reported.contains("--fresh trains it again"), "{reported}");
    let line = |text: &str| {
        text.lines()
            .find(|line| line.contains("predicted"))
            .map(String::from)
    };
    assert_eq!((line(&first), runs()), (line(&second), 3));
    // Other data mean other runs.
    let poem = dir.path().join("poem.txt");
    let newer = std::fs::metadata(&poem).unwrap().modified().unwrap();
    let newer = newer + std::time::Duration::from_secs(3600);
    let file = std::fs::File::options().append(true).open(&poem).unwrap();
    file.set_modified(newer).unwrap();
    let (third, _) = ladder(" --dry-run");
    assert!(!third.contains("finished earlier"), "{third}");
    // A plan of one of them names the machine that it is for.
    let plan = llmtui(dir.path(), &["plan", "quickstart-tokens-1"]);
    let reported = text(&plan.stderr);
    assert!(
        reported.contains("note: planned for this machine ("),
        "{reported}"
    );
    assert!(!reported.contains("trained on"), "{reported}");
}

/// Its steps take the place of what `-s` says of the length and the warm-up, as they do of a file.
#[test]
fn a_ladder_takes_epochs_and_a_share_of_warm_up_from_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    write_poem(dir.path());
    for more in ["-s epochs=2", "-s max_steps=4000 -s warmup_ratio=0.05"] {
        let words = format!("ladder quickstart {TINY} {more} --dry-run");
        let words: Vec<&str> = words.split_whitespace().collect();
        let output = llmtui(dir.path(), &words);
        let (shown, reported) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{more}: {reported}");
        assert!(shown.contains("nothing was run"), "{more}: {shown}");
    }
}

fn sweep(dir: &Path, more: &str, code: i32) -> (String, String) {
    let words = format!(
        "sweep quickstart {TINY} -s max_steps=100 -s warmup_steps=2 -s eval.every=50 {more}"
    );
    let words: Vec<&str> = words.split_whitespace().collect();
    let output = llmtui(dir, &words);
    let (out, reported) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{reported}");
    (out, reported)
}

/// The newest step in the log of the only run; 0 before there is one.
fn step(dir: &Path) -> u64 {
    let output = text(&llmtui(dir, &["runs", "--json"]).stdout);
    let run: Value = serde_json::from_str(output.lines().next().unwrap_or("null")).unwrap();
    run["step"].as_u64().unwrap_or(0)
}

fn runs(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("runs")).map_or(0, Iterator::count)
}

#[test]
fn a_sweep_trains_every_combination_once_and_ranks_them_by_the_mean_over_seeds() {
    let dir = tempfile::tempdir().unwrap();
    write_poem(dir.path());
    let grid = "--over lr=1e-5,1e-2 --over seed=1,2";
    let (plan, _) = sweep(dir.path(), &format!("{grid} --dry-run"), 0);
    assert!(plan.contains("4 runs over lr, seed"), "{plan}");
    assert!(
        plan.contains("nothing was run") && runs(dir.path()) == 0,
        "{plan}"
    );
    let (first, reported) = sweep(dir.path(), grid, 0);
    assert_eq!(runs(dir.path()), 4, "{reported}");
    assert!(
        reported.contains("run 4 of 4: lr=1e-2 seed=2"),
        "{reported}"
    );
    assert!(first.contains("best: lr=1e-2 ("), "{first}");
    assert!(first.contains("over 2 seeds"), "{first}");
    assert!(
        first.contains("lr=1e-2 is the highest value that was tried"),
        "{first}"
    );
    assert!(first.contains("llmtui runs --compare"), "{first}");
    let train = first.lines().last().unwrap();
    assert!(
        train.starts_with("llmtui train quickstart -s data.path=poem.txt"),
        "{train}"
    );
    assert!(train.ends_with(" -s lr=1e-2"), "{train}");
    // Existing runs are not trained again; new ones are.
    let (json, reported) = sweep(
        dir.path(),
        "--over lr=1e-2,1e-5,1e-6 --over seed=2,1 --json",
        0,
    );
    assert_eq!(
        (
            runs(dir.path()),
            reported.matches("trained earlier").count()
        ),
        (6, 4)
    );
    let report: Value = serde_json::from_str(&json).unwrap();
    let ranking = report["ranking"].as_array().unwrap();
    let best = |key: &str| ranking[0][key].clone();
    assert_eq!(
        (best("set"), best("runs")),
        (serde_json::json!(["lr=1e-2"]), 2.into())
    );
    let reused = report["runs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|run| run["reused"] == true);
    assert_eq!(reused.count(), 4);
    let (fresh, _) = sweep(dir.path(), "--over lr=1e-2,1e-3 -s seed=1 --fresh", 0);
    assert!(
        fresh.contains("one seed each") && runs(dir.path()) == 8,
        "{fresh}"
    );
}

/// The ranking showed the losses of the text of before.
#[test]
fn a_sweep_trains_again_on_another_text_behind_the_same_path() {
    let dir = tempfile::tempdir().unwrap();
    write_poem(dir.path());
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(at("texts/a")).unwrap();
    let poem = std::fs::read_to_string(at("poem.txt")).unwrap();
    std::fs::write(at("texts/a/x.txt"), &poem).unwrap();
    let grid = "-s data.path=texts/a -s max_steps=20 -s eval.every=0 --over lr=1e-3,1e-2";
    let reused = || {
        sweep(dir.path(), grid, 0)
            .1
            .matches("trained earlier")
            .count()
    };
    assert_eq!((reused(), reused()), (0, 2));
    // As long, at a time of before: only what it says is another.
    let other = poem.replace('a', "e");
    let path = at("texts/a/x.txt");
    let written = std::fs::metadata(&path).unwrap().modified().unwrap();
    std::fs::write(&path, other).unwrap();
    let file = std::fs::File::options().append(true).open(&path).unwrap();
    file.set_modified(written).unwrap();
    assert_eq!((reused(), runs(dir.path())), (0, 4));
}

/// Its rate had two schedules, one after the other, and no sweep has such a run.
#[test]
fn a_run_that_was_made_longer_is_not_taken_for_one_of_a_sweep() {
    let dir = tempfile::tempdir().unwrap();
    write_poem(dir.path());
    let grid = |steps: u64| format!("-s max_steps={steps} --over lr=1e-3,1e-2");
    sweep(dir.path(), &grid(20), 0);
    let listed = text(&llmtui(dir.path(), &["runs", "--json"]).stdout);
    let newest: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    let id = newest["id"].as_str().unwrap();
    let longer = ["train", "--resume", id, "-s", "max_steps=30", "--headless"];
    let output = llmtui(dir.path(), &longer);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (_, reported) = sweep(dir.path(), &grid(30), 0);
    assert!(!reported.contains("trained earlier"), "{reported}");
    let (_, reported) = sweep(dir.path(), &grid(30), 0);
    assert_eq!(reported.matches("trained earlier").count(), 2, "{reported}");
    assert_eq!(runs(dir.path()), 4);
}

#[test]
fn a_run_that_diverges_is_a_result_and_is_not_ranked() {
    let dir = tempfile::tempdir().unwrap();
    write_poem(dir.path());
    let grid = "--over lr=1e-3,10 -s clip_norm=0 -s min_lr=0 -s max_steps=400";
    let (ranked, reported) = sweep(dir.path(), grid, 0);
    assert!(
        ranked.contains("DIVERGED") && ranked.contains("best: lr=1e-3"),
        "{ranked}{reported}"
    );
    assert_eq!(
        reported.matches("gradients are not clipped").count(),
        1,
        "{reported}"
    );
}

#[test]
fn a_run_that_cannot_begin_ends_the_sweep_with_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    write_poem(dir.path());
    std::fs::write(dir.path().join("short.txt"), "abc").unwrap();
    let words = "sweep quickstart -s max_steps=20 --over data.path=short.txt,poem.txt";
    let words: Vec<&str> = words.split(' ').collect();
    let output = llmtui(dir.path(), &words);
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{reported}");
    assert!(reported.contains("data.path=short.txt: "), "{reported}");
}

#[test]
fn unintended_combinations_are_rejected_before_anything_is_trained() {
    let dir = tempfile::tempdir().unwrap();
    write_poem(dir.path());
    for (more, printed) in [
        ("--over lr=1e-3,0.001", "are the same run"),
        ("--over lrr=1,2", "lrr"),
        ("--over max_steps=100,200", "in --over and in -s"),
        ("--over lr=1e-3", "llmtui train"),
        ("--over optimizer=adamw,sgdm", "sgdm"),
        ("--over lr", "a setting and its values"),
    ] {
        let (_, reported) = sweep(dir.path(), more, 2);
        assert!(reported.contains(printed), "{more}: {reported}");
    }
    assert_eq!(runs(dir.path()), 0);
}

/// Begins a series and sends it a signal once its run is past a step; what it said on standard error.
fn stopped_beyond(dir: &Path, words: &str, wanted: u64) -> String {
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut command = command(dir, &words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    // The next one resumes from a checkpoint at the stop.
    while step(dir) <= wanted {
        llmtui::base::clock::pause(std::time::Duration::from_millis(50));
    }
    // Meanwhile it can be looked at.
    let planned = llmtui(dir, &[&words[..], &["--dry-run"]].concat());
    let reported = text(&planned.stderr);
    assert_eq!(planned.status.code(), Some(0), "{reported}");
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stderr)
}

/// A ladder left its engine behind, and the next one started another beside it.
#[test]
fn a_stopped_ladder_leaves_no_engine_and_continues_with_its_unfinished_run() {
    let dir = tempfile::tempdir().unwrap();
    write_poem(dir.path());
    let words = format!("ladder quickstart {TINY} -s max_steps=4000000");
    let reported = stopped_beyond(dir.path(), &words, 0);
    assert!(
        reported.contains("the same command continues the ladder"),
        "{reported}"
    );
    let live = || text(&llmtui(dir.path(), &["runs", "--json"]).stdout).contains("\"live\"");
    assert!(!live());
    let reached = step(dir.path());
    let reported = stopped_beyond(dir.path(), &words, reached);
    assert!(
        reported.contains("continues (") && runs(dir.path()) == 1 && !live(),
        "{reported}"
    );
}

#[test]
fn a_sweep_that_counts_in_epochs_finds_its_runs_again() {
    let dir = tempfile::tempdir().unwrap();
    write_poem(dir.path());
    let words = format!(
        "sweep quickstart {TINY} -s epochs=0.1 -s warmup_steps=2 -s eval.every=0 --over lr=1e-3,1e-2"
    );
    let words: Vec<&str> = words.split_whitespace().collect();
    let reused = || {
        let output = llmtui(dir.path(), &words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr).matches("trained earlier").count()
    };
    assert_eq!((reused(), reused(), runs(dir.path())), (0, 2, 2));
}

#[test]
fn a_stopped_sweep_continues_with_its_unfinished_run() {
    let dir = tempfile::tempdir().unwrap();
    write_poem(dir.path());
    let words = format!("sweep quickstart {TINY} -s max_steps=200000 --over lr=1e-3,1e-2");
    let reported = stopped_beyond(dir.path(), &words, 0);
    assert!(
        reported.contains("the same command continues the sweep"),
        "{reported}"
    );
    let reached = step(dir.path());
    let reported = stopped_beyond(dir.path(), &words, reached);
    assert!(
        reported.contains("continues,") && runs(dir.path()) == 1,
        "{reported}"
    );
}
