//! The resource limits that a process sets on itself before it becomes the program.

use super::Isolation;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Limits of a program.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Seconds of wall-clock time, and of CPU time of each process.
    pub seconds: f64,
    /// Bytes of address space of each process.
    pub memory: u64,
    /// Bytes of its working directory, and of any one file.
    pub files: u64,
    /// Processes and threads. The kernel does not count root's, which are only bounded by the time limit.
    pub processes: u64,
    /// Bytes of standard output and of standard error that are kept; a program that writes more is killed.
    pub output: u64,
}

impl Default for Limits {
    /// For a short test of a function: 5 s, 512 MiB, 16 MiB of files, 32 processes, 64 KiB of output.
    fn default() -> Limits {
        Limits {
            seconds: 5.0,
            memory: 512 << 20,
            files: 16 << 20,
            processes: 32,
            output: 64 << 10,
        }
    }
}

impl Limits {
    /// Limits this process and all its descendants; irreversible.
    fn apply(&self) -> io::Result<()> {
        let limit = |resource: Resource, most: u64| {
            // A limit already in force cannot be raised: the lower one applies.
            let most = most.min(getrlimit(resource).maximum.unwrap_or(u64::MAX));
            let limit = Rlimit {
                current: Some(most),
                maximum: Some(most),
            };
            setrlimit(resource, limit).map_err(io::Error::from)
        };
        limit(Resource::Core, 0)?;
        limit(Resource::Fsize, self.files)?;
        limit(Resource::Nofile, 64)?;
        limit(Resource::Cpu, self.seconds.ceil().max(1.0) as u64 + 1)?;
        limit(Resource::Nproc, self.processes)?;
        limit(Resource::As, self.memory)
    }
}

/// Applies the guard's `orders` to this process and executes `command` in it. Returns only if that fails.
pub fn exec(orders: &str, command: &[String]) -> io::Error {
    let orders: serde_json::Result<(Limits, Isolation)> = serde_json::from_str(orders);
    let (limits, isolation) = match orders {
        Ok(orders) => orders,
        Err(error) => return error.into(),
    };
    #[cfg(target_os = "linux")]
    if isolation == Isolation::Walls
        && let Err(error) =
            super::isolation::hide_processes().and_then(|()| super::isolation::drop_privileges())
    {
        return error;
    }
    let Some((program, arguments)) = command.split_first() else {
        return io::Error::other("no program to run");
    };
    let mut command = Command::new(program);
    command.args(arguments);
    match limits.apply() {
        Ok(()) => command.exec(),
        Err(error) => error,
    }
}
