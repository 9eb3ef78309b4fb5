//! llmtui: train a language model from a terminal, and know whether it is learning. This file is the map.
//!
//! A *run* is a directory whose source of truth is an append-only log of events. The *engine* turns a spec into events; the
//! *UI* is a fold over events; between them is the *wire*. ARCHITECTURE.md says what each room contains, in its table of layers;
//! `tests/house` enforces the rules.
//!
//! | crate | rooms |
//! |---|---|
//! | this one | [`cli`] |
//! | `crates/ui` | [`ui`] [`link`] |
//! | `crates/engine` | [`engine`] [`probes`] [`release`] |
//! | `crates/spec` | [`spec`] [`methods`] [`rewards`] [`models`] [`tasks`] [`plan`] [`advisor`] [`pipeline`] [`guide`] [`report`] [`fleet`] |
//! | `crates/model` | [`nn`] [`optim`] [`hf`] [`llama_cpp`] [`merging`] |
//! | `crates/data` | [`data`] |
//! | `crates/system` | [`hardware`] [`hub`] [`workers`] [`sandbox`] [`gguf`] [`embed`] |
//! | `crates/record` | [`run`] [`wire`] [`metrics`] [`diagnosis`] [`watch`] [`history`] |
//! | `crates/kernels`, `crates/base` | [`kernels`] [`base`] |

/// Clocks, files, random numbers, text: what every room may use.
pub use llmtui_base as base;
pub use llmtui_data::data;
pub use llmtui_engine::{engine, probes, release};
/// Fused operations and their composites.
pub use llmtui_kernels as kernels;
pub use llmtui_model::{hf, llama_cpp, merging, nn, optim};
pub use llmtui_record::{diagnosis, history, metrics, run, watch, wire};
pub use llmtui_spec::{
    advisor, fleet, guide, methods, models, pipeline, plan, report, rewards, spec, tasks,
};
pub use llmtui_system::{embed, gguf, hardware, hub, sandbox, workers};
pub use llmtui_ui::{link, ui};

pub mod cli;
