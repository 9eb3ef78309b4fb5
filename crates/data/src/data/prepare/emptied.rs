//! Why nothing is left of documents that were to be laid into rows, and the remedy: too short and too long need opposite
//! ones.

use super::Ready;
use crate::base::human::grouped;
use crate::data::documents::Layouting;
use crate::data::hold_out::Span;
use crate::data::pack::{Packing, TooLong, pieces};
use crate::data::{DataError, Unit};

/// Examples of one source, or a part of them.
pub(super) struct SourceSpans {
    pub how: Layouting,
    /// First token, and tokens that a row must hold.
    pub spans: Vec<Span>,
}

impl SourceSpans {
    pub fn new(how: Layouting, source: &Ready, mut spans: Vec<Span>) -> SourceSpans {
        for example in spans.chunks_mut(how.unit.documents()) {
            for span in example.iter_mut().take(how.unit.sequences()) {
                span.1 = pieces::needed(&source.store, *span);
            }
        }
        SourceSpans { how, spans }
    }
}

/// A source of which no row to train on is left.
pub(super) fn nothing_left(source: &Ready, how: Layouting, spans: &[Span]) -> DataError {
    let tried = SourceSpans::new(how, source, spans.to_vec());
    let (why, fix) = why(&[tried]);
    let seq_len = how.seq_len;
    DataError::source(
        &source.name,
        format!("gives no row of {seq_len} tokens: {why}"),
        fix,
    )
}

/// A validation split without a row.
pub(super) fn no_validation(held: &[SourceSpans], counts_rows: bool) -> DataError {
    let (why, mut fix) = why(held);
    let is_stream = |tried: &SourceSpans| tried.how.packing == Packing::Stream;
    if counts_rows && held.first().is_some_and(is_stream) {
        fix = "a larger data.val_rows, or a smaller model.seq_len".into();
    }
    if held.iter().all(|tried| tried.spans.is_empty()) {
        fix = "more rows, or a larger data.val_fraction".into();
    }
    DataError::source(
        "the validation split",
        format!("has nothing to predict: {why}"),
        fix,
    )
}

/// One row alone, of which nothing is left to validate on.
pub(super) fn one_row(name: &str) -> DataError {
    DataError::source(
        name,
        "has one row, which cannot be split into training and validation",
        "add rows, or name other rows in data.val_path",
    )
}

fn why(tried: &[SourceSpans]) -> (String, String) {
    let (mut examples, mut long, mut longest, mut tokens) = (0, 0, 0, 0);
    let Some(how) = tried.first().map(|tried| tried.how) else {
        return ("it has no rows".into(), "name a file with rows".into());
    };
    let unit = how.unit;
    // The last token of a prompt takes a place too: the answer is written after it.
    let next = u64::from(unit == Unit::Prompt);
    for SourceSpans { spans, .. } in tried {
        for example in spans.chunks(unit.documents()) {
            let texts = &example[..unit.sequences().min(example.len())];
            let most = texts.iter().map(|(_, len)| *len).max().unwrap_or(0);
            examples += 1;
            long += u64::from(most + next > how.seq_len as u64 + 1);
            longest = longest.max(most);
            tokens += texts.iter().map(|(_, len)| len).sum::<u64>();
        }
    }
    if how.packing == Packing::Stream {
        return (
            format!(
                "{}, {} tokens in total, but a row needs {} (model.seq_len + 1)",
                counted(unit, examples),
                grouped(tokens),
                grouped(how.seq_len as u64 + 1)
            ),
            "more text, or a smaller model.seq_len".into(),
        );
    }
    if long == 0 {
        return (
            format!("nothing of {} is supervised", counted(unit, examples)),
            "check with `llmtui data inspect` what is supervised; rows need an answer".into(),
        );
    }
    let kept = grouped((longest + next).saturating_sub(1));
    let (lost, other) = match how.too_long {
        TooLong::Drop => ("are left out", ""),
        TooLong::TruncateStart => ("are truncated to what is not supervised", ""),
        _ => (
            "lose their answers to truncation",
            ", or data.too_long: truncate_start, which keeps the ends",
        ),
    };
    let all = counted(unit, examples);
    let long = match long == examples {
        true => format!("all {all} are"),
        false => format!("{} of {all} are", grouped(long)),
    };
    (
        format!(
            "{long} longer than a row and {lost}; the longest has {} tokens",
            grouped(longest)
        ),
        format!(
            "a larger model.seq_len: {kept} keeps all of them, where the model has as many positions{other}"
        ),
    )
}

/// So many examples, in words.
pub(super) fn counted(unit: Unit, examples: u64) -> String {
    let (one, many) = match unit {
        Unit::Text => ("document", "documents"),
        Unit::Pair | Unit::Ranked => ("pair", "pairs"),
        Unit::Prompt => ("prompt", "prompts"),
        Unit::Judged => ("judged answer", "judged answers"),
    };
    let word = if examples == 1 { one } else { many };
    format!("{} {word}", grouped(examples))
}
