//! A run as its log tells it: what is said over the [`wire`], the [`run`] folder and its fold, what [`metrics`] mean, the [`diagnosis`],
//! and runs that other programs log ([`watch`]). No tensors, no models: a viewer needs this and nothing that trains.

pub use llmtui_base as base;
#[cfg(test)]
use llmtui_kernels as kernels;

pub mod diagnosis;
pub mod metrics;
pub mod run;
pub mod watch;
pub mod wire;
