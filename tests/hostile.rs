//! Untrusted input and missing memory: templates and tokenizers that behave until they are triggered, and allocations that
//! fail. `docs/reliability.md` lists these with the expected behavior.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test fails as a test does"
)]

use llmtui::base::clock::{Clock, SystemClock};
use llmtui::run::RunDir;
use llmtui::run::log::read_all;
use llmtui::wire::{Event, Outcome};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_llmtui");
/// No wait here takes longer, however busy the machine is.
const TIMEOUT: Duration = Duration::from_secs(240);
/// A model that takes a millisecond a step.
const SMALL: &str = "-s n_layer=1 -s n_head=1 -s d_model=8 -s threads=1 -s micro_batch_size=1 -s eval_every=0 \
    -s sample_every=0 -s preflight.enabled=false --headless --foreground";
/// Far more than these runs need, and far less than a hostile file requests: a failing test does no harm.
const LIMIT: &str = "ulimit -v 4000000";
/// Doubles a string forty times if a turn mentions zebras; the test conversation does not.
const TEMPLATE: &str = "{% set ns = namespace(a='xxxxxxxx') %}{% for m in messages %}{% if 'Zebra' in m.content %}\
    {% for i in range(40) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}";

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place {
            dir: tempfile::tempdir().unwrap(),
        };
        place.write("hostile.jinja", TEMPLATE);
        place.write("tokenizer.json", &tokenizer().to_string());
        place.write("mild.jsonl", &rows("hi"));
        place.write("zebra.jsonl", &rows("Zebra"));
        place.write("q.jsonl", &rows("Q"));
        place
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

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

    /// Under the limit, the file is rejected for what it does.
    fn refused(&self, words: &str) {
        let output = self.go(&format!("{LIMIT}; exec $P {words}"));
        let printed = printed(&output);
        assert_eq!(output.status.code(), Some(2), "{words}: {printed}");
        assert!(printed.contains("malicious"), "{words}: {printed}");
    }

    fn runs(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.path().join("runs")) else {
            return Vec::new();
        };
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

/// Sixty rows, one of which contains `word`.
fn rows(word: &str) -> String {
    let row = |n: usize| {
        let question = if n == 40 { word } else { "hi" };
        let turns = json!([{"role": "user", "content": format!("{question} {n}")}, {"role": "assistant", "content": "ho"}]);
        format!("{}\n", json!({ "messages": turns }))
    };
    (0..60).map(row).collect()
}

/// Expands each Q to twenty, eight times over.
fn tokenizer() -> Value {
    let mut file: Value =
        serde_json::from_str(include_str!("fixtures/chat/tokenizer.json")).unwrap();
    let twenty = json!({"type": "Replace", "pattern": {"String": "Q"}, "content": "Q".repeat(20)});
    file["normalizer"] = json!({"type": "Sequence", "normalizers": vec![twenty; 8]});
    file
}

fn printed(output: &Output) -> String {
    let all = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn templates_and_tokenizers_with_a_trigger_word_end_in_an_error_wherever_they_are_used() {
    let place = Place::new();
    let data = "-s data.path=zebra.jsonl -s data.template=hostile.jinja -s model.seq_len=64 -s max_steps=5";
    place.refused(&format!("train arithmetic $SMALL {data}"));
    let tokenized =
        "-s data.tokenizer.file.path=tokenizer.json -s data.template=chatml -s model.seq_len=64";
    place.refused(&format!(
        "train arithmetic $SMALL -s data.path=q.jsonl {tokenized} -s max_steps=5"
    ));
    place.refused("data inspect zebra.jsonl --strict --template hostile.jinja");
    place.refused("data inspect q.jsonl --strict --tokenizer tokenizer.json --template chatml");
    // A model that contains both.
    let mild = "-s data.path=mild.jsonl -s data.tokenizer.file.path=tokenizer.json -s data.template=hostile.jinja";
    let output = place.go(&format!(
        "$P train arithmetic $SMALL {mild} -s model.seq_len=64 -s max_steps=3"
    ));
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    let finished = |run: &PathBuf| run.join("checkpoints/step-000003").is_dir();
    let run = place.runs().into_iter().find(finished).unwrap();
    let model = run.display();
    place.refused(&format!("chat {model} --prompt Zebra"));
    place.refused(&format!("chat {model} --prompt Q"));
    place.refused(&format!("score {model} zebra.jsonl"));
    place.refused(&format!("score {model} q.jsonl --template chatml"));
}

/// The outcome in a run's log, if it was started.
fn ending(run: &Path) -> Option<(Outcome, String)> {
    let run = RunDir::open(run).ok()?;
    let events = read_all(&run.events_path()).ok()?;
    events.into_iter().rev().find_map(|e| match e.event {
        Event::Finished {
            outcome, message, ..
        } => Some((outcome, message)),
        _ => None,
    })
}

/// A run whose address space is limited to its current size: its end, or `None` if it needed no more.
fn starved(place: &Place) -> Option<Output> {
    let mut engine = place
        .shell(
            "exec $P train quickstart $SMALL -s seq_len=8 -s max_steps=100000000 -s save_every=200",
        )
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let clock = SystemClock::new();
    let saved = || {
        let runs = place.runs();
        let folder = runs.first().map(|run| run.join("checkpoints/step-000200"));
        folder.is_some_and(|folder| folder.is_dir())
    };
    while !saved() {
        assert!(clock.elapsed() < TIMEOUT, "no checkpoint");
        llmtui::base::clock::pause(Duration::from_millis(20));
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", engine.id())).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = size.and_then(|size| size.split_whitespace().next());
    let bytes = kib.unwrap().parse::<u64>().unwrap() << 10;
    let none = Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    prlimit(Some(Pid::from_child(&engine)), Resource::As, none).unwrap();
    // Its series of readings grow until they need more, unless saves repeatedly find space by freeing theirs.
    let limited = clock.elapsed();
    while engine.try_wait().unwrap().is_none() {
        if clock.elapsed() - limited > Duration::from_secs(15) {
            engine.kill().unwrap();
            engine.wait().unwrap();
            return None;
        }
        llmtui::base::clock::pause(Duration::from_millis(20));
    }
    Some(engine.wait_with_output().unwrap())
}

#[test]
fn a_run_out_of_memory_reports_it_in_its_log_and_can_be_resumed() {
    let mut tried = 0;
    let (place, output) = loop {
        let place = Place::new();
        if let Some(output) = starved(&place) {
            break (place, output);
        }
        tried += 1;
        assert!(tried < 8, "eight runs went on without more memory");
    };
    assert_eq!(output.status.code(), Some(3), "{}", printed(&output));
    let run = place.runs().remove(0);
    let (outcome, message) = ending(&run).unwrap();
    assert_eq!(outcome, Outcome::Starved, "{message}");
    assert!(
        printed(&output).contains("out of memory"),
        "{}",
        printed(&output)
    );
    assert!(
        message.contains("(limit ") && message.contains("resident"),
        "{message}"
    );
    let resumed = place.go("exec $P train --resume auto --headless --foreground --stop-after 1");
    assert_eq!(resumed.status.code(), Some(0), "{}", printed(&resumed));
}

#[test]
fn no_memory_limit_makes_a_start_look_like_a_bug() {
    let place = Place::new();
    let needed = |kib: u64| {
        let output = place.go(&format!("ulimit -v {kib}; exec $P --version"));
        output.status.success()
    };
    // Below this the program itself cannot be loaded.
    let least = (4..100)
        .map(|n| n * 10_000)
        .find(|kib| needed(*kib))
        .unwrap();
    let attempt = |limit: u64, force: &str| {
        let before = place.runs();
        let output = place.go(&format!(
            "ulimit -v {limit}; exec $P train quickstart $SMALL -s threads=4 -s seq_len=8 -s max_steps=5 {force}"
        ));
        let code = output.status.code();
        assert!(
            matches!(code, Some(0 | 2 | 3)),
            "{limit} KiB {force}: {:?}: {}",
            output.status,
            printed(&output)
        );
        for run in place.runs().iter().filter(|run| !before.contains(run)) {
            // A run that began has an outcome, unless not even its log could be opened.
            let began = std::fs::metadata(run.join("events.jsonl")).is_ok_and(|log| log.len() > 0);
            assert!(
                !began || ending(run).is_some(),
                "{limit} KiB {force}: {}",
                printed(&output)
            );
        }
        code
    };
    let mut codes = Vec::new();
    for more in [
        0, 10_000, 20_000, 40_000, 60_000, 90_000, 140_000, 200_000, 400_000, 800_000,
    ] {
        let code = attempt(least + more, "");
        codes.push(code);
        // What the plan says does not fit is tried all the same.
        if code == Some(2) {
            codes.push(attempt(least + more, "--force"));
        }
    }
    assert_eq!(codes.last(), Some(&Some(0)), "{codes:?}");
    assert!(codes.contains(&Some(3)), "{codes:?}");
}
