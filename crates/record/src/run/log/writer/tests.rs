//! The log under kills, torn tails, full disks and slow disks.

use super::super::read_all;
use super::*;
use crate::base::clock::ManualClock;
use crate::wire::{Outcome, decode_envelope};

fn note(i: u64) -> Event {
    Event::Noted {
        step: i,
        text: format!("note {i}"),
    }
}

fn write(path: &Path, range: std::ops::RangeInclusive<u64>) -> u64 {
    let clock = Arc::new(ManualClock::at(5));
    let (mut sender, thread) = LogWriter::open(path, clock, |_| {}).unwrap();
    for i in range {
        sender.emit(note(i)).unwrap();
    }
    drop(sender);
    thread.finish().unwrap()
}

fn seqs(path: &Path) -> Vec<u64> {
    read_all(path).unwrap().iter().map(|e| e.seq).collect()
}

#[test]
fn numbers_go_on_over_processes_and_torn_tails_at_every_byte() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.jsonl");
    assert_eq!(write(&path, 1..=3), 3);
    let whole = std::fs::read(&path).unwrap();
    let second = whole.iter().position(|&b| b == b'\n').unwrap() + 1;
    for cut in 0..=whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let last = write(&path, 7..=9);
        let expected: Vec<u64> = (1..=last).collect();
        assert_eq!(seqs(&path), expected, "cut at {cut}");
        assert!(cut < second || last > 3);
    }
}

#[test]
fn a_damaged_last_line_neither_repeats_nor_skips_a_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.jsonl");
    write(&path, 1..=2);
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(&[0; 100]).unwrap();
    file.write_all(b"\n").unwrap();
    write(&path, 3..=4);
    assert_eq!(seqs(&path), [1, 2, 3, 4]);
}

#[test]
fn a_log_of_a_newer_program_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.jsonl");
    let line = "{\"v\":99,\"seq\":1,\"t\":0,\"event\":{\"type\":\"Noted\"}}\n";
    std::fs::write(&path, line).unwrap();
    let refused = LogWriter::open(&path, Arc::new(ManualClock::at(0)), |_| {});
    assert!(matches!(refused, Err(LogError::Foreign { .. })));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), line);
}

#[test]
fn written_before_heard() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.jsonl");
    let (tell, heard) = mpsc::channel();
    let watched = path.clone();
    let (mut sender, thread) = LogWriter::open(&path, Arc::new(ManualClock::at(0)), move |seq| {
        tell.send((seq, seqs(&watched).len() as u64)).unwrap();
    })
    .unwrap();
    for i in 1..=50 {
        sender.emit(note(i)).unwrap();
    }
    drop(sender);
    assert_eq!(thread.finish().unwrap(), 50);
    let heard: Vec<_> = heard.iter().collect();
    assert!(heard.iter().all(|(seq, on_disk)| seq == on_disk));
    assert_eq!(heard.last(), Some(&(50, 50)));
}

#[test]
fn an_event_beyond_the_line_limit_leaves_a_warning_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.jsonl");
    let (mut sender, thread) =
        LogWriter::open(&path, Arc::new(ManualClock::at(0)), |_| {}).unwrap();
    sender
        .emit(Event::Noted {
            step: 1,
            text: "x".repeat(MAX_LINE),
        })
        .unwrap();
    drop(sender);
    thread.finish().unwrap();
    let events = read_all(&path).unwrap();
    let Event::Warned { code, .. } = &events[0].event else {
        panic!("{events:?}")
    };
    assert_eq!(code, "event_too_long");
}

/// A disk that takes `room` bytes, part of an append included, until `refill` brings more.
struct FullDisk {
    bytes: Vec<u8>,
    room: usize,
    refill: Receiver<usize>,
    out: Sender<Vec<u8>>,
}

impl Sink for FullDisk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.room += self.refill.try_iter().sum::<usize>();
        let fits = bytes.len().min(self.room - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..fits]);
        if fits < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let _ = self.out.send(self.bytes.clone());
        Ok(())
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.bytes.truncate(length as usize);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn reopen(&mut self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// A network file system: a handle goes stale after some appends, and what was begun of the last one may be there.
struct FileServer {
    handle: File,
    good_for: usize,
    renewed: Sender<()>,
}

impl Sink for FileServer {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.good_for {
            0 => {
                let _ = self.handle.append(&bytes[..bytes.len() / 2]);
                Err(io::ErrorKind::StaleNetworkFileHandle.into())
            }
            _ => {
                self.good_for -= 1;
                self.handle.append(bytes)
            }
        }
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        match self.good_for {
            0 => Err(io::ErrorKind::StaleNetworkFileHandle.into()),
            _ => self.handle.cut(length),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.handle.sync()
    }

    fn reopen(&mut self, path: &Path) -> io::Result<()> {
        self.handle.reopen(path)?;
        self.good_for = 3;
        let _ = self.renewed.send(());
        Ok(())
    }
}

#[test]
fn a_handle_that_a_file_server_forgot_is_reopened_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.jsonl");
    let (file, length, seq) = open_end(&path).unwrap();
    let (renewed, renewals) = mpsc::channel();
    let (mut sender, thread) = start(Appender {
        path: path.clone(),
        sink: FileServer {
            handle: file,
            good_for: 3,
            renewed,
        },
        length,
        torn: false,
        seq,
        step: 0,
        clock: Arc::new(ManualClock::at(0)),
        grown: |_| {},
    });
    for i in 1..=40 {
        sender.emit(note(i)).unwrap();
        if i % 4 == 0 {
            sender.wait(Duration::from_millis(5));
        }
    }
    drop(sender);
    thread.finish().unwrap();
    assert!(renewals.try_iter().count() > 0);
    let numbers = seqs(&path);
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    let events = read_all(&path).unwrap();
    let notes = events
        .iter()
        .filter(|e| matches!(e.event, Event::Noted { .. }));
    assert_eq!(notes.count(), 40);
}

/// A disk on which one append stops in the middle and the cut after it fails.
struct FailingDisk {
    bytes: Vec<u8>,
    appends: usize,
    cuts: usize,
    out: Sender<Vec<u8>>,
}

impl Sink for FailingDisk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.appends += 1;
        let fails = self.appends == 2;
        let written = if fails { bytes.len() / 2 } else { bytes.len() };
        self.bytes.extend_from_slice(&bytes[..written]);
        if fails {
            return Err(io::Error::other("I/O error"));
        }
        let _ = self.out.send(self.bytes.clone());
        Ok(())
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.cuts += 1;
        if self.cuts == 1 {
            return Err(io::Error::other("I/O error"));
        }
        self.bytes.truncate(length as usize);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reopen(&mut self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn nothing_is_appended_behind_a_torn_line_that_could_not_be_cut_off() {
    let (out, written) = mpsc::channel();
    let (mut sender, thread) = start(Appender {
        path: "events.jsonl".into(),
        sink: FailingDisk {
            bytes: Vec::new(),
            appends: 0,
            cuts: 0,
            out,
        },
        length: 0,
        torn: false,
        seq: 0,
        step: 0,
        clock: Arc::new(ManualClock::at(0)),
        grown: |_| {},
    });
    sender.emit(note(1)).unwrap();
    written.recv().unwrap();
    for i in 2..=9 {
        sender.emit(note(i)).unwrap();
    }
    drop(sender);
    thread.finish().unwrap();
    let text = String::from_utf8(written.iter().last().unwrap()).unwrap();
    let events = text.lines().map(|line| decode_envelope(line).unwrap());
    let seqs: Vec<u64> = events.map(|e| e.seq).collect();
    assert!(seqs.len() >= 9, "{text}");
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
}

fn full_disk(room: usize) -> (LogSender, LogThread, Sender<usize>, Receiver<Vec<u8>>) {
    let (more, refill) = mpsc::channel();
    let (out, written) = mpsc::channel();
    let (sender, thread) = start(Appender {
        path: "events.jsonl".into(),
        sink: FullDisk {
            bytes: Vec::new(),
            room,
            refill,
            out,
        },
        length: 0,
        torn: false,
        seq: 0,
        step: 0,
        clock: Arc::new(ManualClock::at(0)),
        grown: |_| {},
    });
    (sender, thread, more, written)
}

#[test]
fn a_full_disk_is_seen_and_nothing_is_lost_when_room_returns() {
    let (mut sender, thread, more, written) = full_disk(500);
    for i in 1..=20 {
        sender.emit(note(i)).unwrap();
    }
    while sender.stalled().is_none() {
        sender.wait(Duration::from_millis(50));
    }
    let said = sender.stalled().unwrap().to_string();
    assert!(said.contains("events.jsonl"), "{said}");
    more.send(1 << 20).unwrap();
    while sender.stalled().is_some() {
        sender.wait(Duration::from_millis(50));
    }
    sender
        .emit(Event::Finished {
            outcome: Outcome::Completed,
            step: 20,
            tokens: 0,
            val_loss: None,
            best: None,
            train_loss: None,
            seconds: 0.0,
            message: String::new(),
        })
        .unwrap();
    drop(sender);
    thread.finish().unwrap();
    let text = String::from_utf8(written.iter().last().unwrap()).unwrap();
    let events: Vec<Envelope> = text.lines().map(|l| decode_envelope(l).unwrap()).collect();
    let seqs: Vec<u64> = events.iter().map(|e| e.seq).collect();
    assert_eq!(seqs, (1..=events.len() as u64).collect::<Vec<_>>());
    let notes = events
        .iter()
        .filter(|e| matches!(e.event, Event::Noted { .. }));
    assert_eq!(notes.count(), 20);
    let warned = events
        .iter()
        .any(|e| matches!(&e.event, Event::Warned { code, .. } if code == "log_stalled"));
    assert!(warned);
}

#[test]
fn an_emitter_is_told_when_the_queue_is_full_and_closing_gives_up() {
    let (mut sender, thread, _more, _written) = full_disk(0);
    let mut accepted = 0;
    let refused = loop {
        match sender.emit(note(accepted)) {
            Ok(()) => accepted += 1,
            Err(refused) => break refused,
        }
    };
    assert!(accepted as usize >= QUEUE && accepted as usize <= QUEUE + 2 * BATCH);
    let (back, error) = *refused;
    assert_eq!(back, note(accepted));
    assert!(matches!(error, LogError::Stalled { .. }));
    drop(sender);
    assert!(matches!(thread.finish(), Err(LogError::Io { .. })));
}

#[test]
fn the_last_room_of_a_disk_holds_whole_lines() {
    let (mut sender, thread, _more, written) = full_disk(500);
    for i in 1..=20 {
        sender.emit(note(i)).unwrap();
    }
    drop(sender);
    assert!(thread.finish().is_err());
    let text = String::from_utf8(written.iter().last().unwrap()).unwrap();
    let seqs: Vec<u64> = text
        .lines()
        .map(|line| decode_envelope(line).unwrap().seq)
        .collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    let line = text.len() / seqs.len();
    assert!(text.len() + line > 500, "{} of 500 bytes used", text.len());
}
