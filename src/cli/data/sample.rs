//! Samples as a model sees them: tokens separated by a bar, supervised ones marked below.

use super::report::visible;
use crate::base::human::{counted, grouped};
use crate::base::text::one_line;
use crate::data::inspect::{KeptRow, View, parts};
use serde_json::{Value, json};
use std::fmt::Write;
use unicode_width::UnicodeWidthStr;

const WIDTH: usize = 80;
/// Lines of tokens shown per sample; the middle is summarized by a count.
const HEAD: usize = 7;
const TAIL: usize = 5;

/// One row, headed by its location.
pub fn sample(row: &KeptRow, view: Option<&dyn View>) -> String {
    let mut out = String::new();
    let facts = match row.tokens {
        Some(tokens) => counted(tokens, "token"),
        None => format!("{} characters", grouped(row.characters)),
    };
    let _ = writeln!(out, "  ── {} · {facts}", one_line(&row.place.to_string()));
    for (id, what) in &row.faults {
        let _ = writeln!(out, "     ! {id}: {}", one_line(what));
    }
    let Some(example) = &row.example else {
        return out;
    };
    match view.map(|view| (view, view.render(example, &row.place))) {
        Some((view, Ok(seen))) => {
            for seen in seen {
                if !seen.label.is_empty() {
                    let _ = writeln!(out, "     {}", seen.label);
                }
                let pieces = view.pieces(&seen.document.ids);
                let supervised = &seen.document.supervised;
                tokens(&mut out, &pieces, &|at| supervised[at].then_some('▔'));
            }
        }
        _ => {
            for part in parts(example) {
                let text = one_line(&part.text);
                super::report::wrapped(&mut out, 5, &format!("{}: {text}", part.role));
            }
        }
    }
    out
}

/// One row for machines: where it is, and of each of its sequences ids, tokens and which of them are supervised.
pub fn json(row: &KeptRow, view: Option<&dyn View>) -> Value {
    let mut told = json!({
        "place": row.place.to_string(),
        "characters": row.characters,
        "faults": row.faults.iter().map(|(id, what)| json!({"id": id, "what": what})).collect::<Vec<_>>(),
    });
    let seen = view.zip(row.example.as_ref());
    let seen =
        seen.and_then(|(view, example)| Some((view, view.render(example, &row.place).ok()?)));
    let Some((view, seen)) = seen else {
        return told;
    };
    let sequences = seen.iter().map(|seen| {
        json!({
            "label": seen.label,
            "ids": seen.document.ids,
            "tokens": view.pieces(&seen.document.ids),
            "mask": seen.document.supervised,
        })
    });
    told["sequences"] = sequences.collect();
    told
}

/// A line of tokens and the marks below it.
#[derive(Default)]
struct Row {
    text: String,
    marks: String,
    tokens: usize,
}

/// Pairs of lines: the tokens, and under the supervised ones their `mark` and `▔`. A long row shows its beginning and its end,
/// where the answer is.
pub fn tokens(out: &mut String, pieces: &[String], mark: &dyn Fn(usize) -> Option<char>) {
    let rows = rows(pieces, mark);
    let cut = rows.len() > HEAD + TAIL;
    for (i, row) in rows.iter().enumerate() {
        if cut && i == HEAD {
            let left: usize = rows[HEAD..rows.len() - TAIL].iter().map(|r| r.tokens).sum();
            let _ = writeln!(out, "     … {} more tokens …", grouped(left as u64));
        }
        if cut && (HEAD..rows.len() - TAIL).contains(&i) {
            continue;
        }
        let _ = writeln!(out, "     {}", row.text);
        if !row.marks.trim().is_empty() {
            let _ = writeln!(out, "     {}", row.marks.trim_end());
        }
    }
}

fn rows(pieces: &[String], mark: &dyn Fn(usize) -> Option<char>) -> Vec<Row> {
    const INDENT: usize = 5;
    let mut rows = Vec::new();
    let (mut row, mut column) = (Row::default(), 0);
    for (at, piece) in pieces.iter().enumerate() {
        let shown = visible(piece);
        let width = shown.width();
        if column > 0 && INDENT + column + width + 1 > WIDTH {
            rows.push(std::mem::take(&mut row));
            column = 0;
        }
        row.text.push_str(&shown);
        row.text.push('│');
        match mark(at) {
            Some(mark) => {
                row.marks.push(mark);
                row.marks.push_str(&"▔".repeat(width.saturating_sub(1)));
            }
            None => row.marks.push_str(&" ".repeat(width)),
        }
        row.marks.push(' ');
        row.tokens += 1;
        column += width + 1;
        // A line break in the text breaks the line; runs of them count once.
        let more = pieces
            .get(at + 1)
            .is_some_and(|next| next.starts_with('\n'));
        if piece.ends_with('\n') && !more {
            rows.push(std::mem::take(&mut row));
            column = 0;
        }
    }
    if row.tokens > 0 {
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supervised_tokens_are_marked_below_themselves() {
        let pieces = ["<s>", "Hi", "\n", "Hello", " you"].map(String::from);
        let mut out = String::new();
        tokens(&mut out, &pieces, &|at| (at > 2).then_some('▔'));
        assert_eq!(out, "     <s>│Hi│⏎│\n     Hello│␣you│\n     ▔▔▔▔▔ ▔▔▔▔\n");
    }

    #[test]
    fn long_samples_are_cut_and_the_cut_is_told() {
        let pieces = vec!["word".to_string(); 2000];
        let mut out = String::new();
        tokens(&mut out, &pieces, &|_| Some('▔'));
        assert!(out.lines().all(|line| line.width() <= WIDTH));
        assert_eq!(out.lines().count(), 2 * (HEAD + TAIL) + 1);
        assert!(out.contains(" more tokens …\n"), "{out}");
    }
}
