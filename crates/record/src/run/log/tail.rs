//! Reading a log that may still be growing.

use crate::base::files::open_plain;
use crate::wire::{DecodeError, Envelope, Event, MAX_LINE, decode_envelope};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes read at a time; a longer line makes the window grow up to [`MAX_LINE`].
const CHUNK: usize = 64 * 1024;

/// A cursor over the complete lines of a growing file. Its position is always after a newline, so a half-written line is
/// simply read again later, even if a new engine process truncated a torn tail.
#[derive(Debug)]
pub struct Tail {
    file: File,
    offset: u64,
    window: Vec<u8>,
    /// Complete lines read ahead by [`Tail::next_event`], returned from `returned` on.
    ahead: String,
    returned: usize,
    /// Lines that were too long or not UTF-8: skipped, counted, never hidden.
    damaged: u64,
    /// Lines of a newer version of the wire: skipped and counted too.
    newer: u64,
}

impl Tail {
    /// Starts at the first line.
    ///
    /// # Errors
    /// The log is absent, no plain file, or may not be read.
    pub fn open(path: &Path) -> io::Result<Tail> {
        Ok(Tail {
            file: open_plain(path)?,
            offset: 0,
            window: Vec::new(),
            ahead: String::new(),
            returned: 0,
            damaged: 0,
            newer: 0,
        })
    }

    /// Starts at the first complete line at or after `offset` bytes.
    ///
    /// # Errors
    /// As [`Tail::open`], or the file cannot be read.
    pub fn open_at(path: &Path, offset: u64) -> io::Result<Tail> {
        let mut tail = Tail::open(path)?;
        if offset > 0 {
            // Skip the line that `offset` cuts, unless it begins exactly there: its newline is the byte before.
            tail.offset = offset - 1;
            tail.skip_line()?;
        }
        Ok(tail)
    }

    /// Bytes read so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Where the next line of [`Tail::next_event`] begins: what was read ahead and not yet returned does not count.
    pub fn position(&self) -> u64 {
        self.offset - (self.ahead.len() - self.returned) as u64
    }

    /// Lines skipped because they were not text, too long or no events.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Lines skipped because a newer program wrote them.
    pub fn newer(&self) -> u64 {
        self.newer
    }

    /// Appends complete lines, newlines included, to `out`, up to about `max_bytes` of them but at least one. Returns false
    /// if there is no complete line yet.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_lines(&mut self, out: &mut String, max_bytes: usize) -> io::Result<bool> {
        if self.returned < self.ahead.len() {
            out.push_str(&self.ahead[self.returned..]);
            self.returned = self.ahead.len();
            return Ok(true);
        }
        loop {
            let whole = self.fill(max_bytes.max(1))?;
            if whole == 0 {
                return Ok(false);
            }
            let start = out.len();
            self.offset += whole as u64;
            match std::str::from_utf8(&self.window[..whole]) {
                Ok(lines) => out.push_str(lines),
                Err(_) => self.push_readable(whole, out),
            }
            if out.len() > start {
                return Ok(true);
            }
        }
    }

    /// The next line's envelope; damaged lines are skipped and counted. `None` if there is no complete line yet.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_event(&mut self) -> io::Result<Option<Envelope>> {
        loop {
            let Some(line) = self.ahead[self.returned..].split_inclusive('\n').next() else {
                self.returned = 0;
                let mut ahead = std::mem::take(&mut self.ahead);
                ahead.clear();
                let more = self.read_lines(&mut ahead, CHUNK);
                self.ahead = ahead;
                if more? {
                    continue;
                }
                return Ok(None);
            };
            let decoded = decode_envelope(line.trim_end());
            self.returned += line.len();
            match decoded {
                Ok(envelope) => return Ok(Some(envelope)),
                Err(DecodeError::Version(_)) => self.newer += 1,
                Err(_) => self.damaged += 1,
            }
        }
    }

    /// Puts whole lines into the window: as many as fit into `max_bytes`, at least one. Returns their length.
    fn fill(&mut self, max_bytes: usize) -> io::Result<usize> {
        let mut size = max_bytes.clamp(512, CHUNK);
        loop {
            self.window.resize(size, 0);
            let n = read_at(&self.file, &mut self.window, self.offset)?;
            let bytes = &self.window[..n];
            let first = bytes.iter().position(|&b| b == b'\n').map(|i| i + 1);
            let Some(first) = first else {
                if n < size {
                    return Ok(0);
                }
                if size > MAX_LINE {
                    self.skip_line()?;
                    self.damaged += 1;
                } else {
                    size = (size * 2).min(MAX_LINE + 1);
                }
                continue;
            };
            let limit = n.min(max_bytes);
            let last = bytes[..limit].iter().rposition(|&b| b == b'\n');
            return Ok(last.map_or(first, |i| i + 1));
        }
    }

    /// Moves past the next newline, or to the end if there is none.
    fn skip_line(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let n = read_at(&self.file, &mut buffer, self.offset)?;
            let newline = buffer[..n].iter().position(|&b| b == b'\n');
            self.offset += newline.map_or(n, |i| i + 1) as u64;
            if newline.is_some() || n == 0 {
                return Ok(());
            }
        }
    }

    fn push_readable(&mut self, whole: usize, out: &mut String) {
        for line in self.window[..whole].split_inclusive(|&b| b == b'\n') {
            match std::str::from_utf8(line) {
                Ok(line) => out.push_str(line),
                Err(_) => self.damaged += 1,
            }
        }
    }
}

/// Every readable event of a log, in order. Holds them all: for tests; viewers fold a [`Tail`].
///
/// # Errors
/// The log is absent or cannot be read.
pub fn read_all(path: &Path) -> io::Result<Vec<Envelope>> {
    let mut tail = Tail::open(path)?;
    let mut events = Vec::new();
    while let Some(envelope) = tail.next_event()? {
        events.push(envelope);
    }
    Ok(events)
}

/// Calls `seen` with every event of the given kinds; lines of other kinds are not decoded.
///
/// # Errors
/// The log cannot be read.
pub fn scan_events(path: &Path, kinds: &[&str], mut seen: impl FnMut(Event)) -> io::Result<()> {
    let mut tail = Tail::open(path)?;
    let mut lines = String::new();
    while tail.read_lines(&mut lines, 64 << 10)? {
        for line in lines.lines() {
            if kind_of(line).is_none_or(|kind| kinds.contains(&kind))
                && let Ok(envelope) = decode_envelope(line)
            {
                seen(envelope.event);
            }
        }
        lines.clear();
    }
    Ok(())
}

/// The event's type, if the line has the form that this program writes.
pub fn kind_of(line: &str) -> Option<&str> {
    const MARK: &str = "\"event\":{\"type\":\"";
    let head = line.get(..100).unwrap_or(line);
    let begin = head.find(MARK)? + MARK.len();
    let rest = &line[begin..];
    rest.split_once('"').map(|(kind, _)| kind)
}

/// The last readable event of a log, however long the log and its lines are.
///
/// # Errors
/// The log cannot be read, or a newer program wrote its end.
pub fn last_event(path: &Path) -> io::Result<Option<Envelope>> {
    let length = std::fs::metadata(path)?.len();
    last_within(path, length).map_err(|why| match why {
        TailError::Io(error) => error,
        TailError::Foreign(error) => io::Error::new(io::ErrorKind::InvalidData, error),
    })
}

/// Why the end of a log is not known.
#[derive(Debug)]
pub(super) enum TailError {
    Io(io::Error),
    /// Its lines are of another version of the wire.
    Foreign(DecodeError),
}

impl From<io::Error> for TailError {
    fn from(error: io::Error) -> TailError {
        TailError::Io(error)
    }
}

/// The last readable event of a log of `length` bytes: looked for near its end, then farther and farther from it.
pub(super) fn last_within(path: &Path, length: u64) -> Result<Option<Envelope>, TailError> {
    let mut reach = CHUNK as u64;
    loop {
        let begin = length.saturating_sub(reach);
        let mut tail = Tail::open_at(path, begin)?;
        let (mut lines, mut last) = (String::new(), None);
        while tail.read_lines(&mut lines, CHUNK)? {
            for line in lines.lines() {
                match decode_envelope(line) {
                    Ok(envelope) => last = Some(envelope),
                    Err(error @ DecodeError::Version(_)) => return Err(TailError::Foreign(error)),
                    Err(_) => {}
                }
            }
            lines.clear();
        }
        if last.is_some() || begin == 0 {
            return Ok(last);
        }
        reach = reach.saturating_mul(8);
    }
}

/// The sequence number of a line, without parsing the rest if the line has the usual form.
pub fn seq_of(line: &str) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Head {
        seq: u64,
    }
    let usual = line
        .split_once("\"seq\":")
        .filter(|(before, _)| before.len() <= 16 && before.starts_with("{\"v\":"))
        .map(|(_, after)| after.split_once(',').map_or(after, |(digits, _)| digits))
        .and_then(|digits| digits.parse().ok());
    usual.or_else(|| serde_json::from_str::<Head>(line).ok().map(|head| head.seq))
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match file.read_at(&mut buffer[n..], offset + n as u64) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::wire::{Event, VERSION, encode};
    use std::io::Write;

    fn note(seq: u64, text: &str) -> String {
        encode(&Envelope {
            v: VERSION,
            seq,
            t: UnixMillis(0),
            event: Event::Noted {
                step: seq,
                text: text.into(),
            },
        })
    }

    fn seqs(path: &Path) -> Vec<u64> {
        read_all(path).unwrap().iter().map(|e| e.seq).collect()
    }

    #[test]
    fn a_half_written_line_is_not_yet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let second = note(2, "later");
        let (begin, end) = second.split_at(20);
        std::fs::write(&path, note(1, "a") + begin).unwrap();
        let mut tail = Tail::open(&path).unwrap();
        assert_eq!(tail.next_event().unwrap().unwrap().seq, 1);
        assert!(tail.next_event().unwrap().is_none());
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        file.write_all(end.as_bytes()).unwrap();
        assert_eq!(tail.next_event().unwrap().unwrap().seq, 2);
        assert!(tail.next_event().unwrap().is_none());
    }

    #[test]
    fn a_replaced_torn_tail_is_read_as_what_stands_there_now() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let first = note(1, "a");
        std::fs::write(&path, format!("{first}{{\"v\":1,\"seq\":2,\"to")).unwrap();
        let mut tail = Tail::open(&path).unwrap();
        tail.next_event().unwrap();
        assert!(tail.next_event().unwrap().is_none());
        std::fs::write(&path, first + &note(2, "b")).unwrap();
        assert_eq!(tail.next_event().unwrap().unwrap().seq, 2);
    }

    #[test]
    fn damage_is_skipped_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut bytes = note(1, "a").into_bytes();
        bytes.extend_from_slice(b"\xff\xfe broken\n{\"v\":1}\n");
        bytes.extend(std::iter::repeat_n(b'x', MAX_LINE + 10));
        bytes.push(b'\n');
        bytes.extend_from_slice(note(2, "b").as_bytes());
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(seqs(&path), [1, 2]);
        let mut tail = Tail::open(&path).unwrap();
        while tail.next_event().unwrap().is_some() {}
        assert_eq!(tail.damaged(), 3);
    }

    #[test]
    fn long_lines_and_small_chunks_give_every_line_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let lines: String = (1..=60)
            .map(|seq| note(seq, &"y".repeat((seq as usize * 7919) % 200_000)))
            .collect();
        std::fs::write(&path, &lines).unwrap();
        assert_eq!(seqs(&path), (1..=60).collect::<Vec<_>>());
        for max in [1, 100, 70_000, usize::MAX] {
            let mut tail = Tail::open(&path).unwrap();
            let mut all = String::new();
            while tail.read_lines(&mut all, max).unwrap() {}
            assert!(all == lines, "max {max}");
        }
    }

    #[test]
    fn the_last_event_is_found_behind_lines_of_any_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let last = |log: String| {
            std::fs::write(&path, log).unwrap();
            last_event(&path).unwrap().map(|envelope| envelope.seq)
        };
        let long = "y".repeat(MAX_LINE - 200);
        assert_eq!(last(String::new()), None);
        assert_eq!(last(note(1, "a") + &note(2, &long)), Some(2));
        // A damaged or half-written line is passed over, whatever its length.
        assert_eq!(last(note(1, "a") + &note(2, "b") + &long), Some(2));
        assert_eq!(last(note(1, "a") + &long + "\n" + &long + "\n"), Some(1));
        assert_eq!(last(long.clone() + "\n"), None);
        let newer = note(2, "b").replacen("\"v\":1", "\"v\":99", 1);
        std::fs::write(&path, note(1, "a") + &newer).unwrap();
        assert!(last_event(&path).is_err());
    }

    #[test]
    fn opening_in_the_middle_starts_at_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let first = note(1, "a");
        std::fs::write(&path, first.clone() + &note(2, "b") + &note(3, "c")).unwrap();
        let seq_at = |offset| {
            let mut tail = Tail::open_at(&path, offset).unwrap();
            tail.next_event().unwrap().map(|e| e.seq)
        };
        assert_eq!(seq_at(0), Some(1));
        assert_eq!(seq_at(1), Some(2));
        assert_eq!(seq_at(first.len() as u64), Some(2));
        assert_eq!(seq_at(first.len() as u64 + 1), Some(3));
        assert_eq!(seq_at(10_000), None);
    }

    #[test]
    fn events_and_lines_may_be_taken_in_turn() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let lines: String = (1..=5).map(|seq| note(seq, "x")).collect();
        std::fs::write(&path, lines).unwrap();
        let mut tail = Tail::open(&path).unwrap();
        assert_eq!(tail.next_event().unwrap().unwrap().seq, 1);
        let mut rest = String::new();
        while tail.read_lines(&mut rest, 1).unwrap() {}
        let seqs: Vec<u64> = rest.lines().filter_map(seq_of).collect();
        assert_eq!(seqs, [2, 3, 4, 5]);
        assert!(tail.next_event().unwrap().is_none());
    }

    #[test]
    fn the_sequence_number_is_found_in_any_order_of_keys() {
        assert_eq!(seq_of(&note(12_345, "x")), Some(12_345));
        assert_eq!(
            seq_of(r#"{"event":{"text":"\"seq\":7,"},"seq":9}"#),
            Some(9)
        );
        assert_eq!(seq_of("nonsense"), None);
    }
}
