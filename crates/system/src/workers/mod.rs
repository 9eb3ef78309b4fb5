//! Processes that compute for the engine: ranks of PyTorch, one for each device, started by torchrun. The engine keeps the run (data,
//! batches, losses, schedules, commands, checkpoints, the log); a rank holds a model and its optimizer and does what it is asked.
//! Every rank is asked the same things in the same order, so there is nothing for them to agree on.
//!
//! `frame` (bytes) → `group` (this machine's processes), `node` (those of others) → `gang` (one generation of ranks) → the engine's
//! `remote` (what is asked). Here is no model and no loss.

pub mod auto;
pub mod candle;
pub mod environment;
mod frame;
mod gang;
mod group;
pub mod install;
pub mod job;
mod launch;
mod lost;
pub mod node;
mod package;
pub mod torch;

pub use environment::{Environment, EnvironmentError};
pub use frame::{Frame, Header, bytes_of, bytes_of_ids, floats, numbers};
pub use gang::{Answer, Crew, Gang, Limits, Place, pieces};
pub use launch::{Launch, Meeting, command};
pub use lost::{Lost, LostKind};
pub use package::unpack;

/// Version of what is said between engine and ranks; a worker of another is refused.
pub const PROTOCOL: u64 = 2;

/// What an engine says of itself.
pub trait Compute: Send + Sync {
    /// Its settings, where it computes in processes of PyTorch.
    fn torch(&self) -> Option<&torch::Config> {
        None
    }

    /// Whether the start of a run decides.
    fn is_open(&self) -> bool {
        false
    }
}

crate::base::registry! {
    /// What computes.
    pub enum EngineConfig: dyn Compute { candle: Candle, torch: Torch, auto: Auto }
}
