//! `llmtui train`, `preflight` and `bench` as a script sees them: lines, events, exit codes, files.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

mod gguf;
mod preference;
mod score;

use llmtui::run::RunDir;
use llmtui::run::log::read_all;
use llmtui::wire::{Envelope, Event, Outcome, decode_envelope};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_llmtui");

/// The working directory of the program, with its runs and sockets.
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

    /// Trains the smoke preset with a short validation split, with the settings `words`.
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
fn stop_after_and_resume_form_one_run_and_print_only_new_events() {
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
    let reported = events(&out(&output));
    assert!(
        matches!(reported[0].event, Event::Hello { .. }),
        "{:?}",
        reported[0]
    );
    let first = reported.iter().find_map(|e| match e.event {
        Event::Stepped { step, .. } => Some(step),
        _ => None,
    });
    assert_eq!(first, Some(8));
    let output = place.go(&["train", "--resume", "auto"]);
    assert_eq!(code(&output), 2, "a finished run does not go on by itself");
    let logged = std::fs::metadata(place.run().events_path()).unwrap().len();
    let output = place.go(&["train", "--resume", &id]);
    assert_eq!(code(&output), 2, "nor by its name");
    assert!(
        err(&output).contains("has completed all its steps"),
        "{}",
        err(&output)
    );
    assert_eq!(
        std::fs::metadata(place.run().events_path()).unwrap().len(),
        logged
    );
}

#[test]
fn a_resume_accepts_other_threads_and_an_impossible_one_is_exit_two() {
    let place = Place::new();
    let output = place.train(&["threads=1"], &["--json", "--stop-after", "7"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let id = place.run().id().to_string();
    let spec = std::fs::read(place.run().spec_path()).unwrap();
    let resume = ["train", "--resume", &id, "--json", "--stop-after", "9"];
    let output = place.go(&[&resume[..], &["-s", "threads=2"]].concat());
    assert_eq!(code(&output), 0, "{}", err(&output));
    // It is reported, and the run's own spec is unchanged.
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
fn a_run_that_failed_on_its_data_at_once_is_skipped_by_auto() {
    let place = Place::new();
    // A text too short for a row makes no run: this one shrinks before its run begins.
    let fail = |place: &Place| {
        let text = |text: &str| std::fs::write(place.dir.path().join("tiny.txt"), text).unwrap();
        let made = ["train", "smoke", "-s", "data.path=tiny.txt"];
        text("ab\n");
        let before = std::fs::read_dir(place.dir.path().join("runs")).map_or(0, Iterator::count);
        let output = place.go(&[&made[..], &["--headless"]].concat());
        assert_eq!(code(&output), 2, "{}", err(&output));
        assert!(
            err(&output).contains("one window takes"),
            "{}",
            err(&output)
        );
        let after = std::fs::read_dir(place.dir.path().join("runs")).map_or(0, Iterator::count);
        assert_eq!(before, after, "no run is made");
        text(&"a sentence\n".repeat(200));
        let output = place.go(&[&made[..], &["--no-start"]].concat());
        assert_eq!(code(&output), 0, "{}", err(&output));
        text("ab\n");
        let run = RunDir::open(&place.dir.path().join(out(&output).trim())).unwrap();
        let output = place.go(&["train", "--resume", run.id(), "--headless"]);
        assert_eq!(code(&output), 2, "{}", err(&output));
        run.folder()
    };
    let auto = ["train", "--resume", "auto", "--headless"];
    let refused = fail(&place);
    let output = place.go(&auto);
    let printed = err(&output);
    assert_eq!(code(&output), 2, "{printed}");
    assert!(
        printed.contains("no run in runs can be resumed") && printed.contains(&refused),
        "{printed}"
    );
    assert!(
        printed.contains("failed before its first checkpoint"),
        "{printed}"
    );
    // Nothing was learned, so `gc` offers to delete all of it.
    let shown = out(&place.go(&["gc"]));
    let words = "the whole run, which failed before its first step";
    assert!(shown.contains(&refused) && shown.contains(words), "{shown}");
    assert!(place.run().path().is_dir(), "nothing was deleted");
    let done = place.go(&["gc", "--yes"]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    let runs = std::fs::read_dir(place.dir.path().join("runs")).unwrap();
    assert_eq!(runs.count(), 0);
    // A stopped run is resumed, though a newer one was rejected.
    let stopped = Place::new();
    let output = stopped.train(&[], &["--headless", "--stop-after", "5"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    fail(&stopped);
    let output = stopped.go(&auto);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("passed over: "), "{}", err(&output));
    assert!(
        out(&output).contains("resumed from step 5"),
        "{}",
        out(&output)
    );
}

#[test]
fn a_requeued_job_continues_its_run_on_the_engine_chosen_at_the_start() {
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
fn an_engine_left_open_is_chosen_whichever_way_a_run_begins() {
    let place = Place::new();
    let spec = || std::fs::read_to_string(place.run().path().join("spec.yaml")).unwrap();
    let begins = ["--headless", "--resume", "auto", "--stop-after", "5"];
    let output = place.train(&["engine=auto"], &begins);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("engine auto is"), "{}", err(&output));
    assert!(!spec().contains("engine: auto"), "{}", spec());
    let run = place.run().id().to_string();
    let goes_on = ["train", "--headless", "--resume", &run, "-s", "engine=auto"];
    let output = place.go(&goes_on);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("engine auto is"), "{}", err(&output));
    assert!(!spec().contains("engine: auto"), "{}", spec());
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
    for arguments in [
        &["model", "show", "smoke"][..],
        &["plan", "smoke"],
        &["ladder", "shakespeare", "--dry-run"],
    ] {
        let output = place.go(&[arguments, &["-s", "train.from=first"]].concat());
        assert_eq!(code(&output), 0, "{arguments:?}: {}", err(&output));
    }
    // The size of a start model is not to be scaled.
    let size = ["ladder", "shakespeare", "--axis", "size", "--dry-run"];
    let refused = place.go(&[&size[..], &["-s", "train.from=first"]].concat());
    assert_eq!(code(&refused), 2, "{}", out(&refused));
    let said = err(&refused);
    assert!(
        said.contains("train.from fixes its size") && said.contains("--axis tokens"),
        "{said}"
    );
}

#[test]
fn a_branch_continues_from_a_checkpoint_of_its_parent_with_other_settings() {
    let place = Place::new();
    let output = place.train(&["save_every=5", "keep_last=9"], &["--json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let parent = events(&out(&output));
    let run = place.run();
    let from = |step: u64| format!("{}@{step}", run.id());
    let losses = |reported: &[Envelope]| -> Vec<(u64, f64)> {
        let of = |e: &Envelope| match &e.event {
            Event::Stepped { step, values, .. } => {
                Some((*step, values["train/loss"].0)).filter(|(step, _)| *step > 10)
            }
            _ => None,
        };
        reported.iter().filter_map(of).collect()
    };
    // From the start: nothing that its parent learned, and another model if needed.
    let anew = place.go(&["train", "--branch", &from(0), "-s", "n_layer=1", "--json"]);
    assert_eq!(code(&anew), 0, "{}", err(&anew));
    assert!(
        err(&anew).contains("again, from the start"),
        "{}",
        err(&anew)
    );
    let anew = events(&out(&anew));
    let first = |e: &Envelope| matches!(e.event, Event::Stepped { step: 1, .. });
    assert!(anew.iter().any(first));
    // Without a change it equals its parent bit for bit. The curve that its parent measures against is its own from then on.
    let curve = "reference_curve.json";
    std::fs::write(run.path().join(curve), "{}").unwrap();
    let same = place.go(&["train", "--branch", &from(10), "--json"]);
    assert_eq!(code(&same), 0, "{}", err(&same));
    let same = events(&out(&same));
    assert_eq!(losses(&same), losses(&parent));
    let id = same.iter().find_map(|e| match &e.event {
        Event::Hello { run, .. } => Some(run.clone()),
        _ => None,
    });
    let folder = place.dir.path().join("runs").join(id.unwrap());
    assert!(folder.join(curve).exists());
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
    // With a change it differs from its parent after the affected step.
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
    // Another optimizer begins with moments of its own, at the same weights, where that is asked for.
    let lion = ["-s", "optimizer=lion", "--dry-run"];
    let refused = place.go(&[&["train", "--branch", &from(10)][..], &lion].concat());
    assert_eq!(code(&refused), 2, "{}", out(&refused));
    let said = err(&refused);
    assert!(
        said.contains("change optimizer: its checkpoint fixes adamw, not lion")
            && said.contains("--fresh-optimizer"),
        "{said}"
    );
    let afresh = ["-s", "optimizer=lion", "--fresh-optimizer", "--json"];
    let afresh = place.go(&[&["train", "--branch", &from(10)][..], &afresh].concat());
    assert_eq!(code(&afresh), 0, "{}", err(&afresh));
    let ours = losses(&events(&out(&afresh)));
    assert_eq!(ours[0], theirs[0]);
    assert_ne!(ours.last(), theirs.last());
    // Other data are rejected before a run is created.
    let text = place.dir.path().join("other.txt");
    std::fs::write(&text, "another text, line by line\n".repeat(400)).unwrap();
    let path = format!("data.path={}", text.display());
    let runs = || out(&place.go(&["runs", "--json"])).lines().count();
    let before = runs();
    let refused = place.go(&["train", "--branch", &from(10), "-s", &path]);
    assert_eq!(code(&refused), 2, "{}", err(&refused));
    for words in ["its checkpoint", "-s train.from=", "--force"] {
        assert!(err(&refused).contains(words), "{}", err(&refused));
    }
    assert_eq!(runs(), before);
    // Its parent may be deleted.
    assert_eq!(code(&place.go(&["rm", "--yes", run.id()])), 0);
    let json = out(&place.go(&["runs", "--json"]));
    let newest: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(newest["parent"]["step"], 10, "{newest}");
    for (arguments, why) in [
        (vec!["-s", "n_layer=3"], "its checkpoint fixes"),
        (
            vec!["-s", "train.freeze=[embeddings]"],
            "change train.freeze",
        ),
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
    let listed = out(&place.go(&["gc", "--json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["deleted"], false);
    let paths = listed["items"].as_array().unwrap().iter();
    let paths: Vec<&str> = paths.map(|item| item["path"].as_str().unwrap()).collect();
    assert!(
        paths.iter().any(|path| path.ends_with(".tmp-step-000099")),
        "{paths:?}"
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
fn a_dry_run_prints_what_would_be_trained_and_leaves_nothing() {
    let place = Place::new();
    let output = place.go(&["train", "quickstart", "--dry-run"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let text = out(&output);
    assert!(
        text.contains("804k parameters") && text.contains("2,000 steps of 768 tokens"),
        "{text}"
    );
    let output = place.go(&["train", "quickstart", "--dry-run", "--json"]);
    let outline: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(outline["n_params"], 804_096);
    assert_eq!(outline["step_tokens"], 768);
    assert_eq!(outline["spec"]["train"]["max_steps"], 2000);
    assert!(!place.dir.path().join("runs").exists());
}

/// Rows of pairs and of judged answers were counted at the full context length; what adapters train was not shown.
#[test]
fn a_dry_run_counts_rows_at_their_length_and_shows_what_trains() {
    let place = Place::new();
    let outline = |preset: &str| -> serde_json::Value {
        let output = place.go(&["train", preset, "--dry-run", "--json"]);
        serde_json::from_str(&out(&output)).unwrap()
    };
    for (preset, tokens) in [("dpo-demo", 830..970), ("kto-demo", 415..485)] {
        let outline = outline(preset);
        let of = |key: &str| outline[key].as_u64().unwrap();
        assert!(tokens.contains(&of("step_tokens")), "{preset}: {outline}");
        assert!(of("step_places") > of("step_tokens"), "{preset}: {outline}");
        assert_eq!(of("trainable_params"), of("n_params"));
        let text = out(&place.go(&["train", preset, "--dry-run"]));
        assert!(text.contains(" with padding), "), "{text}");
    }
    let lora = outline("sft-lora-demo");
    assert!(lora["trainable_params"].as_u64() < lora["n_params"].as_u64());
    let text = out(&place.go(&["train", "sft-lora-demo", "--dry-run"]));
    assert!(
        text.contains(" parameters, of which ") && text.contains(" %), 2 layers"),
        "{text}"
    );
}

#[test]
fn a_dry_run_of_reinforcement_learning_counts_prompts_and_answers() {
    let place = Place::new();
    let output = place.go(&["train", "grpo-arithmetic", "--dry-run"]);
    let text = out(&output);
    let line = text
        .lines()
        .find(|line| line.starts_with("train "))
        .unwrap();
    for wanted in [
        "350 supervised steps of 128 rows (cold start), then 550 steps of 16 prompts × 8 answers, up to 6 new tokens each",
        "passes over 7,158 prompts",
    ] {
        assert!(line.contains(wanted), "{line}");
    }
    assert!(!line.contains("epochs"), "{line}");
    let output = place.go(&["train", "grpo-arithmetic", "--dry-run", "--json"]);
    let outline: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert!(outline["epochs"].is_null() && outline["run_tokens"].is_null());
    assert_eq!(outline["rollouts"]["group_size"], 8);
    assert_eq!(outline["prompts"], 7_158);
    let output = place.go(&["plan", "grpo-arithmetic"]);
    let text = out(&output);
    assert!(
        text.contains("550 steps of 16 prompts") && !text.contains("epochs over"),
        "{text}"
    );
}

#[test]
fn a_closed_output_pipe_ends_the_run_after_a_checkpoint_without_a_panic() {
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
    let reported = events(&out(&output));
    let Event::Finished {
        outcome, message, ..
    } = &reported.last().unwrap().event
    else {
        panic!("{:?}", reported.last());
    };
    assert_eq!(*outcome, Outcome::Starved);
    assert!(
        message.contains("step 20 could not be saved") && message.contains("--resume"),
        "{message}"
    );
    let warned: Vec<u64> = reported
        .iter()
        .filter_map(|e| match &e.event {
            Event::Warned { step, code, .. } if code == "checkpoint_failed" => Some(*step),
            _ => None,
        })
        .collect();
    assert_eq!(warned, [5, 10, 15]);
    let left = std::fs::read_dir(place.run().checkpoints_path()).unwrap();
    assert_eq!(left.count(), 0, "no leftovers");
    // Nothing was saved, so the run is unfinished: with free space it is trained again, to its end.
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
    assert_eq!(out(&output).lines().count(), 16);
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
