//! The hold-out of each source: row counts, shares too small for a window, and their messages.

use super::Ready;
use crate::base::human::grouped;
use crate::data::hold_out::{self, Span};
use crate::data::{DataConfig, DataError};

/// The rows to hold out of each source, where the spec counts them.
pub(super) fn held_rows(
    config: &DataConfig,
    train: &[Ready],
) -> Result<Option<Vec<u64>>, DataError> {
    let Some(wanted) = config.val_rows else {
        return Ok(None);
    };
    let rows: Vec<u64> = train.iter().map(|s| hold_out::rows(&s.store)).collect();
    let all: u64 = rows.iter().sum();
    if wanted < all {
        return Ok(Some(hold_out::shares(&rows, wanted)));
    }
    let what = match all {
        1 => "counts rows, but the data are one text, which is one row".into(),
        all => format!(
            "would hold out {} rows, but there are only {}",
            grouped(wanted),
            grouped(all)
        ),
    };
    let fix = "lower it, or use a fraction instead: data.val_fraction=0.1";
    Err(DataError::source("data.val_rows", what, fix))
}

/// Whether the held-out tokens of concatenated texts are too few for one row of `row` tokens.
pub(super) fn fills_no_row(held: &[Span], row: Option<u64>) -> bool {
    let tokens: u64 = held.iter().map(|span| span.1).sum();
    row.is_some_and(|row| !held.is_empty() && tokens < row)
}

/// A source of a mix that is trained on as a whole, because what would be held out of it fills no row.
pub(super) fn not_held_out(
    config: &DataConfig,
    source: &Ready,
    held: &[Span],
    seq_len: usize,
) -> String {
    let tokens: u64 = held.iter().map(|span| span.1).sum();
    let (would_be, larger) = match config.val_rows {
        Some(_) => (
            format!(
                "its share of data.val_rows is {}, of",
                grouped(held.len() as u64)
            ),
            "data.val_rows",
        ),
        None => ("they would be".into(), "data.val_fraction"),
    };
    format!(
        "{}: none of its rows is held out: {would_be} {} tokens, less than a row of {}; a larger {larger}, or data.val_path, \
         validates on it",
        source.name,
        grouped(tokens),
        grouped(seq_len as u64)
    )
}

/// How much of a source is held out, in words: the rows of training and validation.
pub(super) fn divided(source: &Ready, [train, val]: [u64; 2], is_cut: bool) -> String {
    let name = &source.name;
    match (is_cut, source.store.documents()) {
        (true, 1) => format!(
            "{name}: one document; its end is held out for validation (with several, whole documents are)"
        ),
        (true, _) => format!(
            "{name}: the end of its text is held out for validation, splitting a document: whole ones would leave less than a row, or \
             hold out more than twice data.val_fraction"
        ),
        (false, _) => {
            let (val, all) = (grouped(val), grouped(train + val));
            format!("{name}: {val} of {all} rows held out for validation, whole")
        }
    }
}
