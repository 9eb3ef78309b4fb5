//! Faults of a user's machine: full disks, vanished sockets, closed outputs, hostile names. `docs/reliability.md`
//! lists them with the expected behavior.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

#[path = "faults/files.rs"]
mod files;

use llmtui::base::clock::{Clock, SystemClock};
use llmtui::run::RunDir;
use llmtui::run::index::{RunStatus, summarize};
use llmtui::run::log::read_all;
use llmtui::wire::{Event, Outcome};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_llmtui");
/// No wait here takes longer, however busy the machine is.
const TIMEOUT: Duration = Duration::from_secs(120);
/// A model that takes a millisecond a step.
const SMALL: &str = "-s n_layer=1 -s n_head=1 -s d_model=8 -s seq_len=8 -s micro_batch_size=1 -s threads=1 \
    -s eval_every=0 -s sample_every=0 -s preflight.enabled=false";

/// A folder with runs, a runtime directory, and shells that start the program there.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// `$P` is the program and `$SMALL` the arguments of a small model.
    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .current_dir(self.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path())
            .env("XDG_RUNTIME_DIR", self.path())
            .env("P", PROGRAM)
            .env("SMALL", SMALL)
            .stdin(Stdio::null());
        command
    }

    fn go(&self, script: &str) -> Output {
        self.shell(script).output().unwrap()
    }

    fn try_run(&self) -> Option<RunDir> {
        let mut runs = std::fs::read_dir(self.path().join("runs")).ok()?;
        RunDir::open(&runs.find_map(Result::ok)?.path()).ok()
    }

    fn run(&self) -> RunDir {
        self.try_run().unwrap()
    }

    fn await_step(&self, step: u64) {
        until("a step", || {
            let run = self.try_run();
            run.is_some_and(|run| summarize(&run).is_ok_and(|s| s.step >= step))
        });
    }
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !happened() {
        assert!(clock.elapsed() < TIMEOUT, "waited too long for {what}");
        llmtui::base::clock::pause(Duration::from_millis(20));
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn term(child: &Child) {
    kill_process(Pid::from_child(child), Signal::TERM).unwrap();
}

fn outcome(run: &RunDir) -> Option<Outcome> {
    match read_all(&run.events_path()).unwrap().pop()?.event {
        Event::Finished { outcome, .. } => Some(outcome),
        _ => None,
    }
}

#[test]
fn a_headless_run_on_a_full_disk_ends_on_request() {
    let place = Place::new();
    // Files of at most 64 blocks: the log's first lines fit, steps fill them, and no checkpoint fits.
    let mut child = place
        .shell("ulimit -f 64; exec $P train quickstart $SMALL -s d_model=64 -s max_steps=1000000 -s save_every=0 -s health.enabled=false --headless")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let size = || {
        let run = place.try_run();
        run.and_then(|run| std::fs::metadata(run.events_path()).ok())
            .map_or(0, |meta| meta.len())
    };
    until("a stalled log", || {
        let before = size();
        llmtui::base::clock::pause(Duration::from_millis(1500));
        before > 24_000 && size() == before
    });
    assert!(
        child.try_wait().unwrap().is_none(),
        "it waits for free space"
    );
    term(&child);
    until("its end", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 3, "{}", printed(&output));
    assert!(
        printed(&output).contains("the log cannot be written"),
        "{}",
        printed(&output)
    );
}

#[test]
fn a_run_whose_socket_vanished_becomes_reachable_again() {
    let place = Place::new();
    let mut child = place
        .shell("exec $P train quickstart $SMALL -s max_steps=10000000 --headless")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    place.await_step(5);
    let sockets = place.path().join("llmtui");
    let bound = || std::fs::read_dir(&sockets).is_ok_and(|dir| dir.count() > 0);
    assert!(bound());
    // A logout removes the folder, and a file in its place prevents its creation.
    std::fs::remove_dir_all(&sockets).unwrap();
    std::fs::write(&sockets, "").unwrap();
    let in_run = place.run().path().join("engine.sock");
    until("a second place", || in_run.exists());
    let id = place.run().id().to_string();
    let stopped = place.go(&format!("exec $P stop {id}"));
    assert_eq!(code(&stopped), 0, "{}", printed(&stopped));
    assert!(child.wait().unwrap().success());
    assert!(!in_run.exists());
    assert_eq!(outcome(&place.run()), Some(Outcome::Stopped));
}

#[test]
fn an_unreachable_live_run_is_watched_through_its_log() {
    let place = Place::new();
    let mut child = place
        .shell("exec $P train quickstart $SMALL -s max_steps=10000000 --headless")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    place.await_step(5);
    let id = place.run().id().to_string();
    // With a runtime folder that lacks the engine's socket, as after a login on another machine.
    let script = format!("XDG_RUNTIME_DIR=$PWD/elsewhere exec $P attach {id} --headless");
    let watcher = place
        .shell(&script)
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let refused = place.go(&format!("XDG_RUNTIME_DIR=$PWD/elsewhere exec $P stop {id}"));
    assert_eq!(code(&refused), 3);
    assert!(printed(&refused).contains("kill "), "{}", printed(&refused));
    term(&child);
    assert!(child.wait().unwrap().success());
    let watched = watcher.unwrap().wait_with_output().unwrap();
    assert_eq!(code(&watched), 0, "{}", printed(&watched));
    assert!(
        printed(&watched).contains("cannot be reached"),
        "{}",
        printed(&watched)
    );
    assert!(String::from_utf8_lossy(&watched.stdout).contains("stopped"));
}

#[test]
fn a_copied_run_is_independent() {
    let place = Place::new();
    let first =
        place.go("$P train quickstart $SMALL -s max_steps=10000000 --stop-after 3 --headless");
    assert_eq!(code(&first), 0, "{}", printed(&first));
    let id = place.run().id().to_string();
    assert_eq!(code(&place.go("cp -r runs copies")), 0);
    let go = |runs: &str| {
        place
            .shell(&format!(
                "exec $P train --resume {id} --runs-dir {runs} --headless"
            ))
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let (mut a, mut b) = (go("runs"), go("copies"));
    let live = |runs: &str| {
        let run = RunDir::open(&place.path().join(runs).join(&id)).unwrap();
        summarize(&run).is_ok_and(|s| s.status == RunStatus::Live && s.step > 50)
    };
    until("both", || live("runs") && live("copies"));
    // Each receives only its own commands.
    assert_eq!(
        code(&place.go(&format!("$P stop {id} --runs-dir copies"))),
        0
    );
    assert!(b.wait().unwrap().success());
    assert!(live("runs"), "the original goes on");
    assert_eq!(code(&place.go(&format!("$P stop {id} --runs-dir runs"))), 0);
    assert!(a.wait().unwrap().success());
}

#[test]
fn a_removed_lock_admits_no_second_engine_and_a_deleted_run_ends() {
    let place = Place::new();
    let mut child = place
        .shell("exec $P train quickstart $SMALL -s max_steps=10000000 --headless")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    place.await_step(5);
    let run = place.run();
    std::fs::remove_file(run.lock_path()).unwrap();
    // At once, before the engine has noticed.
    let second = place.go(&format!("exec $P train --resume {} --headless", run.id()));
    assert_ne!(code(&second), 0);
    until("a lock", || run.is_alive());
    // The engine writes meanwhile: a file may appear in a folder just emptied.
    until("an empty place", || {
        std::fs::remove_dir_all(run.path()).is_ok() || !run.path().exists()
    });
    until("its end", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 3, "{}", printed(&output));
    assert!(
        printed(&output).contains("was moved or deleted"),
        "{}",
        printed(&output)
    );
    assert!(!run.path().exists(), "nothing recreates it");
}

#[test]
fn training_works_without_a_runtime_folder() {
    for planted in ["file", "link", "open"] {
        let place = Place::new();
        let folder = place.path().join("llmtui");
        match planted {
            "file" => std::fs::write(&folder, "").unwrap(),
            "link" => std::os::unix::fs::symlink(place.path(), &folder).unwrap(),
            _ => {
                use std::os::unix::fs::PermissionsExt;
                std::fs::create_dir(&folder).unwrap();
                let mode = std::fs::Permissions::from_mode(0o777);
                std::fs::set_permissions(&folder, mode).unwrap();
            }
        }
        let output = place.go("exec $P train quickstart $SMALL -s max_steps=3 --headless");
        assert_eq!(code(&output), 0, "{planted}: {}", printed(&output));
    }
}

#[test]
fn closed_and_full_outputs_are_not_reported_as_bugs() {
    let place = Place::new();
    let train = "$P train quickstart $SMALL -s max_steps=3 --headless";
    for closed in ["2>&-", "2>/dev/full"] {
        let output = place.go(&format!("exec {train} {closed}"));
        assert_eq!(code(&output), 0, "{closed}");
    }
    for verb in [
        "train quickstart --dry-run",
        "presets list",
        "plan quickstart",
        "runs",
        "runs --json",
    ] {
        let output = place.go(&format!("exec $P {verb} >/dev/full"));
        assert_eq!(code(&output), 3, "{verb}: {}", printed(&output));
        assert!(
            printed(&output).contains("No space left"),
            "{verb}: {}",
            printed(&output)
        );
    }
    let output = place.go("$P presets list --help | true");
    assert_eq!(code(&output), 0);
}

#[test]
fn a_low_open_file_limit_is_reported_before_anything_starts() {
    let place = Place::new();
    for limit in [12, 20, 40] {
        let output = place.go(&format!(
            "ulimit -n {limit}; exec $P train smoke $SMALL -s max_steps=3 --headless --foreground"
        ));
        assert_eq!(code(&output), 3, "{limit}: {}", printed(&output));
        assert!(
            printed(&output).contains("ulimit -n"),
            "{}",
            printed(&output)
        );
    }
    assert!(place.try_run().is_none(), "a run was begun");
    // A soft limit is not a problem: the program raises its own.
    let output = place
        .go("ulimit -S -n 20; exec $P train smoke $SMALL -s max_steps=3 --headless --foreground");
    assert_eq!(code(&output), 0, "{}", printed(&output));
}

#[test]
fn bf16_on_a_cpu_without_it_can_be_planned_but_not_trained() {
    let place = Place::new();
    let train = "LLMTUI_SIMD=avx2 exec $P train smoke $SMALL -s precision=bf16 --headless";
    for start in [train.to_string(), format!("{train} --dry-run")] {
        let output = place.go(&start);
        assert_eq!(code(&output), 2, "{}", printed(&output));
        let named =
            printed(&output).contains("train.precision") && printed(&output).contains("auto");
        assert!(named, "{}", printed(&output));
    }
    assert!(place.try_run().is_none(), "a run was begun");
    let output = place.go("LLMTUI_SIMD=avx2 exec $P plan smoke -s precision=bf16");
    assert_eq!(code(&output), 0, "{}", printed(&output));
}

#[test]
fn messages_contain_no_control_sequences() {
    let place = Place::new();
    let evil = "\u{1b}]52;c;cHduZWQ=\u{7}\u{9b}2J\u{202e}";
    let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
    write("key.yaml", "\"\\e]52;c;cHduZWQ=\\a\": 1\n");
    write("value.yaml", "method: \"\\e]52;c;x\\a\"\n");
    write(
        "from.yaml",
        "extends: quickstart\ntrain: {from: \"\\e]52;c;x\\a\"}\n",
    );
    write("machine.json", &format!("{{\"{evil}\": 1}}"));
    let long = "x".repeat(70_000);
    for run in [evil, &long] {
        let folder = place.path().join("runs").join(format!("r{}", run.len()));
        std::fs::create_dir_all(&folder).unwrap();
        let header = serde_json::json!({"id": run, "name": run, "format": 1, "program": "x", "created": 1, "pid": 1});
        std::fs::write(folder.join("run.json"), header.to_string()).unwrap();
    }
    for verb in [
        "plan key.yaml",
        "plan value.yaml",
        "train key.yaml --headless",
        "train from.yaml --dry-run",
        "presets show value.yaml",
        "preflight key.yaml",
        "import key.yaml",
        "doctor --hardware machine.json",
        "runs",
        "runs --json",
        "model show \u{1b}]52;c;x\u{7}",
    ] {
        let words: Vec<&str> = verb.split(' ').collect();
        let output = place
            .shell("exec $P \"$@\"")
            .arg("sh")
            .args(&words)
            .output()
            .unwrap();
        for stream in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(stream);
            let raw = |c: &char| (c.is_control() && *c != '\n') || *c == '\u{202e}';
            assert_eq!(text.chars().find(raw), None, "{verb}: {text:?}");
        }
        assert_ne!(code(&output), 101, "{verb}");
    }
}

#[test]
fn many_signals_are_one_request_with_one_checkpoint() {
    let storms: [&[Signal]; 4] = [
        &[Signal::TERM, Signal::TERM],
        &[Signal::TERM, Signal::INT, Signal::HUP, Signal::TERM],
        &[Signal::QUIT],
        &[Signal::USR1],
    ];
    for storm in storms {
        let place = Place::new();
        let mut child = place
            .shell(
                "exec $P train quickstart $SMALL -s max_steps=10000000 -s save_every=0 --headless",
            )
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        place.await_step(5);
        for signal in storm {
            kill_process(Pid::from_child(&child), *signal).unwrap();
        }
        assert!(child.wait().unwrap().success(), "{storm:?}");
        let saved = place.run().checkpoints();
        assert_eq!(saved.len(), 1, "{storm:?}");
    }
}

#[test]
fn a_run_that_still_reads_its_data_can_be_stopped() {
    let place = Place::new();
    // A vocabulary of 20 MB of distinct words: many seconds of work.
    let words: String = (0u64..2_500_000)
        .map(|i| format!("{:x} ", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 36))
        .collect();
    std::fs::write(place.path().join("words.txt"), words).unwrap();
    let mut child = place
        .shell("exec $P train quickstart $SMALL -s data.path=words.txt -s data.tokenizer=bpe --headless")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let reported = |what: fn(&Event) -> bool| {
        let events = place.try_run().map(|run| read_all(&run.events_path()));
        matches!(events, Some(Ok(events)) if events.iter().any(|e| what(&e.event)))
    };
    until("preparing", || {
        reported(|e| matches!(e, Event::PhaseChanged { .. }))
    });
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}");
    assert!(
        !reported(|e| matches!(e, Event::Started { .. })),
        "it was still reading"
    );
    assert_eq!(outcome(&place.run()), Some(Outcome::Stopped));
}

#[test]
fn an_interrupted_evaluation_reports_what_is_kept_and_continues_there() {
    let place = Place::new();
    let trained = place
        .shell(
            "exec $P train quickstart $SMALL -s seq_len=64 -s max_steps=1 -s name=small --headless",
        )
        .output()
        .unwrap();
    assert_eq!(code(&trained), 0, "{}", printed(&trained));
    let letter = |n: u32| char::from(b'a' + (n % 16) as u8);
    let row = |n: u32| {
        let word: String = [n / 256, n / 16, n].map(letter).iter().collect();
        format!("{{\"q\": \"{word}\", \"a\": \"x\"}}\n")
    };
    let rows: String = (0..4_000).map(row).collect();
    std::fs::write(place.path().join("rows.jsonl"), rows).unwrap();
    let task = "name: many\nversion: 1\nsummary: Many.\nkind: answer\nsource: {path: rows.jsonl}\nprompt: '{{ q }}'\ntarget: '{{ a }}'\n\
        answer: {max_new_tokens: 24}\n";
    std::fs::write(place.path().join("many.yaml"), task).unwrap();
    let child = place
        .shell("exec $P eval small --tasks ./many.yaml")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let kept = || {
        let folders = std::fs::read_dir(place.path().join("evals")).ok()?;
        let files = folders
            .flatten()
            .flat_map(|folder| std::fs::read_dir(folder.path()));
        let mut files = files.flatten().flatten().map(|file| file.path());
        let answers = files.find(|file| file.extension().is_some_and(|e| e == "jsonl"))?;
        Some(std::fs::read_to_string(answers).ok()?.lines().count())
    };
    // A header, then answers.
    until("answered", || kept().is_some_and(|lines| lines > 2));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let stopped = child.wait_with_output().unwrap();
    let reported = printed(&stopped);
    assert_eq!(code(&stopped), 130, "{reported}");
    assert!(
        reported.contains("of 4,000 items of many are answered and saved in evals/"),
        "{reported}"
    );
    assert!(
        reported.contains("run the same command to continue"),
        "{reported}"
    );
    let before = kept().unwrap();
    let whole = place
        .shell("exec $P eval small --tasks ./many.yaml")
        .output()
        .unwrap();
    assert_eq!(code(&whole), 0, "{}", printed(&whole));
    assert!(before < 4_001 && kept() == Some(4_001), "{before}");
}

#[test]
fn a_model_that_cannot_fit_is_rejected_before_anything_is_created() {
    let place = Place::new();
    let huge = "quickstart -s d_model=8192 -s n_layer=400 -s n_head=64";
    for verb in [
        "train HUGE --headless",
        "train HUGE --dry-run",
        "preflight HUGE",
    ] {
        let output = place.go(&format!("exec $P {}", verb.replace("HUGE", huge)));
        assert_eq!(code(&output), 2, "{verb}: {}", printed(&output));
        let reported = printed(&output);
        assert!(
            reported.contains("TiB of memory") && reported.contains("no change is enough"),
            "{reported}"
        );
    }
    assert!(place.try_run().is_none(), "no run is made");
    // The address space left by a scheduler counts as well.
    let output =
        place.go("ulimit -v 1000000; exec $P train quickstart -s micro_batch_size=2000 --headless");
    assert_eq!(code(&output), 2, "{}", printed(&output));
    let reported = printed(&output);
    assert!(
        reported.contains("ulimit -v") && reported.contains("train.micro_batch_size="),
        "{reported}"
    );
}

#[test]
fn a_damaged_checkpoint_is_rejected_by_every_verb_that_reads_it() {
    let place = Place::new();
    let trained = place.go("exec $P train quickstart $SMALL -s max_steps=3 --headless");
    assert_eq!(code(&trained), 0, "{}", printed(&trained));
    let run = place.run();
    let folder = run.checkpoints().last().unwrap().path.clone();
    let copied = format!("cp -r {} whole && echo a text > text.txt", folder.display());
    assert_eq!(code(&place.go(&copied)), 0);
    let weights = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let model = folder.display();
    for verb in [
        format!("chat {model} --prompt a"),
        format!("export {model} --to out"),
        format!("quantize {model} --dtype q8_0 --to out.gguf"),
        format!("inspect {model}"),
        format!("score {model} text.txt"),
        format!("merge --base {model} --to out"),
        format!("merge --base whole --adapter {model} --to out"),
        format!(
            "data batches --run {} --step 3 --loss --checkpoint 3",
            run.path().display()
        ),
        format!("train quickstart $SMALL -s train.from={model} --headless"),
        format!("train quickstart $SMALL -s train.from={model} --dry-run"),
    ] {
        let output = place.go(&format!("exec $P {verb}"));
        assert_eq!(code(&output), 2, "{verb}: {}", printed(&output));
        let reported = format!(
            "{}{}",
            printed(&output),
            String::from_utf8_lossy(&output.stdout)
        );
        assert!(reported.contains("SHA-256"), "{verb}: {reported}");
    }
    // An intentional change is declared by removing the manifest.
    std::fs::remove_file(folder.join("manifest.json")).unwrap();
    let output = place.go(&format!("exec $P export {model} --to out"));
    assert_eq!(code(&output), 0, "{}", printed(&output));
}

#[test]
fn pipes_devices_and_deep_brackets_never_block() {
    let place = Place::new();
    let trained = place.go("exec $P train quickstart $SMALL -s max_steps=3 --headless");
    assert_eq!(code(&trained), 0, "{}", printed(&trained));
    let run = place.run();
    std::fs::write(
        place.path().join("deep.yaml"),
        format!("a: {}", "[".repeat(100_000)),
    )
    .unwrap();
    let deep = place.go("exec timeout 10 $P plan deep.yaml");
    assert_eq!(code(&deep), 2, "{}", printed(&deep));
    for name in ["run.json", "lock"] {
        let path = run.path().join(name);
        let kept = path.with_extension("kept");
        std::fs::rename(&path, &kept).unwrap();
        assert_eq!(code(&place.go(&format!("mkfifo {}", path.display()))), 0);
        let listed = place.go("exec timeout 20 $P runs");
        assert_eq!(code(&listed), 0, "{name}: {}", printed(&listed));
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&kept, &path).unwrap();
    }
    let folder = run.checkpoints().last().unwrap().path.clone();
    let manifest = folder.join("manifest.json");
    std::fs::remove_file(&manifest).unwrap();
    assert_eq!(
        code(&place.go(&format!("mkfifo {}", manifest.display()))),
        0
    );
    let chat = place.go(&format!(
        "exec timeout 20 $P chat {} --prompt a",
        folder.display()
    ));
    assert!(![0, 124].contains(&code(&chat)), "{}", printed(&chat));
    assert!(
        printed(&chat).contains("not a plain file"),
        "{}",
        printed(&chat)
    );
}

/// Previously one verb reported out of memory, and another a missing model.
#[test]
fn a_model_beyond_memory_is_reported_as_such_by_every_verb_that_reads_it() {
    let place = Place::new();
    let trained = place.go("exec $P train quickstart $SMALL -s max_steps=3 --headless");
    assert_eq!(code(&trained), 0, "{}", printed(&trained));
    let folder = place.run().checkpoints().last().unwrap().path.clone();
    // Trailing bytes after the tensors belong to no tensor, but are mapped all the same.
    let made = place.go(&format!(
        "$P quantize {} --dtype q8_0 --to m.gguf && truncate -s 4G m.gguf && echo a text > text.txt",
        folder.display()
    ));
    assert_eq!(code(&made), 0, "{}", printed(&made));
    for verb in ["score m.gguf text.txt", "chat m.gguf --prompt a"] {
        let output = place.go(&format!("ulimit -v 1000000; exec $P {verb}"));
        let reported = printed(&output);
        assert_eq!(code(&output), 3, "{verb}: {reported}");
        let reported = reported.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            reported.contains("out of memory: an allocation of 4 GiB failed; address space mapped")
                && !reported.contains("micro_batch_size"),
            "{verb}: {reported}"
        );
    }
}
