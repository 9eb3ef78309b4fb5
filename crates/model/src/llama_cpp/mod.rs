//! Models in GGUF files, as llama.cpp reads and writes them ⇄ our model: keys ⇄ config in `arch`, tensor names in
//! `names`, weights in `read` and `write`, their bytes in one file or several in `tensors`. The GGUF container is in `gguf`,
//! number formats are in `kernels::quant`; tokenizers in GGUF files belong to `data`.

mod arch;
mod keys;
mod names;
mod read;
mod tensors;
mod write;

pub use crate::gguf::{PartName, files_by_name, files_of, first_name, first_part, one_per_model};
pub use read::{GgufModel, SpecialTokens, is_gguf};
pub use write::{Written, check_head, write};

use crate::base::text::one_line;
use crate::kernels::errors::error_text;
use crate::kernels::quant::Kind;
use std::path::{Path, PathBuf};

/// Whether weights in a number format, by its name in GGUF files, are read.
pub fn reads_format(name: &str) -> bool {
    Kind::ALL.iter().any(|kind| kind.name() == name)
}

/// Why a model could not be read from or written to a file.
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
        ModelFileError::Model(error_text(error))
    }
}

#[cfg(test)]
mod tests;
