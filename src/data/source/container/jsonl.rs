//! Rows of JSON, one object a line. Empty lines are passed over.

use super::{Container, Input, Notes, Stream};
use crate::data::source::MAX_ROW_BYTES;
use crate::data::source::fault::Trouble;
use crate::data::source::json;
use crate::data::source::lines::{BadLine, Lines, without_end};
use crate::data::{DataError, Place, Record};
use std::io::BufRead;
use std::sync::Arc;

pub(super) const CONTAINER: Container = Container {
    id: "jsonl",
    extensions: &["jsonl", "ndjson", "jsonlines"],
    open,
};

struct Rows {
    lines: Lines<Box<dyn BufRead + Send>>,
    file: Arc<str>,
    notes: Notes,
    ended: bool,
}

fn open(input: Input) -> Result<Stream, DataError> {
    Ok(Box::new(Rows {
        lines: Lines::new(input.reader),
        file: input.file,
        notes: input.notes,
        ended: false,
    }))
}

impl Iterator for Rows {
    type Item = Result<Record, Trouble>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let line = self.lines.advance()?;
            let place = Place {
                file: self.file.clone(),
                row: self.lines.number,
            };
            match line {
                Ok(()) => {}
                Err(BadLine::TooLong) => return Some(Err(too_long(&place))),
                Err(BadLine::Io(e)) => {
                    self.ended = true;
                    return Some(Err(Trouble::io(&place, &e)));
                }
            }
            let (bytes, _) = without_end(self.lines.unmarked(&self.file, &self.notes));
            if !bytes.trim_ascii().is_empty() {
                return Some(json::record(bytes, place));
            }
        }
        None
    }
}

fn too_long(place: &Place) -> Trouble {
    Trouble::row(
        place,
        format!("a line of more than {} MB", MAX_ROW_BYTES >> 20),
        "one JSON object a line: split the row, or name the file .json if it is one array",
    )
}
