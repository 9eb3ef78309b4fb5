//! Bytes that should be UTF-8: where they are not, and which encoding they probably have.

use super::wide;
use std::borrow::Cow;

/// Why bytes are not text, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotText {
    /// From 0, within the bytes that were looked at.
    pub at: usize,
    pub what: Cow<'static, str>,
    pub fix: &'static str,
}

/// Windows-1252 has the letters of Latin-1, and dashes and curly quotes at 0x80 to 0x9F, which would become control characters
/// in Latin-1 without an error; `iconv` stops at the five bytes that are none of its letters.
const CONVERT: &str = "convert it, e.g. iconv -f windows-1252 -t utf-8 IN > OUT";
const NUL: &str = "if it is UTF-16, convert it with iconv -f utf-16 -t utf-8; else drop them: tr -d '\\000' < IN > OUT";

/// UTF-8 without NUL bytes.
pub(super) fn check(bytes: &[u8]) -> Result<&str, NotText> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let at = e.valid_up_to();
        NotText {
            at,
            what: format!("not UTF-8: byte {:#04x}", bytes[at]).into(),
            fix: CONVERT,
        }
    })?;
    // `contains` is fast; the position is searched only when there is one.
    if !bytes.contains(&0) {
        return Ok(text);
    }
    Err(NotText {
        at: bytes.iter().position(|b| *b == 0).unwrap_or(0),
        what: "a NUL byte".into(),
        fix: NUL,
    })
}

/// Why a file cannot be read as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadText {
    /// Where, from 0, within the bytes that were looked at.
    pub at: usize,
    /// A predicate: "is not UTF-8".
    pub is: &'static str,
    pub fix: &'static str,
}

/// The fault of the bytes of a text file, or of a part of it: `None` for UTF-8 without NUL bytes.
pub fn bad_text(bytes: &[u8]) -> Option<BadText> {
    let bad = check(bytes).err()?;
    let is = match bad.fix {
        NUL => "has a NUL byte",
        _ => "is not UTF-8",
    };
    let (at, fix) = (bad.at, bad.fix);
    Some(match wide::find(bytes) {
        Some(wide) => BadText {
            at: 0,
            is: wide.is,
            fix: wide.fix,
        },
        None => BadText { at, is, fix },
    })
}

/// What the first bytes of a file reveal: `Some` when they are surely not UTF-8 text.
pub(super) fn foreign_start(head: &[u8]) -> Option<(&'static str, &'static str)> {
    if let Some(known) = known_start(head) {
        return Some(known);
    }
    let wide = wide::find(head)?;
    Some((wide.is.trim_start_matches("is "), wide.fix))
}

/// The kinds of files among them that begin with a mark of their own.
pub(super) fn known_start(head: &[u8]) -> Option<(&'static str, &'static str)> {
    const ARROW: &str = "write it as parquet, in Python: datasets.Dataset.from_file(FILE).to_parquet('rows.parquet')";
    const STARTS: [(&[u8], &str, &str); 9] = [
        (b"ARROW1\0\0", "an Arrow file", ARROW),
        // The mark before a stream's first message, which is its schema.
        (b"\xff\xff\xff\xff", "an Arrow stream", ARROW),
        (
            b"PK\x03\x04",
            "a zip archive",
            "unpack it and name the files inside: unzip FILE",
        ),
        (
            b"BZh",
            "compressed with bzip2",
            "decompress it: bunzip2 FILE",
        ),
        (
            b"\xfd7zXZ",
            "compressed with xz",
            "decompress it: unxz FILE",
        ),
        (
            b"\x04\x22\x4d\x18",
            "compressed with lz4",
            "decompress it: lz4 -d FILE",
        ),
        (
            b"7z\xbc\xaf",
            "a 7z archive",
            "unpack it and name the files inside",
        ),
        (b"%PDF-", "a PDF", "extract its text first: pdftotext FILE"),
        (
            b"SQLite format 3",
            "an SQLite database",
            "export the table: sqlite3 -json FILE 'select …'",
        ),
    ];
    let (_, what, fix) = STARTS.iter().find(|(start, ..)| head.starts_with(start))?;
    Some((what, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bad_byte_is_found_and_named() {
        let bad = check(b"ab\xffcd").unwrap_err();
        assert_eq!((bad.at, &*bad.what), (2, "not UTF-8: byte 0xff"));
        let nul = check(b"abc\0").unwrap_err();
        assert_eq!((nul.at, &*nul.what), (3, "a NUL byte"));
        assert_eq!(check("é".as_bytes()), Ok("é"));
        // Cut inside a character: the place is where the character begins.
        assert_eq!(check(&"aé".as_bytes()[..2]).unwrap_err().at, 1);
    }

    #[test]
    fn a_bad_text_is_told_with_the_fix_of_its_kind() {
        assert_eq!(bad_text("é\n".as_bytes()), None);
        let told = |bytes| bad_text(bytes).map(|bad| (bad.at, bad.is, bad.fix));
        assert_eq!(told(b"ab\xff"), Some((2, "is not UTF-8", CONVERT)));
        assert_eq!(told(b"ab\0cd\0"), Some((2, "has a NUL byte", NUL)));
        let kind = |bytes| bad_text(bytes).map(|bad| (bad.at, bad.is));
        let unmarked = "is UTF-16 text without a byte-order mark";
        assert_eq!(kind(b"a\0b\0"), Some((0, unmarked)));
        assert_eq!(kind(b"\xff\xfea\0"), Some((0, "is UTF-16 text")));
        assert_eq!(kind(b"\xff\xfe\0\0a\0\0\0"), Some((0, "is UTF-32 text")));
    }

    #[test]
    fn archives_and_wide_text_are_recognised_by_their_first_bytes() {
        assert_eq!(foreign_start(b"PK\x03\x04..").unwrap().0, "a zip archive");
        assert_eq!(foreign_start(b"\xff\xfea\0").unwrap().0, "UTF-16 text");
        assert_eq!(
            foreign_start(b"{\0\"\0a\0").unwrap().0,
            "UTF-16 text without a byte-order mark"
        );
        assert!(foreign_start(b"{\"a\":1}").is_none());
        let stream = b"\xff\xff\xff\xff\x10\x01\0\0\x10\0\0\0";
        assert_eq!(foreign_start(stream).unwrap().0, "an Arrow stream");
        let fix = foreign_start(b"ARROW1\0\0\xff\xff").unwrap().1;
        assert!(fix.contains("to_parquet"), "{fix}");
    }
}
