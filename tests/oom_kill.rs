//! A real OOM kill: an engine in its own cgroup that is too small for it. Needs root and a writable memory
//! controller (v2, or v1); `cargo test --test oom_kill -- --ignored` where there is one.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test fails as a test does"
)]

use llmtui::base::clock::{Clock, SystemClock};
use llmtui::run::RunDir;
use llmtui::run::log::read_all;
use llmtui::wire::Event;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_llmtui");
/// More than the engine alone needs.
const LIMIT: u64 = 400 << 20;
const TIMEOUT: Duration = Duration::from_secs(180);

/// A cgroup that is removed with the test.
struct Group {
    folder: PathBuf,
    /// The file that holds the limit.
    limit: &'static str,
}

impl Group {
    /// Below the cgroup of this process, so that outer limits apply to the group too.
    fn make() -> Option<Group> {
        let name = format!("llmtui-test-{}", std::process::id());
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        // `4:memory:/a` of version 1, `0::/a` of version 2.
        let below = |controller: &str, root: &str| {
            let mut lines = own
                .lines()
                .filter_map(|line| line.split_once(':')?.1.split_once(':'));
            let path = lines.find(|(controllers, _)| *controllers == controller)?.1;
            Some(Path::new(root).join(path.trim_start_matches('/')))
        };
        let places = [
            (below("", "/sys/fs/cgroup"), "memory.max"),
            (
                below("memory", "/sys/fs/cgroup/memory"),
                "memory.limit_in_bytes",
            ),
        ];
        places.into_iter().find_map(|(parent, limit)| {
            let folder = parent?.join(&name);
            fs::create_dir(&folder).ok()?;
            // Without the controller the folder is removed.
            let group = Group { folder, limit };
            group.folder.join(limit).exists().then_some(group)
        })
    }

    fn allow(&self, bytes: u64) {
        fs::write(self.folder.join(self.limit), bytes.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

#[test]
#[ignore = "needs root and a memory cgroup"]
fn a_run_killed_for_memory_is_resumed_with_a_notice() {
    let group = Group::make().expect("a memory cgroup");
    let dir = tempfile::tempdir().unwrap();
    let run = || {
        let mut runs = fs::read_dir(dir.path().join("runs")).ok()?;
        RunDir::open(&runs.find_map(Result::ok)?.path()).ok()
    };
    let engine = |words: &str| {
        let script = format!(
            "echo $$ > {}/cgroup.procs && exec {PROGRAM} {words} --headless --foreground",
            group.folder.display()
        );
        Command::new("sh")
            .args(["-c", &script])
            .current_dir(dir.path())
            .env("HOME", dir.path())
            .env("XDG_RUNTIME_DIR", dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    group.allow(1 << 30);
    let mut first = engine(
        "train quickstart -s n_layer=1 -s n_head=1 -s d_model=16 -s seq_len=16 -s micro_batch_size=1 -s train.threads=1 \
         -s preflight.enabled=false -s eval_every=0 -s sample_every=0 -s save_every=200 -s max_steps=100000000",
    );
    let clock = SystemClock::new();
    let saved = || run().is_some_and(|run| run.path().join("checkpoints/step-000200").is_dir());
    while !saved() {
        assert!(clock.elapsed() < TIMEOUT, "no checkpoint");
        llmtui::base::clock::pause(Duration::from_millis(50));
    }
    // A neighbor in the same job uses the rest; of the two the kernel kills the engine first, and then the neighbor.
    let adjust = |process: u32, value: &str| {
        fs::write(format!("/proc/{process}/oom_score_adj"), value).unwrap();
    };
    adjust(first.id(), "1000");
    group.allow(LIMIT);
    let neighbor = format!(
        "echo $$ > {}/cgroup.procs; tail /dev/zero",
        group.folder.display()
    );
    let mut neighbor = Command::new("sh")
        .args(["-c", &neighbor])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while first.try_wait().unwrap().is_none() {
        assert!(clock.elapsed() < TIMEOUT, "it was not killed");
        llmtui::base::clock::pause(Duration::from_millis(50));
    }
    neighbor.wait().unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(first.wait().unwrap().signal(), Some(9));
    group.allow(1 << 30);
    let step = read_all(&run().unwrap().events_path()).unwrap().len();
    let mut second = engine("train --resume auto --stop-after 1");
    assert!(second.wait().unwrap().success());
    let events = read_all(&run().unwrap().events_path()).unwrap();
    let reported = events[step..]
        .iter()
        .any(|e| matches!(&e.event, Event::Warned { code, .. } if code == "killed"));
    assert!(reported, "the resume says nothing of the kill");
}
