//! Lines of a file of any size in bounded memory.

use super::MAX_ROW_BYTES;
use std::io::{self, BufRead};

/// Why a line cannot be had.
#[derive(Debug)]
pub(super) enum BadLine {
    /// Longer than the bound; the next call goes on behind it.
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
    line: Vec<u8>,
    /// The rest of an overlong line stands before the next one.
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

    /// The next line with its line end; `None` at the end of the file. A byte-order mark is left to the caller.
    pub fn next(&mut self) -> Option<Result<&[u8], BadLine>> {
        if self.inside_long
            && let Err(e) = self.skip_rest()
        {
            return Some(Err(BadLine::Io(e)));
        }
        self.line.clear();
        self.offset = self.consumed;
        loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    self.number += 1;
                    return Some(Err(BadLine::Io(e)));
                }
            };
            if chunk.is_empty() {
                if self.line.is_empty() {
                    return None;
                }
                break;
            }
            let end = chunk.iter().position(|b| *b == b'\n').map(|at| at + 1);
            let take = end.unwrap_or(chunk.len());
            if self.line.len() + take > self.max {
                self.number += 1;
                self.inside_long = true;
                return Some(Err(BadLine::TooLong));
            }
            self.line.extend_from_slice(&chunk[..take]);
            self.reader.consume(take);
            self.consumed += take as u64;
            if end.is_some() {
                break;
            }
        }
        self.number += 1;
        Some(Ok(&self.line))
    }

    fn skip_rest(&mut self) -> io::Result<()> {
        self.consumed += self.reader.skip_until(b'\n')? as u64;
        self.inside_long = false;
        Ok(())
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
        while let Some(line) = lines.next() {
            let line = line.map(<[u8]>::to_vec).map_err(|_| ());
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
    }
}
