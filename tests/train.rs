//! `llmtui train`, `preflight` and `bench` as a script sees them: lines, events, exit codes, files.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

use llmtui::data::tokenizer::{Marks, TokenizerConfig};
use llmtui::gguf::Value as GgufValue;
use llmtui::kernels::quant::Kind;
use llmtui::nn::{Model, ModelConfig};
use llmtui::run::RunDir;
use llmtui::run::log::read_all;
use llmtui::wire::{Envelope, Event, Outcome, decode_envelope};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_llmtui");

/// Where the program runs: its working directory, its runs and its sockets.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .stdin(Stdio::null());
        command
    }

    fn go(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The smoke preset with a short validation split, `words` on top.
    fn train(&self, words: &[&str], options: &[&str]) -> Output {
        let mut arguments = vec!["train", "smoke", "-s", "data.val_fraction=0.01"];
        arguments.extend(words.iter().flat_map(|w| ["-s", w]));
        arguments.extend(options);
        self.go(&arguments)
    }

    fn run(&self) -> RunDir {
        let runs = std::fs::read_dir(self.dir.path().join("runs")).unwrap();
        RunDir::open(&runs.last().unwrap().unwrap().path()).unwrap()
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn events(text: &str) -> Vec<Envelope> {
    text.lines().map(|l| decode_envelope(l).unwrap()).collect()
}

#[test]
fn lines_tell_of_the_run_and_of_what_to_type_next() {
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
        "completed at step 20",
        "llmtui chat",
        run.id(),
    ] {
        assert!(text.contains(word), "{word:?} is missing:\n{text}");
    }
    assert!(!text.contains('\x1b'));
}

#[test]
fn events_are_one_object_a_line_and_the_last_is_finished_with_the_loss() {
    let place = Place::new();
    let output = place.train(&[], &["--json"]);
    let told = events(&out(&output));
    let logged = read_all(&place.run().events_path()).unwrap();
    assert_eq!(told, logged, "what is told is what is logged");
    let Event::Finished {
        outcome: Outcome::Completed,
        step: 20,
        val_loss: Some(loss),
        ..
    } = told.last().unwrap().event
    else {
        panic!("{:?}", told.last())
    };
    assert!(loss.0 > 2.0 && loss.0 < 4.5);
    let numbers: Vec<u64> = told.iter().map(|e| e.seq).collect();
    assert_eq!(numbers, (1..=told.len() as u64).collect::<Vec<_>>());
}

#[test]
fn stop_after_and_resume_join_to_one_run_and_tell_only_what_is_new() {
    let place = Place::new();
    let output = place.train(&[], &["--json", "--stop-after", "7"]);
    assert_eq!(code(&output), 0);
    assert!(
        out(&output)
            .lines()
            .last()
            .unwrap()
            .contains(r#""outcome":"stopped""#)
    );
    let id = place.run().id().to_string();
    let output = place.train(&["lr=0.5"], &["--resume", &id]);
    assert_eq!(code(&output), 2, "a run keeps its spec: {}", err(&output));
    let output = place.go(&["train", "--resume", &id, "-s", "lr=0.5"]);
    assert_eq!(code(&output), 2, "{}", err(&output));
    assert!(err(&output).contains("--branch"), "{}", err(&output));
    let output = place.train(&[], &["--json", "--resume", &id]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let told = events(&out(&output));
    assert!(
        matches!(told[0].event, Event::Hello { .. }),
        "{:?}",
        told[0]
    );
    let first = told.iter().find_map(|e| match e.event {
        Event::Stepped { step, .. } => Some(step),
        _ => None,
    });
    assert_eq!(first, Some(8));
    let output = place.go(&["train", "--resume", "auto"]);
    assert_eq!(code(&output), 2, "a finished run does not go on by itself");
}

#[test]
fn a_resume_takes_other_threads_and_one_that_cannot_be_is_exit_two() {
    let place = Place::new();
    let output = place.train(&["threads=1"], &["--json", "--stop-after", "7"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let id = place.run().id().to_string();
    let spec = std::fs::read(place.run().spec_path()).unwrap();
    let resume = ["train", "--resume", &id, "--json", "--stop-after", "9"];
    let output = place.go(&[&resume[..], &["-s", "threads=2"]].concat());
    assert_eq!(code(&output), 0, "{}", err(&output));
    // It is told, and the run's own spec stays.
    assert!(out(&output).contains("not_bit_exact"), "{}", out(&output));
    assert_eq!(std::fs::read(place.run().spec_path()).unwrap(), spec);
    let output = place.go(&["train", "--resume", &id, "-s", "threads=none"]);
    assert_eq!(code(&output), 2, "{}", err(&output));
    for checkpoint in place.run().checkpoints() {
        std::fs::remove_file(checkpoint.path.join("model.safetensors")).unwrap();
    }
    let output = place.go(&["train", "--resume", &id, "--json"]);
    assert_eq!(code(&output), 2, "{}", err(&output));
    assert!(
        out(&output).contains(r#""outcome":"invalid""#),
        "{}",
        out(&output)
    );
}

#[test]
fn a_requeued_job_goes_on_with_its_run_whatever_engine_the_start_chose() {
    let place = Place::new();
    let engine = ["engine=auto"];
    let output = place.train(&engine, &["--headless", "--stop-after", "5"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("engine auto is"), "{}", err(&output));
    let asked = std::fs::read_to_string(place.run().path().join("asked.yaml")).unwrap();
    assert!(asked.contains("# engine auto is"), "{asked}");
    let output = place.train(&engine, &["--headless", "--resume", "auto"]);
    assert!(
        out(&output).contains("resumed from step 5"),
        "{}",
        out(&output)
    );
    let runs = std::fs::read_dir(place.dir.path().join("runs")).unwrap();
    assert_eq!(runs.count(), 1);
}

#[test]
fn a_run_starts_from_another_by_its_name_or_folder() {
    let place = Place::new();
    let output = place.train(&["name=first"], &["--json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let parent = place.run();
    let folder = parent.path().display().to_string();
    let best = parent.best_checkpoint().unwrap().path;
    for (word, name) in [("first", "by-name"), (folder.as_str(), "by-folder")] {
        let from = format!("train.from={word}");
        let name = format!("name={name}");
        let output = place.train(&[&from, &name, "max_steps=2"], &["--no-start"]);
        assert_eq!(code(&output), 0, "{}", err(&output));
        let run = RunDir::open(std::path::Path::new(out(&output).trim())).unwrap();
        let spec = std::fs::read_to_string(run.path().join("spec.yaml")).unwrap();
        assert!(spec.contains(&best.display().to_string()), "{spec}");
    }
}

#[test]
fn a_branch_goes_on_from_a_checkpoint_of_its_parent_with_other_settings() {
    let place = Place::new();
    let output = place.train(&["save_every=5", "keep_last=9"], &["--json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let parent = events(&out(&output));
    let run = place.run();
    let from = |step: u64| format!("{}@{step}", run.id());
    let losses = |told: &[Envelope]| -> Vec<(u64, f64)> {
        let of = |e: &Envelope| match &e.event {
            Event::Stepped { step, values, .. } => {
                Some((*step, values["train/loss"].0)).filter(|(step, _)| *step > 10)
            }
            _ => None,
        };
        told.iter().filter_map(of).collect()
    };
    // Without a change it is its parent over again, to the bit.
    let same = place.go(&["train", "--branch", &from(10), "--json"]);
    assert_eq!(code(&same), 0, "{}", err(&same));
    let same = events(&out(&same));
    assert_eq!(losses(&same), losses(&parent));
    let started = |e: &Envelope| {
        matches!(
            e.event,
            Event::Started {
                resumed_from: Some(10),
                ..
            }
        )
    };
    assert!(same.iter().any(started));
    // With one it parts from its parent after the step that the change touched.
    let other = place.go(&["train", "--branch", &from(10), "-s", "lr=0.02", "--json"]);
    assert_eq!(code(&other), 0, "{}", err(&other));
    assert!(
        err(&other).contains("optimizer.adamw.lr"),
        "{}",
        err(&other)
    );
    let (ours, theirs) = (losses(&events(&out(&other))), losses(&parent));
    assert_eq!(ours[0], theirs[0]);
    assert_ne!(ours.last(), theirs.last());
    let listed = out(&place.go(&["runs"]));
    assert_eq!(
        listed.matches(&format!("from {}", from(10))).count(),
        2,
        "{listed}"
    );
    assert!(listed.contains("lr=0.02"), "{listed}");
    // Its parent may go.
    assert_eq!(code(&place.go(&["rm", "--yes", run.id()])), 0);
    let json = out(&place.go(&["runs", "--json"]));
    let newest: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(newest["parent"]["step"], 10, "{newest}");
    for (arguments, why) in [
        (vec!["-s", "n_layer=3"], "keeps what its checkpoint holds"),
        (vec!["-s", "max_steps=8"], "nothing is left"),
        (vec!["quickstart"], "its parent's spec"),
    ] {
        let id = newest["id"].as_str().unwrap();
        let place_of = format!("{id}@10");
        let output = place.go(&[&["train", "--branch", &place_of][..], &arguments].concat());
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(err(&output).contains(why), "{}", err(&output));
    }
    let gone = place.go(&["train", "--branch", &from(10)]);
    assert_eq!(code(&gone), 2);
}

#[test]
fn gc_shows_first_and_keeps_what_is_needed() {
    let place = Place::new();
    let output = place.train(&["save_every=4", "keep_last=9"], &["--json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let run = place.run();
    let steps = || -> Vec<u64> { run.checkpoints().iter().map(|c| c.step).collect() };
    let all = steps();
    assert!(all.len() > 2, "{all:?}");
    let debris = run.checkpoints_path().join(".tmp-step-000099");
    std::fs::create_dir(&debris).unwrap();
    std::fs::write(debris.join("model.safetensors"), [0; 5_000]).unwrap();
    let halves = run.path().with_file_name(".del-2026-11-21-1422-old");
    std::fs::create_dir(&halves).unwrap();
    let shown = place.go(&["gc"]);
    assert_eq!(code(&shown), 0, "{}", err(&shown));
    for words in [
        run.id(),
        "checkpoint of step 4",
        ".tmp-step-000099",
        ".del-2026",
        "--yes",
    ] {
        assert!(out(&shown).contains(words), "{words}: {}", out(&shown));
    }
    assert_eq!(
        (steps(), debris.exists()),
        (all, true),
        "nothing was deleted"
    );
    let best = run.best_checkpoint().unwrap().step;
    let done = place.go(&["gc", "--yes"]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    let mut kept = vec![best, 20];
    kept.dedup();
    assert_eq!(
        (steps(), debris.exists(), halves.exists()),
        (kept, false, false)
    );
    let again = place.go(&["gc", run.id()]);
    assert_eq!(out(&again), "nothing to free\n");
}

#[test]
fn a_failed_check_is_exit_four_and_force_trains_all_the_same() {
    let place = Place::new();
    let output = place.train(&["model.init_std=1"], &["--headless"]);
    assert_eq!(code(&output), 4);
    assert!(out(&output).contains("check FAIL"), "{}", out(&output));
    let output = place.train(&["model.init_std=1"], &["--headless", "--force"]);
    assert_eq!(code(&output), 0);
}

#[test]
fn a_loss_that_is_no_number_is_exit_four_and_says_what_to_try() {
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
fn what_is_yours_to_correct_is_exit_two_and_leaves_no_run() {
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
fn a_dry_run_says_what_would_be_trained_and_leaves_nothing() {
    let place = Place::new();
    let output = place.go(&["train", "quickstart", "--dry-run"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let text = out(&output);
    assert!(
        text.contains("804k parameters") && text.contains("2,000 steps of 768 tokens"),
        "{text}"
    );
    assert!(!place.dir.path().join("runs").exists());
}

#[test]
fn a_reader_that_leaves_ends_the_run_after_a_checkpoint_without_a_panic() {
    let place = Place::new();
    let mut child = place
        .command(&[
            "train",
            "smoke",
            "-s",
            "max_steps=100000",
            "-s",
            "eval_every=0",
            "--json",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in &mut lines {
        if line.unwrap().contains("Stepped") {
            break;
        }
    }
    drop(lines);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(!err(&output).contains("panic"), "{}", err(&output));
    let log = read_all(&place.run().events_path()).unwrap();
    let Event::Finished {
        outcome: Outcome::Stopped,
        step,
        ..
    } = log.last().unwrap().event
    else {
        panic!("{:?}", log.last())
    };
    let saved = place.run().checkpoints();
    assert_eq!(saved.last().map(|c| c.step), Some(step));
}

#[test]
fn checkpoints_that_do_not_fit_cost_a_warning_each_and_the_last_one_the_success() {
    let place = Place::new();
    // Files may grow to 128 KiB here: the log fits, the weights do not.
    let script = format!(
        "ulimit -f 128; exec {PROGRAM} train smoke --json -s data.val_fraction=0.01 -s preflight.enabled=false \
         -s d_model=64 -s checkpoint.every=5"
    );
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(place.dir.path())
        .env("XDG_RUNTIME_DIR", place.dir.path())
        .output()
        .unwrap();
    assert_eq!(code(&output), 3, "{}", err(&output));
    let told = events(&out(&output));
    let Event::Finished {
        outcome, message, ..
    } = &told.last().unwrap().event
    else {
        panic!("{:?}", told.last());
    };
    assert_eq!(*outcome, Outcome::Starved);
    assert!(
        message.contains("step 20 could not be saved") && message.contains("--resume"),
        "{message}"
    );
    let warned: Vec<u64> = told
        .iter()
        .filter_map(|e| match &e.event {
            Event::Warned { step, code, .. } if code == "checkpoint_failed" => Some(*step),
            _ => None,
        })
        .collect();
    assert_eq!(warned, [5, 10, 15]);
    let left = std::fs::read_dir(place.run().checkpoints_path()).unwrap();
    assert_eq!(left.count(), 0, "no debris");
    // Nothing was saved, so the run is not over: with room it is done again, to its end.
    let again = place.go(&["train", "--resume", "auto"]);
    assert_eq!(code(&again), 0, "{}", err(&again));
    assert_eq!(place.run().checkpoints().last().unwrap().step, 20);
}

#[test]
fn preflight_prints_a_table_and_leaves_nothing() {
    let place = Place::new();
    let output = place.go(&["preflight", "smoke"]);
    assert_eq!(code(&output), 0, "{}", out(&output));
    assert!(out(&output).ends_with("ready to train\n"));
    assert_eq!(out(&output).lines().count(), 14);
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

/// `m.gguf` in a folder: a small Llama in Q8_0 with a tokenizer and a chat template. `change` has the keys of the tokenizer.
fn gguf(dir: &std::path::Path, change: impl Fn(&mut Vec<(String, GgufValue)>)) {
    let text = "the theme of the thesis: there are 12 of them\n".repeat(50);
    let bpe: TokenizerConfig = serde_json::from_str(r#"{"bpe": {"vocab_size": 270}}"#).unwrap();
    let marks = Marks {
        chat_template: Some("{% for m in messages %}{{ m.content }}{% endfor %}".into()),
        ..Marks::default()
    };
    let tokenizer = bpe.build(&text, &text).unwrap();
    let tokenizer = tokenizer.with_marks(marks).unwrap();
    let config: ModelConfig = serde_json::from_value(serde_json::json!({
        "n_layer": 2, "n_head": 2, "n_kv_head": 1, "d_model": 64, "d_ff": 96, "seq_len": 32,
        "vocab_size": 272, "position": {"rope": {}}, "norm": {"rmsnorm": {}}, "mlp": {"swiglu": {}},
    }))
    .unwrap();
    let mut model = Model::new(&config, 272, &candle_core::Device::Cpu).unwrap();
    model.init(3).unwrap();
    let mut keys = tokenizer.gguf_keys(272).unwrap().keys;
    change(&mut keys);
    let mut file = std::fs::File::create(dir.join("m.gguf")).unwrap();
    llmtui::llama_cpp::write(&model, Kind::Q8_0, "m", &keys, &mut file).unwrap();
}

fn losses(run: &RunDir) -> Vec<f64> {
    let log = read_all(&run.events_path()).unwrap();
    let of = |envelope: &Envelope| match &envelope.event {
        Event::Stepped { values, .. } => Some(values["train/loss"].0),
        _ => None,
    };
    log.iter().filter_map(of).collect()
}

#[test]
fn a_run_starts_from_a_gguf_file_as_from_its_dequantised_folder() {
    let place = Place::new();
    gguf(place.dir.path(), |_| {});
    let trained = |from: &str| {
        let output = place.train(
            &[from, "train.max_steps=3", "data.corpus=tinyshakespeare"],
            &["--headless"],
        );
        assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
        let run = place.run();
        let newest = run.checkpoints_path().join("step-000003");
        let read = |name: &str| std::fs::read(newest.join(name)).unwrap();
        let files = [
            "tokenizer.json",
            "tokenizer_config.json",
            "model.safetensors",
        ]
        .map(read);
        let losses = losses(&run);
        std::fs::remove_dir_all(place.dir.path().join("runs")).unwrap();
        (losses, files)
    };
    let (losses, files) = trained("train.from=m.gguf");
    let template = String::from_utf8(files[1].clone()).unwrap();
    assert!(template.contains("{{ m.content }}"), "{template}");
    let arguments = ["export", "m.gguf", "--dequantize", "--to", "folder"];
    let output = place.go(&arguments);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let (by_folder, folder_files) = trained("train.from=folder");
    assert_eq!(losses, by_folder);
    assert!(losses.len() >= 3 && files == folder_files);
    for arguments in [
        &["model", "show", "smoke", "-s", "train.from=m.gguf"][..],
        &["plan", "smoke", "-s", "train.from=m.gguf"],
        &[
            "presets",
            "show",
            "smoke",
            "-s",
            "train.from=m.gguf",
            "--origins",
        ],
    ] {
        let output = place.go(arguments);
        assert_eq!(code(&output), 0, "{arguments:?}: {}", err(&output));
    }
}

#[test]
fn what_a_gguf_file_does_not_bring_is_said_with_the_way_out() {
    let place = Place::new();
    let dir = place.dir.path();
    let failed = |words: &[&str]| {
        let output = place.train(words, &["--headless"]);
        assert_ne!(code(&output), 0, "{}", out(&output));
        format!("{}{}", out(&output), err(&output))
    };
    std::fs::write(dir.join("m.gguf"), "no such thing").unwrap();
    let no_gguf = failed(&["train.from=m.gguf"]);
    assert!(no_gguf.contains("not a GGUF file"), "{no_gguf}");
    // Words are cut by a rule that has no name here: the model's own tokenizer.json does.
    gguf(dir, |_| {});
    let output = place.go(&["export", "m.gguf", "--dequantize", "--to", "folder"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    gguf(dir, |keys| {
        let pre = keys.iter_mut().find(|(key, _)| key.ends_with(".pre"));
        pre.unwrap().1 = GgufValue::String("martian".into());
    });
    let unknown = failed(&["train.from=m.gguf"]);
    assert!(
        unknown.contains("martian") && unknown.contains("data.tokenizer.file.path"),
        "{unknown}"
    );
    let named = "data.tokenizer.file.path=folder/tokenizer.json";
    let output = place.train(
        &["train.from=m.gguf", named, "train.max_steps=1"],
        &["--headless"],
    );
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    let other = failed(&["train.from=m.gguf", "data.tokenizer=char"]);
    assert!(other.contains("differs from this run's"), "{other}");
    gguf(dir, |keys| keys.clear());
    let none = failed(&["train.from=m.gguf"]);
    assert!(none.contains("holds no tokenizer"), "{none}");
    let output = place.train(
        &["train.from=m.gguf", named, "train.max_steps=1"],
        &["--headless"],
    );
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    let contradiction = failed(&["train.from=m.gguf", "model.n_layer=3"]);
    assert!(contradiction.contains("m.gguf has 2"), "{contradiction}");
}

/// Preference pairs with a loss of their own: the reference is the same however it is kept, and a resume finds it again.
/// What `score` says of a text adds up, does not depend on how rows are written, and is what evaluations measure.
#[test]
fn score_gives_each_token_its_log_probability() {
    let place = Place::new();
    assert_eq!(code(&place.train(&["max_steps=5"], &["--headless"])), 0);
    let model = place.run().checkpoints_path().join("step-000005");
    let model = model.to_str().unwrap();
    let write = |name: &str, text: &str| std::fs::write(place.dir.path().join(name), text).unwrap();
    let said = "First Citizen: before we proceed any further, hear me speak.";
    write("text.txt", said);
    write(
        "pairs.jsonl",
        &format!(
            "{{\"prompt\":\"First \",\"chosen\":\"{}\",\"rejected\":\"zzzzzzzz\"}}\n",
            &said[6..]
        ),
    );
    let score = |words: &[&str]| -> serde_json::Value {
        let words = [&["score", model][..], words, &["--json"]].concat();
        let output = place.go(&words);
        assert_eq!(code(&output), 0, "{}", err(&output));
        serde_json::from_str(&out(&output)).unwrap()
    };
    let text = score(&["text.txt"]);
    let logps = |value: &serde_json::Value| -> Vec<f64> {
        let list = value["logps"].as_array().unwrap();
        list.iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let each = logps(&text["texts"][0]);
    assert_eq!(each.len(), said.len() - 1);
    let total = &text["total"];
    let sum: f64 = each.iter().sum();
    assert!((total["logp"].as_f64().unwrap() - sum).abs() < 1e-6);
    let perplexity = (-sum / each.len() as f64).exp();
    assert!((total["perplexity"].as_f64().unwrap() - perplexity).abs() < 1e-6);
    // One byte a token here.
    let bits = -sum / std::f64::consts::LN_2 / each.len() as f64;
    assert!((total["bits_per_byte"].as_f64().unwrap() - bits).abs() < 1e-9);
    // Windows that begin anew know less of what stands before, from their second token on.
    let short = logps(&score(&["text.txt", "--window", "8"])["texts"][0]);
    assert_eq!(short.len(), each.len());
    assert!(
        short[..8]
            .iter()
            .zip(&each)
            .all(|(a, b)| (a - b).abs() < 1e-5)
    );
    assert!(
        short[8..]
            .iter()
            .zip(&each[8..])
            .any(|(a, b)| (a - b).abs() > 1e-4)
    );
    // Of a pair only the answers count, with their prompt before them.
    let pairs = score(&["pairs.jsonl"]);
    let chosen = logps(&pairs["texts"][0]);
    assert_eq!(pairs["texts"][1]["label"], "rejected");
    for (found, exact) in chosen.iter().zip(&each[5..]) {
        assert!((found - exact).abs() < 1e-5, "{found} {exact}");
    }
    assert_eq!(pairs["chosen_longer"], 1.0);
    let refused = place.go(&["score", model, "absent.jsonl"]);
    assert_eq!(code(&refused), 2, "{}", err(&refused));
    let shown = out(&place.go(&["score", model, "text.txt"]));
    assert!(
        shown.contains("bits per byte") && shown.contains("windows"),
        "{shown}"
    );
}

#[test]
fn kto_begins_at_its_reference_learns_labels_and_resumes_to_the_bit() {
    let judged = [
        "method=kto",
        "data.sources=[{synthetic: {sort: {max_value: 9}}, as: judged, rows: 200}]",
        "data.tokenizer=char",
        "data.val_fraction=0.1",
        "model.seq_len=48",
        "max_steps=6",
        "eval.every=3",
    ];
    let train = |options: &[&str]| {
        let place = Place::new();
        let output = place.train(&judged, options);
        assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
        place
    };
    let weights = |place: &Place| {
        let folder = place.run().checkpoints_path().join("step-000006");
        std::fs::read(folder.join("model.safetensors")).unwrap()
    };
    let whole = train(&["--headless"]);
    let said = read_all(&whole.run().events_path()).unwrap();
    let first = said.iter().find_map(|e| match &e.event {
        Event::Stepped { values, .. } => Some(values.clone()),
        _ => None,
    });
    let first = first.unwrap();
    assert!((first["train/loss"].0 - 0.5).abs() < 1e-6, "{first:?}");
    assert_eq!((first["kl"].0, first["rewards/chosen"].0), (0.0, 0.0));
    let last = said.iter().rev().find_map(|e| match &e.event {
        Event::Evaluated { values, .. } => Some(values.clone()),
        _ => None,
    });
    let last = last.unwrap();
    assert!(
        last["val/rewards/margins"].0 > 0.0 && last.contains_key("val/kl"),
        "{last:?}"
    );
    let labels: Vec<String> = said
        .iter()
        .filter_map(|e| match &e.event {
            Event::Examined { examples, .. } => Some(examples[0].sequences[0].label.clone()),
            _ => None,
        })
        .collect();
    assert!(
        labels.iter().all(|label| label.ends_with("desirable")),
        "{labels:?}"
    );
    let stopped = train(&["--headless", "--stop-after", "3"]);
    let resumed = stopped.go(&["train", "--resume", "auto", "--headless"]);
    assert_eq!(code(&resumed), 0, "{}", err(&resumed));
    assert!(weights(&whole) == weights(&stopped));
    for (wrong, said) in [
        ("method.kto.reference=precomputed", "say frozen"),
        ("micro_batch_size=1", "2 or more"),
    ] {
        let words = [&judged[..], &[wrong]].concat();
        let refused = Place::new().train(&words, &["--headless"]);
        assert_eq!(code(&refused), 2);
        assert!(err(&refused).contains(said), "{}", err(&refused));
    }
}

#[test]
fn dpo_trains_the_same_with_either_reference_and_across_a_resume() {
    let pairs = [
        "data.sources=[{synthetic: {sort: {max_value: 9}}, as: preference, rows: 200}]",
        "data.tokenizer=char",
        "data.val_fraction=0.1",
        "model.seq_len=48",
        "max_steps=6",
        "eval.every=3",
        "preflight.enabled=false",
    ];
    let train = |reference: &str, options: &[&str]| {
        let place = Place::new();
        let reference = format!("method.dpo.reference={reference}");
        let words = [&pairs[..], &[reference.as_str()]].concat();
        let output = place.train(&words, options);
        assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
        place
    };
    let weights = |place: &Place| {
        let folder = place.run().checkpoints_path().join("step-000006");
        std::fs::read(folder.join("model.safetensors")).unwrap()
    };
    let frozen = train("frozen", &["--headless"]);
    let said = read_all(&frozen.run().events_path()).unwrap();
    let first = said.iter().find_map(|e| match &e.event {
        Event::Stepped { values, .. } => Some(values.clone()),
        _ => None,
    });
    let first = first.unwrap();
    assert!((first["train/loss"].0 - std::f64::consts::LN_2).abs() < 1e-6);
    assert_eq!(first["rewards/margins"].0, 0.0);
    let measured = said.iter().any(|e| match &e.event {
        Event::Evaluated { values, .. } => values.contains_key("val/rewards/accuracies"),
        _ => false,
    });
    assert!(measured);
    let precomputed = train("precomputed", &["--headless"]);
    assert!(weights(&frozen) == weights(&precomputed));
    let stopped = train("frozen", &["--headless", "--stop-after", "3"]);
    let resumed = stopped.go(&["train", "--resume", "auto", "--headless"]);
    assert_eq!(code(&resumed), 0, "{}", err(&resumed));
    assert!(weights(&frozen) == weights(&stopped));
    let refused = Place::new().train(&["method.dpo.reference=adapter_off"], &["--headless"]);
    assert_eq!(code(&refused), 2);
    assert!(err(&refused).contains("adapter"), "{}", err(&refused));
}
