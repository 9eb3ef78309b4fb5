//! From text to batches: sources, tokenizers, splits, windows.

mod batch;
pub mod chat;
mod config;
pub mod convert;
mod dataset;
mod error;
mod example;
mod examples;
pub mod formats;
pub mod inspect;
mod loader;
mod parsers;
mod permute;
pub mod render;
pub mod sink;
pub mod source;
pub mod synthetic;
pub mod tokenizer;
mod tokens;

pub use batch::Batch;
pub use config::{DataConfig, Order};
pub use dataset::Dataset;
pub use error::{DataError, RowFault};
pub use example::{Content, Example, Message, Place, Record, Turns};
pub use examples::{Examples, OnBadRow, Skipped, examples};
pub use loader::{Loader, Prefetch, Rhythm, StepBatches};
pub use parsers::PARSERS;
pub use tokenizer::{TextStream, Tokenizer};
pub use tokens::Document;
