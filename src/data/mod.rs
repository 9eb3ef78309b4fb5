//! From text to batches: sources, tokenizers, splits, windows.

mod config;
mod dataset;
mod error;
mod permute;
mod source;
pub mod tokenizer;

pub use config::{DataConfig, Order};
pub use dataset::{Batch, Dataset};
pub use error::DataError;
pub use tokenizer::{TextStream, Tokenizer};
