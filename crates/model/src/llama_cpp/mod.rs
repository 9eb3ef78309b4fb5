//! Models in GGUF files, as llama.cpp reads and writes them ⇄ our model: keys ⇄ config in `arch`, tensor names in
//! `names`, weights in `read` and `write`, their bytes in one file or several in `tensors`. The GGUF container is in `gguf`,
//! number formats are in `kernels::quant`; tokenizers in GGUF files belong to `data`.

mod arch;
mod keys;
mod latents;
mod names;
mod read;
mod tensors;
mod write;

pub use crate::gguf::{PartName, files_by_name, files_of, first_name, first_part, one_per_model};
pub use read::{GgufModel, SpecialTokens, is_gguf};
pub use write::{Written, check_head, check_model, write};

use crate::base::text::one_line;
use crate::kernels::errors::error_text;
use crate::kernels::quant::Kind;
use std::path::{Path, PathBuf};

/// Whether weights in a number format, by its name in GGUF files, are read.
pub fn reads_format(name: &str) -> bool {
    Kind::ALL.iter().any(|kind| kind.name() == name)
}

/// Whether models of the architecture are read that the beginning of a file names; a file may name it later, or be none.
///
/// # Errors
/// They are not, and which are.
pub fn check_beginning(bytes: &[u8]) -> Result<(), String> {
    const KEY: &[u8] = b"general.architecture";
    // ggml's type of a string value, little endian, then its length and its text.
    const STRING: [u8; 4] = 8_u32.to_le_bytes();
    let text = || {
        let at = bytes.windows(KEY.len()).position(|part| part == KEY)?;
        let (kind, rest) = bytes[at + KEY.len()..].split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let text = rest.get(..length).filter(|_| *kind == STRING)?;
        std::str::from_utf8(text).ok()
    };
    match text().filter(|_| bytes.starts_with(&crate::gguf::MAGIC)) {
        Some(name) => arch::named(name).map(|_| ()),
        None => Ok(()),
    }
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
