//! A bounds-checked position in a file, and reading values from there.

use super::GgufError;
use std::io::{ErrorKind, Read};

/// Longest accepted string in bytes: the longest known chat templates have about 60 kB.
const MAX_STRING: u64 = 4 << 20;

/// Reads little-endian values and tracks the position.
pub(super) struct Cursor<R> {
    input: R,
    at: u64,
    length: u64,
}

impl<R: Read> Cursor<R> {
    pub fn new(input: R, length: u64) -> Cursor<R> {
        Cursor {
            input,
            at: 0,
            length,
        }
    }

    /// Bytes read so far.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Bytes left in the file.
    pub fn rest(&self) -> u64 {
        self.length.saturating_sub(self.at)
    }

    /// An error at this position.
    pub fn bad(&self, what: impl Into<String>) -> GgufError {
        GgufError::Bad {
            at: self.at,
            what: what.into(),
        }
    }

    pub fn fill(&mut self, bytes: &mut [u8]) -> Result<(), GgufError> {
        let n = bytes.len() as u64;
        if n > self.rest() {
            return Err(self.bad(format!("the file is truncated; {n} more bytes expected")));
        }
        self.input.read_exact(bytes).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => self.bad("the file ended while it was read"),
            _ => GgufError::Io(e),
        })?;
        self.at += n;
        Ok(())
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub fn u32(&mut self) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A count of items of at least `least_bytes` each: rejected if they cannot fit into the rest of the file.
    pub fn count(&mut self, things: &str, least_bytes: u64) -> Result<usize, GgufError> {
        let n = self.u64()?;
        match usize::try_from(n) {
            Ok(count) if n <= self.rest() / least_bytes => Ok(count),
            _ => Err(self.bad(format!(
                "{n} {things} declared, but only {} bytes are left",
                self.rest()
            ))),
        }
    }

    pub fn bytes(&mut self, n: u64) -> Result<Vec<u8>, GgufError> {
        if n > self.rest() {
            return Err(self.bad(format!(
                "{n} bytes declared, but only {} are left",
                self.rest()
            )));
        }
        let n = usize::try_from(n).map_err(|_| self.bad("too many bytes for this machine"))?;
        let mut bytes = vec![0; n];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// A string of nominally UTF-8 bytes. Vocabularies contain invalid ones, which become `�`.
    pub fn string(&mut self) -> Result<String, GgufError> {
        let n = self.u64()?;
        if n > MAX_STRING {
            return Err(self.bad(format!("a string of {n} bytes; the limit is {MAX_STRING}")));
        }
        let bytes = self.bytes(n)?;
        Ok(match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
        })
    }
}
