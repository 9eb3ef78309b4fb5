//! Runs that other programs started: their logs, followed and translated into events of the wire, so that every screen and
//! every rule works for them too. Nothing is ever written; reading is bounded, because a log may come from anywhere. A format
//! is one file of `formats/` and one word in its list.

mod checkpoints;
mod facts;
mod find;
mod formats;
mod json;
mod names;
mod passes;
mod places;
mod rl;
mod tail;
mod translate;
mod utilization;

pub use find::{Found, WatchError, expected, find};
pub use formats::FORMATS;
pub use names::{Mapping, MappingError, NUM_TOKENS, in_transformers, info as declaration};

use crate::base::clock::{Clock, UnixMillis};
use crate::base::registry::Entry;
use crate::wire::Envelope;
use facts::Facts;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tail::Tail;
use translate::Translator;

/// What Hugging Face's Trainer and TRL's are given to be watched live: 30 lines of Python.
pub const CALLBACK: &str = include_str!("../../../../assets/watch/llmtui_log.py");

/// What a source finds in its log, in the log's own names.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// What was read so far no longer stands there: reading starts over.
    Restart,
    /// The program says that its run begins, or goes on, at this step: what was read of later steps is of an earlier attempt.
    Began(u64),
    /// Of the run as a whole.
    Facts(Facts),
    Readings {
        /// `None` where the log does not say: then each record is one further.
        step: Option<u64>,
        t: Option<UnixMillis>,
        values: Vec<(String, f64)>,
    },
    /// The program said that it is done; `false`: that it failed.
    Ended(bool),
    /// The log is damaged, or a part was left out.
    Trouble(String),
}

/// The format of printed logs.
const PRINTED: &str = "text";

/// Logs are written with every step or so.
const SILENT: Duration = Duration::from_secs(15 * 60);

/// A log that grows.
pub trait Source: Send {
    /// Appends what is new, from at most [`tail::AT_ONCE`] bytes; true where more can be had at once.
    ///
    /// # Errors
    /// The log cannot be read; a log that is gone for a moment is no error.
    fn poll(&mut self, items: &mut Vec<Item>) -> io::Result<bool>;

    /// When the log changed last; `None` where it is gone.
    fn changed(&self) -> Option<UnixMillis>;

    /// The file that is followed, of a log of lines.
    fn lines_of(&mut self) -> Option<&mut Tail> {
        None
    }

    /// How long the log of a live run may be silent, at least.
    fn patience(&self) -> Duration {
        SILENT
    }
}

/// A kind of log.
pub struct Format {
    pub entry: Entry,
    /// Of logs that changed within the same minute the one with the smallest rank is taken.
    rank: u8,
    /// Whether this file is one, by its name and its first bytes.
    is: fn(&Path, &[u8]) -> bool,
    /// A source on that file, or on those beside it; `named`: the user gave the file itself.
    open: fn(&Path, named: bool, &Mapping) -> Box<dyn Source>,
}

/// A run of another program, under watch.
pub struct ExternalRun {
    pub found: Found,
    source: Box<dyn Source>,
    translator: Translator,
    mapping: Mapping,
    /// Missing mapped names were reported.
    names_reported: bool,
    clock: Box<dyn Clock>,
}

/// What came since the last poll.
#[derive(Debug, Default)]
pub struct PollResult {
    pub events: Vec<Envelope>,
    /// More can be had at once.
    pub more: bool,
}

impl ExternalRun {
    /// Watches what [`find()`] found; `mapping` names what the log calls otherwise.
    pub fn open(found: Found, mapping: Mapping, clock: Box<dyn Clock>) -> ExternalRun {
        let source = (found.format.open)(&found.path, found.named, &mapping);
        let translator = Translator::new(&found.name, found.format.entry.id, mapping.clone());
        ExternalRun {
            found,
            source,
            translator,
            mapping,
            names_reported: false,
            clock,
        }
    }

    /// Reads what is new.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn poll(&mut self) -> io::Result<PollResult> {
        let mut items = Vec::new();
        let more = self.source.poll(&mut items)?;
        let now = self.clock.now();
        let changed = self.source.changed().unwrap_or(now).min(now);
        let is_over = now.since(changed) >= self.source.patience();
        if !more && is_over && self.has_rest() {
            self.source.lines_of().map(Tail::take_rest);
            self.source.poll(&mut items)?;
        }
        let mut events = self.translator.translate(items, changed);
        if !more && !self.names_reported {
            self.names_reported = true;
            let missing = self.mapping.missing().map(Item::Trouble);
            events.extend(
                self.translator
                    .translate(missing.into_iter().collect(), changed),
            );
        }
        if !more {
            let patience = self.source.patience();
            events.extend(self.translator.rest(now, changed, patience));
        }
        Ok(PollResult { events, more })
    }

    /// Hands on all there is, until nothing more can be had at once.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn read_all(&mut self, mut take: impl FnMut(&Envelope)) -> io::Result<()> {
        loop {
            let news = self.poll()?;
            news.events.iter().for_each(&mut take);
            if news.more {
                continue;
            }
            // A printed line without an end is a progress bar as often as not.
            if self.has_rest() && self.found.format.entry.id != PRINTED {
                let now = self.clock.now();
                let why = "the last line has no end: it is read once it has one, or once nothing was written for a while";
                let told = self
                    .translator
                    .translate(vec![Item::Trouble(why.into())], now);
                told.iter().for_each(&mut take);
            }
            return Ok(());
        }
    }

    /// Whether a last line without an end was not read.
    fn has_rest(&mut self) -> bool {
        let tail = self.source.lines_of();
        tail.is_some_and(|tail| tail.has_rest())
    }

    /// Whether the log has times of its own; events of one without have the time of its last change.
    pub fn has_times(&self) -> bool {
        self.translator.has_times()
    }

    /// The file or folder that is read.
    pub fn path(&self) -> &PathBuf {
        &self.found.path
    }
}
