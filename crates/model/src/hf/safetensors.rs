//! Streaming writer for safetensors: the header first, then the values in chunks. The reader is in `tensor_file`.

use super::dtype::Dtype;
use std::io::{self, Write};

pub use super::tensor_file::{TensorFile, TensorFileError};

/// Values converted at a time.
const CHUNK: usize = 16 * 1024;

/// A row-major tensor to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorHead {
    pub name: String,
    pub shape: Vec<usize>,
    pub dtype: Dtype,
}

impl TensorHead {
    /// An f32 tensor.
    pub fn f32(name: impl Into<String>, shape: Vec<usize>) -> TensorHead {
        TensorHead {
            name: name.into(),
            shape,
            dtype: Dtype::F32,
        }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype.size()
    }

    fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Receives the values of tensors, in header order.
pub struct TensorSink<'a> {
    out: &'a mut dyn Write,
    heads: &'a [TensorHead],
    /// The current tensor, and how many values it has received.
    current: usize,
    filled: usize,
    buffer: Vec<u8>,
}

impl TensorSink<'_> {
    /// The next values; one tensor may span several calls, and one call may span several tensors.
    ///
    /// # Errors
    /// Errors of the writer; more values than the header declares; a value out of range for its tensor's dtype.
    pub fn put(&mut self, mut values: &[f32]) -> io::Result<()> {
        self.close_full();
        while !values.is_empty() {
            let Some(head) = self.heads.get(self.current) else {
                return Err(io::Error::other("more values than the header declares"));
            };
            let room = head.len() - self.filled;
            let (now, later) = values.split_at(values.len().min(room).min(CHUNK));
            self.buffer.clear();
            if head.dtype.narrow(now, &mut self.buffer).is_none() {
                let what = format!(
                    "tensor `{}` has values out of range for {}; use bf16 or f32",
                    head.name,
                    head.dtype.header_word()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            self.out.write_all(&self.buffer)?;
            self.filled += now.len();
            values = later;
            self.close_full();
        }
        Ok(())
    }

    fn close_full(&mut self) {
        while self
            .heads
            .get(self.current)
            .is_some_and(|h| h.len() == self.filled)
        {
            self.current += 1;
            self.filled = 0;
        }
    }
}

/// Writes the format: header length (u64 LE), header (JSON, space-padded to 8 bytes), data, which `fill` puts into the
/// sink. Holds one chunk, whatever the size.
///
/// # Errors
/// Errors of the writer; `fill` supplied more or fewer values than the header declares.
pub fn write_to(
    out: &mut dyn Write,
    heads: &[TensorHead],
    fill: &mut dyn FnMut(&mut TensorSink<'_>) -> io::Result<()>,
) -> io::Result<()> {
    write_with(out, heads, &[], fill)
}

/// The same with additional metadata.
///
/// # Errors
/// As [`write_to`].
pub fn write_with(
    out: &mut dyn Write,
    heads: &[TensorHead],
    words: &[(&str, &str)],
    fill: &mut dyn FnMut(&mut TensorSink<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut header = serde_json::Map::new();
    let mut metadata = serde_json::json!({"format": "pt"});
    for (key, word) in words {
        metadata[*key] = (*word).into();
    }
    header.insert("__metadata__".into(), metadata);
    let mut offset = 0usize;
    for head in heads {
        let end = offset + head.bytes();
        let dtype = head.dtype.header_word();
        header.insert(
            head.name.clone(),
            serde_json::json!({"dtype": dtype, "shape": head.shape, "data_offsets": [offset, end]}),
        );
        offset = end;
    }
    let mut header = serde_json::to_vec(&header)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    let mut sink = TensorSink {
        out,
        heads,
        current: 0,
        filled: 0,
        buffer: Vec::with_capacity(CHUNK * 4),
    };
    fill(&mut sink)?;
    sink.close_full();
    match heads.get(sink.current) {
        None => Ok(()),
        Some(head) => Err(io::Error::other(format!(
            "{} values for tensor `{}` of {}",
            sink.filled,
            head.name,
            head.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::Path;

    type Named = (TensorHead, Vec<f32>);

    fn tensor(name: &str, shape: &[usize], values: &[f32]) -> Named {
        (TensorHead::f32(name, shape.to_vec()), values.to_vec())
    }

    fn write(path: &Path, tensors: &[Named]) -> io::Result<()> {
        let heads: Vec<TensorHead> = tensors.iter().map(|(head, _)| head.clone()).collect();
        write_to(&mut File::create(path)?, &heads, &mut |sink| {
            tensors.iter().try_for_each(|(_, values)| sink.put(values))
        })
    }

    #[test]
    fn tensors_round_trip_bit_for_bit() {
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
    fn a_truncated_file_and_a_huge_header_are_rejected() {
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
    fn tensors_longer_than_a_chunk_are_complete_in_any_order() {
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
    fn a_wrong_number_of_values_is_an_error() {
        let head = TensorHead::f32("w", vec![3]);
        for n in [2, 4] {
            let written = write_to(&mut Vec::new(), std::slice::from_ref(&head), &mut |sink| {
                sink.put(&vec![0.0; n])
            });
            assert!(written.is_err(), "{n}");
        }
    }

    #[test]
    fn half_precision_round_trips_and_too_large_numbers_are_rejected_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        let heads = Dtype::ALL.map(|dtype| TensorHead {
            name: dtype.header_word().into(),
            shape: vec![2],
            dtype,
        });
        let mut out = File::create(&path).unwrap();
        // One piece spanning all three.
        write_to(&mut out, &heads, &mut |sink| {
            sink.put(&[1.0, -2.5, 3.0, 0.5, 4.0, 8.0])
        })
        .unwrap();
        let file = TensorFile::open(&path).unwrap();
        assert_eq!(file.read("F16", &[2]).unwrap(), [3.0, 0.5]);
        assert_eq!(file.read("BF16", &[2]).unwrap(), [4.0, 8.0]);
        let mut last = [0.0];
        file.read_part("F32", &[2], 1, &mut last).unwrap();
        assert_eq!(last, [-2.5]);
        assert!(file.read_part("F32", &[2], 2, &mut last).is_err());
        let error = write_to(&mut Vec::new(), &heads[1..2], &mut |sink| {
            sink.put(&[1e6, 0.0])
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("`F16`") && error.contains("bf16"), "{error}");
    }
}
