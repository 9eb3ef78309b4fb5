//! The writer: keys, the tensor list, then the weights one tensor after another.

use super::kinds::TensorKind;
use super::metadata::{Array, Value};
use super::{DEFAULT_ALIGNMENT, MAGIC};
use std::io::{self, Write};

const VERSION: u32 = 3;

/// A tensor to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTensor {
    pub name: String,
    /// Fastest-varying first: the reverse of PyTorch's shape.
    pub dims: Vec<u64>,
    pub kind: TensorKind,
}

impl NewTensor {
    /// Size in bytes; `None` if a row is not a whole number of blocks.
    pub fn bytes(&self) -> Option<u64> {
        self.kind.size(self.dims[0], self.dims.iter().product())
    }
}

/// Writes a whole file; `fill` supplies the bytes of each tensor in turn, in a reused buffer.
///
/// # Errors
/// Writing or `fill` fails, or `fill` supplies a wrong number of bytes.
pub fn write(
    out: &mut dyn Write,
    keys: &[(String, Value)],
    tensors: &[NewTensor],
    fill: &mut dyn FnMut(usize, &mut Vec<u8>) -> io::Result<()>,
) -> io::Result<()> {
    let mut head = Vec::new();
    head.extend(MAGIC);
    head.extend(VERSION.to_le_bytes());
    head.extend((tensors.len() as u64).to_le_bytes());
    head.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        put_string(&mut head, key);
        put_value(&mut head, value);
    }
    let mut offset = 0_u64;
    for tensor in tensors {
        put_string(&mut head, &tensor.name);
        head.extend((tensor.dims.len() as u32).to_le_bytes());
        for dim in &tensor.dims {
            head.extend(dim.to_le_bytes());
        }
        head.extend(tensor.kind.id.to_le_bytes());
        head.extend(offset.to_le_bytes());
        let bytes = tensor
            .bytes()
            .ok_or_else(|| wrong(tensor, "rows that are not whole blocks"))?;
        offset = (offset + bytes).next_multiple_of(DEFAULT_ALIGNMENT);
    }
    pad(&mut head);
    out.write_all(&head)?;
    let mut bytes = Vec::new();
    for (index, tensor) in tensors.iter().enumerate() {
        bytes.clear();
        fill(index, &mut bytes)?;
        if Some(bytes.len() as u64) != tensor.bytes() {
            return Err(wrong(tensor, "a wrong number of bytes"));
        }
        pad(&mut bytes);
        out.write_all(&bytes)?;
    }
    Ok(())
}

fn wrong(tensor: &NewTensor, what: &str) -> io::Error {
    io::Error::other(format!("tensor {} has {what}", tensor.name))
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(DEFAULT_ALIGNMENT as usize), 0);
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Integers get the narrowest type of 32 or 64 bits, floats 32 bits, as other readers expect.
fn put_value(out: &mut Vec<u8>, value: &Value) {
    let tag = |out: &mut Vec<u8>, tag: u32| out.extend(tag.to_le_bytes());
    match value {
        Value::Unsigned(n) => match u32::try_from(*n) {
            Ok(n) => {
                tag(out, 4);
                out.extend(n.to_le_bytes());
            }
            Err(_) => {
                tag(out, 10);
                out.extend(n.to_le_bytes());
            }
        },
        Value::Signed(n) => match i32::try_from(*n) {
            Ok(n) => {
                tag(out, 5);
                out.extend(n.to_le_bytes());
            }
            Err(_) => {
                tag(out, 11);
                out.extend(n.to_le_bytes());
            }
        },
        Value::Float(x) => {
            tag(out, 6);
            out.extend((*x as f32).to_le_bytes());
        }
        Value::Bool(yes) => {
            tag(out, 7);
            out.push(u8::from(*yes));
        }
        Value::String(text) => {
            tag(out, 8);
            put_string(out, text);
        }
        Value::Array(array) => {
            tag(out, 9);
            put_array(out, array);
        }
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    fn numbers<T, const N: usize>(
        out: &mut Vec<u8>,
        tag: u32,
        v: &[T],
        put: impl Fn(&T) -> [u8; N],
    ) {
        out.extend(tag.to_le_bytes());
        out.extend((v.len() as u64).to_le_bytes());
        out.extend(v.iter().flat_map(put));
    }
    match array {
        Array::U8(v) => numbers(out, 0, v, |n| n.to_le_bytes()),
        Array::Unsigned(v) => numbers(out, 10, v, |n| n.to_le_bytes()),
        Array::I32(v) => numbers(out, 5, v, |n| n.to_le_bytes()),
        Array::Signed(v) => numbers(out, 11, v, |n| n.to_le_bytes()),
        Array::F32(v) => numbers(out, 6, v, |x| x.to_le_bytes()),
        Array::F64(v) => numbers(out, 12, v, |x| x.to_le_bytes()),
        Array::Bool(v) => numbers(out, 7, v, |yes| [u8::from(*yes)]),
        Array::Strings(v) => {
            out.extend(8_u32.to_le_bytes());
            out.extend((v.len() as u64).to_le_bytes());
            v.iter().for_each(|text| put_string(out, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Gguf;

    fn kind(id: u32) -> TensorKind {
        TensorKind::by_id(id).unwrap()
    }

    fn written(keys: &[(String, Value)], tensors: &[NewTensor]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        write(&mut out, keys, tensors, &mut |i, bytes| {
            bytes.resize(tensors[i].bytes().unwrap() as usize, i as u8 + 1);
            Ok(())
        })?;
        Ok(out)
    }

    #[test]
    fn written_files_round_trip() {
        let keys: Vec<(String, Value)> = vec![
            ("a".into(), Value::Unsigned(7)),
            ("b".into(), Value::Unsigned(1 << 40)),
            ("c".into(), Value::Signed(-3)),
            ("d".into(), Value::Float(0.5)),
            ("e".into(), Value::Bool(true)),
            ("f".into(), Value::String("tä".into())),
            (
                "g".into(),
                Value::Array(Array::Strings(vec!["".into(), "x y".into()])),
            ),
            ("h".into(), Value::Array(Array::F32(vec![1.5, -2.0]))),
            ("i".into(), Value::Array(Array::I32(vec![1, -1]))),
            ("j".into(), Value::Array(Array::Bool(vec![true, false]))),
        ];
        let tensor = |name: &str, dims: &[u64], id| NewTensor {
            name: name.into(),
            dims: dims.to_vec(),
            kind: kind(id),
        };
        let tensors = [
            tensor("x", &[32, 3], 8),
            tensor("y", &[5], 0),
            tensor("z", &[2, 2, 2], 1),
        ];
        let bytes = written(&keys, &tensors).unwrap();
        let file = Gguf::read(bytes.as_slice(), bytes.len() as u64).unwrap();
        let read: Vec<(String, Value)> = file
            .metadata
            .iter()
            .map(|(key, value)| (key.to_string(), value.clone()))
            .collect();
        assert_eq!(read, keys);
        for (i, (read, new)) in file.tensors.iter().zip(&tensors).enumerate() {
            assert_eq!(
                (&read.name, &read.dims, read.kind),
                (&new.name, &new.dims, new.kind)
            );
            let at = (file.data_start + read.offset) as usize;
            let values = &bytes[at..at + read.bytes as usize];
            assert!(values.iter().all(|b| *b == i as u8 + 1), "{i}");
        }
    }

    #[test]
    fn tensors_with_partial_blocks_or_wrong_sizes_are_errors() {
        let odd = NewTensor {
            name: "x".into(),
            dims: vec![33],
            kind: kind(8),
        };
        assert!(write(&mut Vec::new(), &[], &[odd], &mut |_, _| Ok(())).is_err());
        let empty = NewTensor {
            name: "x".into(),
            dims: vec![32],
            kind: kind(8),
        };
        let error = write(&mut Vec::new(), &[], &[empty], &mut |_, _| Ok(())).unwrap_err();
        assert!(error.to_string().contains("tensor x"), "{error}");
    }
}
