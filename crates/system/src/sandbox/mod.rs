//! Programs that nobody has read, run where they can do no harm: what a model wrote, say. A [`Sandbox`] runs a program to its
//! end with limits on time, memory, processes, files and output, without a network, on a file system that it cannot write.
//!
//! A run is three processes. This one reads what is written and waits. Its child, the guard ([`serve`]), takes itself out of the
//! machine (namespaces of users, processes, mounts, network and IPC), lays out the file system ([`walls`]), starts the third
//! and kills it at the deadline. The third gives up all privileges, limits itself ([`exec`]) and becomes the program: whatever
//! that starts dies with it, because it is the first process of its own world.
//!
//! Not held back: reading what this user may read (there is nobody to send it to), and system calls, which no filter narrows:
//! a hole in the kernel is a hole here. Where the kernel gives no namespaces, only [`Isolation::Limits`] is left: limits on each
//! process and a process group. A program that means harm gets out of that, so nobody gets it without asking for it.

#[cfg(target_os = "linux")]
mod guard;
mod limits;
pub mod python;
#[cfg(target_os = "linux")]
mod walls;

#[cfg(target_os = "linux")]
pub use guard::serve;
pub use limits::{Limits, exec};

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The hidden subcommand by which this program becomes guard ([`serve`], no arguments) or the program ([`exec`]).
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

/// What is to be run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Job {
    /// The program, a path or a name to look up in `PATH`, and its arguments.
    pub command: Vec<String>,
    /// Files in the folder where it begins: names without folders, and contents.
    pub files: Vec<(String, String)>,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal: 9 where it used up its processor time or was killed for memory.
    Signalled(i32),
    /// It was still running at the end of its time.
    Late,
    /// It wrote more than it may.
    Flooded,
}

/// What came of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub end: End,
    /// What it wrote, as far as it was allowed to.
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
    /// The program that knows [`VERB`].
    pub program: PathBuf,
    pub isolation: Isolation,
    pub limits: Limits,
}

impl Sandbox {
    /// [`Sandbox::check`] of walls, done once in the life of this process; `guard` is the llmtui executable.
    ///
    /// # Errors
    /// What is missing.
    pub fn walls_stand(guard: PathBuf) -> Result<(), SandboxError> {
        static FOUND: OnceLock<Result<(), SandboxError>> = OnceLock::new();
        let walls = Sandbox {
            program: guard,
            isolation: Isolation::Walls,
            limits: Limits::default(),
        };
        FOUND.get_or_init(|| walls.check()).clone()
    }

    /// Whether it keeps programs as it says, here and now: runs `true` in it.
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
    /// Always: this system has no such walls.
    pub fn run(&self, _job: &Job) -> Result<Outcome, SandboxError> {
        Err(SandboxError::Unavailable("this needs Linux".into()))
    }
}

/// Where a program is, by `PATH` if it is a name alone.
pub fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let folders = std::env::var_os("PATH")?;
    let mut all = std::env::split_paths(&folders).map(|folder| folder.join(program));
    all.find(|path: &PathBuf| Path::is_file(path))
}
