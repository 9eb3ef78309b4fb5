//! Rows of a batch for people: what each is, its text with the supervised tokens marked, on request ids and losses.

use super::{report, sample};
use crate::base::human::grouped;
use crate::base::text::one_line;
use crate::data::{TextStream, Tokenizer};
use crate::run::revisit::Row;
use std::fmt::Write;

/// Columns before tokens, as in `data inspect`.
const INDENT: usize = 5;

/// How rows are shown.
pub struct Sheet<'a> {
    pub tokenizer: &'a Tokenizer,
    pub ids: bool,
}

/// A token of a row in reading order: inputs that no target of the row repeats, and targets.
struct Token {
    id: u32,
    /// The target that it is.
    target: Option<usize>,
}

impl Sheet<'_> {
    /// The rows of one or more whole micro-batches.
    pub fn rows(&self, rows: &[Row]) -> String {
        let mut out = String::new();
        for row in rows {
            self.row(&mut out, row);
        }
        out
    }

    fn row(&self, out: &mut String, row: &Row) {
        report::wrapped(out, 0, &head(row));
        let tokens = tokens(row);
        let counts = |token: &Token| token.target.is_some_and(|at| row.mask[at]);
        let shown = tokens.len() - padding(&tokens, &counts);
        let pieces = self.pieces(&tokens[..shown]);
        let targets_count = row.mask.iter().all(|counts| *counts);
        match (&row.scored, targets_count) {
            // Marks below everything would say nothing.
            (None, true) => text(out, &pieces.concat()),
            (scored, _) => {
                let mark = |at: usize| {
                    let target = tokens[at].target.filter(|at| row.mask[*at])?;
                    Some(scored.as_ref().map_or('▔', |s| digit(s.losses[target])))
                };
                sample::tokens(out, &pieces, &mark);
            }
        }
        if shown < tokens.len() {
            let n = grouped((tokens.len() - shown) as u64);
            let _ = writeln!(out, "{:INDENT$}… {n} more, all as the last (padding)", "");
        }
        if self.ids {
            let ids: Vec<String> = row.ids.iter().map(u32::to_string).collect();
            report::wrapped(out, INDENT, &format!("ids {}", ids.join(" ")));
        }
    }

    fn pieces(&self, tokens: &[Token]) -> Vec<String> {
        let mut stream = TextStream::default();
        let ids = tokens.iter().map(|token| token.id);
        let mut pieces: Vec<String> = ids.map(|id| stream.push(self.tokenizer, id)).collect();
        if let Some(last) = pieces.last_mut() {
            last.push_str(&stream.finish(self.tokenizer));
        }
        pieces
    }
}

/// `step 100 · micro-step 99 · row 2 · chosen · 64 tokens, 12 supervised · loss 3.2100 · chats.jsonl`
fn head(row: &Row) -> String {
    let step = row.step.map(|step| format!("step {}", grouped(step)));
    let micro = row
        .micro_step
        .map(|at| format!("micro-step {}", grouped(at)));
    let place = match row.held_out {
        true => format!("validation row {}", row.row),
        false => format!("row {}", row.row),
    };
    let (n, counted) = (row.ids.len() as u64, row.supervised as u64);
    let size = format!("{} tokens, {} supervised", grouped(n), grouped(counted));
    let loss = row.loss().map(|loss| format!("loss {loss:.4}"));
    let sources = one_line(&row.sources.join(" and "));
    let sources = (!sources.is_empty()).then_some(sources);
    let parts = [
        step,
        micro,
        Some(place),
        row.label.clone(),
        Some(size),
        loss,
        sources,
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(" · ")
}

/// Every token of a row once: a document's first one is no target, and its last one may be no input.
fn tokens(row: &Row) -> Vec<Token> {
    let begins = |at: usize| {
        let first = row.first.as_ref().and_then(|first| first.get(at));
        first.is_some_and(|first| *first as usize == at) && row.targets[at - 1] != row.ids[at]
    };
    let mut tokens = Vec::with_capacity(row.ids.len() + 1);
    for (at, (id, target)) in row.ids.iter().zip(&row.targets).enumerate() {
        if at == 0 || begins(at) {
            tokens.push(Token {
                id: *id,
                target: None,
            });
        }
        tokens.push(Token {
            id: *target,
            target: Some(at),
        });
    }
    tokens
}

/// How many tokens at the end are the one before them again, and do not count: a row is padded with one token.
fn padding(tokens: &[Token], counts: &dyn Fn(&Token) -> bool) -> usize {
    let last = tokens.last().map(|token| token.id);
    let same = |token: &&Token| Some(token.id) == last && !counts(token);
    let n = tokens.iter().rev().take_while(same).count();
    n.saturating_sub(1)
}

/// A loss in whole nats.
fn digit(loss: f32) -> char {
    let nats = loss.round().clamp(0.0, 9.0);
    match loss.is_finite() {
        true => char::from_digit(nats as u32, 10).unwrap_or('9'),
        false => '!',
    }
}

/// What the digits below tokens are.
pub const LEGEND: &str =
    "below each supervised token: its loss in nats, rounded (9: 9 and above, !: not finite)";

fn text(out: &mut String, words: &str) {
    for line in words.lines() {
        report::wrapped(out, INDENT, &one_line(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::revisit::ScoredRow;
    use crate::spec::{SpecSources, load};
    use unicode_width::UnicodeWidthStr;

    fn shown(ids: bool, rows: &[Row]) -> String {
        let spec = load("quickstart", &[], &SpecSources::default())
            .unwrap()
            .spec;
        let data = spec.open_data(&Default::default()).unwrap();
        let tokenizer = &data.tokenizer;
        let sheet = Sheet { tokenizer, ids };
        sheet.rows(rows)
    }

    /// `Hi you` in the quickstart's characters; the last three count.
    fn row() -> Row {
        let spec = load("quickstart", &[], &SpecSources::default())
            .unwrap()
            .spec;
        let data = spec.open_data(&Default::default()).unwrap();
        let all = data.tokenizer.encode("Hi you").unwrap();
        Row {
            step: Some(7),
            micro_step: Some(6),
            ids: all[..5].to_vec(),
            targets: all[1..].to_vec(),
            mask: vec![false, false, true, true, true],
            supervised: 3,
            sources: vec!["chats.jsonl".into()],
            ..Row::default()
        }
    }

    #[test]
    fn supervised_tokens_are_marked_and_each_token_stands_once() {
        assert_eq!(
            shown(true, &[row()]),
            format!(
                "step 7 · micro-step 6 · row 0 · 5 tokens, 3 supervised · chats.jsonl\n     H│i│␣│y│o│u│\n           ▔ ▔ ▔\n     ids {}\n",
                row()
                    .ids
                    .iter()
                    .map(u32::to_string)
                    .collect::<Vec<_>>()
                    .join(" ")
            )
        );
    }

    #[test]
    fn labels_are_named_and_losses_stand_below_their_tokens() {
        let mut scored = row();
        scored.scored = Some(ScoredRow {
            losses: vec![1.0, 1.0, 0.2, 12.0, f32::NAN],
            loss: Some(2.5),
            ..ScoredRow::default()
        });
        let labelled = |label: &str| Row {
            label: Some(label.into()),
            ..scored.clone()
        };
        let told = shown(false, &["chosen", "rejected"].map(labelled));
        assert!(
            told.contains("row 0 · chosen · 5 tokens, 3 supervised · loss 2.5000"),
            "{told}"
        );
        assert!(told.contains("· rejected ·"), "{told}");
        assert!(told.contains("           0 9 !\n"), "{told}");
    }

    #[test]
    fn padding_is_counted_and_nothing_is_wider_than_80_columns() {
        let mut padded = row();
        let pad = padded.ids[0];
        for _ in 0..40 {
            padded.ids.push(pad);
            padded.targets.push(pad);
            padded.mask.push(false);
        }
        padded.targets[4] = row().targets[4];
        let told = shown(true, &[padded]);
        assert!(
            told.contains("… 39 more, all as the last (padding)"),
            "{told}"
        );
        let mut whole = row();
        whole.ids = whole.ids.repeat(200);
        whole.targets = whole.targets.repeat(200);
        whole.mask = vec![true; 1_000];
        let long = shown(false, &[whole]);
        for line in told.lines().chain(long.lines()) {
            assert!(line.width() <= 80, "{line}");
        }
    }
}
