//! Text tables with a header line, quotes as in RFC 4180. Columns are separated by commas or tabs, as the file's name says, or by
//! what the header shows: spreadsheets write semicolons where the comma is the decimal sign. Every value is a string.

use super::{Container, Stream};
use crate::base::human;
use crate::data::source::fault::{LimitExceeded, ReadFault};
use crate::data::source::input::Input;
use crate::data::source::{MAX_ROW_BYTES, utf8};
use crate::data::{DataError, Place, Record};
use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};
use serde_json::{Map, Value};
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

pub(super) const COMMAS: Container = Container {
    id: "csv",
    extensions: &["csv"],
    open: |input| open(input, b','),
};

pub(super) const TABS: Container = Container {
    id: "tsv",
    extensions: &["tsv", "tab"],
    open: |input| open(input, b'\t'),
};

struct Rows {
    reader: Reader<Bounded>,
    /// Of the columns that are read.
    names: Vec<String>,
    /// The first column is an index without a name.
    indexed: bool,
    file: Arc<str>,
    read: Arc<AtomicUsize>,
    cr_lf: Arc<AtomicBool>,
    never_closed: Arc<AtomicU64>,
    record: ByteRecord,
    ended: bool,
}

/// What may separate columns, and the word for it.
const SEPARATORS: [(u8, &str); 4] = [
    (b',', "commas"),
    (b'\t', "tabs"),
    (b'|', "vertical bars"),
    // The last of several that occur equally often is taken.
    (b';', "semicolons"),
];

/// What occurs most often outside of quotes in the first line; `own`, that of the file's kind, where nothing occurs more often.
fn separator(head: &[u8], own: u8) -> u8 {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let mut counts = [0_usize; SEPARATORS.len()];
    // A quote opens at the start of a field, and again right behind the one that closed: two are one inside a value.
    let (mut quoted, mut opens) = (false, true);
    for &byte in head {
        if byte == b'"' && (quoted || opens) {
            quoted = !quoted;
            opens = true;
        } else if quoted {
            continue;
        } else if matches!(byte, b'\r' | b'\n') {
            break;
        } else {
            let found = SEPARATORS.iter().position(|(known, _)| *known == byte);
            opens = found.is_some();
            if let Some(at) = found {
                counts[at] += 1;
            }
        }
    }
    let known = SEPARATORS.iter().map(|(known, _)| *known).zip(counts);
    let most = known.max_by_key(|(known, count)| (*count, *known == own));
    most.filter(|(_, count)| *count > 0)
        .map_or(own, |(known, _)| known)
}

fn open(mut input: Input, own: u8) -> Result<Stream, DataError> {
    // What cannot be read is reported by the reader of the table.
    let delimiter = match input.reader.fill_buf() {
        Ok(head) => separator(head, own),
        Err(_) => own,
    };
    let known = SEPARATORS.iter().find(|(known, _)| *known == delimiter);
    if let (true, Some((_, word))) = (delimiter != own, known) {
        input.notes.add(format!(
            "{}: columns are separated by {word}, as the first line shows",
            input.file
        ));
    }
    let read = Arc::new(AtomicUsize::new(0));
    let cr_lf = Arc::new(AtomicBool::new(false));
    let never_closed = Arc::new(AtomicU64::new(0));
    let bounded = Bounded {
        inner: Box::new(input.reader),
        read: read.clone(),
        cr_lf: cr_lf.clone(),
        begun: false,
        quotes: Quotes::new(delimiter),
        never_closed: never_closed.clone(),
    };
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter)
        .from_reader(bounded);
    let place = Place {
        file: input.file.clone(),
        row: 1,
    };
    let headers = reader.byte_headers().map_err(|e| {
        let row = never_closed.load(Ordering::Relaxed).max(place.row);
        trouble(
            &e,
            &Place {
                row,
                ..place.clone()
            },
        )
        .fault
    })?;
    let headers = headers.clone();
    let (names, indexed) = names(&headers, &place, delimiter)?;
    if indexed {
        input.notes.add(format!(
            "{}: the first column has no name and is not read: an index, as pandas writes it without index=False",
            input.file
        ));
    }
    Ok(Box::new(Rows {
        reader,
        names,
        indexed,
        file: input.file,
        read,
        cr_lf,
        never_closed,
        record: ByteRecord::new(),
        ended: false,
    }))
}

/// The names of the columns that are read, and whether an index without a name precedes them.
fn names(
    headers: &ByteRecord,
    place: &Place,
    delimiter: u8,
) -> Result<(Vec<String>, bool), DataError> {
    let fault =
        |what: String, fix: &str| -> DataError { ReadFault::row(place, what, fix).fault.into() };
    let mut names: Vec<String> = Vec::new();
    let mut indexed = false;
    for (at, bytes) in headers.iter().enumerate() {
        let name = utf8::check(bytes).map_err(|bad| {
            fault(
                format!("the name of column {} is {}", at + 1, bad.what),
                bad.fix,
            )
        })?;
        let name = name.trim_start_matches('\u{feff}').trim();
        if name.is_empty() && headers.len() > 1 {
            if at == 0 {
                indexed = true;
                continue;
            }
            let what = format!("column {} has no name", at + 1);
            return Err(fault(what, "name every column in the first line"));
        }
        if names.iter().any(|n| n == name) {
            let what = format!("two columns are named `{name}`");
            return Err(fault(
                what,
                "give each column a distinct name in the first line",
            ));
        }
        names.push(name.to_string());
    }
    if let [only] = names.as_slice() {
        let other = [';', '\t', ',', '|']
            .into_iter()
            .find(|c| *c as u32 != u32::from(delimiter) && only.contains(*c));
        if let Some(other) = other {
            let what = format!(
                "the first line has one column with `{}` in its name",
                other.escape_default()
            );
            let fix = "remove the quotes around the whole line if it separates columns, else name the column otherwise";
            return Err(fault(what, fix));
        }
    }
    Ok((names, indexed))
}

impl Iterator for Rows {
    type Item = Result<Record, ReadFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        // What is read ahead belongs to later rows; the bound is loose by one buffer.
        self.read.store(0, Ordering::Relaxed);
        let mut place = Place {
            file: self.file.clone(),
            row: self.reader.position().line(),
        };
        match self.reader.read_byte_record(&mut self.record) {
            Ok(false) => None,
            Ok(true) => {
                if let Some(position) = self.record.position() {
                    place.row = self.line(position);
                }
                Some(self.fields(place))
            }
            Err(e) => {
                if let Some(position) = e.position() {
                    place.row = self.line(position);
                }
                let opened = self.never_closed.load(Ordering::Relaxed);
                if opened > 0 {
                    place.row = opened;
                }
                let trouble = trouble(&e, &place);
                self.ended = trouble.fatal;
                Some(Err(trouble))
            }
        }
    }
}

impl Rows {
    /// The library takes the LF of a CR LF for a part of the next row, and so counts one line too few.
    fn line(&self, position: &csv::Position) -> u64 {
        position.line() + u64::from(self.cr_lf.load(Ordering::Relaxed))
    }

    fn fields(&self, place: Place) -> Result<Record, ReadFault> {
        let mut fields = Map::new();
        let values = self.record.iter().skip(usize::from(self.indexed));
        for (name, bytes) in self.names.iter().zip(values) {
            let text = utf8::check(bytes).map_err(|bad| {
                let what = format!(
                    "column {name}: {} (byte {} of the value)",
                    bad.what,
                    bad.at + 1
                );
                ReadFault::row(&place, what, bad.fix)
            })?;
            fields.insert(name.clone(), Value::String(text.to_string()));
        }
        Ok(Record { place, fields })
    }
}

fn trouble(error: &csv::Error, place: &Place) -> ReadFault {
    match error.kind() {
        ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => ReadFault::row(
            place,
            format!("{len} columns, but the first line names {expected_len}"),
            "quote values that contain the separator or a line break, and double the quotes inside them",
        ),
        ErrorKind::Io(e) => ReadFault::io(place, e),
        _ => ReadFault::fatal(place, error.to_string(), "write the table again"),
    }
}

/// Follows the quotes as the library does, which takes the end of the file for the end of a quote.
struct Quotes {
    delimiter: u8,
    at: At,
    /// Lines ended so far.
    lines: u64,
    after_cr: bool,
    /// The line where the newest quote opened.
    opened: u64,
    /// Bytes of a byte-order mark that may still come.
    mark: &'static [u8],
}

#[derive(PartialEq, Eq)]
enum At {
    /// Where a quote would open.
    FieldStart,
    Field,
    Quoted,
    /// Behind a quote inside quotes: the end, or the first of two.
    Quote,
}

impl Quotes {
    fn new(delimiter: u8) -> Quotes {
        Quotes {
            delimiter,
            at: At::FieldStart,
            lines: 0,
            after_cr: false,
            opened: 0,
            mark: b"\xef\xbb\xbf",
        }
    }

    fn follow(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            // CR LF is one end of a line.
            self.lines += u64::from(byte == b'\r' || (byte == b'\n' && !self.after_cr));
            self.after_cr = byte == b'\r';
            match self.mark.split_first() {
                Some((first, rest)) if *first == byte => {
                    self.mark = rest;
                    continue;
                }
                _ => self.mark = &[],
            }
            self.at = match (&self.at, byte) {
                (At::FieldStart, b'"') => {
                    self.opened = self.lines + 1;
                    At::Quoted
                }
                (At::Quoted, b'"') => At::Quote,
                (At::Quoted, _) | (At::Quote, b'"') => At::Quoted,
                (_, b'\r' | b'\n') => At::FieldStart,
                (_, byte) if byte == self.delimiter => At::FieldStart,
                _ => At::Field,
            };
        }
    }
}

/// Ends a record that never ends: an open quote would swallow the file.
struct Bounded {
    inner: Box<dyn Read + Send>,
    read: Arc<AtomicUsize>,
    /// Whether the first line ends in CR LF.
    cr_lf: Arc<AtomicBool>,
    begun: bool,
    quotes: Quotes,
    /// The line of a quote that is still open at the end of the file; 0 if there is none.
    never_closed: Arc<AtomicU64>,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read.load(Ordering::Relaxed) > MAX_ROW_BYTES {
            return Err(LimitExceeded::error(
                format!("a row of more than {}", human::bytes(MAX_ROW_BYTES as u64)),
                "probably a quote that is opened and never closed: double the quotes inside values",
            ));
        }
        let n = self.inner.read(buffer)?;
        self.read.fetch_add(n, Ordering::Relaxed);
        self.quotes.follow(&buffer[..n]);
        if n == 0 && !buffer.is_empty() && self.quotes.at == At::Quoted {
            self.never_closed
                .store(self.quotes.opened, Ordering::Relaxed);
            return Err(LimitExceeded::error(
                "this quote is never closed",
                "close it, or double the quotes inside the value; or the file was truncated: download or write it again",
            ));
        }
        if !self.begun && n > 0 {
            self.begun = true;
            let end = buffer[..n].iter().position(|b| *b == b'\n');
            let cr_lf = end.is_some_and(|at| at > 0 && buffer[at - 1] == b'\r');
            self.cr_lf.store(cr_lf, Ordering::Relaxed);
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::source::input::Notes;
    use std::io::{BufReader, Cursor};

    /// A row's line and JSON, or its fault.
    type Row = Result<(u64, String), String>;

    fn read(text: &[u8], delimiter: u8) -> Result<Vec<Row>, String> {
        let input = Input {
            path: "a.csv".into(),
            file: "a.csv".into(),
            reader: Box::new(BufReader::new(Cursor::new(text.to_vec()))),
            compressed: false,
            notes: Notes::default(),
        };
        let rows = open(input, delimiter).map_err(|e| e.to_string())?;
        Ok(rows
            .map(|item| match item {
                Ok(r) => Ok((r.place.row, serde_json::to_string(&r.fields).unwrap())),
                Err(t) => Err(t.fault.to_string()),
            })
            .collect())
    }

    #[test]
    fn quotes_line_ends_and_marks_are_read_as_spreadsheets_write_them() {
        let rows = read(
            b"\xef\xbb\xbfprompt,completion\r\n\"a, \"\"b\"\"\nc\",d\r\nx,y\r\n",
            b',',
        )
        .unwrap();
        assert_eq!(
            rows,
            [
                Ok((2, r#"{"prompt":"a, \"b\"\nc","completion":"d"}"#.into())),
                Ok((4, r#"{"prompt":"x","completion":"y"}"#.into())),
            ]
        );
        assert_eq!(read(b"a\tb\n1\t2\n", b'\t').unwrap().len(), 1);
    }

    #[test]
    fn a_row_of_another_width_is_a_fault_and_the_next_is_read() {
        let rows = read(b"a,b\n1\n1,2\n", b',').unwrap();
        assert_eq!(
            rows[0],
            Err("a.csv:2: 1 columns, but the first line names 2".into())
        );
        assert!(rows[1].is_ok());
        let rows = read(b"a,b\n1,\xff\n", b',').unwrap();
        assert!(
            rows[0]
                .as_ref()
                .unwrap_err()
                .contains("column b: not UTF-8")
        );
    }

    #[test]
    fn names_must_be_there_and_differ() {
        assert!(
            read(b"a,a\n1,2\n", b',')
                .unwrap_err()
                .contains("two columns are named `a`")
        );
        assert!(
            read(b"a,\n1,2\n", b',')
                .unwrap_err()
                .contains("column 2 has no name")
        );
        assert!(
            read(b"\"a;b\"\n\"1;2\"\n", b',')
                .unwrap_err()
                .contains("one column with `;`")
        );
    }

    /// A table from a spreadsheet where the comma is the decimal sign was to be converted by hand.
    #[test]
    fn the_first_line_shows_what_separates_columns() {
        let row = |text: &str, own| {
            let rows = read(text.as_bytes(), own).unwrap();
            rows.into_iter().next().unwrap().unwrap().1
        };
        let values = r#"{"Frage":"Wie viel?","Preis":"3,50"}"#;
        assert_eq!(row("Frage;Preis\r\nWie viel?;3,50\r\n", b','), values);
        assert_eq!(
            row("\u{feff}\"Frage\";\"Preis\"\nWie viel?;\"3,50\"\n", b','),
            values
        );
        assert_eq!(row("Frage\tPreis\nWie viel?\t3,50\n", b','), values);
        assert_eq!(row("Frage|Preis\nWie viel?|3,50\n", b'\t'), values);
        // A comma in a name, and separators inside quotes.
        let named = r#"{"Preis, netto":"3,5","a":"1","b":"2"}"#;
        assert_eq!(row("Preis, netto;a;b\n3,5;1;2\n", b','), named);
        let quoted = r#"{"a;\"b\";c":"1","d":"2"}"#;
        assert_eq!(row("\"a;\"\"b\"\";c\",d\n1,2\n", b','), quoted);
        assert_eq!(row("a,b;c\n1,2\n", b','), r#"{"a":"1","b;c":"2"}"#);
        assert_eq!(row("text\na;b;c\n", b','), r#"{"text":"a;b;c"}"#);
        // A value with the separator in it is quoted here as well.
        let rows = read(b"a;b\n1;2;3\n\"1;2\";3\n", b',').unwrap();
        assert!(rows[0].is_err());
        assert_eq!(rows[1], Ok((3, r#"{"a":"1;2","b":"3"}"#.into())));
    }

    #[test]
    fn an_index_without_a_name_is_left_out() {
        let rows = read(b",text,n\n0,a,1\n1,b,2\n", b',').unwrap();
        let expected = [r#"{"text":"a","n":"1"}"#, r#"{"text":"b","n":"2"}"#];
        let found = rows.into_iter().map(|row| row.unwrap().1);
        assert_eq!(found.collect::<Vec<_>>(), expected);
        let rows = read(b"\xef\xbb\xbf\ttext\n0\ta\n", b'\t').unwrap();
        assert_eq!(rows, [Ok((2, r#"{"text":"a"}"#.into()))]);
        assert!(
            read(b",,a\n0,1,x\n", b',')
                .unwrap_err()
                .contains("column 2 has no name")
        );
    }

    #[test]
    fn a_quote_that_is_never_closed_is_named_and_swallows_nothing() {
        let fault = |text: &str| {
            let rows = read(text.as_bytes(), b',').unwrap();
            rows.last().unwrap().as_ref().unwrap_err().clone()
        };
        let told = "this quote is never closed";
        assert_eq!(fault("a,b\na,\"b\nc,d\ne,f\n"), format!("a.csv:2: {told}"));
        assert_eq!(
            fault("a,b\r\n\"x\r\ny\",1\r\n1,\"2\r\n3,4"),
            format!("a.csv:4: {told}")
        );
        // The first of two quotes, at the end of the file.
        assert!(read(b"a,b\n1,\"2\"", b',').unwrap()[0].is_ok());
        assert_eq!(fault("a,b\n1,\"2\"\""), format!("a.csv:2: {told}"));
        // Quotes inside a value open nothing.
        assert!(read(b"a,b\n5\" nail,x\"y\n", b',').unwrap()[0].is_ok());
        let header = read(b"\xef\xbb\xbf\"a,b\n1,2\n", b',').unwrap_err();
        assert_eq!(header, format!("a.csv:1: {told}"));
    }

    #[test]
    fn an_open_quote_does_not_swallow_the_machine() {
        let mut text = b"a,b\n1,\"never closed ".to_vec();
        text.resize(40 << 20, b'x');
        let rows = read(&text, b',').unwrap();
        assert_eq!(rows.len(), 1);
        assert!(rows[0].as_ref().unwrap_err().contains("more than 16 MiB"));
    }
}
