//! A run's metrics as files of other programs: CSV, JSON lines, `trainer_state.json`, TensorBoard. Every reading that counts, as
//! it was logged; the [`Series`](crate::run::Series) of screens merge those of long runs. A format is one file here and one word
//! in its list. No files are opened.

mod csv;
mod curves;
mod jsonl;
mod pattern;
mod rows;
mod stream;
mod summary;
mod tfevents;
mod trainer_state;

pub use curves::{Curves, Kind, Record};
pub use pattern::Pattern;
pub use stream::Stream;
pub use summary::{Summary, summaries};
pub use tfevents::file_name as event_file_name;

use crate::base::registry::Entry;
use std::path::Path;

/// A format that is written.
#[derive(Debug)]
pub struct Format {
    pub entry: Entry,
    /// Whether a file of this name, in lower case, is to be one.
    is: fn(&str) -> bool,
    body: Body,
}

/// How a file is written.
#[derive(Debug)]
enum Body {
    /// As a whole: its columns or its head are known at the end.
    Whole(fn(&Curves) -> Vec<u8>),
    /// Record by record.
    Records {
        head: fn(&Curves) -> Vec<u8>,
        news: fn(&Curves, &Increment<'_>) -> Vec<u8>,
        /// The records of one step belong together.
        by_step: bool,
    },
}

/// What comes next in a file of records.
#[derive(Debug)]
struct Increment<'a> {
    /// What was written of this step and of later ones no longer counts.
    dropped_from: Option<u64>,
    records: &'a [Record],
}

/// Every format, in the order in which a name is tried.
pub const FORMATS: &[&Format] = &[
    &csv::FORMAT,
    &jsonl::FORMAT,
    &trainer_state::FORMAT,
    &tfevents::FORMAT,
];

impl Format {
    /// By its id.
    pub fn named(id: &str) -> Option<&'static Format> {
        FORMATS.iter().find(|f| f.entry.id == id).copied()
    }

    /// By the name of the file that it is to be.
    pub fn of(path: &Path) -> Option<&'static Format> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        FORMATS.iter().find(|f| (f.is)(&name)).copied()
    }

    /// Whether its files lie in a folder that names the run, under a name of their own.
    pub fn is_folder(&self) -> bool {
        self.entry.id == tfevents::FORMAT.entry.id
    }

    /// Whether it can be written record by record.
    pub fn grows(&self) -> bool {
        matches!(self.body, Body::Records { .. })
    }

    /// The file with all that counts so far.
    pub fn whole(&self, curves: &Curves) -> Vec<u8> {
        match &self.body {
            Body::Whole(write) => write(curves),
            Body::Records { head, news, .. } => {
                let mut bytes = head(curves);
                let all = Increment {
                    dropped_from: None,
                    records: curves.records(),
                };
                bytes.extend(news(curves, &all));
                bytes
            }
        }
    }
}

#[cfg(test)]
mod tests;
