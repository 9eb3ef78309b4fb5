//! The GGUF container: everything before the weights. Header, metadata and tensor list are read with
//! checked arithmetic and bounds from the file's length, so that no file can make this program allocate more than
//! a few times its size, divide by zero or read out of bounds. The weights are not interpreted here; `write` writes files,
//! `parts` finds the other files of a model that is split into several.
//!
//! Layout: ggml-org/ggml, docs/gguf.md, versions 2 and 3, little endian.

mod cursor;
mod kinds;
mod metadata;
mod parts;
mod tensors;
mod write;

pub use kinds::TensorKind;
pub use metadata::{Array, Metadata, Value};
pub use parts::{
    Part, PartName, PartsError, files_by_name, files_of, first_name, first_part, one_per_model,
    open_first, open_parts,
};
pub use tensors::TensorInfo;
pub use write::{NewTensor, write};

use crate::base::files::open_plain;
use cursor::Cursor;
use std::io::{BufReader, Read};
use std::path::Path;

/// The first four bytes of every file.
pub const MAGIC: [u8; 4] = *b"GGUF";

/// Default alignment of tensors.
const DEFAULT_ALIGNMENT: u64 = 32;

/// A file's contents without its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Gguf {
    pub version: u32,
    pub metadata: Metadata,
    /// In file order.
    pub tensors: Vec<TensorInfo>,
    /// Byte position that tensor offsets are relative to.
    pub data_start: u64,
}

/// Why a file is invalid.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("it does not start with GGUF")]
    Magic,
    #[error("its version is {0}; versions 2 and 3 are supported")]
    Version(u32),
    /// Position and cause.
    #[error("byte {at}: {what}")]
    Bad { at: u64, what: String },
}

impl Gguf {
    /// Reads everything before the weights.
    ///
    /// # Errors
    /// The first error, with its position.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        let file = open_plain(path)?;
        let length = file.metadata()?.len();
        Gguf::read(BufReader::with_capacity(1 << 16, file), length)
    }

    /// The same from a stream of `length` bytes, weights included.
    ///
    /// # Errors
    /// The first error, with its position.
    pub fn read(input: impl Read, length: u64) -> Result<Gguf, GgufError> {
        let mut cursor = Cursor::new(input, length);
        let mut magic = [0; 4];
        match cursor.fill(&mut magic) {
            Ok(()) if magic == MAGIC => {}
            Ok(()) | Err(GgufError::Bad { .. }) => return Err(GgufError::Magic),
            Err(e) => return Err(e),
        }
        let version = cursor.u32()?;
        if !matches!(version, 2 | 3) {
            return Err(GgufError::Version(version));
        }
        let n_tensors = cursor.count("tensors", tensors::LEAST_BYTES)?;
        let n_keys = cursor.count("keys", metadata::LEAST_BYTES)?;
        let metadata = Metadata::read(&mut cursor, n_keys)?;
        let alignment = match metadata.u64("general.alignment") {
            None => DEFAULT_ALIGNMENT,
            Some(a) if a >= 8 && a.is_power_of_two() && a <= 1 << 20 => a,
            Some(a) => {
                let what = format!("general.alignment is {a}, not a power of two from 8 on");
                return Err(cursor.bad(what));
            }
        };
        let mut list = Vec::with_capacity(n_tensors);
        for _ in 0..n_tensors {
            list.push(TensorInfo::read(&mut cursor, alignment)?);
        }
        let data_start = cursor.at().next_multiple_of(alignment);
        tensors::check_offsets(&list, data_start, length)?;
        Ok(Gguf {
            version,
            metadata,
            tensors: list,
            data_start,
        })
    }
}

#[cfg(test)]
mod tests;
