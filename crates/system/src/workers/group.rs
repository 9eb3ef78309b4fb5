//! torchrun and its ranks on this machine: whether they are alive, and terminating them.

use super::failure::{FailureKind, WorkerFailure};
use super::launch::{Launch, Launcher, command};
use crate::base::clock::Clock;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Time to print stacks, then to exit, before ranks are killed.
pub(super) const STACKS: Duration = Duration::from_millis(500);
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// Poll interval of waits.
pub(super) const TICK: Duration = Duration::from_millis(50);
/// torchrun's own output, in the folder of the ranks' logs.
pub(super) const LAUNCHER_LOG: &str = "launcher.log";

/// Processes of one generation on this machine.
pub(super) struct Group {
    launcher: Child,
    ranks: Vec<Process>,
    clock: Arc<dyn Clock>,
}

/// A process identified by its id and start time: ids are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: i32,
    began: u64,
}

impl Group {
    /// Starts torchrun, with its output in `logs`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(launch: &Launch, clock: Arc<dyn Clock>) -> Result<Group, WorkerFailure> {
        let fault = |path: &Path| {
            let path = path.display().to_string();
            move |e: std::io::Error| {
                WorkerFailure::new(FailureKind::Start, None, format!("{path}: {e}"))
            }
        };
        std::fs::create_dir_all(&launch.logs).map_err(fault(&launch.logs))?;
        let _ = std::fs::remove_file(launch.rendezvous());
        // A single rank writes to the path that torchrun would use.
        let own = launch.logs.join("0");
        let (log, errors) = match launch.alone() {
            true => (own.join("stdout.log"), own.join("stderr.log")),
            false => (
                launch.logs.join(LAUNCHER_LOG),
                launch.logs.join(LAUNCHER_LOG),
            ),
        };
        if launch.alone() {
            std::fs::create_dir_all(&own).map_err(fault(&own))?;
        }
        let open = |path: &Path| {
            let file = File::options().create(true).append(true).open(path);
            file.map_err(fault(path))
        };
        let (log, errors) = (open(&log)?, open(&errors)?);
        let launcher = command(launch)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(fault(&launch.python))?;
        Ok(Group {
            launcher,
            ranks: Vec::new(),
            clock,
        })
    }

    fn signal(&self, signal: Signal) {
        for rank in self.ranks.iter().filter(|rank| rank.lives()) {
            if let Some(pid) = Pid::from_raw(rank.pid) {
                let _ = kill_process(pid, signal);
            }
        }
    }
}

impl Launcher for Group {
    fn machine(&self) -> Option<&str> {
        None
    }

    fn admit(&mut self, pid: i32) {
        let began = began(pid);
        self.ranks.push(Process { pid, began });
    }

    fn ended(&mut self) -> Option<String> {
        let status = self.launcher.try_wait().ok().flatten();
        status.map(|status| status.to_string())
    }

    fn failure_detail(&self) -> String {
        String::new()
    }

    fn ask_for_stacks(&mut self) {
        self.signal(Signal::USR2);
    }

    fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    fn kill(&mut self) {
        let begun = self.clock.elapsed();
        while self.clock.elapsed() - begun < GRACE && self.ranks.iter().any(|rank| rank.lives()) {
            // A stopped process reacts to nothing else.
            self.signal(Signal::KILL);
            crate::base::clock::pause(TICK);
        }
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
    }
}

impl Process {
    fn lives(self) -> bool {
        self.began > 0 && began(self.pid) == self.began
    }
}

/// When a process started, in clock ticks since boot; 0 if it does not exist, or has ended and is not yet reaped.
fn began(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name, which may contain anything, come the state and 18 numbers.
    let mut fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let state = fields.next().unwrap_or("Z");
    let began = fields.nth(18).and_then(|word| word.parse().ok());
    began.filter(|_| state != "Z" && state != "X").unwrap_or(0)
}
