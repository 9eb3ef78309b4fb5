//! Runs untrusted programs, such as those written by a model, where they can do no harm. A [`Sandbox`] runs a program to its
//! end with limits on time, memory, processes, files and output, without a network, on a read-only file system.
//!
//! A run has three processes. This one reads the output and waits. Its child, the guard ([`serve`]), enters its own namespaces
//! (user, PID, mount, network and IPC), sets up the file system ([`isolation`]), starts the third process
//! and kills it at the deadline. The third drops all privileges, limits itself ([`exec`]) and executes the program: all its
//! descendants die with it, because it is the first process of its PID namespace.
//!
//! Not prevented: reading what this user may read (it cannot be sent anywhere), and system calls, which are not filtered:
//! a kernel vulnerability affects the sandbox too. Where the kernel gives no namespaces, only [`Isolation::Limits`] is left:
//! limits on each process and a process group. A malicious program can escape that, so it must be requested explicitly.

#[cfg(target_os = "linux")]
mod guard;
#[cfg(target_os = "linux")]
mod isolation;
mod limits;
pub mod python;

#[cfg(target_os = "linux")]
pub use guard::serve;
pub use limits::{Limits, exec};

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The hidden subcommand by which this executable becomes the guard ([`serve`], no arguments) or the program ([`exec`]).
pub const VERB: &str = "sandbox-child";

/// How much a program is kept from.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// A world of its own: no network, no other processes, nothing that can be written but one small folder in memory.
    #[default]
    Walls,
    /// Limits on each process alone, and a process group that is killed at the end: for mistakes, not for malice.
    Limits,
}

/// What to run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Job {
    /// The program, a path or a name to look up in `PATH`, and its arguments.
    pub command: Vec<String>,
    /// Files in its working directory: plain names and contents.
    pub files: Vec<(String, String)>,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It exited with this status.
    Exited(i32),
    /// It was killed by this signal: 9 after exceeding its CPU time or for lack of memory.
    Signalled(i32),
    /// It exceeded its time.
    Late,
    /// It exceeded its output limit.
    Flooded,
}

/// The result of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub end: End,
    /// Its output, up to the limit.
    pub stdout: String,
    pub stderr: String,
}

/// Why a program was not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    #[error("programs cannot be run safely here: {0}")]
    Unavailable(String),
    #[error("{0} cannot be started: {1}")]
    Start(String, String),
    #[error("the sandbox broke: {0}")]
    Broken(String),
}

impl SandboxError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            SandboxError::Unavailable(_) => {
                "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0), \
                 or accept weaker limits with isolation: limits"
            }
            SandboxError::Start(..) => "install it, or name its path",
            SandboxError::Broken(_) => "check that the llmtui executable is still in place",
        }
    }
}

/// Runs programs in isolation.
#[derive(Debug, Clone)]
pub struct Sandbox {
    /// The executable that implements [`VERB`].
    pub program: PathBuf,
    pub isolation: Isolation,
    pub limits: Limits,
}

impl Sandbox {
    /// [`Sandbox::check`] with full isolation, done once per process; `guard` is the llmtui executable.
    ///
    /// # Errors
    /// What is missing.
    pub fn check_full_isolation(guard: PathBuf) -> Result<(), SandboxError> {
        static FOUND: OnceLock<Result<(), SandboxError>> = OnceLock::new();
        let sandbox = Sandbox {
            program: guard,
            isolation: Isolation::Walls,
            limits: Limits::default(),
        };
        FOUND.get_or_init(|| sandbox.check()).clone()
    }

    /// Tests whether the isolation works on this machine: runs `true` in it.
    ///
    /// # Errors
    /// What is missing.
    pub fn check(&self) -> Result<(), SandboxError> {
        let job = Job {
            command: vec!["/bin/sh".into(), "-c".into(), ":".into()],
            ..Job::default()
        };
        let limits = Limits {
            seconds: self.limits.seconds.max(10.0),
            ..self.limits
        };
        let patient = Sandbox {
            limits,
            ..self.clone()
        };
        match patient.run(&job)?.end {
            End::Exited(0) => Ok(()),
            other => Err(SandboxError::Broken(format!(
                "an empty program ended by {other:?}"
            ))),
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Sandbox {
    /// Runs a program to its end.
    ///
    /// # Errors
    /// Always: the isolation needs Linux.
    pub fn run(&self, _job: &Job) -> Result<Outcome, SandboxError> {
        Err(SandboxError::Unavailable("this needs Linux".into()))
    }
}

/// The path of a program, looked up in `PATH` if it is a plain name.
pub fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let folders = std::env::var_os("PATH")?;
    let mut all = std::env::split_paths(&folders).map(|folder| folder.join(program));
    all.find(|path: &PathBuf| Path::is_file(path))
}
