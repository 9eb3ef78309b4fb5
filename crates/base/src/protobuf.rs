//! Protocol buffers, as far as model files and event logs need them: reads fields in order, with bounds and without
//! allocations, and writes them.

/// One field's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Field<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
    Fixed64([u8; 8]),
}

/// The fields of a message, each with its number; ends after the first error.
pub struct Fields<'a> {
    rest: &'a [u8],
    length: usize,
}

pub fn fields(message: &[u8]) -> Fields<'_> {
    Fields {
        rest: message,
        length: message.len(),
    }
}

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for place in 0..10 {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f).checked_shl(7 * place)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn field(&mut self) -> Option<(u64, Field<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Field::Varint(self.varint()?),
            1 => Field::Fixed64(self.take(8)?.try_into().ok()?),
            2 => {
                let n = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.take(n)?)
            }
            5 => Field::Fixed32(self.take(4)?.try_into().ok()?),
            // Groups are deprecated and occur in no file that is read here.
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    /// An error is the byte offset in the message at which it is malformed.
    type Item = Result<(u64, Field<'a>), usize>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let at = self.length - self.rest.len();
        Some(self.field().ok_or_else(|| {
            self.rest = &[];
            at
        }))
    }
}

/// A message that is written, field by field. As in proto3, a field with the value 0 is for its caller to leave out.
#[derive(Debug, Clone, Default)]
pub struct Message(Vec<u8>);

impl Message {
    fn base128(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, number: u64, kind: u64) {
        self.base128(number << 3 | kind);
    }

    pub fn field(mut self, number: u64, value: Field<'_>) -> Message {
        match value {
            Field::Varint(value) => {
                self.tag(number, 0);
                self.base128(value);
            }
            Field::Fixed64(bytes) => {
                self.tag(number, 1);
                self.0.extend(bytes);
            }
            Field::Bytes(bytes) => {
                self.tag(number, 2);
                self.base128(bytes.len() as u64);
                self.0.extend(bytes);
            }
            Field::Fixed32(bytes) => {
                self.tag(number, 5);
                self.0.extend(bytes);
            }
        }
        self
    }

    /// A message within this one.
    pub fn message(self, number: u64, inner: Message) -> Message {
        self.field(number, Field::Bytes(&inner.0))
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentations_examples_are_decoded() {
        // protobuf.dev/programming-guides/encoding: {1: 150}, {2: "testing"}
        let read = |bytes| fields(bytes).collect::<Result<Vec<_>, usize>>();
        assert_eq!(read(b"\x08\x96\x01"), Ok(vec![(1, Field::Varint(150))]));
        assert_eq!(
            read(b"\x12\x07testing"),
            Ok(vec![(2, Field::Bytes(b"testing"))])
        );
    }

    #[test]
    fn truncated_and_crafted_messages_terminate() {
        for bad in [
            &b"\x08"[..],
            b"\x12\x7fabc",
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x0b",
            b"\x0d\x00",
        ] {
            let mut fields = fields(bad);
            assert_eq!(fields.next(), Some(Err(0)), "{bad:?}");
            assert_eq!(fields.next(), None);
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let written = [
            (1, Field::Varint(u64::MAX)),
            (2, Field::Bytes(b"testing")),
            (300, Field::Fixed32([1, 2, 3, 4])),
            (4, Field::Fixed64([9; 8])),
        ];
        let message = written
            .iter()
            .fold(Message::default(), |m, (n, field)| m.field(*n, *field));
        let bytes = message.into_bytes();
        let read: Result<Vec<_>, usize> = fields(&bytes).collect();
        assert_eq!(read.as_deref(), Ok(&written[..]));
        assert_eq!(
            Message::default().field(1, Field::Varint(150)).into_bytes(),
            b"\x08\x96\x01"
        );
    }
}
