//! Samples as a model sees them: tokens apart by a bar, learnt ones marked below.

use super::report::visible;
use crate::base::human::grouped;
use crate::base::text::one_line;
use crate::data::inspect::{KeptRow, View, parts};
use std::fmt::Write;
use unicode_width::UnicodeWidthStr;

const WIDTH: usize = 80;
/// Lines of one sample; the rest is counted.
const LINES: usize = 8;

/// One row, headed by its place.
pub fn sample(row: &KeptRow, view: Option<&dyn View>) -> String {
    let mut out = String::new();
    let facts = match row.tokens {
        Some(tokens) => format!("{} tokens", grouped(tokens)),
        None => format!("{} characters", grouped(row.characters)),
    };
    let _ = writeln!(out, "  ── {} · {facts}", one_line(&row.place.to_string()));
    for (id, what) in &row.faults {
        let _ = writeln!(out, "     ! {id}: {}", one_line(what));
    }
    let Some(example) = &row.example else {
        return out;
    };
    match view.map(|view| (view, view.see(example, &row.place))) {
        Some((view, Ok(seen))) => {
            for seen in seen {
                if !seen.label.is_empty() {
                    let _ = writeln!(out, "     {}", seen.label);
                }
                let pieces = view.pieces(&seen.document.ids);
                tokens(&mut out, &pieces, &seen.document.learnt);
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

/// Two lines at a time: the tokens, and `▔` under those that are learnt.
fn tokens(out: &mut String, pieces: &[String], learnt: &[bool]) {
    const INDENT: usize = 5;
    let (mut text, mut marks, mut column, mut lines) = (String::new(), String::new(), 0, 0);
    for (at, (piece, learnt)) in pieces.iter().zip(learnt).enumerate() {
        let shown = visible(piece);
        let width = shown.width();
        if column > 0 && INDENT + column + width + 1 > WIDTH {
            flush(out, &mut text, &mut marks);
            (column, lines) = (0, lines + 1);
        }
        if lines == LINES {
            let left = grouped((pieces.len() - at) as u64);
            let _ = writeln!(out, "     … {left} more tokens");
            return;
        }
        text.push_str(&shown);
        text.push('│');
        marks.push_str(&if *learnt { "▔" } else { " " }.repeat(width));
        marks.push(' ');
        column += width + 1;
        // A line break of the text breaks the line; several of them only once.
        let more = pieces
            .get(at + 1)
            .is_some_and(|next| next.starts_with('\n'));
        if piece.ends_with('\n') && !more {
            flush(out, &mut text, &mut marks);
            (column, lines) = (0, lines + 1);
        }
    }
    flush(out, &mut text, &mut marks);
}

fn flush(out: &mut String, text: &mut String, marks: &mut String) {
    if !text.is_empty() {
        let _ = writeln!(out, "     {text}");
    }
    if !marks.trim().is_empty() {
        let _ = writeln!(out, "     {}", marks.trim_end());
    }
    text.clear();
    marks.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learnt_tokens_are_marked_below_themselves() {
        let pieces = ["<s>", "Hi", "\n", "Hello", " you"].map(String::from);
        let mut out = String::new();
        tokens(&mut out, &pieces, &[false, false, false, true, true]);
        assert_eq!(out, "     <s>│Hi│⏎│\n     Hello│␣you│\n     ▔▔▔▔▔ ▔▔▔▔\n");
    }

    #[test]
    fn long_samples_are_cut_and_the_cut_is_told() {
        let pieces = vec!["word".to_string(); 2000];
        let mut out = String::new();
        tokens(&mut out, &pieces, &vec![true; 2000]);
        assert!(out.lines().all(|line| line.width() <= WIDTH));
        assert_eq!(out.lines().count(), 2 * LINES + 1);
        assert!(out.ends_with("more tokens\n"), "{out}");
    }
}
