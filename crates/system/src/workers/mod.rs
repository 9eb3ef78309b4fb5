//! Processes that compute for the engine: PyTorch ranks, one per device, started by torchrun. The engine owns the run (data,
//! batches, losses, schedules, commands, checkpoints, the log); a rank holds a model and its optimizer and executes requests.
//! Every rank gets the same requests in the same order, so the ranks need not agree on anything.
//!
//! `frame` (bytes) → `group` (this machine's processes), `node` (those of others) → `worker_group` (one generation of ranks) → the engine's
//! `remote` (the requests). There are no models and losses here.

pub mod auto;
pub mod candle;
pub mod environment;
mod failure;
mod frame;
mod group;
pub mod install;
pub mod job;
mod launch;
pub mod node;
mod package;
pub mod torch;
mod worker_group;

pub use environment::{Environment, EnvironmentError};
pub use failure::{FailureKind, WorkerFailure};
pub use frame::{Frame, Header, bytes_of, bytes_of_ids, floats, numbers};
pub use launch::{Launch, Rendezvous, command};
pub use package::unpack;
pub use worker_group::{Answer, Limits, NodeLaunch, WorkerDirs, WorkerGroup, pieces};

/// Version of the protocol between engine and ranks; a worker with another version is rejected.
pub const PROTOCOL: u64 = 4;

/// Properties of an engine.
pub trait Compute: Send + Sync {
    /// Its settings, if it computes in PyTorch processes.
    fn torch(&self) -> Option<&torch::Config> {
        None
    }

    /// Whether the choice is made when a run starts.
    fn is_open(&self) -> bool {
        false
    }
}

crate::base::registry! {
    /// What computes.
    pub enum EngineConfig: dyn Compute { candle: Candle, torch: Torch, auto: Auto }
}
