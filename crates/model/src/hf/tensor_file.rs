//! Reads safetensors files: the header is size-limited and validated first; values are read on demand, a piece at a time. Not
//! memory-mapped: truncating a mapped file kills the process that reads it, and checkpoints are read during training.

use super::dtype::Stored;
use crate::base::files::open_plain;
use crate::base::text::one_line;
use safetensors::tensor::Metadata;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Largest accepted header: a malicious one must not make us allocate gigabytes.
const MAX_HEADER_BYTES: u64 = 16 << 20;

/// The dtypes of tensors that are numbers by themselves.
const DTYPES: &str = "F32, F16 or BF16";

/// Bytes read at a time.
const PIECE: usize = 1 << 20;

/// Why tensors could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TensorFileError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not a complete safetensors file: {what}")]
    Malformed { path: PathBuf, what: String },
    #[error("{path}: tensor `{tensor}` is missing; the model expects it with shape {expected:?}")]
    Missing {
        path: PathBuf,
        tensor: String,
        expected: Vec<usize>,
    },
    #[error("{path}: tensor `{tensor}` has {found}, expected {expected}")]
    Mismatch {
        path: PathBuf,
        tensor: String,
        found: String,
        expected: String,
    },
    #[error("{path}: {what}")]
    Folder { path: PathBuf, what: String },
}

/// One tensor of a file.
#[derive(Debug, Clone)]
struct Place {
    dtype: safetensors::Dtype,
    shape: Vec<usize>,
    /// First byte after the header.
    from: usize,
}

/// A located tensor: its bytes are within the file, whose length was validated when it was opened.
struct Found {
    dtype: Stored,
    from: u64,
    /// Number of values.
    len: usize,
}

/// An open safetensors file.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: File,
    /// Start of the data.
    start: usize,
    index: HashMap<String, Place>,
    words: HashMap<String, String>,
}

impl TensorFile {
    /// Opens a file and validates its header against its size.
    ///
    /// # Errors
    /// An invalid header; tensors that overlap, leave gaps, or have sizes other than their shapes; a file
    /// shorter or longer than its header states.
    pub fn open(path: &Path) -> Result<TensorFile, TensorFileError> {
        let io = |source| TensorFileError::Io {
            path: path.into(),
            source,
        };
        let malformed = |what: String| TensorFileError::Malformed {
            path: path.into(),
            what: one_line(&what),
        };
        let mut file = open_plain(path).map_err(io)?;
        let text = header(path, &mut file)?;
        // Rejects tensors that overlap, leave gaps, or have sizes other than their shapes.
        let heads: Metadata =
            serde_json::from_slice(&text).map_err(|e| malformed(e.to_string()))?;
        let whole = file.metadata().map_err(io)?.len();
        let start = 8 + text.len();
        let wanted = start.saturating_add(heads.data_len());
        if wanted as u64 != whole {
            return Err(malformed(format!(
                "{whole} bytes, but its header describes {wanted}"
            )));
        }
        let index = heads.tensors().into_iter().map(|(name, info)| {
            let place = Place {
                dtype: info.dtype,
                shape: info.shape.clone(),
                from: info.data_offsets.0,
            };
            (name, place)
        });
        Ok(TensorFile {
            path: path.into(),
            words: heads.metadata().clone().unwrap_or_default(),
            index: index.collect(),
            file,
            start,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A metadata value of the header, by key.
    pub fn word(&self, key: &str) -> Option<&str> {
        self.words.get(key).map(String::as_str)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.index.contains_key(name)
    }

    /// The shape of a tensor, if present.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.index.get(name).map(|place| place.shape.as_slice())
    }

    /// Checks a tensor's shape and dtype without reading it.
    ///
    /// # Errors
    /// A tensor that is absent, or has another shape or an unknown number format.
    pub fn expect(&self, name: &str, expected: &[usize]) -> Result<(), TensorFileError> {
        self.find(name, expected).map(|_| ())
    }

    /// The dtype of a tensor, if it is present and known.
    pub fn stored(&self, name: &str) -> Option<Stored> {
        Stored::of(self.index.get(name)?.dtype)
    }

    /// The dtype of a tensor after validation, the offset of its bytes, and its number of values.
    fn find(&self, name: &str, expected: &[usize]) -> Result<Found, TensorFileError> {
        let found = self.find_stored(name, expected)?;
        match found.dtype {
            Stored::Plain(_) => Ok(found),
            _ => {
                let found = format!("dtype {:?} without scales", self.index[name].dtype);
                Err(self.mismatch(name, found, DTYPES.into()))
            }
        }
    }

    /// The same for a tensor of any dtype that is read.
    fn find_stored(&self, name: &str, expected: &[usize]) -> Result<Found, TensorFileError> {
        let Some(place) = self.index.get(name) else {
            return Err(TensorFileError::Missing {
                path: self.path.clone(),
                tensor: name.into(),
                expected: expected.to_vec(),
            });
        };
        if place.shape != expected {
            let found = format!("shape {:?}", place.shape);
            let expected = format!("{expected:?} according to the model's config");
            return Err(self.mismatch(name, found, expected));
        }
        let Some(dtype) = Stored::of(place.dtype) else {
            let found = format!("dtype {:?}", place.dtype);
            return Err(self.mismatch(name, found, DTYPES.into()));
        };
        Ok(Found {
            dtype,
            from: (self.start + place.from) as u64,
            len: place.shape.iter().product(),
        })
    }

    pub(super) fn mismatch(&self, name: &str, found: String, expected: String) -> TensorFileError {
        TensorFileError::Mismatch {
            path: self.path.clone(),
            tensor: one_line(name),
            found,
            expected,
        }
    }

    /// The values of a tensor as f32; the shape must match.
    ///
    /// # Errors
    /// A tensor that is absent, or has another shape or an unknown number format; a file that cannot be read.
    pub fn read(&self, name: &str, expected: &[usize]) -> Result<Vec<f32>, TensorFileError> {
        let found = self.find(name, expected)?;
        let mut values = vec![0.0; found.len];
        self.widen(found.dtype, found.from, &mut values)?;
        Ok(values)
    }

    /// Reads as many values as `into` holds, from byte `from` of the file on.
    fn widen(&self, dtype: Stored, from: u64, into: &mut [f32]) -> Result<(), TensorFileError> {
        let mut bytes = vec![0; PIECE.min(into.len() * dtype.size())];
        let mut at = from;
        for into in into.chunks_mut(PIECE / dtype.size()) {
            let bytes = &mut bytes[..into.len() * dtype.size()];
            self.read_at(bytes, at)?;
            dtype.widen(bytes, into);
            at += bytes.len() as u64;
        }
        Ok(())
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<(), TensorFileError> {
        let read = self.file.read_exact_at(bytes, at);
        read.map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => TensorFileError::Malformed {
                path: self.path.clone(),
                what: "it was cut while it was read".into(),
            },
            _ => TensorFileError::Io {
                path: self.path.clone(),
                source,
            },
        })
    }

    /// Checks a tensor of bytes (U8) without reading it.
    ///
    /// # Errors
    /// A tensor that is absent, or has another shape or dtype.
    pub fn expect_bytes(&self, name: &str, expected: &[usize]) -> Result<(), TensorFileError> {
        self.bytes_from(name, expected).map(|_| ())
    }

    fn bytes_from(&self, name: &str, expected: &[usize]) -> Result<usize, TensorFileError> {
        match self.index.get(name) {
            Some(place) if place.shape == expected && place.dtype == safetensors::Dtype::U8 => {
                Ok(place.from)
            }
            Some(place) => {
                let found = format!("dtype {:?} and shape {:?}", place.dtype, place.shape);
                Err(self.mismatch(name, found, format!("U8 and {expected:?}")))
            }
            None => Err(TensorFileError::Missing {
                path: self.path.clone(),
                tensor: name.into(),
                expected: expected.to_vec(),
            }),
        }
    }

    /// Fills `into` with bytes of a tensor of bytes, from byte `first` on; it has at least that many.
    ///
    /// # Errors
    /// As [`TensorFile::expect_bytes`]; fewer bytes than that; a file that cannot be read.
    pub fn read_bytes(
        &self,
        (name, expected): (&str, &[usize]),
        first: usize,
        into: &mut [u8],
    ) -> Result<(), TensorFileError> {
        let from = self.bytes_from(name, expected)?;
        let len: usize = expected.iter().product();
        if first.saturating_add(into.len()) > len {
            let wanted = format!("at least {} bytes", first.saturating_add(into.len()));
            return Err(self.mismatch(name, format!("{len} bytes"), wanted));
        }
        self.read_at(into, (self.start + from + first) as u64)
    }

    /// Checks the shape of a tensor of any dtype that is read.
    ///
    /// # Errors
    /// A tensor that is absent, or has another shape or an unknown number format.
    pub fn expect_stored(&self, name: &str, expected: &[usize]) -> Result<(), TensorFileError> {
        self.find_stored(name, expected).map(|_| ())
    }

    /// [`TensorFile::read_part`] of a tensor of any dtype that is read, without its scales.
    ///
    /// # Errors
    /// As there.
    pub fn read_stored(
        &self,
        name: &str,
        expected: &[usize],
        first: usize,
        into: &mut [f32],
    ) -> Result<(), TensorFileError> {
        let found = self.find_stored(name, expected)?;
        self.read_found(name, &found, first, into)
    }

    /// Reads a tensor into `into`, which has its number of values.
    ///
    /// # Errors
    /// A tensor that is absent, or has another shape or an unknown number format; another number of values than `into`
    /// has; a file that cannot be read.
    pub fn read_into(
        &self,
        name: &str,
        expected: &[usize],
        into: &mut [f32],
    ) -> Result<(), TensorFileError> {
        let len = self.find(name, expected)?.len;
        if into.len() != len {
            let expected = format!("{} values", into.len());
            return Err(self.mismatch(name, format!("{len} values"), expected));
        }
        self.read_part(name, expected, 0, into)
    }

    /// Reads values from index `first` on into `into`; the tensor has at least that many.
    ///
    /// # Errors
    /// A tensor that is absent, or has another shape or an unknown number format; fewer values than that; a file that
    /// cannot be read.
    pub fn read_part(
        &self,
        name: &str,
        expected: &[usize],
        first: usize,
        into: &mut [f32],
    ) -> Result<(), TensorFileError> {
        let found = self.find(name, expected)?;
        self.read_found(name, &found, first, into)
    }

    fn read_found(
        &self,
        name: &str,
        found: &Found,
        first: usize,
        into: &mut [f32],
    ) -> Result<(), TensorFileError> {
        if first.saturating_add(into.len()) > found.len {
            let expected = format!("at least {}", first.saturating_add(into.len()));
            let found = format!("{} values", found.len);
            return Err(self.mismatch(name, found, expected));
        }
        let from = found.from + (first * found.dtype.size()) as u64;
        self.widen(found.dtype, from, into)
    }
}

/// The header's text.
fn header(path: &Path, file: &mut File) -> Result<Vec<u8>, TensorFileError> {
    let malformed = |what: String| TensorFileError::Malformed {
        path: path.into(),
        what,
    };
    let mut length = [0; 8];
    file.read_exact(&mut length)
        .map_err(|_| malformed("shorter than its 8-byte header length".into()))?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER_BYTES {
        return Err(malformed(format!(
            "a header of {length} bytes is over the limit of {MAX_HEADER_BYTES}"
        )));
    }
    let mut text = vec![0; length as usize];
    file.read_exact(&mut text)
        .map_err(|_| malformed("shorter than its header".into()))?;
    Ok(text)
}
