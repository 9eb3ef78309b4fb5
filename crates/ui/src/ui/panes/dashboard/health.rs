//! The health box and the status line: draws the run's verdict and what its rules found. What they mean is `diagnosis`'s.

use super::glance::Glance;
use super::strips;
use crate::base::finding::Status;
use crate::diagnosis::{Diagnosis, Verdict};
use crate::run::RunState;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::finding;
use crate::ui::widgets::text::{self, Word, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Columns of a label.
const LABEL: usize = 14;

/// `✗ DIVERGED  train loss 153.9 …`
pub fn verdict(diagnosis: &Diagnosis, theme: &Theme) -> Vec<Word> {
    let meaning = match diagnosis.verdict.status() {
        Status::Pass => Meaning::Good,
        Status::Unknown => Meaning::Muted,
        status => finding::meaning(status),
    };
    vec![
        finding::mark(diagnosis.verdict.status(), theme),
        word(format!(" {}  ", diagnosis.verdict.word()), meaning),
        word(diagnosis.summary.clone(), Meaning::Text),
    ]
}

/// The verdict, then a finding a row, in the fixed order; the worst first when not all fit. Where a row is left, what to do
/// about the worst.
pub fn health(buffer: &mut Buffer, area: Rect, diagnosis: &Diagnosis, theme: &Theme) {
    let mut rows: Vec<Vec<Word>> = Vec::new();
    if diagnosis.findings.is_empty() {
        rows.push(vec![word(
            "Readings follow once it trains.",
            Meaning::Muted,
        )]);
    } else {
        rows.push(verdict(diagnosis, theme));
    }
    let room = usize::from(area.height).saturating_sub(rows.len());
    let mut shown: Vec<_> = diagnosis.findings.iter().collect();
    if shown.len() > room {
        shown.sort_by_key(|f| f.status);
    }
    let left = room.saturating_sub(shown.len());
    let worst = diagnosis.worst().filter(|f| f.status <= Status::Warn);
    for found in shown.into_iter().take(room) {
        rows.push(finding::row(found, LABEL, theme));
        if left > 0 && worst == Some(found) && !found.fix.is_empty() {
            rows.push(vec![word(format!("  fix: {}", found.fix), Meaning::Accent)]);
        }
    }
    let width = area.width.saturating_sub(2);
    for (words, y) in rows.iter().zip(area.y..area.bottom()) {
        text::draw(buffer, area.x + 1, y, width, words, theme);
    }
}

/// The one line on how the run does: its result, or what matters most.
pub fn status(buffer: &mut Buffer, area: Rect, state: &RunState, glance: &Glance, theme: &Theme) {
    let diagnosis = &glance.diagnosis;
    let words = match (&state.finished, diagnosis.worst()) {
        _ if diagnosis.verdict.status() <= Status::Warn => verdict(diagnosis, theme),
        // What another program made of it lies elsewhere; how it went is known.
        (Some(finish), _) if state.is_foreign() && finish.message.is_empty() => {
            verdict(diagnosis, theme)
        }
        (Some(finish), _) => strips::result_line(state, finish, theme),
        (None, Some(worst)) if worst.status <= Status::Warn => finding::row(worst, 0, theme),
        (None, Some(_)) if diagnosis.verdict == Verdict::TooEarly => calm(diagnosis, theme),
        (None, Some(_)) => verdict(diagnosis, theme),
        (None, None) => vec![word(strips::opening(state), Meaning::Muted)],
    };
    let max = area.width.saturating_sub(2);
    let end = text::draw(buffer, area.x + 1, area.y, max, &words, theme);
    let machine = strips::machine_line(state);
    text::draw_right(
        buffer,
        area.right() - 1,
        area.y,
        area.right().saturating_sub(end + 3),
        &machine,
        theme,
    );
}

/// Nothing is wrong so far: say what was looked at.
fn calm(diagnosis: &Diagnosis, theme: &Theme) -> Vec<Word> {
    match diagnosis.findings.last() {
        Some(found) => finding::row(found, 0, theme),
        None => Vec::new(),
    }
}
