//! Models in GGUF files, as llama.cpp reads and writes them ⇄ our model: keys ⇄ config in `arch`, names of tensors in
//! `names`, weights in (`read`) and out (`write`). What a GGUF file is stands in `gguf`, what number formats mean in
//! `kernels::quant`; tokenizers in GGUF files are `data`'s matter.

mod arch;
mod keys;
mod names;
mod read;
mod write;

pub use read::{GgufModel, SpecialTokens, is_gguf};
pub use write::{Written, write};

use crate::base::text::one_line;
use std::path::{Path, PathBuf};

/// Why a model could not be read from a file or written to one.
#[derive(Debug, thiserror::Error)]
pub enum ModelFileError {
    #[error("{path}: {what}")]
    File { path: PathBuf, what: String },
    #[error("{0}")]
    Model(String),
}

impl ModelFileError {
    fn file(path: &Path, what: impl std::fmt::Display) -> ModelFileError {
        ModelFileError::File {
            path: path.to_path_buf(),
            what: one_line(&what.to_string()),
        }
    }
}

impl From<candle_core::Error> for ModelFileError {
    fn from(error: candle_core::Error) -> Self {
        // Behind the first line stands a backtrace, where the environment asks for one.
        let text = error.to_string();
        ModelFileError::Model(text.lines().next().unwrap_or_default().into())
    }
}

#[cfg(test)]
mod tests;
