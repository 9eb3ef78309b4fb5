//! GGUF files: what stands in front of the weights. The header, the metadata and the list of tensors are read with
//! checked arithmetic and bounds taken from the file's own length, so that no file can make this program allocate more than
//! a few times its size, divide by zero or point outside of itself. What weights mean is not known here; `write` makes files.
//!
//! Layout: ggml-org/ggml, docs/gguf.md, versions 2 and 3, little endian.

mod cursor;
mod kinds;
mod metadata;
mod tensors;
mod write;

pub use kinds::TensorKind;
pub use metadata::{Array, Metadata, Value};
pub use tensors::TensorInfo;
pub use write::{NewTensor, write};

use cursor::Cursor;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// The first four bytes of every file.
pub const MAGIC: [u8; 4] = *b"GGUF";

/// Where no key says otherwise, tensors begin at multiples of this.
const DEFAULT_ALIGNMENT: u64 = 32;

/// A file without its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Gguf {
    pub version: u32,
    pub metadata: Metadata,
    /// In the order of the file.
    pub tensors: Vec<TensorInfo>,
    /// Byte of the file at which tensor offsets begin to count.
    pub data_start: u64,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("it does not begin with GGUF")]
    Magic,
    #[error("its version is {0}; versions 2 and 3 are known")]
    Version(u32),
    /// Place and cause.
    #[error("byte {at}: {what}")]
    Bad { at: u64, what: String },
}

impl Gguf {
    /// Reads the head of a file.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Gguf::read(BufReader::with_capacity(1 << 16, file), length)
    }

    /// Reads the head from a stream of `length` bytes, weights included.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
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
        tensors::check_places(&list, data_start, length)?;
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
