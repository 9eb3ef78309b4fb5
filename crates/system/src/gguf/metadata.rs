//! Metadata: the keys and values before the tensors.

use super::GgufError;
use super::cursor::Cursor;
use std::io::Read;

/// Minimum bytes per key: an empty key, a type, one byte of value.
pub(super) const LEAST_BYTES: u64 = 8 + 4 + 1;
const MAX_KEYS: usize = 1 << 16;
const MAX_KEY_BYTES: usize = 1 << 16;

/// A value. Numbers are normalized to sign and fraction.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    String(String),
    Array(Array),
}

/// An array of one type, stored as densely as in the file.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    U8(Vec<u8>),
    Unsigned(Vec<u64>),
    I32(Vec<i32>),
    Signed(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    Strings(Vec<String>),
}

/// All keys, in file order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
}

impl Metadata {
    pub(super) fn read<R: Read>(cursor: &mut Cursor<R>, n: usize) -> Result<Metadata, GgufError> {
        if n > MAX_KEYS {
            return Err(cursor.bad(format!("{n} keys; the limit is {MAX_KEYS}")));
        }
        let mut metadata = Metadata::default();
        let mut names = std::collections::HashSet::with_capacity(n);
        for _ in 0..n {
            let key = cursor.string()?;
            if key.len() > MAX_KEY_BYTES {
                return Err(cursor.bad(format!("a key of {} bytes", key.len())));
            }
            if !names.insert(key.clone()) {
                return Err(cursor.bad(format!("duplicate key {key:?}")));
            }
            let kind = cursor.u32()?;
            let value = read_value(cursor, kind)?;
            metadata.entries.push((key, value));
        }
        Ok(metadata)
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// A non-negative integer.
    pub fn u64(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Unsigned(n) => Some(*n),
            Value::Signed(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    pub fn f64(&self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Value::Float(x) => Some(*x),
            _ => None,
        }
    }

    pub fn bool(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Value::Bool(yes) => Some(*yes),
            _ => None,
        }
    }

    pub fn str(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn array(&self, key: &str) -> Option<&Array> {
        match self.get(key)? {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }

    /// A list of strings.
    pub fn strings(&self, key: &str) -> Option<&[String]> {
        match self.array(key)? {
            Array::Strings(strings) => Some(strings),
            _ => None,
        }
    }
}

fn read_value<R: Read>(cursor: &mut Cursor<R>, kind: u32) -> Result<Value, GgufError> {
    Ok(match kind {
        0 => Value::Unsigned(u8::from_le_bytes(cursor.array()?).into()),
        1 => Value::Signed(i8::from_le_bytes(cursor.array()?).into()),
        2 => Value::Unsigned(u16::from_le_bytes(cursor.array()?).into()),
        3 => Value::Signed(i16::from_le_bytes(cursor.array()?).into()),
        4 => Value::Unsigned(cursor.u32()?.into()),
        5 => Value::Signed(i32::from_le_bytes(cursor.array()?).into()),
        6 => Value::Float(f32::from_le_bytes(cursor.array()?).into()),
        7 => Value::Bool(read_bool(cursor)?),
        8 => Value::String(cursor.string()?),
        9 => Value::Array(read_array(cursor)?),
        10 => Value::Unsigned(cursor.u64()?),
        11 => Value::Signed(i64::from_le_bytes(cursor.array()?)),
        12 => Value::Float(f64::from_le_bytes(cursor.array()?)),
        _ => return Err(cursor.bad(format!("a value of the unknown type {kind}"))),
    })
}

fn read_bool<R: Read>(cursor: &mut Cursor<R>) -> Result<bool, GgufError> {
    match cursor.array::<1>()? {
        [0] => Ok(false),
        [1] => Ok(true),
        [x] => Err(cursor.bad(format!("{x} is neither true nor false"))),
    }
}

fn read_array<R: Read>(cursor: &mut Cursor<R>) -> Result<Array, GgufError> {
    let kind = cursor.u32()?;
    Ok(match kind {
        0 => Array::U8(numbers(cursor, u8::from_le_bytes)?),
        1 => Array::Signed(numbers(cursor, |b| i8::from_le_bytes(b).into())?),
        2 => Array::Unsigned(numbers(cursor, |b| u16::from_le_bytes(b).into())?),
        3 => Array::Signed(numbers(cursor, |b| i16::from_le_bytes(b).into())?),
        4 => Array::Unsigned(numbers(cursor, |b| u32::from_le_bytes(b).into())?),
        5 => Array::I32(numbers(cursor, i32::from_le_bytes)?),
        6 => Array::F32(numbers(cursor, f32::from_le_bytes)?),
        7 => {
            let n = cursor.count("values", 1)?;
            let flags: Result<_, _> = (0..n).map(|_| read_bool(cursor)).collect();
            Array::Bool(flags?)
        }
        8 => {
            let n = cursor.count("strings", 8)?;
            let strings: Result<_, _> = (0..n).map(|_| cursor.string()).collect();
            Array::Strings(strings?)
        }
        10 => Array::Unsigned(numbers(cursor, u64::from_le_bytes)?),
        11 => Array::Signed(numbers(cursor, i64::from_le_bytes)?),
        12 => Array::F64(numbers(cursor, f64::from_le_bytes)?),
        9 => return Err(cursor.bad("an array of arrays, which no known model has")),
        _ => return Err(cursor.bad(format!("an array of the unknown type {kind}"))),
    })
}

/// The declared number of values, `N` bytes each.
fn numbers<R: Read, T, const N: usize>(
    cursor: &mut Cursor<R>,
    read: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, GgufError> {
    let n = cursor.count("values", N as u64)?;
    let bytes = cursor.bytes((n * N) as u64)?;
    let (whole, _) = bytes.as_chunks::<N>();
    Ok(whole.iter().map(|b| read(*b)).collect())
}
