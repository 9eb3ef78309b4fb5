//! llmtui: train a language model from a terminal, and know whether it goes well. This file is the map.
//!
//! A *run* is a directory whose truth is an append-only file of events. The *engine* turns a spec into events; the *UI*
//! is a fold over events; between them lies the *wire*. ARCHITECTURE.md tells the rest; `tests/house.rs` holds the rules.
//!
//! | layer | rooms | what they are for |
//! |---|---|---|
//! | 8 | [`cli`] | one file per verb |
//! | 7 | [`ui`] | the workbench: panes, overlays, widgets, keys, themes |
//! | 6 | [`link`] | ways to hold an engine: thread, socket, stdio, replay |
//! | 5 | [`engine`] | the training loop, preflight, checkpoints, inference |
//! | 5 | [`advisor`] | before a run: which method, the wizard's questions |
//! | 5 | [`plan`] | before a run: what it needs, takes and costs |
//! | 4 | [`spec`] | presets and overrides → a validated `RunSpec` |
//! | 3 | [`methods`] | what a loss is: one file per training method |
//! | 2 | [`nn`] [`hf`] [`llama_cpp`] [`optim`] [`data`] [`metrics`] | models, file formats, optimizers, batches, readings |
//! | 2 | [`diagnosis`] | how a training does: rules over the fold of its events, one verdict |
//! | 1 | [`run`] [`kernels`] [`hardware`] [`hub`] [`wire`] [`gguf`] | run directories and logs; fused operations; the machine; the Hugging Face hub; the vocabulary; GGUF files |
//! | 0 | [`base`] [`embed`] | clocks, files, random numbers, text; embedded files |

pub mod advisor;
pub mod base;
pub mod cli;
pub mod data;
pub mod diagnosis;
pub mod embed;
pub mod engine;
pub mod gguf;
pub mod hardware;
pub mod hf;
pub mod hub;
pub mod kernels;
pub mod link;
pub mod llama_cpp;
pub mod methods;
pub mod metrics;
pub mod nn;
pub mod optim;
pub mod plan;
pub mod run;
pub mod spec;
pub mod ui;
pub mod wire;
