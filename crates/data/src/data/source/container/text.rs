//! Plain text: a file is one document. It is returned in pieces that are split at line ends, so that a file may be larger
//! than memory; every piece but the first has the mark [`CONTINUES`]. Concatenated, the pieces of a file are its exact text,
//! without a byte-order mark.

use super::{Container, Stream};
use crate::base::human;
use crate::data::source::fault::ReadFault;
use crate::data::source::input::Input;
use crate::data::source::lines::FileLines;
use crate::data::source::{CONTINUES, MAX_ROW_BYTES, PIECE_BYTES, utf8};
use crate::data::{DataError, Place, Record};
use serde_json::{Map, Value};

pub(super) const CONTAINER: Container = Container {
    id: "text",
    extensions: &["txt", "text"],
    open,
};

struct Pieces(FileLines);

fn open(input: Input) -> Result<Stream, DataError> {
    Ok(Box::new(Pieces(FileLines::new(input))))
}

impl Iterator for Pieces {
    type Item = Result<Record, ReadFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.ended {
            return None;
        }
        let first = self.0.lines.number + 1;
        let mut text = String::new();
        while text.len() < PIECE_BYTES {
            match self.line(&mut text) {
                None => {
                    self.0.ended = true;
                    break;
                }
                Some(Ok(())) => {}
                Some(Err(trouble)) => {
                    // A text with a hole in it is another text.
                    self.0.ended = true;
                    return Some(Err(trouble));
                }
            }
        }
        if text.is_empty() {
            return None;
        }
        let mut fields = Map::new();
        fields.insert("text".into(), Value::String(text));
        if first > 1 {
            fields.insert(CONTINUES.into(), Value::Bool(true));
        }
        let place = Place {
            file: self.0.file.clone(),
            row: first,
        };
        Some(Ok(Record { place, fields }))
    }
}

impl Pieces {
    /// Adds a line to a piece.
    fn line(&mut self, piece: &mut String) -> Option<Result<(), ReadFault>> {
        let place = match self.0.advance(too_long)? {
            Ok(place) => place,
            Err(trouble) => return Some(Err(trouble)),
        };
        let bytes = self.0.bytes();
        if bytes.ends_with(b"\r\n") {
            let file = &self.0.file;
            self.0.note(format!(
                "{file}: lines end in CR LF; the model will learn to generate both characters"
            ));
        }
        Some(match utf8::check(bytes) {
            Ok(text) => {
                piece.push_str(text);
                Ok(())
            }
            Err(bad) => {
                let lines = &self.0.lines;
                let at = lines.offset + (lines.line.len() - bytes.len() + bad.at) as u64;
                let what = format!("{} (byte {at} of the file)", bad.what);
                Err(ReadFault::fatal(&place, what, bad.fix))
            }
        })
    }
}

fn too_long(place: &Place) -> ReadFault {
    ReadFault::fatal(
        place,
        format!("a line of more than {}", human::bytes(MAX_ROW_BYTES as u64)),
        "break it into lines (fold -s -w 1000 IN > OUT), or write documents as JSONL",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::source::input::Notes;
    use std::io::{BufReader, Cursor};

    fn read(text: &[u8]) -> (Vec<Result<Record, ReadFault>>, Vec<String>) {
        let notes = Notes::default();
        let input = Input {
            path: "a.txt".into(),
            file: "a.txt".into(),
            reader: Box::new(BufReader::new(Cursor::new(text.to_vec()))),
            compressed: false,
            notes: notes.clone(),
        };
        (open(input).unwrap().collect(), notes.list())
    }

    #[test]
    fn pieces_join_to_the_file_and_only_the_first_begins_a_document() {
        let text: String = (0..300_000).map(|i| format!("line {i}\n")).collect();
        let (pieces, _) = read(text.as_bytes());
        let pieces: Vec<Record> = pieces.into_iter().map(Result::unwrap).collect();
        assert!(pieces.len() > 2);
        let joined: String = pieces
            .iter()
            .map(|p| p.fields["text"].as_str().unwrap())
            .collect();
        assert_eq!(joined, text);
        assert!(!pieces[0].fields.contains_key(CONTINUES));
        assert!(pieces[1..].iter().all(|p| p.fields.contains_key(CONTINUES)));
        let line = pieces[1].fields["text"]
            .as_str()
            .unwrap()
            .lines()
            .next()
            .unwrap();
        assert_eq!(line, format!("line {}", pieces[1].place.row - 1));
    }

    #[test]
    fn marks_go_line_ends_stay_and_both_are_noted() {
        let (pieces, notes) = read(b"\xef\xbb\xbfone\r\ntwo");
        assert_eq!(pieces[0].as_ref().unwrap().fields["text"], "one\r\ntwo");
        assert_eq!(notes.len(), 2);
        assert!(read(b"").0.is_empty());
    }

    #[test]
    fn a_bad_byte_has_a_line_and_an_offset() {
        let fault = |text: &[u8]| read(text).0.pop().unwrap().unwrap_err().fault.to_string();
        assert_eq!(
            fault(b"one\ntwo \xff"),
            "a.txt:2: not UTF-8: byte 0xff (byte 8 of the file)"
        );
        assert_eq!(
            fault(b"\xef\xbb\xbfa\0"),
            "a.txt:1: a NUL byte (byte 4 of the file)"
        );
    }
}
