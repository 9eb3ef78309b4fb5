//! The workbench ([`ui`]) and its connections to engines ([`link`]). No tensors.

pub use llmtui_base as base;
pub use llmtui_data::data;
pub use llmtui_record::{diagnosis, metrics, run, watch, wire};
pub use llmtui_spec::{advisor, fleet, guide, pipeline, plan, spec, tasks};
pub use llmtui_system::{embed, gguf, hardware};

pub mod link;
pub mod ui;
