//! Frames between engine and ranks: length of a header (u32), length of a payload (u64), JSON, raw bytes; little-endian. The
//! Python side is `wire.py`.

use serde_json::Value;
use std::io::{self, Read, Write};

/// A header's fields; `type` names the frame.
pub type Header = Value;

/// Longest header and payload of a rank, in bytes.
const MAX_HEADER: u32 = 1 << 20;
const MAX_PAYLOAD: u64 = 1 << 30;
/// Most bytes of one piece of weights.
pub const PIECE: usize = 32 << 20;

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    pub header: Header,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn new(header: Header) -> Frame {
        Frame {
            header,
            payload: Vec::new(),
        }
    }

    pub fn with(header: Header, payload: Vec<u8>) -> Frame {
        Frame { header, payload }
    }

    /// The frame's type.
    pub fn kind(&self) -> &str {
        self.header["type"].as_str().unwrap_or_default()
    }

    /// # Errors
    /// Those of the connection.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let header = self.header.to_string();
        let length = u32::try_from(header.len()).map_err(io::Error::other)?;
        out.write_all(&length.to_le_bytes())?;
        out.write_all(&(self.payload.len() as u64).to_le_bytes())?;
        out.write_all(header.as_bytes())?;
        out.write_all(&self.payload)
    }

    /// Reads a frame; `None` at an orderly end.
    ///
    /// # Errors
    /// Those of the connection; lengths beyond bounds; a header that is not JSON.
    pub fn read(input: &mut dyn Read) -> io::Result<Option<Frame>> {
        let mut length = [0; 4];
        match input.read_exact(&mut length) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let mut payload = [0; 8];
        input.read_exact(&mut payload)?;
        let (length, payload) = (u32::from_le_bytes(length), u64::from_le_bytes(payload));
        if length > MAX_HEADER || payload > MAX_PAYLOAD {
            let what = format!("a frame of {length} and {payload} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let mut header = vec![0; length as usize];
        input.read_exact(&mut header)?;
        let header = serde_json::from_slice(&header)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        // Beyond one piece, memory grows as data arrives: a length alone allocates little.
        let mut bytes = Vec::with_capacity((payload as usize).min(PIECE));
        input.take(payload).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != payload {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some(Frame {
            header,
            payload: bytes,
        }))
    }
}

/// f32 values in the other side's byte order.
pub fn bytes_of(values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 * values.len());
    for value in values {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// Token ids likewise.
pub fn bytes_of_ids(ids: &[u32]) -> impl Iterator<Item = u8> + '_ {
    ids.iter().flat_map(|x| x.to_le_bytes())
}

/// The f32 values of a payload; `None` if its length is not a multiple of four.
pub fn floats(bytes: &[u8]) -> Option<Vec<f32>> {
    bytes
        .len()
        .is_multiple_of(4)
        .then(|| numbers(bytes).collect())
}

/// The f32 values of a payload; trailing bytes of an incomplete one are ignored.
pub fn numbers(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().map(|b| f32::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn frames_round_trip_and_damaged_ones_are_rejected() {
        let frame = Frame::with(
            json!({"type": "done", "x": 1.5}),
            bytes_of(&[1.0, -0.0, f32::MIN_POSITIVE]),
        );
        let mut bytes = Vec::new();
        frame.write(&mut bytes).unwrap();
        let read = |bytes: &[u8]| Frame::read(&mut &*bytes);
        assert_eq!(read(&bytes).unwrap(), Some(frame.clone()));
        assert_eq!(
            floats(&frame.payload).unwrap()[2].to_bits(),
            f32::MIN_POSITIVE.to_bits()
        );
        assert_eq!(read(&[]).unwrap(), None);
        for cut in [2, 8, 20, bytes.len() - 1] {
            assert!(cut < 4 || read(&bytes[..cut]).is_err(), "{cut}");
        }
        let mut long = bytes.clone();
        long[0..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(read(&long).is_err());
        let mut long = bytes;
        long[4..12].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(read(&long).is_err());
        assert!(floats(&[1, 2, 3]).is_none());
    }
}
