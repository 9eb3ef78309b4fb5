//! Reading and writing safetensors files: f32 tensors, written as a stream while their SHA-256 is taken, read whole
//! (never memory-mapped: a file truncated under a map kills the process).

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};

/// Largest accepted header: a hostile one must not make us hold gigabytes.
const MAX_HEADER_BYTES: u64 = 16 << 20;
/// Values converted at a time.
const CHUNK: usize = 16 * 1024;

/// Why tensors could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TensorFileError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not a whole safetensors file: {what}")]
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
}

/// One tensor to write: row-major f32.
#[derive(Debug, Clone)]
pub struct NamedTensor<'a> {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: std::borrow::Cow<'a, [f32]>,
}

/// Writes a safetensors file and fsyncs it.
pub fn write(path: &Path, tensors: &[NamedTensor<'_>]) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 18, File::create(path)?);
    write_to(&mut file, tensors)?;
    file.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()
}

/// The format: header length (u64 LE), header (JSON, padded by spaces to 8 bytes), data.
pub fn write_to(out: &mut dyn Write, tensors: &[NamedTensor<'_>]) -> io::Result<()> {
    let mut header = serde_json::Map::new();
    header.insert("__metadata__".into(), serde_json::json!({"format": "pt"}));
    let mut offset = 0usize;
    for tensor in tensors {
        let end = offset + tensor.values.len() * 4;
        header.insert(
            tensor.name.clone(),
            serde_json::json!({"dtype": "F32", "shape": tensor.shape, "data_offsets": [offset, end]}),
        );
        offset = end;
    }
    let mut header = serde_json::to_vec(&header)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    let mut buffer = Vec::with_capacity(CHUNK * 4);
    for tensor in tensors {
        for chunk in tensor.values.chunks(CHUNK) {
            buffer.clear();
            buffer.extend(chunk.iter().flat_map(|x| x.to_le_bytes()));
            out.write_all(&buffer)?;
        }
    }
    Ok(())
}

/// A safetensors file in memory.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    bytes: Vec<u8>,
    /// Name → (dtype, shape, byte range).
    index: HashMap<String, (Dtype, Vec<usize>, std::ops::Range<usize>)>,
}

impl TensorFile {
    pub fn open(path: &Path) -> Result<TensorFile, TensorFileError> {
        let io = |source| TensorFileError::Io {
            path: path.into(),
            source,
        };
        let malformed = |what: String| TensorFileError::Malformed {
            path: path.into(),
            what,
        };
        let mut file = File::open(path).map_err(io)?;
        let mut length = [0; 8];
        file.read_exact(&mut length)
            .map_err(|_| malformed("shorter than its 8-byte header length".into()))?;
        let header = u64::from_le_bytes(length);
        if header > MAX_HEADER_BYTES {
            return Err(malformed(format!(
                "a header of {header} bytes is over the limit of {MAX_HEADER_BYTES}"
            )));
        }
        let mut bytes = length.to_vec();
        file.read_to_end(&mut bytes).map_err(io)?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|e| malformed(e.to_string()))?;
        let start = bytes.as_ptr() as usize;
        let index = tensors
            .iter()
            .map(|(name, view)| {
                let from = view.data().as_ptr() as usize - start;
                let range = from..from + view.data().len();
                (
                    name.to_string(),
                    (view.dtype(), view.shape().to_vec(), range),
                )
            })
            .collect();
        Ok(TensorFile {
            path: path.into(),
            bytes,
            index,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.index.contains_key(name)
    }

    /// The values of one tensor as f32 (bf16 and f16 are widened); the shape must be the expected one.
    pub fn read(&self, name: &str, expected: &[usize]) -> Result<Vec<f32>, TensorFileError> {
        let Some((dtype, shape, range)) = self.index.get(name) else {
            return Err(TensorFileError::Missing {
                path: self.path.clone(),
                tensor: name.into(),
                expected: expected.to_vec(),
            });
        };
        let mismatch = |found: String, expected: String| TensorFileError::Mismatch {
            path: self.path.clone(),
            tensor: name.into(),
            found,
            expected,
        };
        if shape != expected {
            return Err(mismatch(
                format!("shape {shape:?}"),
                format!("{expected:?} as the model's config says"),
            ));
        }
        let data = &self.bytes[range.clone()];
        match dtype {
            Dtype::F32 => Ok(widen(data, |b: [u8; 4]| f32::from_le_bytes(b))),
            Dtype::BF16 => Ok(widen(data, |b: [u8; 2]| {
                f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)
            })),
            other => Err(mismatch(format!("dtype {other:?}"), "F32 or BF16".into())),
        }
    }

    /// The values of a tensor whose length alone is known: optimizer moments.
    pub fn read_flat(&self, name: &str) -> Result<Vec<f32>, TensorFileError> {
        let shape = self
            .index
            .get(name)
            .map(|(_, shape, _)| shape.clone())
            .unwrap_or_default();
        self.read(name, &shape)
    }
}

fn widen<const N: usize>(data: &[u8], f: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    data.as_chunks::<N>().0.iter().map(|b| f(*b)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, shape: &[usize], values: &[f32]) -> NamedTensor<'static> {
        NamedTensor {
            name: name.into(),
            shape: shape.to_vec(),
            values: values.to_vec().into(),
        }
    }

    #[test]
    fn what_is_written_is_read_bit_for_bit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        let odd = [f32::NAN, -0.0, 1e-42, f32::INFINITY];
        write(
            &path,
            &[
                tensor("b", &[3], &[1.0, 2.0, 3.0]),
                tensor("a", &[2, 2], &odd),
            ],
        )
        .unwrap();
        let file = TensorFile::open(&path).unwrap();
        let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(file.read("a", &[2, 2]).unwrap()), bits(odd.to_vec()));
        assert_eq!(file.read("b", &[3]).unwrap(), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn errors_name_file_tensor_and_expectation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        write(&path, &[tensor("w", &[2, 3], &[0.0; 6])]).unwrap();
        let file = TensorFile::open(&path).unwrap();
        let wrong = file.read("w", &[3, 2]).unwrap_err().to_string();
        assert!(
            wrong.contains("a.safetensors") && wrong.contains("[2, 3]") && wrong.contains("[3, 2]"),
            "{wrong}"
        );
        let missing = file.read("v", &[1]).unwrap_err().to_string();
        assert!(
            missing.contains("`v` is missing") && missing.contains("[1]"),
            "{missing}"
        );
    }

    #[test]
    fn a_cut_file_and_a_huge_header_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        write(&path, &[tensor("w", &[8], &[0.0; 8])]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for cut in [0, 4, 9, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(TensorFile::open(&path).is_err(), "cut at {cut}");
        }
        std::fs::write(&path, u64::MAX.to_le_bytes()).unwrap();
        let error = TensorFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("limit"), "{error}");
    }

    #[test]
    fn bf16_is_widened() {
        assert_eq!(
            widen(&[0x80, 0x3f, 0x00, 0xc0], |b: [u8; 2]| f32::from_bits(
                u32::from(u16::from_le_bytes(b)) << 16
            )),
            [1.0, -2.0]
        );
    }
}
