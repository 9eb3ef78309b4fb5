//! Logs of other programs, as read by `llmtui watch`. The files of tests/watch/logs were written by those programs themselves
//! (tests/watch/make.py): transformers 5.23 and 5.24, TRL 1.16, tensorboard 2.21 and wandb 0.31.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

#[path = "watch/rewritten.rs"]
mod rewritten;

use llmtui::base::clock::{ManualClock, UnixMillis};
use llmtui::run::RunState;
use llmtui::watch::{ExternalRun, Mapping, find};
use llmtui::wire::Envelope;
use proptest::prelude::*;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn logs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/watch/logs")
        .join(name)
}

/// The clock at the time when the log was written: no run counts as silent.
fn now_at(path: &Path) -> u64 {
    let modified = std::fs::metadata(path).unwrap().modified().unwrap();
    modified
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis() as u64
}

fn watched(path: &Path, format: Option<&str>, map: &[&str]) -> ExternalRun {
    let found = find(path, format).unwrap();
    let now = now_at(&found.path);
    let map: Vec<String> = map.iter().map(|word| (*word).to_string()).collect();
    ExternalRun::open(
        found,
        Mapping::parse(&map).unwrap(),
        Box::new(ManualClock::at(now)),
    )
}

/// All events available now.
fn drain(watched: &mut ExternalRun) -> Vec<Envelope> {
    let mut events = Vec::new();
    loop {
        let news = watched.poll().unwrap();
        events.extend(news.events);
        if !news.more {
            return events;
        }
    }
}

fn fold(path: &Path, format: Option<&str>, map: &[&str]) -> RunState {
    let mut watched = watched(path, format, map);
    let state = RunState::from_events(&drain(&mut watched));
    assert_eq!((state.missed, state.unknown), (0, 0));
    state
}

fn points(state: &RunState, id: &str) -> Vec<(u64, f64)> {
    let series = state
        .series
        .get(id)
        .unwrap_or_else(|| panic!("{id} is not among {:?}", state.series.keys()));
    series.recent().map(|p| (p.step, p.value)).collect()
}

/// Values of the trainer's own state.
fn history(file: &str, key: &str) -> Vec<(u64, f64)> {
    let text = std::fs::read_to_string(logs(file)).unwrap();
    let state: serde_json::Value = serde_json::from_str(&text).unwrap();
    let entries = state["log_history"].as_array().unwrap();
    entries
        .iter()
        .filter_map(|e| Some((e["step"].as_u64()?, e[key].as_f64()?)))
        .collect()
}

#[test]
fn a_trainers_state_its_callback_and_its_tensorboard_agree() {
    let truth = [
        ("train/loss", "loss"),
        ("val/loss", "eval_loss"),
        ("grad_norm", "grad_norm"),
        ("lr", "learning_rate"),
    ];
    for (path, format) in [("hf", "trainer_state"), ("hf", "jsonl"), ("hf", "tfevents")] {
        let state = fold(&logs(path), Some(format), &[]);
        for (id, key) in truth {
            let (read, reported) = (points(&state, id), history("hf/trainer_state.json", key));
            assert_eq!(read.len(), reported.len(), "{format}: {id}");
            for ((step, x), (at, y)) in read.into_iter().zip(reported) {
                // TensorBoard stores single precision.
                assert!(
                    step == at && (x - y).abs() <= 1e-7 * y.abs(),
                    "{format}: {id} at {step}: {x} for {y}"
                );
            }
        }
        assert_eq!(state.word(), "finished", "{format}");
        assert_eq!(state.step, 60, "{format}");
        assert!(
            !state
                .series
                .keys()
                .any(|id| id.contains("runtime") || id.contains("per_second")),
            "{format}"
        );
    }
    let state = fold(&logs("hf"), Some("jsonl"), &[]);
    let head = state.head.as_ref().unwrap();
    assert_eq!(
        (head.max_steps, head.vocab_size, head.n_params),
        (60, 64, 14_432)
    );
    assert_eq!((state.settings["lr"], state.warmup_steps()), (5e-3, 6));
    // The times are those of the callback, so a pace is known.
    assert!(state.pace.step_ms().is_some());
    // Gemma 3 has its vocabulary in the configuration of its text model; its warm-up is a quarter of ten steps.
    let state = fold(&logs("gemma"), None, &[]);
    let head = state.head.as_ref().unwrap();
    assert_eq!((head.max_steps, head.vocab_size), (10, 100));
    assert!(head.n_params > 0 && state.warmup_steps() == 3, "{head:?}");
}

/// A Trainer in front of the callback that may lack any fact, and a disk that is full.
const FACTLESS: &str = r#"
import json, os, sys, types
transformers = types.ModuleType("transformers")
transformers.TrainerCallback = object
sys.modules["transformers"] = transformers
from llmtui_log import LlmtuiLog

class Config:
    def get_text_config(self): return self
class Model:
    config = Config()
    def parameters(self): return []
args = types.SimpleNamespace(output_dir="out", learning_rate=0.5, max_grad_norm=1.0, get_warmup_steps=lambda n: n // 4)
state = types.SimpleNamespace(is_world_process_zero=True, global_step=0, max_steps=40)
for model in (Model(), object(), None):
    LlmtuiLog().on_train_begin(args, state, None, model=model)
args.output_dir = os.devnull + "/out"
LlmtuiLog().on_log(args, state, None, logs={"loss": 1.0})
"#;

#[test]
fn the_callback_never_ends_a_training() {
    let Some(python) = llmtui::sandbox::find("python3") else {
        eprintln!("skipped: there is no python3 in PATH");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("llmtui_log.py"), llmtui::watch::CALLBACK).unwrap();
    std::fs::write(dir.path().join("train.py"), FACTLESS).unwrap();
    let out = Command::new(python)
        .arg("train.py")
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert!(
        said.contains("llmtui.jsonl: "),
        "a lost line is reported: {said}"
    );
    let log = std::fs::read_to_string(dir.path().join("out/llmtui.jsonl")).unwrap();
    let warmups = log.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["config"]["warmup_steps"].as_u64()
    });
    assert_eq!(warmups.collect::<Vec<_>>(), [Some(10); 3]);
}

/// Between checkpoints a trainer's state is silent, for the whole interval.
#[test]
fn a_run_is_live_between_its_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let minutes = |n: u64| std::time::Duration::from_secs(60 * n);
    let begun = std::time::UNIX_EPOCH + minutes(28_000_000);
    let save = |step: u64, at: u64| {
        let folder = dir.path().join(format!("checkpoint-{step}"));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("trainer_state.json");
        let entry = format!("{{\"step\": {step}, \"loss\": 2.5}}");
        let state =
            format!("{{\"global_step\": {step}, \"max_steps\": 900, \"log_history\": [{entry}]}}");
        std::fs::write(&path, state).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(begun + minutes(at)).unwrap();
    };
    let is_live = |at: u64| {
        let found = find(dir.path(), Some("trainer_state")).unwrap();
        let now = UnixMillis((28_000_000 + at) * 60_000);
        let clock = Box::new(ManualClock::at(now.0));
        let mut watched = ExternalRun::open(found, Mapping::default(), clock);
        RunState::from_events(&drain(&mut watched)).running()
    };
    save(100, 0);
    assert!(is_live(5 * 60) && !is_live(7 * 60));
    save(200, 40);
    assert!(is_live(40 + 119) && !is_live(40 + 121));
    // A checkpoint every minute, and at least a quarter of an hour.
    save(200, 1);
    assert!(is_live(1 + 14) && !is_live(1 + 16));
}

#[test]
fn a_preference_run_keeps_its_readings() {
    let state = fold(&logs("trl"), None, &[]);
    for (id, key) in [
        ("rewards/accuracies", "rewards/accuracies"),
        ("mean_token_accuracy", "mean_token_accuracy"),
        ("entropy", "entropy"),
    ] {
        assert_eq!(
            points(&state, id),
            history("trl/checkpoint-20/trainer_state.json", key)
        );
    }
    let (_, tokens) = *history("trl/checkpoint-20/trainer_state.json", "num_tokens")
        .last()
        .unwrap();
    assert_eq!((state.step, state.tokens as f64), (20, tokens));
}

#[test]
fn scalars_of_a_summary_writer_are_read_and_the_rest_is_not() {
    let state = fold(&logs("tb"), None, &[]);
    let loss = points(&state, "train/loss");
    assert_eq!((loss.len(), loss[49].0), (50, 98));
    assert!((loss[49].1 - 4.0 * 0.98f64.powi(98)).abs() < 1e-7);
    assert_eq!(points(&state, "val/loss").len(), 50);
    assert!(points(&state, "odd")[0].1.is_nan());
    assert_eq!(state.series.len(), 3);
}

#[test]
fn curves_that_a_summary_writer_added_together_are_those_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["", "loss_train", "loss_val"] {
        std::fs::create_dir_all(dir.path().join("run").join(folder)).unwrap();
        for entry in std::fs::read_dir(logs("curves").join(folder)).unwrap() {
            let from = entry.unwrap().path();
            if from.is_file() {
                let name = from.file_name().unwrap();
                std::fs::copy(&from, dir.path().join("run").join(folder).join(name)).unwrap();
            }
        }
    }
    // The run's own file has nothing but its head, and was written when the run began.
    let own = find(&dir.path().join("run"), None).unwrap().path;
    let file = std::fs::File::options().append(true).open(&own).unwrap();
    let began = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    file.set_modified(began).unwrap();
    for path in [dir.path().join("run"), dir.path().into()] {
        let found = find(&path, None).unwrap();
        assert_eq!((found.path.as_path(), found.others), (own.as_path(), 0));
        let state = fold(&path, None, &[]);
        for (id, first) in [("train/loss", 3.0), ("val/loss", 3.25)] {
            let expected: Vec<(u64, f64)> = (0..20)
                .map(|step| (step, first - 0.125 * step as f64))
                .collect();
            assert_eq!(points(&state, id), expected, "{id}");
        }
        assert_eq!((state.series.len(), state.step), (2, 19));
    }
}

#[test]
fn an_offline_run_of_wandb_is_read_with_its_configuration() {
    let state = fold(&logs("wandb"), None, &[]);
    let loss = points(&state, "train/loss");
    assert_eq!(loss.len(), 81);
    assert!((loss[79].1 - 5.0 * 0.99f64.powi(79)).abs() < 1e-12 && loss[79].0 == 158);
    assert!(loss[80].1.is_nan());
    assert_eq!(points(&state, "val/loss").len(), 4);
    assert_eq!(points(&state, "nested/a")[79], (158, 79.0));
    let head = state.head.as_ref().unwrap();
    assert_eq!(
        (head.max_steps, state.settings["lr"], state.warmup_steps()),
        (160, 3e-4, 10)
    );
    assert_eq!(state.word(), "finished");
}

#[test]
fn custom_tables_and_lines_are_read_with_a_mapping() {
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("metrics.csv");
    std::fs::write(
        &csv,
        "epoch,step,train_loss,val_loss\n0,49,2.5,\n0,49,,2.7\n0,99,2.0,\n",
    )
    .unwrap();
    let state = fold(dir.path(), None, &[]);
    assert_eq!(points(&state, "train/loss"), [(49, 2.5), (99, 2.0)]);
    assert_eq!(points(&state, "val/loss"), [(49, 2.7)]);
    let own = dir.path().join("own.csv");
    std::fs::write(&own, "it;nll;\"dev; nll\"\n1;3.5;4\n2;nan;4.5\n").unwrap();
    let state = fold(
        &own,
        Some("csv"),
        &["step=it", "train/loss=nll", "val/loss=dev; nll"],
    );
    assert_eq!(points(&state, "val/loss"), [(1, 4.0), (2, 4.5)]);
    assert!(points(&state, "train/loss")[1].1.is_nan());
    let lines = dir.path().join("own.jsonl");
    std::fs::write(
        &lines,
        "{\"it\": 3, \"m\": {\"nll\": Infinity}, \"when\": 1700000000}\n",
    )
    .unwrap();
    let state = fold(
        &lines,
        Some("jsonl"),
        &["step=it", "train/loss=m/nll", "time=when"],
    );
    assert_eq!(
        (state.step, state.last_t),
        (3, UnixMillis(1_700_000_000_000))
    );
}

#[test]
fn a_damaged_line_does_not_reopen_a_run_that_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("llmtui.jsonl");
    let lines = "{\"step\": 1, \"loss\": 2.5}\nno JSON\n{\"event\": \"end\"}\n";
    std::fs::write(&path, lines).unwrap();
    let state = fold(&path, None, &[]);
    assert_eq!((state.word(), state.n_warnings), ("finished", 1));
}

#[test]
fn nothing_is_written_and_other_files_are_reported_as_not_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let missing = find(&dir.path().join("gone"), None)
        .unwrap_err()
        .to_string();
    assert!(missing.contains("gone"), "{missing}");
    let empty = find(dir.path(), None).unwrap_err().to_string();
    assert!(
        empty.contains("no log found in") && empty.contains("trainer_state"),
        "{empty}"
    );
    // Documents are not logs, and neither is a pickle.
    std::fs::write(
        dir.path().join("train.jsonl"),
        "{\"text\": \"step 1 loss 2\"}\n",
    )
    .unwrap();
    std::fs::write(
        dir.path().join("notes.txt"),
        "the first step took 3 minutes\n",
    )
    .unwrap();
    // A text about training is none, unless it is named itself.
    let prose = dir.path().join("ideas.txt");
    std::fs::write(
        &prose,
        "At step 300 the loss was 2.5 and fell.\nThen it rose.\n",
    )
    .unwrap();
    assert_eq!(find(&prose, None).unwrap().format.entry.id, "text");
    std::fs::write(dir.path().join("training_args.bin"), b"\x80\x04.").unwrap();
    assert!(find(dir.path(), None).is_err());
    assert!(find(&dir.path().join("training_args.bin"), None).is_err());
    assert!(find(Path::new("/dev/zero"), None).is_err());
    assert!(
        find(dir.path(), Some("tape"))
            .unwrap_err()
            .to_string()
            .contains("tape")
    );
}

#[test]
fn damage_is_named_and_everything_before_it_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    for (folder, name) in [("tb", "x.tfevents.1"), ("wandb", "x.wandb")] {
        let from = find(&logs(folder), None).unwrap().path;
        let mut bytes = std::fs::read(&from).unwrap();
        let whole = fold(&from, None, &[]).series["train/loss"].len();
        let at = bytes.len() * 3 / 4;
        bytes[at] ^= 0x20;
        let path = dir.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        let state = fold(&path, None, &[]);
        let kept = state.series["train/loss"].len();
        assert!(kept > 0 && kept < whole, "{folder}: {kept} of {whole}");
        let reported = state.log.iter().any(|line| line.text.contains("checksum"));
        assert!(reported, "{folder}: {:?}", state.log);
        // If truncated, it is merely unfinished.
        bytes[at] ^= 0x20;
        bytes.truncate(at);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(fold(&path, None, &[]).n_warnings, 0, "{folder}");
    }
}

/// Reads a file in every format; whatever its contents, reading ends and no event is lost.
fn survives(bytes: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    for (format, name) in [
        ("trainer_state", "trainer_state.json"),
        ("tfevents", "events.out.tfevents.1"),
        ("wandb", "run.wandb"),
        ("jsonl", "a.jsonl"),
        ("csv", "a.csv"),
        ("text", "a.log"),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let state = fold(&path, Some(format), &[]);
        assert!(state.series.len() <= 256);
        let _ = find(&path, None);
    }
}

fn samples() -> Vec<Vec<u8>> {
    let files = ["hf/trainer_state.json", "hf/llmtui.jsonl"].map(logs);
    let found = [logs("tb"), logs("wandb")].map(|path| find(&path, None).unwrap().path);
    files
        .iter()
        .chain(&found)
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        survives(&bytes);
    }

    #[test]
    fn damaged_logs_are_survived(which in 0usize..4, edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20), cut in any::<prop::sample::Index>()) {
        let mut bytes = samples().swap_remove(which);
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()).max(1));
        survives(&bytes);
    }
}

fn llmtui(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_llmtui"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn the_verb_summarizes_prints_events_and_the_callback() {
    let path = logs("hf");
    let path = path.to_str().unwrap();
    let out = llmtui(&["watch", path]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(0), "{text}");
    for phrase in [
        "finished at step 60 of 60",
        "train/loss",
        "val/loss",
        "grad_norm",
    ] {
        assert!(text.contains(phrase), "{phrase}: {text}");
    }
    let out = llmtui(&["watch", path, "--json", "--follow"]);
    let text = String::from_utf8(out.stdout).unwrap();
    let events: Vec<Envelope> = text
        .lines()
        .map(|line| llmtui::wire::decode_envelope(line).unwrap())
        .collect();
    assert_eq!(RunState::from_events(&events).step, 60);
    let callback = String::from_utf8(llmtui(&["watch", "--callback"]).stdout).unwrap();
    assert!(callback.contains("class LlmtuiLog(TrainerCallback)") && callback.lines().count() < 30);
    let refused = llmtui(&["watch", "/nowhere"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_run_before_its_first_step_is_waited_for_and_one_that_went_back_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("train.log");
    let log = path.to_str().unwrap();
    std::fs::write(&path, "Loading the model\n").unwrap();
    let out = llmtui(&["watch", log]);
    let printed = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(
        printed.contains("has no training step") && printed.contains("--follow"),
        "{printed}"
    );
    let mut waiting = Command::new(env!("CARGO_BIN_EXE_llmtui"))
        .args(["watch", log, "--follow"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The state of the run is printed once everything has been read.
    let mut out = std::io::BufReader::new(waiting.stdout.take().unwrap());
    let mut text = String::new();
    out.read_line(&mut text).unwrap();
    let records = "{'loss': '2.5', 'epoch': '0.5'}\n{'train_runtime': '9', 'train_loss': '2.5', 'epoch': '1'}\n";
    std::fs::write(&path, format!("Loading the model\n{records}")).unwrap();
    out.read_to_string(&mut text).unwrap();
    let ended = waiting.wait().unwrap();
    assert!(
        ended.success() && text.contains("finished at step 1"),
        "{text}"
    );

    std::fs::write(
        &path,
        "step 10 | loss 3\nstep 20 | loss 2\nstep 10 | loss 2.5\n",
    )
    .unwrap();
    let text = String::from_utf8(llmtui(&["watch", log]).stdout).unwrap();
    assert!(
        text.contains("note: the log went back from step 20 to step 10"),
        "{text}"
    );
}

#[test]
fn non_finite_readings_are_reported_with_their_series_and_step() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log.jsonl");
    let line = |step: u64| {
        let loss = if step < 4 { "2.5" } else { "NaN" };
        format!("{{\"step\": {step}, \"loss\": {loss}, \"kl\": NaN}}\n")
    };
    std::fs::write(&log, (1..=6).map(line).collect::<String>()).unwrap();
    let out = llmtui(&["watch", log.to_str().unwrap(), "--headless"]);
    let text = String::from_utf8(out.stdout).unwrap();
    for phrase in [
        "warning: train/loss: 3 of 6 readings are not finite (NaN or infinite), the first at step 4; \
         lowest and highest are of the finite ones\n",
        "warning: kl: 6 of 6 readings are not finite (NaN or infinite), the first at step 1\n",
    ] {
        assert!(text.contains(phrase), "{phrase}: {text}");
    }
    let rows = || text.lines().filter(|line| !line.starts_with("warning"));
    let kl = rows().find(|line| line.starts_with("kl ")).unwrap();
    let cells: Vec<&str> = kl.split_whitespace().collect();
    assert_eq!(cells, ["kl", "NaN", "-", "-", "6"]);
}

#[test]
fn a_log_is_diagnosed_and_reported_like_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let log = logs("hf/trainer_state.json");
    let log = log.to_str().unwrap();
    let out = llmtui(&["diagnose", log, "--json"]);
    let findings: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let verdict = &findings.as_array().unwrap()[0];
    assert!(verdict["id"].is_string(), "{findings}");
    let report = dir.path().join("report.md");
    let report = report.to_str().unwrap();
    let out = llmtui(&["report", log, "--to", report]);
    assert_eq!(out.status.code(), Some(0));
    let text = std::fs::read_to_string(report).unwrap();
    for words in ["LEARNING", "Loss (train)", "log of another program"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(
        !text.contains("vocabulary"),
        "a log does not tell it: {text}"
    );
    // A report of the same log is replaced; any other file is not, unless requested.
    let again = |more: &[&str]| {
        let out = llmtui(&[&["report", log, "--to", report][..], more].concat());
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    assert_eq!(again(&[]).0, Some(0));
    for other in [
        "my notes\n".to_string(),
        text.replace("llmtui report (", "llmtui report (x"),
    ] {
        std::fs::write(report, &other).unwrap();
        let (code, printed) = again(&[]);
        assert_eq!(code, Some(2), "{printed}");
        for words in [
            "report.md already exists",
            "is not a report of",
            "try: ",
            "--force",
        ] {
            assert!(printed.contains(words), "{words}: {printed}");
        }
        assert_eq!(std::fs::read_to_string(report).unwrap(), other);
    }
    assert_eq!(again(&["--force"]).0, Some(0));
    assert_eq!(std::fs::read_to_string(report).unwrap(), text);
    // A verb that needs a run reports that; a file that is neither gets the usual error.
    for (args, words) in [
        (&["diagnose", log, "--probe"][..], "a log has neither"),
        (&["diagnose", log, "--map", "val/loss=nothing"], "nothing"),
        (&["diagnose", "no-such-run"], "no run"),
        (&["report", "Cargo.toml"], "not a known log"),
    ] {
        let out = llmtui(args);
        let printed = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {printed}");
        assert!(printed.contains(words), "{args:?}: {printed}");
    }
}
