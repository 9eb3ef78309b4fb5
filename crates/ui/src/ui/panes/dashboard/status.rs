//! The status line: the run's result or its health, and its machine.

use super::glance::Glance;
use super::health::verdict;
use super::{machine, strips};
use crate::base::finding::Status;
use crate::diagnosis::{Diagnosis, Verdict};
use crate::run::RunState;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::finding;
use crate::ui::widgets::text::{self, Word, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// The one line on how the run does: its result, or what matters most.
pub fn status(buffer: &mut Buffer, area: Rect, state: &RunState, glance: &Glance, theme: &Theme) {
    let diagnosis = &glance.diagnosis;
    let words = match (&state.finished, diagnosis.worst()) {
        (Some(finish), _) if state.refused.is_some() => {
            strips::result_line(state, finish, diagnosis, theme)
        }
        _ if diagnosis.verdict.status() <= Status::Warn => verdict(diagnosis, theme),
        // What another program made of it lies elsewhere; how it went is known.
        (Some(finish), _) if state.is_foreign() && finish.message.is_empty() => {
            verdict(diagnosis, theme)
        }
        (Some(finish), _) => strips::result_line(state, finish, diagnosis, theme),
        (None, Some(worst)) if worst.status <= Status::Warn => finding::row(worst, 0, theme),
        (None, Some(_)) if diagnosis.verdict == Verdict::TooEarly => calm(diagnosis, theme),
        (None, Some(_)) => verdict(diagnosis, theme),
        (None, None) => vec![word(strips::opening(state), Meaning::Muted)],
    };
    let max = area.width.saturating_sub(2);
    let end = text::draw(buffer, area.x + 1, area.y, max, &words, theme);
    let machine = machine::machine_line(state);
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
