//! Weights & Biases' run file, as `WANDB_MODE=offline` leaves it and as an online run keeps beside its uploads: LevelDB's log format
//! (blocks of 32 KiB, records in pieces) with Record messages inside.

use crate::base::checksum::crc32;
use crate::base::clock::UnixMillis;
use crate::base::protobuf::{Field, fields};
use crate::base::registry::Entry;
use crate::watch::tail::{self, Change, Tail};
use crate::watch::{Facts, Format, Item, Source, json};
use serde_json::{Map, Value};
use std::io;

const BLOCK: usize = 32 * 1024;
/// Checksum, length and kind in front of a piece.
const HEADER: usize = 7;
/// What a file begins with: a name, a magic number, a version.
const MAGIC: &[u8] = b":W&B\xe1\xbe";
/// Longest record that is put together, in bytes.
const MAX_RECORD: usize = 16 << 20;
/// Members of one record that are read. They come in any order, so that a small number would leave out the loss in some.
const MAX_ITEMS: usize = 100_000;

pub const FORMAT: Format = Format {
    entry: Entry {
        id: "wandb",
        title: "Weights & Biases",
        summary: "run-….wandb, offline or online: history, configuration and the end of the run",
        source: "wandb 0.31, datastore and wandb_internal.proto; LevelDB's log_format.md",
    },
    rank: 2,
    is: |path, head| {
        path.extension().is_some_and(|e| e == "wandb")
            && (head.is_empty() || head.starts_with(MAGIC))
    },
    open: |path, _, _| {
        Box::new(RunFile {
            tail: Tail::new(path),
            place: 0,
            record: Vec::new(),
            broken: false,
        })
    },
};

struct RunFile {
    tail: Tail,
    /// Where the buffer begins in the file.
    place: usize,
    /// The pieces of a record so far.
    record: Vec<u8>,
    broken: bool,
}

impl Source for RunFile {
    fn poll(&mut self, items: &mut Vec<Item>) -> io::Result<bool> {
        let (change, more) = self.tail.read()?;
        if change == Change::Replaced {
            self.place = 0;
            self.record.clear();
            self.broken = false;
            items.push(Item::Restart);
        }
        if self.broken {
            self.tail.buffer.clear();
            return Ok(false);
        }
        if let Err(what) = self.pieces(items) {
            self.broken = true;
            let path = self.tail.path().display();
            items.push(Item::Trouble(format!(
                "{path}: {what}: the rest of the file is skipped"
            )));
        }
        Ok(more && !self.broken)
    }

    fn changed(&self) -> Option<UnixMillis> {
        tail::changed(self.tail.path())
    }
}

impl RunFile {
    fn pieces(&mut self, items: &mut Vec<Item>) -> Result<(), &'static str> {
        let buffer = std::mem::take(&mut self.tail.buffer);
        let mut at = 0;
        if self.place == 0 {
            if buffer.len() < HEADER {
                self.tail.buffer = buffer;
                return Ok(());
            }
            if !buffer.starts_with(MAGIC) {
                return Err("it does not start like a run file");
            }
            at = HEADER;
        }
        loop {
            let left = BLOCK - (self.place + at) % BLOCK;
            if left < HEADER {
                // A piece never begins in the last bytes of a block.
                if buffer.len() < at + left {
                    break;
                }
                at += left;
                continue;
            }
            let Some(header) = buffer.get(at..at + HEADER) else {
                break;
            };
            let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
            let kind = header[6];
            if kind == 0 && length == 0 && header[..4] == [0; 4] {
                // The file was cut here and is filled later.
                break;
            }
            let Some(data) = buffer.get(at + HEADER..at + HEADER + length) else {
                break;
            };
            if crc32(&[&[kind], data]).to_le_bytes() != header[..4] {
                return Err("the checksum of a record is wrong");
            }
            self.piece(kind, data, items)?;
            at += HEADER + length;
        }
        let at = at.min(buffer.len());
        self.place += at;
        self.tail.buffer = buffer[at..].to_vec();
        Ok(())
    }

    /// 1 a whole record, 2 its first piece, 3 one in between, 4 the last.
    fn piece(&mut self, kind: u8, data: &[u8], items: &mut Vec<Item>) -> Result<(), &'static str> {
        if matches!(kind, 1 | 2) {
            self.record.clear();
        }
        if self.record.len() + data.len() > MAX_RECORD {
            return Err("a record is too long");
        }
        self.record.extend_from_slice(data);
        match kind {
            1 | 4 => record(&std::mem::take(&mut self.record), items).ok_or("an invalid record"),
            2 | 3 => Ok(()),
            _ => Err("a record is of an unknown kind"),
        }
    }
}

/// Record: 2 history, 5 config, 17 run, 18 exit.
fn record(bytes: &[u8], items: &mut Vec<Item>) -> Option<()> {
    for field in fields(bytes) {
        match field.ok()? {
            (2, Field::Bytes(message)) => history(message, items)?,
            (5, Field::Bytes(message)) => items.push(Item::Facts(Facts::of(&members(message)?))),
            (17, Field::Bytes(message)) => run(message, items)?,
            (18, Field::Bytes(message)) => {
                let code = fields(message).flatten().find_map(|field| match field {
                    (1, Field::Varint(code)) => Some(code),
                    _ => None,
                });
                items.push(Item::Ended(code.unwrap_or(0) == 0));
            }
            _ => {}
        }
    }
    Some(())
}

/// HistoryRecord: 1 items, 2 its step.
fn history(message: &[u8], items: &mut Vec<Item>) -> Option<()> {
    let values = json::flatten(&members(message)?);
    let time = values.iter().find(|(name, _)| name == "_timestamp");
    let t = time.and_then(|(_, x)| json::time_of(*x));
    items.push(Item::Readings {
        step: None,
        t,
        values,
    });
    Some(())
}

/// RunRecord: 4 its configuration, 8 its display name.
fn run(message: &[u8], items: &mut Vec<Item>) -> Option<()> {
    for field in fields(message) {
        match field.ok()? {
            (4, Field::Bytes(config)) => items.push(Item::Facts(Facts::of(&members(config)?))),
            (8, Field::Bytes(name)) => {
                let name = std::str::from_utf8(name)
                    .ok()
                    .filter(|name| !name.is_empty() && name.len() < 200);
                items.push(Item::Facts(Facts {
                    name: name.map(String::from),
                    ..Facts::default()
                }));
            }
            _ => {}
        }
    }
    Some(())
}

/// The items of a record as one object. An item: 1 key, 2 nested_key; its value: 5 integer, 6 number, 7 text, 16 JSON.
fn members(message: &[u8]) -> Option<Value> {
    let mut members = Map::new();
    for field in fields(message).take(MAX_ITEMS) {
        let (1, Field::Bytes(item)) = field.ok()? else {
            continue;
        };
        let (mut key, mut value) = (String::new(), None);
        for field in fields(item) {
            match field.ok()? {
                (1 | 2, Field::Bytes(name)) => {
                    if !key.is_empty() {
                        key.push('/');
                    }
                    key.push_str(std::str::from_utf8(name).ok()?);
                }
                // Zigzag: the sign is the last bit.
                (5, Field::Varint(n)) => value = Some(((n >> 1) as i64 ^ -((n & 1) as i64)).into()),
                (6, Field::Fixed64(bytes)) => value = Some(float(f64::from_le_bytes(bytes))),
                (16, Field::Bytes(text)) => value = json::parse(std::str::from_utf8(text).ok()?),
                _ => {}
            }
        }
        if let Some(value) = value {
            members.insert(key, value);
        }
    }
    Some(Value::Object(members))
}

/// JSON has no other numbers: those that are not finite are words.
fn float(x: f64) -> Value {
    serde_json::Number::from_f64(x).map_or_else(|| Value::String(x.to_string()), Value::Number)
}
