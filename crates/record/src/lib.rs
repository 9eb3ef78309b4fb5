//! A run as recorded in its log: the [`wire`], the [`run`] folder and its fold, the [`metrics`], the [`diagnosis`], logs
//! of other programs ([`watch`]), and a run's metrics as files of theirs ([`history`]). No tensors, no models: a viewer needs this and nothing that trains.

pub use llmtui_base as base;
#[cfg(test)]
use llmtui_kernels as kernels;

pub mod diagnosis;
pub mod history;
pub mod metrics;
pub mod run;
pub mod watch;
pub mod wire;
