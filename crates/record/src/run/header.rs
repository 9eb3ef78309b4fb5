//! `run.json`: who created this directory, with which program, and which process runs it now.

use crate::base::clock::UnixMillis;
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
            parent: None,
        }
    }
}
