//! Everything that leaves [`super::app::App::update`]: the runtime does it, and what comes of it returns as a message.

use super::msg::{Asked, Slot};
use crate::wire::Command;
use std::path::PathBuf;

/// What leaves.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Start a run of a preset or spec file and hold it as `slot`.
    StartRun {
        slot: Slot,
        target: String,
    },
    /// Start the engine of a run that ended early, from its newest checkpoint, and hold it.
    ResumeRun {
        slot: Slot,
        run_dir: PathBuf,
    },
    /// Hold a run: live when an engine has it, else its log.
    Attach {
        slot: Slot,
        run_dir: PathBuf,
    },
    /// Hold an inference engine for a checkpoint.
    OpenChat {
        slot: Slot,
        checkpoint: PathBuf,
    },
    /// Let a link go; its engine goes on (an inference engine ends).
    Detach {
        slot: Slot,
    },
    Send {
        slot: Slot,
        asked: Asked,
        command: Command,
    },
    RefreshRuns,
    ListCheckpoints,
    /// Draw every cell again.
    Redraw,
    /// Give the terminal back to the shell until `fg`.
    Suspend,
    Quit,
}
