//! Plain text read as a whole: the built-in corpus, or a file. It is kept unchanged; only a byte-order mark is dropped.

use super::container;
use super::utf8::{bad_text, known_start};
use crate::base::files::read_plain;
use crate::data::{DataConfig, DataError};
use crate::embed;
use std::borrow::Cow;
use std::fs;
use std::path::Path;

/// Text is held in memory, and its tokens take four bytes each.
const MAX_BYTES: u64 = 1 << 30;

/// Text as read.
#[derive(Debug, Clone)]
pub struct Text {
    pub text: Cow<'static, str>,
    /// Where it came from, for display.
    pub place: String,
    /// Notices while reading.
    pub notes: Vec<String>,
}

/// Reads the text that a config names.
///
/// # Errors
/// Unreadable, not UTF-8, with NUL bytes, too large or without any text.
pub fn read(config: &DataConfig) -> Result<Text, DataError> {
    let text = match &config.path {
        None => embedded(&config.corpus)?,
        Some(path) => file(path)?,
    };
    if text.text.trim().is_empty() {
        return Err(DataError::Empty { place: text.place });
    }
    Ok(text)
}

fn embedded(corpus: &str) -> Result<Text, DataError> {
    let text = embed::text(&format!("assets/corpora/{corpus}.txt"))
        .ok_or_else(|| DataError::NoCorpus(corpus.to_string()))?;
    Ok(Text {
        text: Cow::Borrowed(text),
        place: format!("the built-in corpus {corpus}"),
        notes: Vec::new(),
    })
}

fn file(path: &Path) -> Result<Text, DataError> {
    let place = path.display().to_string();
    let bytes = fs::metadata(path).map_err(unreadable(path))?.len();
    within_limit(&place, bytes)?;
    let mut notes = Vec::new();
    let text = utf8(path, &mut notes)?;
    notes.extend(container::taken_for_text(&place, text.as_bytes()));
    Ok(Text {
        text: Cow::Owned(text),
        place,
        notes,
    })
}

fn utf8(path: &Path, notes: &mut Vec<String>) -> Result<String, DataError> {
    let bytes = read_plain(path).map_err(unreadable(path))?;
    if let Some((what, fix)) = known_start(&bytes) {
        return Err(DataError::source(path.display(), format!("is {what}"), fix));
    }
    if let Some(bad) = bad_text(&bytes) {
        let before = &bytes[..bad.at];
        return Err(DataError::BadText {
            path: path.to_path_buf(),
            offset: bad.at,
            line: 1 + before.iter().filter(|b| **b == b'\n').count(),
            is: bad.is,
            fix: bad.fix,
        });
    }
    let mut text = String::from_utf8(bytes).unwrap_or_default();
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
        notes.push(format!("{}: a byte-order mark was dropped", path.display()));
    }
    if text.contains("\r\n") {
        notes.push(format!(
            "{}: lines end in CR LF; the model will learn to generate both characters",
            path.display()
        ));
    }
    Ok(text)
}

fn within_limit(place: &str, bytes: u64) -> Result<(), DataError> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(DataError::TooLarge {
        place: place.to_string(),
        bytes,
        limit: MAX_BYTES,
    })
}

fn unreadable(path: &Path) -> impl FnOnce(std::io::Error) -> DataError {
    let path = path.to_path_buf();
    |source| DataError::Unreadable { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(path: &Path) -> Result<Text, DataError> {
        read(&DataConfig {
            path: Some(path.to_path_buf()),
            ..Default::default()
        })
    }

    #[test]
    fn a_bad_byte_is_placed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        fs::write(&path, b"one\ntwo \xff three").unwrap();
        assert!(matches!(
            from(&path),
            Err(DataError::BadText {
                offset: 8,
                line: 2,
                ..
            })
        ));
    }

    #[test]
    fn a_file_of_another_kind_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes, is, fix) in [
            (
                "book.pdf",
                &b"%PDF-1.7\n\xe2\xe3"[..],
                "is a PDF",
                "pdftotext",
            ),
            ("x.txt.xz", b"\xfd7zXZ\0\0", "is compressed with xz", "unxz"),
            (
                "train.arrow",
                b"ARROW1\0\0",
                "is an Arrow file",
                "to_parquet",
            ),
        ] {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            let error = from(&path).unwrap_err();
            assert!(error.to_string().ends_with(is), "{error}");
            assert!(error.hint().contains(fix), "{}", error.hint());
        }
    }

    #[test]
    fn marks_are_dropped_and_line_ends_kept_with_a_note_each() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        fs::write(&path, "\u{feff}one\r\ntwo").unwrap();
        let text = from(&path).unwrap();
        assert_eq!(text.text, "one\r\ntwo");
        assert_eq!(text.notes.len(), 2);
    }

    /// Chats under this name were trained on as they stand, braces and all, without a word.
    #[test]
    fn rows_of_json_under_the_name_of_a_text_are_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        let noted = |text: &str| {
            fs::write(&path, text).unwrap();
            from(&path).unwrap().notes.join("\n")
        };
        let chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n";
        assert!(noted(chat).contains("name it .jsonl"), "{}", noted(chat));
        assert_eq!(noted("{ braces } of a poem\n"), "");
    }

    #[test]
    fn nothing_to_read_is_an_error_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        fs::write(&path, " \n\n").unwrap();
        assert!(matches!(from(&path), Err(DataError::Empty { .. })));
        let absent = dir.path().join("absent.txt");
        assert!(matches!(from(&absent), Err(DataError::Unreadable { .. })));
    }
}
