//! The real program in real processes: engines that outlive their viewers, logs that survive kills, downloads
//! that resume where they were stopped.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

#[path = "support/engine.rs"]
mod engine;
#[path = "processes/hub_files.rs"]
mod hub_files;

use engine::{PROGRAM, Place, until};
use llmtui::link::Incoming;
use llmtui::link::launch::{EngineOptions, LaunchError};
use llmtui::run::RunError;
use llmtui::run::index::{RunStatus, summarize};
use llmtui::run::log::read_all;
use llmtui::wire::{Command as Order, Event, Outcome, Phase, StopWhen};
use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Every sequence number once, in order, over all engine processes.
fn assert_gapless(log: &Path) {
    let events = read_all(log).unwrap();
    let numbers: Vec<u64> = events.iter().map(|e| e.seq).collect();
    let expected: Vec<u64> = (1..=events.len() as u64).collect();
    assert_eq!(numbers, expected);
    let lines = std::fs::read_to_string(log).unwrap().lines().count();
    assert_eq!(lines, events.len(), "a line that is not an event");
}

fn outcome(log: &Path) -> Option<Outcome> {
    match read_all(log).unwrap().pop()?.event {
        Event::Finished { outcome, .. } => Some(outcome),
        _ => None,
    }
}

#[test]
fn a_killed_viewer_and_a_hang_up_do_not_affect_the_run() {
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
fn repeated_requests_to_end_save_and_stop_once() {
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
fn kills_during_writing_leave_no_gap_and_no_torn_line() {
    let place = Place::new(&["save_every=20"]);
    place.start(EngineOptions::default());
    place.await_step(25);
    for round in 0..3 {
        llmtui::base::clock::pause(Duration::from_millis(37 * round));
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
fn a_second_engine_is_rejected() {
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
    let printed = String::from_utf8(output.stderr).unwrap();
    let pid = place.run.header().unwrap().pid.to_string();
    assert!(printed.contains(&pid), "{printed}");
    assert!(place.run.is_alive());
}

/// A queued run survives the kill of the one before it, and its lists say that it waits.
#[test]
fn a_queued_run_begins_when_the_run_before_it_has_ended() {
    let first = Place::new(&[]);
    first.start(EngineOptions::default());
    first.await_step(1);
    let second = Place::new(&["max_steps=3"]);
    second.start(EngineOptions {
        after: Some(first.run.path().into()),
        ..EngineOptions::default()
    });
    let phase = || summarize(&second.run).unwrap().phase;
    until("its place in the queue", || phase() == Some(Phase::Queued));
    let listed = second.program(&["runs"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("queued"), "{listed}");
    assert_eq!(second.step(), 0);
    first.signal(Signal::KILL);
    second.await_end();
    assert_eq!(outcome(&second.run.events_path()), Some(Outcome::Completed));
    assert_eq!(second.step(), 3);
    assert_gapless(&second.run.events_path());
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
        llmtui::base::clock::pause(Duration::from_millis(1_500));
        size() == before
    });
    assert_gapless(&place.run.events_path());
    assert!(engine.try_wait().unwrap().is_none(), "it is still alive");
    kill_process(Pid::from_child(&engine), Signal::TERM).unwrap();
    until("the engine's end", || engine.try_wait().unwrap().is_some());
    assert_gapless(&place.run.events_path());
}

#[test]
fn a_run_that_ends_while_it_is_joined_keeps_its_outcome() {
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
fn a_broken_run_is_reported_with_its_engines_message() {
    let place = Place::new(&[]);
    std::fs::write(place.run.spec_path(), "seed: [no\n").unwrap();
    let printed = place
        .launcher
        .start_detached(&place.run, &EngineOptions::default())
        .unwrap_err()
        .to_string();
    assert!(printed.contains("spec.yaml"), "{printed}");
}

/// The files of a small model, served like the hub. While `stalls`, only half of a weights file is sent.
struct HubServer {
    endpoint: String,
    stalls: Arc<AtomicBool>,
    /// Requested paths and ranges.
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
            // Until the other side disconnects.
            let _ = stream.read(&mut [0]);
        } else {
            let _ = stream.write_all(rest);
        }
    }

    /// An engine that loads a model from this hub.
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
fn a_download_for_the_chat_reports_progress_and_resumes_after_a_stop() {
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
    // As in the chat pane: the input is closed, and a process that ignores that is killed.
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
