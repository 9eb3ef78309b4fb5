//! UTF-16 and UTF-32, detected by their byte-order marks or the positions of NUL bytes, with the `iconv` command for each.

use std::collections::HashSet;

/// Bytes that are looked at; more tell nothing new.
const LOOKED_AT: usize = 4096;
/// Units from which on a text is long enough to be recognized by its decoding alone.
const ENOUGH: usize = 8;

/// A text's encoding, as a predicate, and the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wide {
    pub is: &'static str,
    pub fix: &'static str,
}

const fn wide(is: &'static str, fix: &'static str) -> Wide {
    Wide { is, fix }
}

const UTF32: Wide = wide(
    "is UTF-32 text",
    "convert it: iconv -f utf-32 -t utf-8 IN > OUT",
);
const UTF16: Wide = wide(
    "is UTF-16 text",
    "convert it: iconv -f utf-16 -t utf-8 IN > OUT",
);
/// Without a byte-order mark `iconv` needs the byte order.
const UTF32_LE: Wide = wide(
    "is UTF-32 text without a byte-order mark",
    "convert it: iconv -f utf-32le -t utf-8 IN > OUT",
);
const UTF32_BE: Wide = wide(
    "is UTF-32 text without a byte-order mark",
    "convert it: iconv -f utf-32be -t utf-8 IN > OUT",
);
const UTF16_LE: Wide = wide(
    "is UTF-16 text without a byte-order mark",
    "convert it: iconv -f utf-16le -t utf-8 IN > OUT",
);
const UTF16_BE: Wide = wide(
    "is UTF-16 text without a byte-order mark",
    "convert it: iconv -f utf-16be -t utf-8 IN > OUT",
);

/// The wide text that bytes from a file's beginning are; `None` of everything else.
pub(super) fn find(bytes: &[u8]) -> Option<Wide> {
    // The byte-order mark of UTF-16 is a prefix of one of UTF-32.
    const MARKS: [(&[u8], Wide); 4] = [
        (b"\xff\xfe\0\0", UTF32),
        (b"\0\0\xfe\xff", UTF32),
        (b"\xff\xfe", UTF16),
        (b"\xfe\xff", UTF16),
    ];
    if let Some((_, found)) = MARKS.iter().find(|(mark, _)| bytes.starts_with(mark)) {
        return Some(*found);
    }
    let bytes = &bytes[..bytes.len().min(LOOKED_AT)];
    if !bytes.contains(&0) {
        return None;
    }
    let little = |unit: [u8; 4]| u32::from_le_bytes(unit);
    let big = |unit: [u8; 4]| u32::from_be_bytes(unit);
    match () {
        () if is_utf32(bytes, little) => Some(UTF32_LE),
        () if is_utf32(bytes, big) => Some(UTF32_BE),
        () if is_utf16(bytes, 1, u16::from_le_bytes) => Some(UTF16_LE),
        () if is_utf16(bytes, 0, u16::from_be_bytes) => Some(UTF16_BE),
        () => None,
    }
}

fn is_utf32(bytes: &[u8], read: impl Fn([u8; 4]) -> u32) -> bool {
    let (units, _) = bytes.as_chunks::<4>();
    let plain = |unit: &[u8; 4]| char::from_u32(read(*unit)).is_some_and(is_plain);
    !units.is_empty() && units.iter().all(plain)
}

/// `high` is the place in a unit of the byte that Latin letters have as NUL.
fn is_utf16(bytes: &[u8], high: usize, read: impl Fn([u8; 2]) -> u16) -> bool {
    let (units, _) = bytes.as_chunks::<2>();
    // A script has few high bytes and many low ones: this is the order of the bytes, too.
    let distinct = |place: usize| {
        let bytes: HashSet<u8> = units.iter().map(|unit| unit[place]).collect();
        bytes.len()
    };
    let (highs, lows) = (distinct(high), distinct(1 - high));
    if highs >= lows {
        return false;
    }
    let decoded: Vec<_> = char::decode_utf16(units.iter().map(|unit| read(*unit))).collect();
    // The inspected bytes may end within a surrogate pair.
    let whole = &decoded[..decoded.len() - usize::from(decoded.last().is_some_and(Result::is_err))];
    let plain = |c: &Result<char, _>| c.as_ref().is_ok_and(|c| is_plain(*c));
    if whole.is_empty() || !whole.iter().all(plain) {
        return false;
    }
    // A text with a NUL byte here and there decodes as well, to rare characters.
    let mostly =
        |most: u8| 4 * units.iter().filter(|unit| unit[high] < most).count() >= 3 * units.len();
    let is_latin = mostly(1);
    let is_alphabet = mostly(0x20);
    let is_no_utf8 = std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_some());
    let is_long = units.len() >= ENOUGH;
    is_latin || (is_long && (is_alphabet || (is_no_utf8 && 3 * highs <= 2 * lows)))
}

/// A character that occurs in texts.
fn is_plain(c: char) -> bool {
    let is_private = matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fffe}' | '\u{ffff}');
    !is_private && (!c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\u{c}' | '\u{85}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(bytes).collect()
    }

    fn utf32(text: &str, bytes: fn(u32) -> [u8; 4]) -> Vec<u8> {
        text.chars().flat_map(|c| bytes(c as u32)).collect()
    }

    #[test]
    fn wide_text_is_known_with_a_mark_and_without() {
        let long = "ab 漢字 und \u{1f600}\n".repeat(600);
        for text in [
            "ab",
            "one line\nand two\r\n",
            "Привет, мир, как дела",
            "漢字かな交じり文の例です。一つ、一人。\n次の行",
            &long,
        ] {
            for (is, bytes) in [
                (UTF16_LE, utf16(text, u16::to_le_bytes)),
                (UTF16_BE, utf16(text, u16::to_be_bytes)),
                (UTF32_LE, utf32(text, u32::to_le_bytes)),
                (UTF32_BE, utf32(text, u32::to_be_bytes)),
            ] {
                assert_eq!(find(&bytes), Some(is), "{text:?}: {is:?}");
            }
            let marked = format!("\u{feff}{text}");
            for bytes in [
                utf16(&marked, u16::to_le_bytes),
                utf16(&marked, u16::to_be_bytes),
            ] {
                assert_eq!(find(&bytes), Some(UTF16), "{text:?}");
            }
            for bytes in [
                utf32(&marked, u32::to_le_bytes),
                utf32(&marked, u32::to_be_bytes),
            ] {
                assert_eq!(find(&bytes), Some(UTF32), "{text:?}");
            }
        }
    }

    #[test]
    fn a_text_with_nul_bytes_is_none() {
        for bytes in [
            &b"abc\0"[..],
            b"abc\0def\0ghi\0jkl\0mno\0",
            b"a\0",
            b"name\0value\0",
            b"\0\0\0\0\0\0\0\0",
            "漢字\0漢字\0漢字".as_bytes(),
            b"plain",
            b"",
        ] {
            assert_eq!(find(bytes), None, "{bytes:?}");
        }
    }
}
