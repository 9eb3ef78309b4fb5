//! What a viewer may ask of an engine. Every command gets an answer event, `Accepted` or `Rejected`, with its id.

use crate::base::sampling::Sampling;
use serde::{Deserialize, Serialize};

/// Chosen by the sender, unique within its connection; the answer event carries it.
pub type CommandId = u64;

/// A command with its id: one line on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: CommandId,
    #[serde(flatten)]
    pub command: Command,
}

/// When a stop takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopWhen {
    /// After the current step, without a checkpoint.
    Now,
    /// After a checkpoint of the current step.
    AfterCheckpoint,
}

/// The imperative half of the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Command {
    Pause,
    Resume,
    Stop {
        when: StopWhen,
    },
    Checkpoint,
    Evaluate,
    /// A sample of the weights in training; answered by `Sampled`.
    Sample {
        prompt: String,
        #[serde(default)]
        sampling: Sampling,
    },
    /// Stream a completion token by token; only inference engines accept it. Answered by `Token` events.
    Generate {
        prompt: String,
        #[serde(default)]
        sampling: Sampling,
    },
    /// End the `Generate` of that id early.
    Cancel {
        target: CommandId,
    },
    /// Change a live setting, e.g. `lr` or `clip_norm`; answered by `Adjusted`.
    Adjust {
        key: String,
        value: f64,
    },
    /// Go back to a kept checkpoint.
    Rollback {
        step: u64,
    },
    Note {
        text: String,
    },
    /// Send every event from this sequence number on, then follow.
    Subscribe {
        from_seq: u64,
    },
    /// The viewer leaves; the run goes on.
    Detach,
    Ping,
}
