//! `run.json`: who created this directory, with which program, and which process runs it now.

use crate::base::clock::UnixMillis;
use crate::base::process::host_name;
use crate::base::text::one_line;
use serde::{Deserialize, Serialize};

/// Layout of the run directory; a program rejects a newer one than it supports.
pub const FORMAT: u32 = 1;

/// How the request of a branch begins (`asked.yaml`), before `RUN@STEP`.
pub const BRANCH_OF: &str = "# Requested: --branch ";

/// The content of `run.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`] of the writer.
    pub format: u32,
    /// Version of the program that made the directory.
    pub program: String,
    /// The directory's original name; the name of its socket.
    pub id: String,
    /// The name given in the spec.
    pub name: String,
    pub created: UnixMillis,
    /// The engine process that held the run last; alive only while the lock is held.
    pub pid: u32,
    /// The host name of that process's machine: its id means nothing on another one that shares the disk. Empty in older files.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Of a branch: where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
}

/// The run, and the step of its checkpoint, that another run goes on from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The run's id.
    pub run: String,
    pub step: u64,
}

impl Header {
    /// A header of this program and this process.
    pub fn new(id: &str, name: &str, created: UnixMillis) -> Header {
        Header {
            format: FORMAT,
            program: env!("CARGO_PKG_VERSION").into(),
            id: id.into(),
            name: name.into(),
            created,
            pid: std::process::id(),
            host: host_name(),
            parent: None,
        }
    }

    /// The process that held the run last.
    pub fn holder(&self) -> Holder {
        let elsewhere = !self.host.is_empty() && self.host != host_name();
        Holder {
            pid: self.pid,
            elsewhere: elsewhere.then(|| self.host.clone()),
        }
    }
}

/// The engine process of a run as other processes name it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    /// 0 where nobody knows it.
    pub pid: u32,
    /// Its machine, where that is another one than this.
    pub elsewhere: Option<String>,
}

impl Holder {
    /// Its id, where it is one of this machine: only then may `/proc` or a signal be used.
    pub fn here(&self) -> Option<u32> {
        (self.pid != 0 && self.elsewhere.is_none()).then_some(self.pid)
    }
}

impl std::fmt::Display for Holder {
    /// `process 7`, `process 7 on node3`, or `another process`.
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self.pid {
            0 => write!(f, "another process")?,
            pid => write!(f, "process {pid}")?,
        }
        match &self.elsewhere {
            Some(host) => write!(f, " on {}", one_line(host)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `kill PID` was advised for a process of another machine.
    #[test]
    fn a_process_of_another_machine_is_named_with_it_and_has_no_id_here() {
        let mut header = Header::new("x", "x", UnixMillis(0));
        let own = header.holder();
        assert_eq!(own.here(), Some(std::process::id()));
        assert_eq!(own.to_string(), format!("process {}", std::process::id()));
        (header.host, header.pid) = ("node3.cluster".into(), 7);
        let theirs = header.holder();
        assert_eq!(theirs.to_string(), "process 7 on node3.cluster");
        assert_eq!(theirs.here(), None);
        // An older file says no host, and a lost one nothing.
        header.host.clear();
        assert_eq!(header.holder().here(), Some(7));
        let text = serde_json::to_string(&header).unwrap();
        assert!(!text.contains("host"), "{text}");
        assert_eq!(serde_json::from_str::<Header>(&text).unwrap(), header);
        let unknown = Holder::default();
        assert_eq!(
            (unknown.here(), &*unknown.to_string()),
            (None, "another process")
        );
    }
}
