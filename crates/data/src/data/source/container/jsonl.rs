//! JSON rows, one object per line. Empty lines are skipped.

use super::{Container, Stream};
use crate::base::human;
use crate::data::source::MAX_ROW_BYTES;
use crate::data::source::fault::ReadFault;
use crate::data::source::input::Input;
use crate::data::source::json;
use crate::data::source::lines::{FileLines, without_end};
use crate::data::{DataError, Place, Record};

pub(super) const CONTAINER: Container = Container {
    id: "jsonl",
    extensions: &["jsonl", "ndjson", "jsonlines"],
    open,
};

struct Rows(FileLines);

fn open(input: Input) -> Result<Stream, DataError> {
    Ok(Box::new(Rows(FileLines::new(input))))
}

impl Iterator for Rows {
    type Item = Result<Record, ReadFault>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.ended {
            let place = match self.0.advance(too_long)? {
                Ok(place) => place,
                Err(trouble) => return Some(Err(trouble)),
            };
            let (bytes, _) = without_end(self.0.bytes());
            if !bytes.trim_ascii().is_empty() {
                return Some(json::record(bytes, place, &self.0.notes));
            }
        }
        None
    }
}

fn too_long(place: &Place) -> ReadFault {
    ReadFault::row(
        place,
        format!("a line of more than {}", human::bytes(MAX_ROW_BYTES as u64)),
        "write one JSON object per line: split the row, or name the file .json if it is one array",
    )
}
