//! The only output path of the command line besides tables and streams: control sequences are neutralized, and a closed or full
//! standard error is ignored.

use crate::base::text::{quiet_json, sanitize, without_error_numbers, wrap};
use crate::wire::{Envelope, Event};
use std::fmt::Arguments;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Writes a line to standard error. Failures are ignored: nobody may be reading it.
pub fn errln(words: Arguments<'_>) {
    let words = without_error_numbers(&words.to_string());
    let words = wrapped(&sanitize(&words), error_columns());
    hint(format_args!("{words}\n"));
}

/// Columns of the terminal behind standard error; a file or a pipe gets full lines.
pub fn error_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns >= 40)
}

/// Lines that are too long for a terminal, broken at words: the rest of one is indented below it.
pub fn wrapped(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else {
        return text.to_string();
    };
    let line = |line: &str| {
        if line.width() <= columns {
            return line.to_string();
        }
        let words = line.trim_start_matches(' ');
        let indent = &line[..line.len() - words.len()];
        wrap(words, columns, indent, &format!("{indent}  ")).join("\n")
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Rows as lines whose cells stand below each other, two spaces apart.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.width()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(widest).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let gap = width.saturating_sub(cell.width());
            format!("{cell}{:gap$}", "")
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}

/// The same without an end of line.
pub fn hint(words: Arguments<'_>) {
    let _ = io::stderr().write_all(sanitize(&words.to_string()).as_bytes());
}

/// Writes a line to standard output.
///
/// # Errors
/// It is closed or full.
pub fn outln(words: Arguments<'_>) -> io::Result<()> {
    let line = sanitize(&format!("{words}\n"));
    io::stdout().write_all(line.as_bytes())
}

/// Words with plain letters for signs, for a terminal that has no others.
pub fn ascii(text: &str) -> String {
    const SIGNS: [(char, &str); 18] = [
        ('→', "->"),
        ('≤', "<="),
        ('≥', ">="),
        ('≈', "~"),
        ('±', "+/-"),
        ('×', "x"),
        ('·', "-"),
        ('−', "-"),
        ('–', "-"),
        ('—', "-"),
        ('…', "..."),
        ('«', "\""),
        ('»', "\""),
        ('“', "\""),
        ('”', "\""),
        ('’', "'"),
        ('‖', "|"),
        ('√', "sqrt "),
    ];
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match SIGNS.iter().find(|(sign, _)| *sign == c) {
            Some((_, words)) => plain.push_str(words),
            None => plain.push(c),
        }
    }
    plain
}

/// What a link itself has to say: the log stalls, or the run's folder is gone.
pub fn warn(envelope: &Envelope) {
    if let (0, Event::Warned { message, hint, .. }) = (envelope.seq, &envelope.event) {
        errln(format_args!("warning: {message}\n  try: {hint}"));
    }
}

/// A value as indented JSON.
///
/// # Errors
/// None is known for what this program shows.
pub fn json(value: &impl serde::Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(quiet_json)
}

/// A value as JSON in one line.
///
/// # Errors
/// None is known for what this program shows.
pub fn json_line(value: &impl serde::Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(quiet_json)
}

/// A line on standard error, as `eprintln!` and without its panic.
macro_rules! errln {
    () => { $crate::cli::out::errln(format_args!("")) };
    ($($words:tt)*) => { $crate::cli::out::errln(format_args!($($words)*)) };
}

/// A line on standard output, as `println!` and without its panic: an `io::Result`.
macro_rules! outln {
    () => { $crate::cli::out::outln(format_args!("")) };
    ($($words:tt)*) => { $crate::cli::out::outln(format_args!($($words)*)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_below_each_other() {
        let rows = [["lr", "±"], ["1e-3", "0.1"]].map(|row| row.map(String::from).to_vec());
        assert_eq!(columns(&rows), "lr    ±\n1e-3  0.1\n");
    }

    #[test]
    fn signs_become_plain_letters() {
        let plain = ascii("LEARNING  train loss 4.15 → 1.76 · 2 × ≤ 3 … «x»");
        assert_eq!(
            plain,
            "LEARNING  train loss 4.15 -> 1.76 - 2 x <= 3 ... \"x\""
        );
        // Names keep their letters.
        assert_eq!(ascii("Hägele"), "Hägele");
    }

    #[test]
    fn long_lines_break_at_words_and_pipes_get_them_whole() {
        let text = "llmtui: no such model here\n  try: llmtui model pull NAME\n";
        assert_eq!(wrapped(text, None), text);
        let narrow = wrapped(text, Some(20));
        assert_eq!(
            narrow,
            "llmtui: no such\n  model here\n  try: llmtui model\n    pull NAME\n"
        );
    }
}
