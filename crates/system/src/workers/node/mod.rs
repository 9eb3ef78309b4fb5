//! Ranks on other machines. The engine calls this program's remote end there (`llmtui engine node`, over ssh or srun), which
//! finds its own PyTorch, starts its ranks, carries their connections and logs over its stdin and stdout, and stops when the
//! connection does. Only the ranks listen on a network, at an address that the engine chooses.
//!
//! `place` (which machines, by which command) → `bridge` (the engine's end) → `node_message` (the protocol) → `serve` (the remote end).

mod bridge;
mod node_message;
mod place;
mod rendezvous;
mod serve;

pub use bridge::Bridge;
pub use place::{Machine, machines};
pub use rendezvous::{address, interface};
pub use serve::serve;

use super::launch::Rendezvous;
use super::{environment, package, torch};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// The engine's first message to a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// Version of this program, and the digest of its worker's files.
    pub program: String,
    pub worker: String,
    /// `engine.torch.python`
    pub python: Option<PathBuf>,
}

impl Ask {
    /// This program's request with these settings.
    pub fn of(config: Option<&torch::Config>) -> Ask {
        Ask {
            program: env!("CARGO_PKG_VERSION").into(),
            worker: package::version(),
            python: config.and_then(|config| config.python.clone()),
        }
    }
}

/// The messages after the machine's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum NodeRequest {
    /// Start these ranks.
    Launch {
        ranks: usize,
        id: String,
        meeting: Rendezvous,
    },
    /// Print stacks, then end everything.
    End,
}

/// The machine's messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Answer {
    Ready(Box<NodeInfo>),
    /// The kind by the worker's name for it.
    Refused {
        kind: String,
        what: String,
    },
    /// This rank of the run connected there.
    Open {
        rank: u32,
    },
    /// torchrun and its ranks.
    Ended {
        status: String,
    },
}

/// A machine's description of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeInfo {
    pub environment: environment::PythonInfo,
    /// The Python that it uses.
    pub python: PathBuf,
    /// Its host name.
    pub host: String,
    /// The caller's address as seen there, by ssh. In a step of srun it is what the shell that submitted the job had.
    pub caller: Option<String>,
    /// Its own address as seen by the caller, by ssh; in a step of srun likewise.
    pub own: Option<String>,
}

/// A message as JSON.
fn value(message: &impl Serialize) -> Value {
    serde_json::to_value(message).unwrap_or_default()
}

/// A message from JSON; `None` if it is unknown.
fn read<T: DeserializeOwned>(message: &Value) -> Option<T> {
    serde_json::from_value(message.clone()).ok()
}
