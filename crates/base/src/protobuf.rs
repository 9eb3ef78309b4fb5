//! Protocol buffers, as far as model files and event logs need them: fields in order, with bounds. Nothing is allocated here.

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
}
