//! From rows to shards: rows are read in order, tokenized on all threads and written in the original order.

use super::shard::{Draft, Shard, Tally};
use super::{Entry, RowFeeder, Store};
use crate::base::clock::{Clock, SystemClock};
use crate::data::render::{RenderCounts, Unwritten};
use crate::data::{Content, DataError, Document, Example, OnBadRow, Place, RowFault, Turns};
use rayon::prelude::*;
use std::time::Duration;

/// Tokens of a shard: some seconds of work, which is what a killed process loses at most.
const SHARD_TOKENS: usize = 4 << 20;

/// Rows are tokenized in portions of about this much text, or of this many rows.
const PORTION_BYTES: usize = 4 << 20;
const PORTION_ROWS: usize = 4096;

/// How often progress is reported.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// How far tokenizing has come.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// The source, for display.
    pub source: String,
    pub rows: u64,
    pub tokens: u64,
    /// Bytes of text that became tokens.
    pub text_bytes: u64,
    pub seconds: f64,
    pub done: bool,
}

/// A row as tokens: the documents of one example.
#[derive(Debug, Clone, Default)]
pub(crate) struct Piece {
    pub documents: Vec<Document>,
    /// It continues the row before it: no new document begins.
    pub continues: bool,
    pub text_bytes: u64,
    /// What the template omits from it.
    pub unwritten: Unwritten,
    /// What was noticed while it was rendered.
    pub rendered: RenderCounts,
}

/// A row as the source gives it.
pub(crate) type Row = Result<(Place, Example), RowFault>;

/// Where rows come from and what becomes of them.
pub(crate) struct Feed<'a> {
    /// The source, for display.
    pub name: &'a str,
    pub rows: &'a mut dyn Iterator<Item = Row>,
    pub tokenize: &'a (dyn Fn(&Place, &Example) -> Result<Piece, RowFault> + Sync),
    /// The token after a document, which must not occur in the middle of one.
    pub eos: Option<u32>,
    /// The handling of a row that cannot be tokenized.
    pub on_bad_row: OnBadRow,
    pub progress: &'a mut dyn FnMut(&Progress),
}

/// Takes finished shards.
pub(super) trait Sink {
    fn write(&mut self, bytes: Vec<u8>) -> Result<(), DataError>;
}

/// Tokenizes everything into memory; `width` is the number of bytes of an id.
///
/// # Errors
/// A bad row, where those are errors.
pub(crate) fn in_memory(width: usize, feed: &mut RowFeeder<'_>) -> Result<Entry, DataError> {
    struct Memory(Vec<Shard>);
    impl Sink for Memory {
        fn write(&mut self, bytes: Vec<u8>) -> Result<(), DataError> {
            let shard = Shard::held(bytes).map_err(|what| DataError::source("memory", what, ""))?;
            self.0.push(shard);
            Ok(())
        }
    }
    let mut memory = Memory(Vec::new());
    let notes = feed(&mut |feed| build(feed, width, Tally::default(), &mut memory))?;
    Ok(Entry {
        store: Store::new(memory.0),
        notes,
    })
}

/// Tokenizes what follows the rows of `tally` and hands shard after shard to the sink.
pub(super) fn build(
    mut feed: Feed<'_>,
    width: usize,
    tally: Tally,
    sink: &mut dyn Sink,
) -> Result<(), DataError> {
    // Rows that an earlier process has tokenized are read and passed over.
    for _ in 0..tally.rows {
        if feed.rows.next().is_none() {
            break;
        }
    }
    let mut builder = Builder {
        draft: Draft::default(),
        reported: SystemClock::new(),
        reported_at: Duration::ZERO,
        tokens: 0,
        begun_rows: tally.rows,
        tally,
        width,
    };
    loop {
        let portion = take_portion(feed.rows);
        if portion.is_empty() {
            break;
        }
        let tokenize = feed.tokenize;
        let pieces: Vec<Result<Result<Piece, RowFault>, RowFault>> = portion
            .into_par_iter()
            .map(|row| row.map(|(place, example)| tokenize(&place, &example)))
            .collect();
        for piece in pieces {
            // The source passes over what may be passed over: its own fault ends everything.
            builder.take(piece?, &feed, sink)?;
        }
        builder.report(&mut feed, false);
    }
    builder.flush(sink)?;
    builder.report(&mut feed, true);
    Ok(())
}

fn take_portion(rows: &mut dyn Iterator<Item = Row>) -> Vec<Row> {
    let (mut portion, mut bytes) = (Vec::new(), 0);
    while bytes < PORTION_BYTES && portion.len() < PORTION_ROWS {
        let Some(row) = rows.next() else { break };
        bytes += row
            .as_ref()
            .map_or(0, |(_, example)| text_bytes(&example.content));
        portion.push(row);
    }
    portion
}

/// Bytes of the texts of an example.
pub(crate) fn text_bytes(content: &Content) -> usize {
    let turns = |turns: &Turns| match turns {
        Turns::Text(text) => text.len(),
        Turns::Messages(messages) => messages.iter().map(|m| m.content.len()).sum(),
    };
    match content {
        Content::Text(text) => text.len(),
        Content::Chat(messages) => messages.iter().map(|m| m.content.len()).sum(),
        Content::Completion { prompt, completion }
        | Content::Labelled {
            prompt, completion, ..
        } => turns(prompt) + turns(completion),
        Content::Preference {
            prompt,
            chosen,
            rejected,
        } => turns(prompt) + turns(chosen) + turns(rejected),
        Content::Prompt { prompt, .. } => turns(prompt),
    }
}

struct Builder {
    draft: Draft,
    tally: Tally,
    width: usize,
    tokens: u64,
    begun_rows: u64,
    reported: SystemClock,
    reported_at: Duration,
}

impl Builder {
    fn take(
        &mut self,
        piece: Result<Piece, RowFault>,
        feed: &Feed<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), DataError> {
        let piece = match (piece, feed.on_bad_row) {
            (Ok(piece), _) => piece,
            (Err(fault), OnBadRow::Error) => return Err(fault.into()),
            (Err(fault), OnBadRow::Skip) => {
                self.tally.rows += 1;
                self.tally.skip(fault.to_string());
                return Ok(());
            }
        };
        if let (true, Some(eos)) = (piece.continues, feed.eos) {
            self.draft.reopen(eos);
        }
        if self.draft.tokens() >= SHARD_TOKENS {
            self.flush(sink)?;
        }
        self.tally.rows += 1;
        self.tally.text_bytes += piece.text_bytes;
        self.tally.rendered += piece.rendered;
        self.tally.without_tools += u64::from(piece.unwritten.tools);
        self.tally.without_thoughts += u64::from(piece.unwritten.thoughts);
        self.tally.answers += piece.unwritten.answers;
        self.tally.empty_calls += piece.unwritten.empty;
        if piece.documents.iter().any(|d| d.ids.is_empty()) {
            self.tally.empty += 1;
            return Ok(());
        }
        for document in &piece.documents {
            self.tokens += document.ids.len() as u64;
            self.draft.push(document);
        }
        Ok(())
    }

    fn flush(&mut self, sink: &mut dyn Sink) -> Result<(), DataError> {
        // The last shard may be empty: its tally counts the skipped rows.
        sink.write(self.draft.finish(self.width, &self.tally))
    }

    fn report(&mut self, feed: &mut Feed<'_>, done: bool) {
        let now = self.reported.elapsed();
        if !done && now - self.reported_at < TELL_EVERY {
            return;
        }
        self.reported_at = now;
        (feed.progress)(&Progress {
            source: feed.name.to_string(),
            rows: self.tally.rows - self.begun_rows,
            tokens: self.tokens,
            text_bytes: self.tally.text_bytes,
            seconds: now.as_secs_f64(),
            done,
        });
    }
}
