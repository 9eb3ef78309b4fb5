//! A soak test: a run that is killed every minute and resumed, with viewers that come and go and a log of every step. Memory,
//! descriptors, threads and disk are printed for each life and must not grow with them. `docs/reliability.md` has the figures.
//!
//! `cargo long --test soak`; `LLMTUI_SOAK_MINUTES` (120) is its length, `LLMTUI_SOAK_LIFE` (60) the seconds between kills,
//! `LLMTUI_SOAK_REST` (0) for how many of 100 ms the engine is paused, on a shared machine.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement: it prints, and fails as a test does"
)]

use llmtui::base::clock::{Clock, SystemClock};
use llmtui::run::RunDir;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const RUN: &str = "train quickstart -s n_layer=1 -s n_head=1 -s d_model=16 -s seq_len=16 -s micro_batch_size=1 \
    -s train.threads=1 -s max_steps=1000000000 -s eval.every=5000 -s sample.every=0 -s preflight.enabled=false -s checkpoint.every=2000 \
    --headless";

fn number(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

struct Soak {
    dir: PathBuf,
    program: PathBuf,
    clock: SystemClock,
}

/// Resources of a process.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    rss_kib: u64,
    descriptors: usize,
    threads: u64,
}

impl Soak {
    fn start(&self, words: &str) -> Child {
        Command::new("nice")
            .args(["-n", "19"])
            .arg(&self.program)
            .args(words.split_whitespace())
            .current_dir(&self.dir)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &self.dir)
            .env("XDG_RUNTIME_DIR", &self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn run(&self) -> Option<RunDir> {
        let mut runs = fs::read_dir(self.dir.join("runs")).ok()?;
        RunDir::open(&runs.find_map(Result::ok)?.path()).ok()
    }

    /// Runs the engine for a part of each 100 ms, until `seconds` have passed.
    fn live(&self, engine: &Child, seconds: f64, rest_ms: u64) {
        let pid = Pid::from_child(engine);
        let end = self.clock.elapsed() + Duration::from_secs_f64(seconds);
        while self.clock.elapsed() < end {
            if rest_ms > 0 {
                let _ = kill_process(pid, Signal::STOP);
                llmtui::base::clock::pause(Duration::from_millis(rest_ms));
                let _ = kill_process(pid, Signal::CONT);
            }
            llmtui::base::clock::pause(Duration::from_millis(100 - rest_ms.min(95)));
        }
    }
}

fn usage(process: &Child) -> Usage {
    let proc = PathBuf::from(format!("/proc/{}", process.id()));
    let status = fs::read_to_string(proc.join("status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    };
    Usage {
        rss_kib: field("VmRSS:"),
        threads: field("Threads:"),
        descriptors: fs::read_dir(proc.join("fd")).map_or(0, Iterator::count),
    }
}

/// Bytes below a folder, without the log.
fn bytes_beside_the_log(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_beside_the_log(&entry.path()),
        Ok(meta) if entry.file_name() != "events.jsonl" => meta.len(),
        _ => 0,
    };
    entries.filter_map(Result::ok).map(size).sum()
}

/// Checks that every line is complete and numbered from 1 without a gap; returns how many, and the latest acknowledged
/// checkpoint.
fn check_log(path: &Path) -> (u64, u64) {
    let mut acknowledged = 0;
    let mut lines = 0;
    for line in BufReader::new(fs::File::open(path).unwrap()).lines() {
        let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        lines += 1;
        assert_eq!(line["seq"], lines, "a gap in the log");
        if line["event"]["type"] == "Checkpointed" {
            acknowledged = acknowledged.max(line["event"]["step"].as_u64().unwrap());
        }
    }
    (lines, acknowledged)
}

#[test]
#[ignore = "takes hours: LLMTUI_SOAK_MINUTES"]
fn a_run_that_is_killed_every_minute_does_not_grow() {
    let dir = tempfile::tempdir().unwrap();
    let soak = Soak {
        dir: dir.path().to_path_buf(),
        program: std::env::var_os("LLMTUI_SOAK_PROGRAM")
            .map_or_else(|| env!("CARGO_BIN_EXE_llmtui").into(), PathBuf::from),
        clock: SystemClock::new(),
    };
    let end = Duration::from_secs(60 * number("LLMTUI_SOAK_MINUTES", 120));
    let (life, rest) = (
        number("LLMTUI_SOAK_LIFE", 60) as f64,
        number("LLMTUI_SOAK_REST", 0).min(95),
    );
    let mut lives: Vec<Usage> = Vec::new();
    let mut engine = soak.start(RUN);
    soak.live(&engine, 5.0, rest);
    let run = soak.run().unwrap();
    let id = run.id().to_string();
    println!("life  minute  log MiB  beside MiB  engine RSS MiB  fds  threads  viewer RSS MiB");
    while soak.clock.elapsed() < end {
        // One viewer for the whole life, others that join and are killed.
        let mut guest = soak.start(&format!("attach {id} --headless --json"));
        for _ in 0..6 {
            let mut passer_by = soak.start(&format!("attach {id} --headless"));
            soak.live(&engine, life / 6.0, rest);
            let _ = passer_by.kill();
            let _ = passer_by.wait();
        }
        let (now, viewer) = (usage(&engine), usage(&guest));
        let log = fs::metadata(run.events_path()).unwrap().len();
        println!(
            "{:4}  {:6.1}  {:7.1}  {:10.2}  {:14.1}  {:3}  {:7}  {:14.1}",
            lives.len(),
            soak.clock.elapsed().as_secs_f64() / 60.0,
            log as f64 / 1_048_576.0,
            bytes_beside_the_log(run.path()) as f64 / 1_048_576.0,
            now.rss_kib as f64 / 1024.0,
            now.descriptors,
            now.threads,
            viewer.rss_kib as f64 / 1024.0,
        );
        assert!(engine.try_wait().unwrap().is_none(), "the engine ended");
        lives.push(now);
        engine.kill().unwrap();
        engine.wait().unwrap();
        // A viewer outlives its engine only to report it.
        let _ = guest.kill();
        let _ = guest.wait();
        engine = soak.start(&format!("train --resume {id} --headless"));
        soak.live(&engine, 5.0, rest);
    }
    kill_process(Pid::from_child(&engine), Signal::TERM).unwrap();
    assert!(engine.wait().unwrap().success(), "a stop is exit 0");
    let (lines, acknowledged) = check_log(&run.events_path());
    println!(
        "{} kills, {lines} events, checkpoint {acknowledged}",
        lives.len()
    );
    let kept = fs::read_dir(run.path().join("checkpoints")).unwrap();
    let names = kept.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let steps: Vec<u64> = names
        .map(|name| name.strip_prefix("step-").unwrap().parse().unwrap())
        .collect();
    assert_eq!(steps.iter().max(), Some(&acknowledged));
    // Series reach their bound within a few hundred thousand steps; descriptors and threads are constant from the start.
    let settled = &lives[lives.len() / 2..];
    let most = |of: fn(&Usage) -> u64| settled.iter().map(of).max().unwrap();
    let least = |of: fn(&Usage) -> u64| settled.iter().map(of).min().unwrap();
    assert!(most(|u| u.descriptors as u64) <= least(|u| u.descriptors as u64) + 8);
    assert!(most(|u| u.threads) <= least(|u| u.threads) + 4);
    assert!(most(|u| u.rss_kib) <= least(|u| u.rss_kib) + (64 << 10));
}
