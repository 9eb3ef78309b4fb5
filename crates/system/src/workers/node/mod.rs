//! Ranks on other machines. The engine calls this program's other end there (`llmtui engine node`, over ssh or srun), which finds its
//! own PyTorch, starts its ranks, carries their connections and logs over its standard input and output, and ends with them when the
//! connection does. Nothing listens on a network but the ranks, at an address that the engine chooses.
//!
//! `place` (which machines, by which command) → `bridge` (the engine's end) → `parcel` (what crosses) → `serve` (the other end).

mod bridge;
mod meet;
mod parcel;
mod place;
mod serve;

pub use bridge::Bridge;
pub use meet::{address, interface};
pub use place::{Machine, machines};
pub use serve::serve;

use super::launch::Meeting;
use super::{environment, package, torch};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// The engine's first words to a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// Version of this program, and what its worker's files add up to.
    pub program: String,
    pub worker: String,
    /// `engine.torch.python`
    pub python: Option<PathBuf>,
}

impl Ask {
    /// What this program asks with these settings.
    pub fn of(config: Option<&torch::Config>) -> Ask {
        Ask {
            program: env!("CARGO_PKG_VERSION").into(),
            worker: package::version(),
            python: config.and_then(|config| config.python.clone()),
        }
    }
}

/// The messages after its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Orders {
    /// Start these ranks.
    Launch {
        ranks: usize,
        id: String,
        meeting: Meeting,
    },
    /// Print stacks, then end everything.
    End,
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Answer {
    Ready(Box<About>),
    /// The kind as workers name it.
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

/// What a machine says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub environment: environment::About,
    /// The Python that it uses.
    pub python: PathBuf,
    /// Its host name.
    pub host: String,
    /// Address at which it sees who called, by ssh.
    pub caller: Option<String>,
    /// Its own address, as who called sees it, by ssh.
    pub own: Option<String>,
}

/// Words as JSON.
fn value(words: &impl Serialize) -> Value {
    serde_json::to_value(words).unwrap_or_default()
}

/// The same back; what is unknown is skipped.
fn read<T: DeserializeOwned>(words: &Value) -> Option<T> {
    serde_json::from_value(words.clone()).ok()
}
