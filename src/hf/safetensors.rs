//! Reading and writing safetensors files: f32 tensors, written as a stream while their SHA-256 is taken, read tensor by
//! tensor into place (never memory-mapped: a file truncated under a map kills the process).

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::Metadata;

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

/// A tensor to write: row-major f32.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorHead {
    pub name: String,
    pub shape: Vec<usize>,
}

/// Takes the values of tensors, in the order of their heads.
pub struct TensorSink<'a> {
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
    written: usize,
}

impl TensorSink<'_> {
    /// The next values; one tensor may come in several portions.
    pub fn put(&mut self, values: &[f32]) -> io::Result<()> {
        for chunk in values.chunks(CHUNK) {
            self.buffer.clear();
            self.buffer
                .extend(chunk.iter().flat_map(|x| x.to_le_bytes()));
            self.out.write_all(&self.buffer)?;
        }
        self.written += values.len();
        Ok(())
    }
}

/// Writes the format: header length (u64 LE), header (JSON, padded by spaces to 8 bytes), data, which `fill` puts into the
/// sink. Holds one chunk, whatever the size.
///
/// # Errors
/// What the writer says; and where `fill` put more or fewer values than the heads announce.
pub fn write_to(
    out: &mut dyn Write,
    heads: &[TensorHead],
    fill: &mut dyn FnMut(&mut TensorSink<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut header = serde_json::Map::new();
    header.insert("__metadata__".into(), serde_json::json!({"format": "pt"}));
    let mut offset = 0usize;
    for head in heads {
        let end = offset + head.shape.iter().product::<usize>() * 4;
        header.insert(
            head.name.clone(),
            serde_json::json!({"dtype": "F32", "shape": head.shape, "data_offsets": [offset, end]}),
        );
        offset = end;
    }
    let mut header = serde_json::to_vec(&header)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    let mut sink = TensorSink {
        out,
        buffer: Vec::with_capacity(CHUNK * 4),
        written: 0,
    };
    fill(&mut sink)?;
    if sink.written * 4 != offset {
        return Err(io::Error::other(format!(
            "{} values for tensors of {}",
            sink.written,
            offset / 4
        )));
    }
    Ok(())
}

/// An open safetensors file: its header is read and checked, tensors are read when they are asked for.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: File,
    /// Where the data begins.
    start: u64,
    /// Name → (dtype, shape, first byte after `start`).
    index: HashMap<String, (Dtype, Vec<usize>, u64)>,
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
        let mut text = vec![0; header as usize];
        file.read_exact(&mut text)
            .map_err(|_| malformed("shorter than its header".into()))?;
        // Refuses tensors that overlap, leave gaps, or have other sizes than their shapes.
        let heads: Metadata =
            serde_json::from_slice(&text).map_err(|e| malformed(e.to_string()))?;
        let (start, whole) = (8 + header, file.metadata().map_err(io)?.len());
        let wanted = start + heads.data_len() as u64;
        if wanted != whole {
            return Err(malformed(format!(
                "{whole} bytes, its header speaks of {wanted}"
            )));
        }
        let index = heads
            .tensors()
            .into_iter()
            .map(|(name, info)| {
                let from = info.data_offsets.0 as u64;
                (name, (info.dtype, info.shape.clone(), from))
            })
            .collect();
        Ok(TensorFile {
            path: path.into(),
            file,
            start,
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

    /// Holds one tensor against the expected shape and the types that are read, without reading it.
    pub fn expect(&self, name: &str, expected: &[usize]) -> Result<(), TensorFileError> {
        self.find(name, expected).map(|_| ())
    }

    /// The type of a tensor that is as expected, its number of values, and where it begins in the file.
    fn find(&self, name: &str, expected: &[usize]) -> Result<(Dtype, usize, u64), TensorFileError> {
        let Some((dtype, shape, from)) = self.index.get(name) else {
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
        match dtype {
            Dtype::F32 | Dtype::BF16 => Ok((*dtype, shape.iter().product(), self.start + from)),
            other => Err(mismatch(format!("dtype {other:?}"), "F32 or BF16".into())),
        }
    }

    /// The values of one tensor as f32 (bf16 is widened); the shape must be the expected one.
    pub fn read(&self, name: &str, expected: &[usize]) -> Result<Vec<f32>, TensorFileError> {
        let (_, len, _) = self.find(name, expected)?;
        let mut values = vec![0.0; len];
        self.read_into(name, expected, &mut values)?;
        Ok(values)
    }

    /// Reads one tensor into `into`, which has its number of values; holds one chunk besides.
    pub fn read_into(
        &self,
        name: &str,
        expected: &[usize],
        into: &mut [f32],
    ) -> Result<(), TensorFileError> {
        let (dtype, len, from) = self.find(name, expected)?;
        let io = |source| TensorFileError::Io {
            path: self.path.clone(),
            source,
        };
        if into.len() != len {
            return Err(TensorFileError::Mismatch {
                path: self.path.clone(),
                tensor: name.into(),
                found: format!("{len} values"),
                expected: format!("{} values", into.len()),
            });
        }
        let mut file = &self.file;
        file.seek(SeekFrom::Start(from)).map_err(io)?;
        let wide = if dtype == Dtype::BF16 { 2 } else { 4 };
        let mut buffer = vec![0; CHUNK.min(len) * wide];
        for chunk in into.chunks_mut(CHUNK) {
            let bytes = &mut buffer[..chunk.len() * wide];
            file.read_exact(bytes).map_err(io)?;
            match dtype {
                Dtype::BF16 => widen(bytes, chunk, |b: [u8; 2]| {
                    f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)
                }),
                _ => widen(bytes, chunk, f32::from_le_bytes),
            }
        }
        Ok(())
    }
}

fn widen<const N: usize>(bytes: &[u8], into: &mut [f32], f: impl Fn([u8; N]) -> f32) {
    for (value, b) in into.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *value = f(*b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Named = (TensorHead, Vec<f32>);

    fn tensor(name: &str, shape: &[usize], values: &[f32]) -> Named {
        let (name, shape) = (name.into(), shape.to_vec());
        (TensorHead { name, shape }, values.to_vec())
    }

    fn write(path: &Path, tensors: &[Named]) -> io::Result<()> {
        let heads: Vec<TensorHead> = tensors.iter().map(|(head, _)| head.clone()).collect();
        write_to(&mut File::create(path)?, &heads, &mut |sink| {
            tensors.iter().try_for_each(|(_, values)| sink.put(values))
        })
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
        let bytes = [0x80, 0x3f, 0x00, 0xc0];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        let header = r#"{"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}"#;
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend(bytes);
        std::fs::write(&path, file).unwrap();
        let file = TensorFile::open(&path).unwrap();
        assert_eq!(file.read("w", &[2]).unwrap(), [1.0, -2.0]);
    }

    #[test]
    fn tensors_longer_than_a_chunk_are_whole_and_in_any_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        let long: Vec<f32> = (0..2 * CHUNK + 7).map(|i| i as f32).collect();
        write(
            &path,
            &[
                tensor("short", &[1], &[9.0]),
                tensor("long", &[long.len()], &long),
            ],
        )
        .unwrap();
        let file = TensorFile::open(&path).unwrap();
        assert!(file.read("long", &[long.len()]).unwrap() == long);
        assert_eq!(file.read("short", &[1]).unwrap(), [9.0]);
        assert!(file.read_into("short", &[1], &mut [0.0; 2]).is_err());
    }

    #[test]
    fn values_that_are_not_as_many_as_announced_are_no_file() {
        let head = TensorHead {
            name: "w".into(),
            shape: vec![3],
        };
        for n in [2, 4] {
            let written = write_to(&mut Vec::new(), std::slice::from_ref(&head), &mut |sink| {
                sink.put(&vec![0.0; n])
            });
            assert!(written.is_err(), "{n}");
        }
    }
}
