//! From text to batches: sources, tokenizers, splits, the loader.

mod config;
pub mod tokenizer;

pub use config::{DataConfig, Order};
