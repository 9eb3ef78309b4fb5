//! A JSON file: an array of rows, concatenated rows (with or without line ends), or one object that contains an array. It is
//! split into rows while it is read: a file may be larger than memory, a row may not.

use super::{Container, Stream};
use crate::base::human;
use crate::data::source::fault::ReadFault;
use crate::data::source::input::{Input, Notes};
use crate::data::source::{MAX_ROW_BYTES, json};
use crate::data::{DataError, Place, Record};
use std::collections::VecDeque;
use std::io::{self, BufRead};
use std::sync::Arc;

pub(super) const CONTAINER: Container = Container {
    id: "json",
    extensions: &["json"],
    open,
};

fn open(input: Input) -> Result<Stream, DataError> {
    Ok(Box::new(Rows {
        cutter: Cutter::new(input.reader),
        file: input.file,
        notes: input.notes,
        unwrapped: VecDeque::new(),
        given: 0,
        first_line: 0,
        ended: false,
    }))
}

struct Rows {
    cutter: Cutter,
    file: Arc<str>,
    notes: Notes,
    /// Rows of an object around an array.
    unwrapped: VecDeque<Record>,
    given: u64,
    /// The line on which the first row begins.
    first_line: u64,
    ended: bool,
}

impl Rows {
    fn place(&self, row: u64) -> Place {
        Place {
            file: self.file.clone(),
            row,
        }
    }

    /// `{"data": [{…}]}` alone in its file is read as its rows; they are numbered, because their lines are not known.
    fn unwrap(&mut self, mut record: Record) -> Record {
        let alone = self.given == 0 && !self.cutter.in_array && self.cutter.at_end();
        let rows = match alone {
            true => json::unwrap_rows(&mut record.fields),
            false => None,
        };
        let Some(rows) = rows else { return record };
        let placed = rows.into_iter().zip(1..).map(|(row, number)| Record {
            place: self.place(number),
            fields: match row {
                serde_json::Value::Object(fields) => fields,
                _ => Default::default(),
            },
        });
        self.unwrapped = placed.collect();
        self.unwrapped.pop_front().unwrap_or(record)
    }
}

impl Iterator for Rows {
    type Item = Result<Record, ReadFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(record) = self.unwrapped.pop_front() {
            return Some(Ok(record));
        }
        if self.ended {
            return None;
        }
        let cut = self.cutter.next();
        if self.cutter.had_mark {
            self.notes
                .add(format!("{}: a byte-order mark was dropped", self.file));
        }
        if self.given == 0 {
            self.first_line = self.cutter.started;
        }
        // Of an array in one line the line says nothing: its rows are counted.
        let counted = self.cutter.in_array && self.cutter.started == self.first_line;
        let place = self.place(match counted {
            true => self.first_line + self.given,
            false => self.cutter.started,
        });
        let item = match cut {
            Ok(None) => None,
            Ok(Some(bytes)) => {
                let record =
                    json::record(&bytes, place, &self.notes).map(|record| self.unwrap(record));
                self.given += 1;
                return Some(record);
            }
            Err(Bad::Io(e)) => Some(ReadFault::io(&place, &e)),
            Err(Bad::TooLong) => {
                return Some(Err(ReadFault::row(
                    &place,
                    format!(
                        "a row of more than {} of JSON",
                        human::bytes(MAX_ROW_BYTES as u64)
                    ),
                    "rows of an array or one object a line: jq -c '.data[]' IN > OUT.jsonl takes them out of a larger object",
                )));
            }
            Err(Bad::Cut) => Some(ReadFault::fatal(
                &place,
                "the file ends inside this row",
                "it was truncated: download or write it again",
            )),
            Err(Bad::Unclosed) => Some(ReadFault::fatal(
                &place,
                "the file ends before the `]` of its array",
                "it was truncated: download or write it again",
            )),
            Err(Bad::Unexpected(byte)) => {
                let what = format!("expected a row or `,`, found `{}`", byte.escape_ascii());
                let fix = "write an array of objects, or one object per line; `jq . FILE` finds the error";
                Some(ReadFault::fatal(&self.place(self.cutter.line), what, fix))
            }
        };
        self.ended = true;
        item.map(Err)
    }
}

enum Bad {
    Io(io::Error),
    TooLong,
    Cut,
    Unclosed,
    Unexpected(u8),
}

/// Cuts the values of the outermost level out of a file by counting brackets outside of strings.
struct Cutter {
    reader: Box<dyn BufRead + Send>,
    /// From 1: the reader's position.
    line: u64,
    /// The line on which the value cut last begins.
    started: u64,
    begun: bool,
    in_array: bool,
    closed: bool,
    had_mark: bool,
    /// The rest of a value that was too long precedes the next one.
    inside: Option<Nesting>,
}

/// The reader's position in a value.
#[derive(Default)]
struct Nesting {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// Bytes of the buffer up to the value's end, when that is in it.
    closed_at: Option<usize>,
}

impl Nesting {
    /// Takes a byte; true for the one that ends the value.
    fn closes(&mut self, byte: u8) -> bool {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_string => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            _ if self.in_string => {}
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.depth == 0 && !self.in_string && matches!(byte, b'}' | b']' | b'"')
    }
}

impl Cutter {
    fn new(reader: Box<dyn BufRead + Send>) -> Cutter {
        Cutter {
            reader,
            line: 1,
            started: 1,
            begun: false,
            in_array: false,
            closed: false,
            had_mark: false,
            inside: None,
        }
    }

    /// The next value's bytes; `None` at the end.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Bad> {
        if !self.begun {
            self.begin()?;
        }
        self.skip_rest()?;
        // Commas are skipped wherever they are: a missing or a double one costs no row.
        let first = loop {
            match self.skip_space()? {
                None if self.in_array && !self.closed => {
                    self.started = self.line;
                    return Err(Bad::Unclosed);
                }
                None => return Ok(None),
                Some(b',') if self.in_array && !self.closed => self.step(b','),
                Some(b']') if self.in_array && !self.closed => {
                    self.closed = true;
                    self.step(b']');
                }
                Some(byte) => break byte,
            }
        };
        self.started = self.line;
        if self.closed || matches!(first, b']' | b'}' | b',' | b':') {
            return Err(Bad::Unexpected(first));
        }
        match first {
            b'{' | b'[' | b'"' => self.value().map(Some),
            _ => self.word().map(Some),
        }
    }

    fn begin(&mut self) -> Result<(), Bad> {
        self.begun = true;
        if self.fill()?.starts_with(b"\xef\xbb\xbf") {
            self.reader.consume(3);
            self.had_mark = true;
        }
        if self.skip_space()? == Some(b'[') {
            self.in_array = true;
            self.step(b'[');
        }
        Ok(())
    }

    fn at_end(&mut self) -> bool {
        matches!(self.skip_space(), Ok(None))
    }

    fn fill(&mut self) -> Result<&[u8], Bad> {
        loop {
            match self.reader.fill_buf() {
                Ok(_) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Bad::Io(e)),
            }
        }
        self.reader.fill_buf().map_err(Bad::Io)
    }

    fn step(&mut self, byte: u8) {
        self.line += u64::from(byte == b'\n');
        self.reader.consume(1);
    }

    fn skip_space(&mut self) -> Result<Option<u8>, Bad> {
        loop {
            match self.fill()?.first().copied() {
                None => return Ok(None),
                Some(byte) if byte.is_ascii_whitespace() => self.step(byte),
                Some(byte) => return Ok(Some(byte)),
            }
        }
    }

    /// A value that begins with a bracket or a quote, up to the one that closes it.
    fn value(&mut self) -> Result<Vec<u8>, Bad> {
        let mut kept = Vec::new();
        let mut nesting = Nesting::default();
        loop {
            let (chunk, ended) = self.part(&mut nesting)?;
            if kept.len() + chunk > MAX_ROW_BYTES {
                self.inside = Some(nesting);
                return Err(Bad::TooLong);
            }
            let bytes = self.fill()?;
            kept.extend_from_slice(&bytes[..chunk]);
            self.reader.consume(chunk);
            if ended {
                return Ok(kept);
            }
        }
    }

    /// Skips a value that was too long.
    fn skip_rest(&mut self) -> Result<(), Bad> {
        let Some(mut nesting) = self.inside.take() else {
            return Ok(());
        };
        // The chunk on which the bound was met has been counted and not consumed.
        let counted = self.fill()?.len();
        let closed = nesting.closed_at.take();
        self.reader.consume(closed.unwrap_or(counted));
        let mut ended = closed.is_some();
        while !ended {
            let (chunk, end) = self.part(&mut nesting)?;
            self.reader.consume(chunk);
            ended = end;
        }
        Ok(())
    }

    /// Bytes of the buffer that belong to a value, and whether it ends there. They are not consumed.
    fn part(&mut self, nesting: &mut Nesting) -> Result<(usize, bool), Bad> {
        let chunk = self.fill()?;
        if chunk.is_empty() {
            return Err(Bad::Cut);
        }
        let mut lines = 0;
        let end = chunk.iter().position(|byte| {
            lines += u64::from(*byte == b'\n');
            nesting.closes(*byte)
        });
        let part = end.map_or(chunk.len(), |at| at + 1);
        nesting.closed_at = end.map(|_| part);
        self.line += lines;
        Ok((part, end.is_some()))
    }

    /// A number or a word, up to a character that may follow one.
    fn word(&mut self) -> Result<Vec<u8>, Bad> {
        let mut kept = Vec::new();
        while let Some(byte) = self.fill()?.first().copied() {
            if byte.is_ascii_whitespace() || matches!(byte, b',' | b']' | b'{' | b'[') {
                break;
            }
            if kept.len() < 64 {
                kept.push(byte);
            }
            self.step(byte);
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Cursor};

    fn read(text: &str) -> Vec<Result<(u64, String), String>> {
        let input = Input {
            path: "a.json".into(),
            file: "a.json".into(),
            reader: Box::new(BufReader::with_capacity(5, Cursor::new(text.to_string()))),
            compressed: false,
            notes: Notes::default(),
        };
        open(input)
            .unwrap()
            .map(|item| match item {
                Ok(r) => Ok((r.place.row, serde_json::to_string(&r.fields).unwrap())),
                Err(t) => Err(t.fault.to_string()),
            })
            .collect()
    }

    fn rows(text: &str) -> Vec<(u64, String)> {
        read(text).into_iter().map(Result::unwrap).collect()
    }

    #[test]
    fn arrays_and_rows_behind_each_other_are_one_thing() {
        let expected = [
            (1, r#"{"a":"}\"]"}"#.to_string()),
            (2, r#"{"a":[1,{}]}"#.to_string()),
        ];
        assert_eq!(
            rows("[{\"a\": \"}\\\"]\"},\n {\"a\": [1, {}]}]\n"),
            expected
        );
        assert_eq!(rows("{\"a\": \"}\\\"]\"}\n{\"a\": [1, {}]}"), expected);
        assert_eq!(rows("[]"), []);
        // One pretty-printed object is one row, and a conversation is not a wrapper.
        assert_eq!(rows("{\n \"messages\": [{\"role\": \"user\"}]\n}").len(), 1);
    }

    #[test]
    fn rows_of_an_array_in_one_line_are_counted() {
        let found = read("[{\"a\": 1}, {\"a\": 2}, {\"a\": }, {\"a\": 4}]");
        let places: Vec<u64> = found.iter().flatten().map(|(row, _)| *row).collect();
        assert_eq!(places, [1, 2, 4]);
        assert!(found[2].as_ref().unwrap_err().starts_with("a.json:3: "));
        // If rows are on separate lines, errors name the line.
        let places = rows("[\n{\"a\": 1},\n\n{\"a\": 2}]").into_iter();
        assert_eq!(places.map(|(row, _)| row).collect::<Vec<_>>(), [2, 4]);
    }

    #[test]
    fn an_object_around_an_array_stands_for_its_rows() {
        let found = rows("{\"data\": [{\"a\": 1},\n{\"a\": 2}]}");
        assert_eq!(found, [(1, r#"{"a":1}"#.into()), (2, r#"{"a":2}"#.into())]);
    }

    #[test]
    fn what_is_cut_off_says_where_and_gives_what_was_whole() {
        let found = read("[\n{\"a\": 1},\n{\"a\": ");
        assert_eq!(found[0].as_ref().unwrap().0, 2);
        assert_eq!(
            found[1],
            Err("a.json:3: the file ends inside this row".into())
        );
        let found = read("[{\"a\": 1}\n");
        assert!(found[1].as_ref().unwrap_err().contains("before the `]`"));
    }

    #[test]
    fn a_row_that_is_too_long_is_passed_over() {
        let long = "x".repeat(MAX_ROW_BYTES);
        let found = read(&format!(
            "[{{\"a\": 1}},\n{{\"a\": \"{long}\n}}\"}},\n{{\"a\": 2}}]"
        ));
        assert_eq!(found.len(), 3);
        assert!(
            found[1]
                .as_ref()
                .unwrap_err()
                .contains("a.json:2: a row of more than 16 MiB")
        );
        assert_eq!(found[2], Ok((4, r#"{"a":2}"#.into())));
    }

    #[test]
    fn other_values_and_stray_bytes_are_faults_with_their_line() {
        let found = read("[1,\n{\"a\": 1},\n\"x\", null]");
        assert!(
            found[0].as_ref().unwrap_err().starts_with(
                "a.json:1: expected a row (an object with named columns), found a plain"
            )
        );
        assert!(found[1].is_ok());
        assert!(found[2].as_ref().unwrap_err().starts_with(
            "a.json:3: expected a row (an object with named columns), found a string"
        ));
        assert!(found[3].as_ref().unwrap_err().contains("found null"));
        let found = read("[{}]\n}");
        assert!(
            found[1]
                .as_ref()
                .unwrap_err()
                .starts_with("a.json:2: expected a row or `,`, found `}`")
        );
    }
}
