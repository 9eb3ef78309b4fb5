//! llmtui: train a language model from a terminal, and know whether it is learning. This file is the map.
//!
//! A *run* is a directory whose source of truth is an append-only log of events. The *engine* turns a spec into events; the
//! *UI* is a fold over events; between them is the *wire*. See ARCHITECTURE.md for the rest; `tests/house.rs` enforces the rules.
//!
//! | layer | rooms | purpose |
//! |---|---|---|
//! | 8 | [`cli`] | one file per subcommand |
//! | 7 | [`ui`] | the workbench: panes, overlays, widgets, keys, themes |
//! | 6 | [`link`] | connections to an engine: thread, socket, stdio, replay |
//! | 6 | [`guide`] | short pages that answer one question each, with the facts of machine, spec and run |
//! | 6 | [`release`] | a model folder as a stranger meets it: checks, the folder that goes up |
//! | 5 | [`fleet`] | the runs of other machines, over ssh |
//! | 5 | [`engine`] | the training loop, preflight, checkpoints, inference |
//! | 5 | [`report`] | a run written down: one HTML file, or Markdown |
//! | 5 | [`pipeline`] | several trainings and what follows them, as one |
//! | 5 | [`advisor`] | before a run: which method, the wizard's questions |
//! | 5 | [`plan`] | before a run: memory, time and cost |
//! | 4 | [`tasks`] | evaluation tasks: what a model is asked and how its answers count |
//! | 4 | [`spec`] | presets and overrides → a validated `RunSpec` |
//! | 3 | [`methods`] | losses, one file per training method |
//! | 3 | [`rewards`] | what an answer is worth, one file per rule |
//! | 3 | [`probes`] | metrics that look inside the model while it trains |
//! | 3 | [`models`] | where a model comes from: a folder, a GGUF file, the hub |
//! | 2 | [`nn`] [`hf`] [`llama_cpp`] [`optim`] [`data`] [`metrics`] | models, file formats, optimizers, batches, metrics |
//! | 3 | [`workers`] | ranks of PyTorch: started, asked, watched over, ended |
//! | 3 | [`watch`] | logs of runs that other programs started, as events |
//! | 2 | [`diagnosis`] | how a training goes: rules over the fold of its events, one verdict |
//! | 1 | [`run`] [`kernels`] [`hardware`] [`hub`] [`wire`] [`gguf`] [`sandbox`] | run directories and logs; fused operations; the machine; the Hugging Face hub; the protocol; GGUF files; programs that nobody has read |
//! | 0 | [`base`] [`embed`] | clocks, files, random numbers, text; embedded files |

/// Clocks, files, random numbers, text: what every room may use.
pub use llmtui_base as base;
pub use llmtui_data::data;
pub use llmtui_engine::{engine, probes, release};
/// Fused operations and their composites.
pub use llmtui_kernels as kernels;
pub use llmtui_model::{hf, llama_cpp, nn, optim};
pub use llmtui_record::{diagnosis, metrics, run, watch, wire};
pub use llmtui_spec::{
    advisor, fleet, guide, methods, models, pipeline, plan, report, rewards, spec, tasks,
};
pub use llmtui_system::{embed, gguf, hardware, hub, sandbox, workers};
pub use llmtui_ui::{link, ui};

pub mod cli;
