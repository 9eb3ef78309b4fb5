//! A run before it starts: the [`spec`], model sources ([`models`]), losses ([`methods`]) and [`rewards`], [`tasks`], the
//! [`plan`], the [`advisor`], [`pipeline`]s, the [`guide`], and reports of runs ([`report`]). Nothing here trains.

pub use llmtui_base as base;
pub use llmtui_data::data;
pub use llmtui_model::{hf, llama_cpp, nn, optim};
pub use llmtui_record::{diagnosis, metrics, run, wire};
pub use llmtui_system::{embed, hardware, hub, sandbox, workers};
#[cfg(test)]
use {llmtui_kernels as kernels, llmtui_system::gguf};

pub mod advisor;
pub mod fleet;
pub mod guide;
pub mod methods;
pub mod models;
pub mod pipeline;
pub mod plan;
pub mod report;
pub mod rewards;
pub mod spec;
pub mod tasks;
