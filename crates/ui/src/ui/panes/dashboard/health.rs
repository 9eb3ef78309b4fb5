//! The health box: draws the run's verdict and what its rules found. What they mean is `diagnosis`'s.

use crate::base::finding::Status;
use crate::diagnosis::Diagnosis;
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
            "Readings appear once it trains.",
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
