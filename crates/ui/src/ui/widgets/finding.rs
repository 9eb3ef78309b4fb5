//! A finding as words: its mark, one line, or its evidence, cause and fix wrapped below each other. The one look of findings
//! in every pane.

use super::text::{Word, word, wrap};
use crate::base::finding::{Finding, Status};
use crate::base::text::one_line;
use crate::ui::theme::{Meaning, Theme};
use unicode_width::UnicodeWidthStr;

/// Columns by which what belongs to a finding is set in.
const INDENT: u16 = 2;
/// Lines that one text may take.
const MAX_WRAPPED: usize = 9;

/// The mark in front of a finding.
pub fn mark(status: Status, theme: &Theme) -> Word {
    let glyphs = theme.glyphs();
    let (mark, meaning) = match status {
        Status::Fail => (glyphs.bad, Meaning::Bad),
        Status::Warn => (glyphs.warn, Meaning::Warn),
        Status::Unknown => ("?", Meaning::Muted),
        Status::Pass => (glyphs.ok, Meaning::Good),
        Status::NotApplicable => (glyphs.point, Meaning::Muted),
    };
    word(glyphs.beside_numbers(mark), meaning)
}

/// How its words look.
pub fn meaning(status: Status) -> Meaning {
    match status {
        Status::Fail => Meaning::Bad,
        Status::Warn => Meaning::Warn,
        _ => Meaning::Text,
    }
}

/// `! gradient norm  9 times its median at step 903`, the title in `width` columns.
pub fn row(finding: &Finding, width: usize, theme: &Theme) -> Vec<Word> {
    // Title and evidence do not run together where a title fills its column.
    let gap = if width > 0 && finding.title.width() >= width {
        2
    } else {
        1
    };
    vec![
        mark(finding.status, theme),
        word(
            format!(" {:<width$}{:gap$}", finding.title, ""),
            Meaning::Muted,
        ),
        word(
            one_line(&finding.evidence.to_string()),
            meaning(finding.status),
        ),
    ]
}

/// `! Shared memory  /dev/shm has 64 MiB  fix: start the container with …`
pub fn short(finding: &Finding, theme: &Theme) -> Vec<Word> {
    let mut words = vec![
        mark(finding.status, theme),
        word(format!(" {}  ", finding.title), meaning(finding.status)),
        word(one_line(&finding.evidence.to_string()), Meaning::Text),
    ];
    if !finding.fix.is_empty() && finding.status <= Status::Warn {
        let fix = format!("  fix: {}", one_line(&finding.fix));
        words.push(word(fix, Meaning::Accent));
    }
    words
}

/// Title, evidence, cause and fix, each on lines of its own, `width` columns wide.
pub fn full(finding: &Finding, width: u16, theme: &Theme) -> Vec<Vec<Word>> {
    let mut lines = vec![vec![
        mark(finding.status, theme),
        word(format!(" {}", finding.title), meaning(finding.status)),
    ]];
    for (label, words, meaning) in [
        ("", &finding.evidence.to_string(), Meaning::Text),
        ("why ", &finding.cause, Meaning::Muted),
        ("fix ", &finding.fix, Meaning::Accent),
    ] {
        lines.extend(labelled(label, words, meaning, width, theme));
    }
    lines
}

/// Those of checks that failed, then of those that warn, in full, one below the other.
pub fn failures_and_warnings(checks: &[Finding], width: u16, theme: &Theme) -> Vec<Vec<Word>> {
    let mut found: Vec<&Finding> = checks.iter().filter(|c| c.status <= Status::Warn).collect();
    found.sort_by_key(|finding| finding.status);
    let full = |finding: &&Finding| full(finding, width, theme);
    found.iter().flat_map(full).collect()
}

/// Wrapped words behind a label, set in by two columns.
pub fn labelled(
    label: &str,
    words: &str,
    meaning: Meaning,
    width: u16,
    theme: &Theme,
) -> Vec<Vec<Word>> {
    if words.is_empty() {
        return Vec::new();
    }
    let columns = usize::from(width.saturating_sub(INDENT)).saturating_sub(label.len());
    wrap(&one_line(words), columns, MAX_WRAPPED, theme.ascii)
        .into_iter()
        .enumerate()
        .map(|(i, line)| {
            let lead = if i == 0 { label } else { "" };
            let lead = format!(
                "{:indent$}{lead:<w$}",
                "",
                indent = usize::from(INDENT),
                w = label.len()
            );
            vec![word(lead, Meaning::Muted), word(line, meaning)]
        })
        .collect()
}
