//! Run directories: their names, their files, and the event log. Depends on the wire; independent of
//! models or screens.

pub mod checkpoints;
pub mod compare;
mod dir;
pub mod engine_time;
mod header;
pub mod id;
pub mod index;
pub mod layers;
pub mod lineage;
pub mod log;
pub mod newest_loss;
pub mod no_effect;
pub mod objective;
pub mod rank_times;
pub mod ranking;
mod recovered;
pub mod revisit;
pub mod rollback_buffer;
pub mod rollouts;
pub mod series;
pub mod smooth;
pub mod state;

pub use checkpoints::{CheckpointEntry, GIVEN_UP, KeptCheckpoint, is_abandoned};
pub use dir::{FileOperation, RunDir, RunError};
pub use header::{BRANCH_OF, Header, Holder, Parent};
pub use id::new_id;
pub use log::{LogError, LogSender, LogThread, LogWriter, Tail};
pub use series::Series;
pub use state::RunState;
