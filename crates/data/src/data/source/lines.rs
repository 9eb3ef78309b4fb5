//! Lines of a file of any size in bounded memory.

use super::MAX_ROW_BYTES;
use super::fault::ReadFault;
use super::input::{Input, Notes};
use crate::data::Place;
use std::io::{self, BufRead, Read};
use std::sync::Arc;

/// Why a line cannot be had.
#[derive(Debug)]
pub(super) enum BadLine {
    /// Longer than the bound; the next call continues after it.
    TooLong,
    Io(io::Error),
}

/// Lines with their numbers.
pub(super) struct Lines<R> {
    reader: R,
    /// The line read last, from 1.
    pub number: u64,
    /// Bytes of the file in front of the line read last.
    pub offset: u64,
    consumed: u64,
    /// The line read last.
    pub line: Vec<u8>,
    /// The rest of an overlong line precedes the next one.
    inside_long: bool,
    max: usize,
}

impl<R: BufRead> Lines<R> {
    pub fn new(reader: R) -> Lines<R> {
        Lines {
            reader,
            number: 0,
            offset: 0,
            consumed: 0,
            line: Vec::new(),
            inside_long: false,
            max: MAX_ROW_BYTES,
        }
    }

    /// The line read last without the byte-order mark that a file may begin with; dropping one is noted.
    pub fn unmarked(&self, file: &str, notes: &Notes) -> &[u8] {
        let mark = (self.number == 1).then(|| self.line.strip_prefix(b"\xef\xbb\xbf"));
        match mark.flatten() {
            Some(rest) => {
                notes.add(format!("{file}: a byte-order mark was dropped"));
                rest
            }
            None => &self.line,
        }
    }

    /// Reads the next line, with its line end, into [`Self::line`]; `None` at the end of the file.
    pub fn advance(&mut self) -> Option<Result<(), BadLine>> {
        if self.inside_long
            && let Err(e) = self.skip_rest()
        {
            return Some(Err(BadLine::Io(e)));
        }
        self.line.clear();
        self.offset = self.consumed;
        let most = self.max as u64 + 1;
        let read = self
            .reader
            .by_ref()
            .take(most)
            .read_until(b'\n', &mut self.line);
        self.consumed += self.line.len() as u64;
        match read {
            Ok(0) => return None,
            Ok(_) => self.number += 1,
            Err(e) => {
                self.number += 1;
                return Some(Err(BadLine::Io(e)));
            }
        }
        if self.line.len() > self.max {
            self.inside_long = !self.line.ends_with(b"\n");
            return Some(Err(BadLine::TooLong));
        }
        Some(Ok(()))
    }

    fn skip_rest(&mut self) -> io::Result<()> {
        self.consumed += self.reader.skip_until(b'\n')? as u64;
        self.inside_long = false;
        Ok(())
    }
}

/// The lines of one open file, with what messages about them need.
pub(super) struct FileLines {
    pub lines: Lines<Box<dyn BufRead + Send>>,
    pub file: Arc<str>,
    pub notes: Notes,
    /// Nothing follows: a fault ended the file.
    pub ended: bool,
}

impl FileLines {
    pub fn new(input: Input) -> FileLines {
        FileLines {
            lines: Lines::new(input.reader),
            file: input.file,
            notes: input.notes,
            ended: false,
        }
    }

    /// Reads the next line and gives its place; `too_long` words the fault of one beyond the bound.
    pub fn advance(
        &mut self,
        too_long: fn(&Place) -> ReadFault,
    ) -> Option<Result<Place, ReadFault>> {
        let line = self.lines.advance()?;
        let place = Place {
            file: self.file.clone(),
            row: self.lines.number,
        };
        Some(match line {
            Ok(()) => Ok(place),
            Err(BadLine::TooLong) => Err(too_long(&place)),
            Err(BadLine::Io(e)) => {
                self.ended = true;
                Err(ReadFault::io(&place, &e))
            }
        })
    }

    /// The line read last without a byte-order mark.
    pub fn bytes(&self) -> &[u8] {
        self.lines.unmarked(&self.file, &self.notes)
    }

    pub fn note(&self, note: String) {
        self.notes.add(note);
    }
}

/// A line without its end, and whether that was CR LF.
pub(super) fn without_end(line: &[u8]) -> (&[u8], bool) {
    match line {
        [rest @ .., b'\r', b'\n'] => (rest, true),
        [rest @ .., b'\n'] => (rest, false),
        _ => (line, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Cursor};

    fn all(text: &[u8], max: usize, buffer: usize) -> Vec<(u64, u64, Result<Vec<u8>, ()>)> {
        let mut lines = Lines::new(BufReader::with_capacity(buffer, Cursor::new(text)));
        lines.max = max;
        let mut out = Vec::new();
        while let Some(line) = lines.advance() {
            let line = line.map(|()| lines.line.clone()).map_err(|_| ());
            out.push((lines.number, lines.offset, line));
        }
        out
    }

    #[test]
    fn lines_have_numbers_and_offsets_whatever_the_buffer() {
        for buffer in [1, 3, 64] {
            let lines = all(b"one\r\n\nthree", 100, buffer);
            assert_eq!(
                lines,
                [
                    (1, 0, Ok(b"one\r\n".to_vec())),
                    (2, 5, Ok(b"\n".to_vec())),
                    (3, 6, Ok(b"three".to_vec())),
                ]
            );
        }
        assert_eq!(without_end(b"one\r\n"), (&b"one"[..], true));
        assert_eq!(without_end(b"\n"), (&b""[..], false));
    }

    #[test]
    fn an_overlong_line_is_passed_over_and_the_count_stays_right() {
        let lines = all(b"ab\nlonger than six\ncd\n", 6, 4);
        assert_eq!(lines[1].0, 2);
        assert!(lines[1].2.is_err());
        assert_eq!(lines[2], (3, 19, Ok(b"cd\n".to_vec())));
        // The line end belongs to the line: six and one.
        let lines = all(b"sixsix\nab\n", 6, 4);
        assert!(lines[0].2.is_err() && lines[1] == (2, 7, Ok(b"ab\n".to_vec())));
    }
}
