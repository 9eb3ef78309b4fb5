//! TensorBoard's event files: TFRecords of Event messages. Scalars are read, in the old form (`simple_value`) and the new one
//! (a tensor of one number); images, histograms and graphs are ignored. Every file of the folder is read, in name order, and those of
//! the folders in it that `add_scalars` made.

use crate::base::checksum::masked_crc32c;
use crate::base::clock::UnixMillis;
use crate::base::protobuf::{Field, fields};
use crate::base::registry::Entry;
use crate::watch::tail::{self, Change, Tail};
use crate::watch::{Format, Item, Source, json};
use std::collections::BTreeMap;
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
    /// The name of its folder within that of the run: `add_scalars` writes each of its curves to one.
    curve: Option<String>,
    /// Nothing more is read: it is damaged, and nothing behind the damage can be found, or it is not of this run.
    over: bool,
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

    /// The files of the run, oldest first, and those of each curve in a folder of its own.
    fn paths(&self) -> Vec<(Option<String>, PathBuf)> {
        if let Some(only) = &self.only {
            return vec![(None, only.clone())];
        }
        let mut folders: Vec<(String, PathBuf)> = entries(&self.folder)
            .filter_map(|path| Some((curve_of(&path)?, path)))
            .filter(|(_, path)| path.is_dir() && !path.is_symlink())
            .take(MAX_FILES)
            .collect();
        folders.sort();
        let of_run = events(&self.folder).into_iter().map(|path| (None, path));
        let of_curves = folders.into_iter().flat_map(|(curve, folder)| {
            let named = move |path| (Some(curve.clone()), path);
            events(&folder).into_iter().map(named)
        });
        of_run.chain(of_curves).take(MAX_FILES).collect()
    }
}

/// The name of a folder, if it may be that of a curve.
fn curve_of(folder: &Path) -> Option<String> {
    let name = folder.file_name()?.to_str()?;
    name.contains('_').then(|| name.to_string())
}

/// Whether an event file holds one of the curves of a run whose folder is the one above.
pub fn is_curve(path: &Path) -> bool {
    let Some(curve) = path.parent().and_then(curve_of) else {
        return false;
    };
    let mut items = Vec::new();
    let read = EventFile::new(path, Some(curve)).poll(&mut items);
    read.is_ok()
        && items
            .iter()
            .any(|item| matches!(item, Item::Readings { .. }))
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

/// The event files of a folder, oldest first: their names begin with the time.
fn events(folder: &Path) -> Vec<PathBuf> {
    let files = entries(folder).filter(|path| (FORMAT.is)(path, b""));
    let mut paths: Vec<PathBuf> = files.take(MAX_FILES).collect();
    paths.sort();
    paths
}

impl Source for EventFiles {
    fn poll(&mut self, items: &mut Vec<Item>) -> io::Result<bool> {
        for (curve, path) in self.paths() {
            if !self.files.iter().any(|file| file.tail.path() == path) {
                self.files.push(EventFile::new(&path, curve));
            }
        }
        // Within a folder one file goes on where the one before ended; folders have the same steps.
        let mut folders: BTreeMap<Option<String>, (Vec<Item>, bool)> = BTreeMap::new();
        for file in self.files.iter_mut().filter(|file| !file.over) {
            let (found, more) = folders.entry(file.curve.clone()).or_default();
            if !*more {
                *more = file.poll(found)?;
            }
        }
        let any_more = folders.values().any(|(_, more)| *more);
        let found = folders.into_values().map(|(found, _)| found);
        items.extend(side_by_side(found.collect()));
        Ok(any_more)
    }

    fn changed(&self) -> Option<UnixMillis> {
        self.paths()
            .iter()
            .filter_map(|(_, path)| tail::changed(path))
            .max()
    }
}

/// The items of several folders in one order: each folder's own, and of their next readings those of the smallest step first.
fn side_by_side(folders: Vec<Vec<Item>>) -> Vec<Item> {
    let mut folders: Vec<_> = folders
        .into_iter()
        .map(|items| items.into_iter().peekable())
        .collect();
    let mut all = Vec::new();
    loop {
        let next = folders.iter_mut().filter_map(|items| {
            let step = match items.peek()? {
                Item::Readings { step, .. } => *step,
                _ => None,
            };
            Some((step, items))
        });
        let Some((_, items)) = next.min_by_key(|(step, _)| *step) else {
            return all;
        };
        all.extend(items.next());
    }
}

/// What a tag of a file in the folder of this curve is called in the run: `add_scalars("loss", {"val": x})` writes `loss` to the folder
/// `loss_val`. `None` where the folder is no such one.
fn tag_of(curve: &str, tag: &str) -> Option<String> {
    let name = curve.strip_prefix(&tag.replace('/', "_"))?;
    let name = name.strip_prefix('_').filter(|name| !name.is_empty())?;
    Some(format!("{tag}/{name}"))
}

impl EventFile {
    fn new(path: &Path, curve: Option<String>) -> EventFile {
        EventFile {
            tail: Tail::new(path),
            curve,
            over: false,
            skip: 0,
        }
    }

    /// Appends what is new; true where more can be had at once.
    fn poll(&mut self, items: &mut Vec<Item>) -> io::Result<bool> {
        let (change, more) = self.tail.read()?;
        if change == Change::Replaced {
            self.skip = 0;
            items.push(Item::Restart);
        }
        let before = items.len();
        if let Err(what) = self.records(items) {
            self.over = true;
            self.tail.buffer.clear();
            let path = self.tail.path().display();
            items.push(Item::Trouble(format!(
                "{path}: {what}: the rest of the file is skipped"
            )));
        }
        if let Some(curve) = &self.curve {
            let mut is_other = false;
            for item in &mut items[before..] {
                if let Item::Readings { values, .. } = item {
                    let named = values
                        .iter()
                        .map(|(tag, x)| Some((tag_of(curve, tag)?, *x)));
                    *values = named.collect::<Option<_>>().unwrap_or_default();
                    is_other |= values.is_empty();
                }
            }
            // A run of its own, or something else: nothing of it belongs here.
            if is_other {
                self.over = true;
                items.truncate(before);
            }
        }
        Ok(more && !self.over)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_a_curve_gives_its_tag_the_name_of_the_curve() {
        assert_eq!(tag_of("loss_val", "loss").as_deref(), Some("loss/val"));
        let nested = tag_of("train_loss_a_b", "train/loss");
        assert_eq!(nested.as_deref(), Some("train/loss/a_b"));
        for (folder, tag) in [("loss_", "loss"), ("run-2", "loss"), ("losses", "loss")] {
            assert_eq!(tag_of(folder, tag), None, "{folder}");
        }
    }

    #[test]
    fn folders_are_read_side_by_side() {
        let at = |step: u64| Item::Readings {
            step: Some(step),
            t: None,
            values: Vec::new(),
        };
        let run = vec![at(1), at(3), Item::Restart, at(1)];
        let all = side_by_side(vec![run, vec![at(2), at(3)], Vec::new()]);
        let expected = [at(1), at(2), at(3), Item::Restart, at(1), at(3)];
        assert_eq!(all, expected);
    }
}
