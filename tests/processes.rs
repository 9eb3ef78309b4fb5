//! The real program in real processes: engines that outlive their viewers, and logs that survive whatever kills them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

use llmtui::base::clock::{Clock, SystemClock};
use llmtui::base::paths::Env;
use llmtui::link::launch::{EngineOptions, LaunchError, Launcher};
use llmtui::link::{Incoming, Link, open};
use llmtui::run::index::{RunStatus, summarize};
use llmtui::run::log::read_all;
use llmtui::run::{RunDir, RunError};
use llmtui::spec::{SpecSources, load};
use llmtui::wire::{Command as Order, Event, Outcome, StopWhen};
use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_llmtui");
/// Nothing here takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// A run of a very small model, and engines to hold it. What is still alive at the end is killed.
struct Place {
    run: RunDir,
    launcher: Launcher,
    dir: tempfile::TempDir,
}

impl Place {
    /// `words` are `-s` words on top of the small model.
    fn new(words: &[&str]) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let small = [
            "n_layer=1",
            "n_head=1",
            "d_model=8",
            "seq_len=8",
            "micro_batch_size=1",
            "max_steps=1000000",
            "threads=1",
            "eval_every=0",
            "sample_every=0",
            "save_every=50",
            "preflight.enabled=false",
        ];
        let words: Vec<String> = small.iter().chain(words).map(|w| w.to_string()).collect();
        let sources = SpecSources {
            config_dir: None,
            project_dir: dir.path().into(),
            ..SpecSources::default()
        };
        let loaded = load("quickstart", &words, &sources).unwrap();
        let run = RunDir::create(
            &dir.path().join("runs"),
            "small",
            &loaded.spec.to_yaml(),
            &loaded.asked,
            &SystemClock::new(),
        )
        .unwrap();
        let env = Env {
            // Where the program looks when XDG_RUNTIME_DIR is this folder.
            runtime_dir: dir.path().join("llmtui"),
            ..Env::default()
        };
        let launcher = Launcher {
            program: PROGRAM.into(),
            env,
        };
        Place { run, launcher, dir }
    }

    fn start(&self, options: EngineOptions) {
        self.launcher.start_detached(&self.run, &options).unwrap();
    }

    fn join(&self) -> Link {
        open(&self.run, &self.launcher.env).unwrap()
    }

    fn signal(&self, signal: Signal) {
        let pid = self.run.header().unwrap().pid;
        kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
    }

    fn step(&self) -> u64 {
        summarize(&self.run).unwrap().step
    }

    fn await_step(&self, step: u64) {
        until("a step", || self.step() >= step);
    }

    fn await_end(&self) {
        until("the engine's end", || !self.run.is_alive());
    }

    /// The program with this place's directories.
    fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .args(arguments)
            .arg("--runs-dir")
            .arg(self.dir.path().join("runs"));
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.run.is_alive() {
            self.signal(Signal::KILL);
        }
    }
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !happened() {
        assert!(clock.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Every number once, in order, over all engine processes.
fn assert_gapless(log: &Path) {
    let events = read_all(log).unwrap();
    let numbers: Vec<u64> = events.iter().map(|e| e.seq).collect();
    let expected: Vec<u64> = (1..=events.len() as u64).collect();
    assert_eq!(numbers, expected);
    let lines = std::fs::read_to_string(log).unwrap().lines().count();
    assert_eq!(lines, events.len(), "a line that is no event");
}

fn outcome(log: &Path) -> Option<Outcome> {
    match read_all(log).unwrap().pop()?.event {
        Event::Finished { outcome, .. } => Some(outcome),
        _ => None,
    }
}

fn wait_output(child: Child) -> Output {
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panicked"), "{errors}");
    output
}

#[test]
fn a_killed_viewer_and_a_hang_up_leave_the_run_alone() {
    let place = Place::new(&[]);
    place.start(EngineOptions::default());
    let mut relay = place
        .program(&["engine", "--stdio"])
        .arg(place.run.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut greeting = String::new();
    std::io::BufReader::new(relay.stdout.as_mut().unwrap())
        .read_line(&mut greeting)
        .unwrap();
    assert!(greeting.contains("Hello"), "{greeting}");
    place.await_step(5);
    relay.kill().unwrap();
    relay.wait().unwrap();
    let seen = place.step();
    place.signal(Signal::HUP);
    place.signal(Signal::HUP);
    place.await_step(seen + 50);
    let mut link = place.join();
    link.send(Order::Stop {
        when: StopWhen::Now,
    })
    .unwrap();
    loop {
        match link.blocking_recv() {
            Incoming::Event(e) if matches!(e.event, Event::Finished { .. }) => break,
            Incoming::Closed(why) => panic!("{why:?}"),
            _ => {}
        }
    }
    place.await_end();
    assert_eq!(summarize(&place.run).unwrap().status, RunStatus::Stopped);
    assert_gapless(&place.run.events_path());
}

#[test]
fn a_request_to_end_saves_and_stops_however_often_it_comes() {
    let place = Place::new(&["save_every=0"]);
    place.start(EngineOptions::default());
    place.await_step(3);
    place.signal(Signal::TERM);
    place.await_end();
    assert_eq!(outcome(&place.run.events_path()), Some(Outcome::Stopped));
    let saved = place.run.checkpoints();
    assert_eq!(saved.len(), 1);
    assert_eq!(saved[0].step, place.step());
}

#[test]
fn kills_in_the_middle_of_writing_leave_no_gap_and_no_torn_line() {
    let place = Place::new(&["save_every=20"]);
    place.start(EngineOptions::default());
    place.await_step(25);
    for round in 0..3 {
        std::thread::park_timeout(Duration::from_millis(37 * round));
        place.signal(Signal::KILL);
        place.await_end();
        assert_eq!(summarize(&place.run).unwrap().status, RunStatus::Crashed);
        let killed_at = place.step();
        place.start(EngineOptions {
            resume: true,
            ..EngineOptions::default()
        });
        place.await_step(killed_at + 21);
    }
    place.signal(Signal::TERM);
    place.await_end();
    assert_gapless(&place.run.events_path());
}

#[test]
fn a_second_engine_is_refused() {
    let place = Place::new(&[]);
    place.start(EngineOptions::default());
    let refused = place
        .launcher
        .start_detached(&place.run, &EngineOptions::default());
    assert!(matches!(
        refused,
        Err(LaunchError::Run(RunError::Busy { .. }))
    ));
    let output = place
        .program(&["engine"])
        .arg(place.run.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    let pid = place.run.header().unwrap().pid.to_string();
    assert!(said.contains(&pid), "{said}");
    assert!(place.run.is_alive());
}

#[test]
fn many_starts_at_once_have_one_winner() {
    let place = Place::new(&[]);
    let mut children: Vec<Child> = (0..6)
        .map(|_| {
            place
                .program(&["engine"])
                .arg(place.run.path())
                .arg("--runtime-dir")
                .arg(&place.launcher.env.runtime_dir)
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    until("the losers' end", || {
        let running = children
            .iter_mut()
            .filter_map(|c| c.try_wait().unwrap())
            .count();
        running >= 5
    });
    place.await_step(5);
    place.signal(Signal::TERM);
    place.await_end();
    let codes: Vec<i32> = children
        .iter_mut()
        .map(|c| c.wait().unwrap().code().unwrap())
        .collect();
    assert_eq!(codes.iter().filter(|&&c| c == 0).count(), 1, "{codes:?}");
    assert_gapless(&place.run.events_path());
}

#[test]
fn a_full_disk_makes_the_run_wait_and_a_request_to_end_still_ends_it() {
    let place = Place::new(&["save_every=0"]);
    // Files of at most 64 KiB: the log stalls there.
    let mut engine = Command::new("sh")
        .arg("-c")
        .arg("ulimit -f 64; exec \"$@\"")
        .arg("sh")
        .arg(PROGRAM)
        .arg("engine")
        .arg(place.run.path())
        .arg("--runtime-dir")
        .arg(&place.launcher.env.runtime_dir)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let size = || std::fs::metadata(place.run.events_path()).map_or(0, |m| m.len());
    // dash counts in 512 bytes, bash in 1024.
    until("a full log", || size() > 31_000);
    until("a stalled log", || {
        let before = size();
        std::thread::park_timeout(Duration::from_millis(1_500));
        size() == before
    });
    assert_gapless(&place.run.events_path());
    assert!(engine.try_wait().unwrap().is_none(), "it is still alive");
    kill_process(Pid::from_child(&engine), Signal::TERM).unwrap();
    until("the engine's end", || engine.try_wait().unwrap().is_some());
    assert_gapless(&place.run.events_path());
}

#[test]
fn a_run_that_is_over_while_it_is_joined_has_ended_as_it_did() {
    for _ in 0..5 {
        let place = Place::new(&["max_steps=1", "save_every=1"]);
        place.start(EngineOptions::default());
        let mut link = place.join();
        let mut ended = None;
        let closed = loop {
            match link.blocking_recv() {
                Incoming::Event(envelope) => {
                    if let Event::Finished { outcome, .. } = envelope.event {
                        ended = Some(outcome);
                    }
                }
                Incoming::CaughtUp => {}
                Incoming::Closed(why) => break why,
            }
        };
        assert_eq!((ended, closed), (Some(Outcome::Completed), None));
        place.await_end();
    }
}

#[test]
fn a_broken_run_is_told_in_the_words_of_its_engine() {
    let place = Place::new(&[]);
    std::fs::write(place.run.spec_path(), "seed: [no\n").unwrap();
    let said = place
        .launcher
        .start_detached(&place.run, &EngineOptions::default())
        .unwrap_err()
        .to_string();
    assert!(said.contains("spec.yaml"), "{said}");
}

#[test]
fn chat_continues_text_with_the_best_checkpoint_of_a_run() {
    let place = Place::new(&["max_steps=60", "save_every=30"]);
    place.start(EngineOptions::default());
    place.await_end();
    let id = place.run.id().to_string();
    let chat = |arguments: &[&str]| {
        let child = place
            .program(&["chat", &id, "--context", "roll"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_output(child)
    };
    let said = chat(&[
        "--prompt",
        "ROMEO:",
        "--max-new-tokens",
        "40",
        "--seed",
        "7",
    ]);
    assert!(said.status.success(), "{said:?}");
    let text = String::from_utf8(said.stdout.clone()).unwrap();
    assert_eq!(
        text.chars().count(),
        41,
        "40 characters and a newline: {text:?}"
    );
    let again = chat(&[
        "--prompt",
        "ROMEO:",
        "--max-new-tokens",
        "40",
        "--seed",
        "7",
    ]);
    assert_eq!(said.stdout, again.stdout);
    // Each line of a pipe is a prompt of its own for a model without a template.
    let mut piped = place
        .program(&[
            "chat",
            &id,
            "--context",
            "roll",
            "--max-new-tokens",
            "5",
            "--json",
            "--show-prompt",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = piped.stdin.take().unwrap();
    std::io::Write::write_all(&mut lines, b"ROMEO:\nJULIET:\n").unwrap();
    drop(lines);
    let piped = wait_output(piped);
    let note = String::from_utf8_lossy(&piped.stderr);
    assert!(note.contains("no chat template"), "{note}");
    let answers: Vec<serde_json::Value> = String::from_utf8(piped.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[1]["rendered"], "JULIET:");
    assert_eq!(answers[1]["n_tokens"], 5);
    assert_eq!(answers[1]["reason"], "length");
    let refused = chat(&["--prompt", "☃"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let missing = chat(&["--prompt", "x", "--runs-dir", "/nowhere"]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
}

#[test]
fn runs_and_attach_tell_of_a_finished_run() {
    let place = Place::new(&["max_steps=30"]);
    place.start(EngineOptions::default());
    place.await_end();
    let runs = place.program(&["runs", "--json"]).output().unwrap();
    let row: serde_json::Value = serde_json::from_slice(&runs.stdout).unwrap();
    assert_eq!(row["status"], "finished");
    assert_eq!((&row["step"], &row["max_steps"]), (&30.into(), &30.into()));
    let attach = place
        .program(&["attach", place.run.id(), "--headless"])
        .output()
        .unwrap();
    assert!(attach.status.success(), "{attach:?}");
    let text = String::from_utf8(attach.stdout).unwrap();
    assert!(text.contains("finished at step 30"), "{text}");
    let none = place.program(&["attach"]).output().unwrap();
    assert_eq!(none.status.code(), Some(2), "no live run");
}

#[test]
fn a_run_is_paused_resumed_stopped_read_and_deleted_from_the_shell() {
    let place = Place::new(&[]);
    place.start(EngineOptions::default());
    place.await_step(60);
    let ask = |arguments: &[&str]| place.program(arguments).output().unwrap();
    let say = |arguments: &[&str]| {
        let output = ask(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(say(&["pause", "small"]).contains("is paused"));
    let live = ask(&["rm", "--yes", "small"]);
    assert_eq!(live.status.code(), Some(2), "a live run stays: {live:?}");
    assert!(say(&["resume", "small"]).contains("trains on"));
    let paused_at = place.step();
    place.await_step(paused_at + 1);
    let stopped = say(&["stop"]);
    assert!(stopped.contains("stopped at step"), "{stopped}");
    assert!(stopped.contains("continues from step"), "{stopped}");
    assert!(!place.run.is_alive());
    let log = say(&["logs", "small"]);
    assert!(log.contains("stopped at step"), "{log}");
    let events = say(&["logs", "small", "--json"]);
    let last: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"]["type"], "Finished", "{last}");
    assert!(say(&["resume", place.run.id()]).contains("trains on"));
    assert!(place.run.is_alive());
    say(&["stop", "--now", "small"]);
    let unasked = ask(&["rm", "small"]);
    assert_eq!(unasked.status.code(), Some(2), "{unasked:?}");
    assert!(say(&["rm", "--yes", "small"]).contains("deleted"));
    assert!(!place.run.path().exists());
    assert_eq!(ask(&["stop"]).status.code(), Some(2), "no run is live");
}

/// The files of a small model as the hub serves them. While `stalls`, of a file with weights half is sent, and no more.
struct HubServer {
    endpoint: String,
    stalls: Arc<AtomicBool>,
    /// Paths and ranges that were asked for.
    log: Arc<Mutex<Vec<String>>>,
}

impl HubServer {
    fn start(folder: &Path) -> HubServer {
        let files: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|e| {
                (
                    e.file_name().into_string().unwrap(),
                    std::fs::read(e.path()).unwrap(),
                )
            })
            .collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = HubServer {
            endpoint: format!("http://{}", listener.local_addr().unwrap()),
            stalls: Arc::new(AtomicBool::new(true)),
            log: Arc::default(),
        };
        let (stalls, log) = (server.stalls.clone(), server.log.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (files, stalls, log) = (files.clone(), stalls.clone(), log.clone());
                std::thread::spawn(move || HubServer::answer(stream, &files, &stalls, &log));
            }
        });
        server
    }

    fn answer(
        mut stream: TcpStream,
        files: &[(String, Vec<u8>)],
        stalls: &AtomicBool,
        log: &Mutex<Vec<String>>,
    ) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let head: Vec<String> = lines
            .by_ref()
            .map_while(Result::ok)
            .take_while(|l| !l.is_empty())
            .collect();
        let path = head[0].split(' ').nth(1).unwrap().to_string();
        let range = head.iter().find_map(|l| {
            l.to_lowercase()
                .strip_prefix("range: bytes=")
                .map(String::from)
        });
        log.lock()
            .unwrap()
            .push(format!("{path} {}", range.clone().unwrap_or_default()));
        if path.starts_with("/api/") {
            let siblings: Vec<_> = files.iter().map(|(name, content)| {
                let sha: String = Sha256::digest(content).iter().map(|b| format!("{b:02x}")).collect();
                serde_json::json!({"rfilename": name, "size": content.len(), "blobId": sha[..40],
                    "lfs": {"sha256": sha, "size": content.len()}})
            }).collect();
            let body = serde_json::json!({"sha": "0123456789abcdef0123456789abcdef01234567", "siblings": siblings});
            let body = body.to_string();
            let _ = write!(
                stream,
                "HTTP/1.1 200 X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            return;
        }
        let name = path.rsplit('/').next().unwrap();
        let content = &files.iter().find(|(n, _)| n == name).unwrap().1;
        let from: usize = range.map_or(0, |r| r.trim_end_matches('-').parse().unwrap());
        let rest = &content[from..];
        let _ = match from {
            0 => write!(stream, "HTTP/1.1 200 X\r\n"),
            _ => write!(
                stream,
                "HTTP/1.1 206 X\r\nContent-Range: bytes {from}-{}/{}\r\n",
                content.len() - 1,
                content.len()
            ),
        };
        let _ = write!(
            stream,
            "Content-Length: {}\r\nConnection: close\r\n\r\n",
            rest.len()
        );
        if stalls.load(Ordering::Relaxed) && name.ends_with(".safetensors") {
            let _ = stream.write_all(&rest[..rest.len() / 2]);
            // Until the other side hangs up.
            let _ = stream.read(&mut [0]);
        } else {
            let _ = stream.write_all(rest);
        }
    }

    /// An engine that is to hold a model of this hub.
    fn infer(&self, home: &Path) -> Child {
        Command::new(PROGRAM)
            .args(["engine", "--infer", "org/tiny"])
            .env("HF_ENDPOINT", &self.endpoint)
            .env("HF_HOME", home)
            .env_remove("HF_HUB_CACHE")
            .env_remove("HF_HUB_OFFLINE")
            .current_dir(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

#[test]
fn a_download_for_the_chat_is_told_and_goes_on_after_it_was_stopped() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/families/llama");
    let (server, home) = (HubServer::start(&folder), tempfile::tempdir().unwrap());
    let mut child = server.infer(home.path());
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let half = lines.map_while(Result::ok).find_map(|line| {
        match llmtui::wire::decode_envelope(&line).unwrap().event {
            Event::Downloading {
                file, bytes, total, ..
            } if file.ends_with(".safetensors") => Some((file, bytes, total)),
            _ => None,
        }
    });
    let (file, bytes, total) = half.unwrap();
    assert!(
        file.starts_with("org/tiny/") && bytes < total && bytes > 0,
        "{file} {bytes} {total}"
    );
    // As the chat pane does it: the input closes, and what does not heed that is killed.
    drop(child.stdin.take());
    child.kill().unwrap();
    child.wait().unwrap();
    server.stalls.store(false, Ordering::Relaxed);
    server.log.lock().unwrap().clear();
    let mut child = server.infer(home.path());
    drop(child.stdin.take());
    child.wait_with_output().unwrap();
    let name = file.rsplit('/').next().unwrap().to_string();
    let log = server.log.lock().unwrap().clone();
    let resumed = log.iter().find(|l| l.contains(&name)).unwrap();
    assert!(resumed.ends_with(&format!("{name} {bytes}-")), "{resumed}");
    let snapshot = home
        .path()
        .join("hub/models--org--tiny/snapshots/0123456789abcdef0123456789abcdef01234567");
    assert_eq!(
        std::fs::read(snapshot.join(&name)).unwrap(),
        std::fs::read(folder.join(&name)).unwrap()
    );
}

#[test]
fn a_rescue_is_undone_from_the_shell_after_its_reason_was_shown() {
    let place = Place::new(&[
        "rescue.policy=act",
        "rescue.at_most=1",
        "clip_norm=0",
        "optimizer.adamw.weight_decay=10",
    ]);
    place.start(EngineOptions::default());
    place.await_step(60);
    let ask = |arguments: &[&str]| place.program(arguments).output().unwrap();
    assert_eq!(
        ask(&["undo", "small"]).status.code(),
        Some(2),
        "not rescued"
    );
    let adjust = |value: f64| {
        let mut link = place.join();
        let key = "lr".to_string();
        link.send(Order::Adjust { key, value }).unwrap();
        while !matches!(link.blocking_recv(), Incoming::Event(e) if matches!(e.event, Event::Adjusted { .. }))
        {
        }
    };
    let told = |wanted: fn(&Event) -> bool| {
        let events = read_all(&place.run.events_path()).unwrap();
        events.iter().any(|envelope| wanted(&envelope.event))
    };
    adjust(10.0);
    until("a rescue", || told(|e| matches!(e, Event::Rescued { .. })));
    let asked = ask(&["undo", "small"]);
    let text = String::from_utf8(asked.stdout).unwrap();
    for words in [
        "rescued because",
        "it goes on at step",
        "10.00",
        "--yes does it",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(
        !told(|e| matches!(e, Event::RescueUndone { .. })),
        "only shown"
    );
    let done = ask(&["undo", "--yes", "small"]);
    assert!(done.status.success(), "{done:?}");
    assert!(told(|e| matches!(e, Event::RescueUndone { .. })));
}
