//! TensorBoard's event files: TFRecords of Event messages. Scalars are read, in the old form (`simple_value`) and the new one
//! (a tensor of one number); images, histograms and graphs are ignored. Every file of the folder is read, in name order.

use crate::base::checksum::masked_crc32c;
use crate::base::clock::UnixMillis;
use crate::base::protobuf::{Field, fields};
use crate::base::registry::Entry;
use crate::watch::tail::{self, Change, Tail};
use crate::watch::{Format, Item, Source, json};
use std::io;
use std::path::{Path, PathBuf};

/// Longest record that is read, in bytes; longer ones hold no scalars.
const MAX_RECORD: u64 = 16 << 20;
/// Files of one run.
const MAX_FILES: usize = 1_000;
/// Bytes of a record's length with its checksum, and of the checksum behind the record.
const LENGTH: usize = 12;
const TRAILER: usize = 4;

pub const FORMAT: Format = Format {
    entry: Entry {
        id: "tfevents",
        title: "TensorBoard",
        summary: "events.out.tfevents files of TensorFlow, PyTorch's SummaryWriter and trainers: their scalars",
        source: "tensorflow, record_writer.cc and event.proto",
    },
    rank: 2,
    is: |path, _| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().contains("tfevents"))
    },
    open: |path, named, _| Box::new(EventFiles::new(path, named)),
};

struct EventFiles {
    folder: PathBuf,
    only: Option<PathBuf>,
    files: Vec<EventFile>,
}

struct EventFile {
    tail: Tail,
    /// Damaged: nothing behind the damage can be found.
    broken: bool,
    /// Bytes of a long record that are still to be passed over.
    skip: u64,
}

impl EventFiles {
    fn new(path: &Path, named: bool) -> EventFiles {
        EventFiles {
            folder: path.parent().unwrap_or(path).into(),
            only: named.then(|| path.to_path_buf()),
            files: Vec::new(),
        }
    }

    /// The files of the run, oldest first: their names begin with the time.
    fn paths(&self) -> Vec<PathBuf> {
        if let Some(only) = &self.only {
            return vec![only.clone()];
        }
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<PathBuf> = paths
            .filter(|path| (FORMAT.is)(path, b""))
            .take(MAX_FILES)
            .collect();
        paths.sort();
        paths
    }
}

impl Source for EventFiles {
    fn poll(&mut self, items: &mut Vec<Item>) -> io::Result<bool> {
        for path in self.paths() {
            if !self.files.iter().any(|file| file.tail.path() == path) {
                self.files.push(EventFile {
                    tail: Tail::new(&path),
                    broken: false,
                    skip: 0,
                });
            }
        }
        for file in self.files.iter_mut().filter(|file| !file.broken) {
            let (change, more) = file.tail.read()?;
            if change == Change::Replaced {
                file.skip = 0;
                items.push(Item::Restart);
            }
            if let Err(what) = file.records(items) {
                file.broken = true;
                file.tail.buffer.clear();
                let path = file.tail.path().display();
                items.push(Item::Trouble(format!(
                    "{path}: {what}: the rest of the file is skipped"
                )));
            }
            if more && !file.broken {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn changed(&self) -> Option<UnixMillis> {
        self.paths()
            .iter()
            .filter_map(|path| tail::changed(path))
            .max()
    }
}

impl EventFile {
    /// Takes the whole records of the buffer.
    fn records(&mut self, items: &mut Vec<Item>) -> Result<(), &'static str> {
        let buffer = std::mem::take(&mut self.tail.buffer);
        let mut rest = buffer.as_slice();
        loop {
            let passed = self.skip.min(rest.len() as u64);
            self.skip -= passed;
            rest = &rest[usize::try_from(passed).unwrap_or(rest.len())..];
            let Some((length, behind)) = rest.split_first_chunk::<LENGTH>() else {
                break;
            };
            let (length, checksum) = length.split_at(8);
            if masked_crc32c(length).to_le_bytes() != checksum {
                return Err("the checksum of a record's length is wrong");
            }
            let length = length.try_into().map_or(u64::MAX, u64::from_le_bytes);
            if length > MAX_RECORD {
                self.skip = length.saturating_add((LENGTH + TRAILER) as u64);
                continue;
            }
            let n = length as usize;
            let (Some(record), Some(trailer)) = (behind.get(..n), behind.get(n..n + TRAILER))
            else {
                break;
            };
            if masked_crc32c(record).to_le_bytes() != trailer {
                return Err("the checksum of a record is wrong");
            }
            event(record, items).ok_or("a record is not an event")?;
            rest = &behind[n + TRAILER..];
        }
        self.tail.buffer = rest.to_vec();
        Ok(())
    }
}

/// Event: 1 wall_time (double), 2 step (int64), 5 summary.
fn event(record: &[u8], items: &mut Vec<Item>) -> Option<()> {
    let (mut t, mut step, mut values) = (None, 0, Vec::new());
    for field in fields(record) {
        match field.ok()? {
            (1, Field::Fixed64(bytes)) => t = json::time_of(f64::from_le_bytes(bytes)),
            (2, Field::Varint(n)) => step = n,
            (5, Field::Bytes(summary)) => scalars(summary, &mut values)?,
            _ => {}
        }
    }
    // A negative step is a number of ten bytes.
    let step = i64::try_from(step)
        .ok()
        .and_then(|step| u64::try_from(step).ok());
    if let (Some(step), false) = (step, values.is_empty()) {
        items.push(Item::Readings {
            step: Some(step),
            t,
            values,
        });
    }
    Some(())
}

/// Summary: 1 value, each with 1 tag, 2 simple_value (float), 8 tensor.
fn scalars(summary: &[u8], values: &mut Vec<(String, f64)>) -> Option<()> {
    for field in fields(summary) {
        let (1, Field::Bytes(value)) = field.ok()? else {
            continue;
        };
        let (mut tag, mut number) = (None, None);
        for field in fields(value) {
            match field.ok()? {
                (1, Field::Bytes(name)) => tag = std::str::from_utf8(name).ok(),
                (2, Field::Fixed32(bytes)) => number = Some(f64::from(f32::from_le_bytes(bytes))),
                (8, Field::Bytes(message)) => number = tensor(message).or(number),
                _ => {}
            }
        }
        // `step` is the axis here: a scalar of that name is only a scalar.
        if let (Some(tag), Some(x)) = (tag, number) {
            values.push((tag.to_string(), x));
        }
    }
    Some(())
}

/// TensorProto of one number: 1 dtype (1 float, 2 double), 4 tensor_content, 5 float_val, 6 double_val.
fn tensor(message: &[u8]) -> Option<f64> {
    let mut double = false;
    let mut number = None;
    for field in fields(message) {
        match field.ok()? {
            (1, Field::Varint(dtype)) => match dtype {
                1 | 2 => double = dtype == 2,
                _ => return None,
            },
            (4..=6, Field::Bytes(bytes)) => {
                number = match (double, bytes.len()) {
                    (false, 4) => Some(f64::from(f32::from_le_bytes(bytes.try_into().ok()?))),
                    (true, 8) => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
                    _ => return None,
                };
            }
            (5, Field::Fixed32(bytes)) => number = Some(f64::from(f32::from_le_bytes(bytes))),
            (6, Field::Fixed64(bytes)) => number = Some(f64::from_le_bytes(bytes)),
            _ => {}
        }
    }
    number
}
