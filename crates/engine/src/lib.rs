//! Training itself: the loop with everything it needs ([`engine`]), metrics measured inside a model ([`probes`]), and
//! preparing a model folder for publication ([`release`]). No terminal, no tokio.

pub use llmtui_base as base;
pub use llmtui_data::data;
pub use llmtui_kernels as kernels;
pub use llmtui_model::{hf, llama_cpp, merging, nn, optim};
pub use llmtui_record::{diagnosis, metrics, run, wire};
use llmtui_spec::plan;
pub use llmtui_spec::{methods, models, rewards, spec, tasks};
#[cfg(test)]
use llmtui_system::embed;
pub use llmtui_system::{gguf, hardware, hub, workers};

pub mod engine;
pub mod probes;
pub mod release;
