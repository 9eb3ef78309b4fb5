//! Follows a file that another program writes: what was appended since the last read, in bounded pieces. A replaced or
//! truncated file is distinguished from one that grew.

use crate::base::clock::UnixMillis;
use crate::base::files::{Identity, open_plain};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Most bytes read in one poll.
pub const AT_ONCE: usize = 1 << 20;
/// Longest line or record, in bytes; a longer line is left out.
pub const MAX_LINE: usize = 1 << 20;
/// Bytes at the beginning, and before the cursor, by which a file that was written anew is known: two starts of one program begin
/// alike, and the second may have written more than was read of the first.
const HEAD: usize = 256;

/// What happened to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    None,
    Grew,
    /// Another file, or other contents: reading began anew.
    Replaced,
}

/// A cursor over a growing file.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    identity: Option<Identity>,
    at: u64,
    head: Vec<u8>,
    /// What was read last, before the cursor.
    last: Vec<u8>,
    /// The first line belongs to the head, however long it is.
    by_first_line: bool,
    /// Read, and not yet taken.
    pub buffer: Vec<u8>,
    /// The rest of a line that is left out stands before the next one.
    inside_long: bool,
    /// Lines that were left out.
    pub left_out: u64,
    /// The last line is taken although it has no end.
    takes_rest: bool,
}

impl Tail {
    pub fn new(path: &Path) -> Tail {
        Tail {
            path: path.into(),
            identity: None,
            at: 0,
            head: Vec::new(),
            last: Vec::new(),
            by_first_line: false,
            buffer: Vec::new(),
            inside_long: false,
            left_out: 0,
            takes_rest: false,
        }
    }

    /// Whether a line without an end is left.
    pub fn has_rest(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Takes that line with the next ones: nobody writes its end.
    pub fn take_rest(&mut self) {
        self.takes_rest = true;
    }

    /// Of a file that is another one when its first line is: a table whose header grew.
    pub fn by_first_line(path: &Path) -> Tail {
        Tail {
            by_first_line: true,
            ..Tail::new(path)
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads at most [`AT_ONCE`] further bytes into the buffer; true where the file has more of them. A file that is not there
    /// has none.
    ///
    /// # Errors
    /// It cannot be read, or is no plain file.
    pub fn read(&mut self) -> io::Result<(Change, bool)> {
        let mut file = match open_plain(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((Change::None, false)),
            Err(e) => return Err(e),
        };
        let length = file.metadata()?.len();
        // For a symlink, its own identity: a retargeted link is another file; the contents decide the rest.
        let identity = Identity::at(&self.path)?;
        let mut head = Vec::new();
        let known = HEAD.max(self.head.len()) as u64;
        (&mut file).take(known).read_to_end(&mut head)?;
        let same = self.identity == Some(identity)
            && length >= self.at
            && head.starts_with(&self.head)
            && self.stands_before_cursor(&mut file)?;
        let replaced = self.identity.is_some() && !same;
        if !same {
            *self = Tail {
                identity: Some(identity),
                left_out: self.left_out,
                by_first_line: self.by_first_line,
                ..Tail::new(&self.path)
            };
        }
        self.head = head;
        file.seek(SeekFrom::Start(self.at))?;
        let before = self.buffer.len();
        file.take(AT_ONCE as u64).read_to_end(&mut self.buffer)?;
        let grown = self.buffer.len() - before;
        self.at += grown as u64;
        self.last.extend_from_slice(&self.buffer[before..]);
        self.last.drain(..self.last.len().saturating_sub(HEAD));
        self.extend_head();
        let change = match (replaced, grown) {
            (true, _) => Change::Replaced,
            (false, 0) => Change::None,
            (false, _) => Change::Grew,
        };
        Ok((change, grown > 0 && self.at < length))
    }

    /// Whether what was read last is still there.
    fn stands_before_cursor(&self, file: &mut File) -> io::Result<bool> {
        file.seek(SeekFrom::Start(self.at - self.last.len() as u64))?;
        let mut there = Vec::new();
        file.take(self.last.len() as u64).read_to_end(&mut there)?;
        Ok(there == self.last)
    }

    /// Takes the first line into the head while nothing of the file was taken.
    fn extend_head(&mut self) {
        let is_whole = self.at == self.buffer.len() as u64;
        if !self.by_first_line || !is_whole || self.buffer.len() <= self.head.len() {
            return;
        }
        let line = self.buffer.iter().take(MAX_LINE).position(|b| *b == b'\n');
        let end = line.map_or(0, |end| end + 1);
        if end > self.head.len() {
            self.head = self.buffer[..end].to_vec();
        }
    }

    /// Complete lines of the buffer, without their ends; what is no UTF-8 in them is replaced.
    pub fn lines(&mut self) -> Vec<String> {
        let end = self.buffer.iter().rposition(|b| *b == b'\n');
        let complete = match std::mem::take(&mut self.takes_rest) {
            true => self.buffer.len(),
            false => end.map_or(0, |at| at + 1),
        };
        let mut lines = Vec::new();
        for line in self.buffer[..complete].split_inclusive(|b| *b == b'\n') {
            if std::mem::take(&mut self.inside_long) || line.len() > MAX_LINE {
                self.left_out += 1;
                continue;
            }
            let text = String::from_utf8_lossy(line);
            lines.push(text.trim_end_matches(['\n', '\r']).to_string());
        }
        self.buffer.drain(..complete);
        if self.buffer.len() > MAX_LINE {
            self.buffer.clear();
            self.inside_long = true;
        }
        lines
    }
}

/// When a file changed last.
pub fn changed(path: &Path) -> Option<UnixMillis> {
    modified(&std::fs::metadata(path).ok()?)
}

/// The same from what is known of it.
pub fn modified(meta: &Metadata) -> Option<UnixMillis> {
    let since = meta
        .modified()
        .ok()?
        .duration_since(std::time::UNIX_EPOCH)
        .ok()?;
    Some(UnixMillis(u64::try_from(since.as_millis()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn append(path: &Path, text: &str) {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn lines_come_when_they_are_whole_and_a_new_file_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut tail = Tail::new(&path);
        assert_eq!(tail.read().unwrap(), (Change::None, false));
        append(&path, "one\r\ntw");
        assert_eq!(tail.read().unwrap().0, Change::Grew);
        assert_eq!(tail.lines(), ["one"]);
        append(&path, "o\n");
        tail.read().unwrap();
        assert_eq!(tail.lines(), ["two"]);
        assert_eq!(tail.read().unwrap(), (Change::None, false));
        // Longer than before, in the same file: only its beginning decides.
        std::fs::write(&path, "three\nfour\nfive\n").unwrap();
        assert_eq!(tail.read().unwrap().0, Change::Replaced);
        assert_eq!(tail.lines(), ["three", "four", "five"]);
        std::fs::write(&path, "t").unwrap();
        assert_eq!(tail.read().unwrap().0, Change::Replaced);
        assert_eq!(tail.lines(), [""; 0]);
    }

    #[test]
    fn a_file_that_begins_alike_and_is_longer_is_another_one_by_what_was_read_last() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let begins = format!("{}\n", "settings ".repeat(HEAD));
        append(&path, &format!("{begins}one\n"));
        let mut tail = Tail::new(&path);
        tail.read().unwrap();
        assert_eq!(tail.lines().len(), 2);
        std::fs::write(&path, format!("{begins}two\nthree\n")).unwrap();
        assert_eq!(tail.read().unwrap().0, Change::Replaced);
        assert_eq!(tail.lines()[1..], ["two", "three"]);
        append(&path, "four\n");
        assert_eq!(tail.read().unwrap().0, Change::Grew);
        assert_eq!(tail.lines(), ["four"]);
    }

    #[test]
    fn a_table_is_another_one_when_its_first_line_changes_anywhere() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let columns = "x".repeat(2 * HEAD);
        // The header comes in two parts, and the row behind it with a later read.
        append(&path, &columns[..HEAD + 10]);
        let mut tail = Tail::by_first_line(&path);
        assert_eq!(tail.read().unwrap().0, Change::Grew);
        assert!(tail.lines().is_empty());
        append(&path, &format!("{},a\n1\n", &columns[HEAD + 10..]));
        assert_eq!(
            (tail.read().unwrap().0, tail.lines().len()),
            (Change::Grew, 2)
        );
        append(&path, "2\n");
        assert_eq!(
            (tail.read().unwrap().0, tail.lines().len()),
            (Change::Grew, 1)
        );
        std::fs::write(&path, format!("{columns},a,b\n1\n2\n3\n")).unwrap();
        assert_eq!(
            (tail.read().unwrap().0, tail.lines().len()),
            (Change::Replaced, 4)
        );
        std::fs::write(&path, format!("{columns},a,b,c\n1\n2\n3\n4\n")).unwrap();
        assert_eq!(
            (tail.read().unwrap().0, tail.lines().len()),
            (Change::Replaced, 5)
        );
    }

    #[test]
    fn a_line_without_end_costs_no_more_than_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, &"x".repeat(3 * MAX_LINE));
        append(&path, "\nshort\n");
        let mut tail = Tail::new(&path);
        let mut lines = Vec::new();
        loop {
            let (_, more) = tail.read().unwrap();
            lines.extend(tail.lines());
            assert!(tail.buffer.len() <= MAX_LINE);
            if !more {
                break;
            }
        }
        assert_eq!((lines, tail.left_out), (vec!["short".to_string()], 1));
        assert!(Tail::new(Path::new("/dev/zero")).read().is_err());
    }
}
