//! Rows, fields and notes of the wizard's screen.

use crate::advisor::wizard::{Input, Row};
use crate::base::text::cut_middle;
use crate::ui::field::TextField;
use crate::ui::layout::fill;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, word};
use ratatui::Frame;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

/// What stands before a note, and how it and the note look.
pub(super) fn note_style(label: &str, theme: &Theme) -> (String, Meaning, Meaning) {
    let marked = |glyph, meaning| {
        let mark = theme.glyphs().beside_numbers(glyph);
        (format!("{mark} {label}"), meaning, Meaning::Text)
    };
    match label {
        "passed" => marked(theme.glyphs().ok, Meaning::Good),
        "warning" => marked(theme.glyphs().warn, Meaning::Warn),
        "failed" => marked(theme.glyphs().bad, Meaning::Bad),
        "skipped" => marked(theme.glyphs().point, Meaning::Muted),
        "Wrong" | "Careful" => (label.into(), Meaning::Accent, Meaning::Warn),
        label => (label.into(), Meaning::Accent, Meaning::Text),
    }
}

/// What the rows below it have in common.
pub(super) fn draw_heading(frame: &mut Frame, area: Rect, words: &str, theme: &Theme) {
    let words = [word(words, Meaning::Title)];
    text::draw(frame.buffer_mut(), area.x, area.y, area.width, &words, theme);
}

/// One row: `▸ title   value or detail`.
pub(super) fn draw_row(
    frame: &mut Frame,
    area: Rect,
    row: &Row,
    selected: bool,
    titles: usize,
    field: Option<&mut TextField>,
    theme: &Theme,
) {
    let glyphs = theme.glyphs();
    let pointer = if selected { glyphs.pointer } else { " " };
    let main = match (selected, row.open) {
        (true, _) => Meaning::Accent,
        (false, true) => Meaning::Text,
        (false, false) => Meaning::Muted,
    };
    let long = row.title.width() > titles;
    let titles = match long {
        true => row.title.width().min(usize::from(area.width.saturating_sub(2))),
        false => titles,
    };
    let head = word(
        format!("{pointer} {}", fill(&row.title, titles, glyphs.ellipsis)),
        main,
    );
    let x = text::draw(
        frame.buffer_mut(),
        area.x,
        area.y,
        area.width,
        &[head],
        theme,
    ) + 2;
    let rest = area.right().saturating_sub(x);
    let Some(input) = &row.input else {
        // A word or two of a detail help nobody.
        if long {
            return;
        }
        let detail = [word(row.detail.clone(), Meaning::Muted)];
        text::draw(frame.buffer_mut(), x, area.y, rest, &detail, theme);
        return;
    };
    // A settings row has words beside its value; a path takes the whole line.
    let beside = !row.detail.is_empty() || row.fault.is_some();
    let room = if beside { rest.min(16) } else { rest };
    let place = Rect {
        x,
        width: room,
        ..area
    };
    draw_value(frame, place, input, field, theme);
    let after = match &row.fault {
        Some(fault) => word(format!("{} {fault}", glyphs.bad), Meaning::Bad),
        None => word(row.detail.clone(), Meaning::Muted),
    };
    let at = x + room + 1;
    let left = area.right().saturating_sub(at);
    text::draw(frame.buffer_mut(), at, area.y, left, &[after], theme);
}

/// A path in so many columns: its end says more than its middle. What is no path is cut at its end.
pub(super) fn short_path(text: &str, columns: usize, theme: &Theme) -> String {
    match text.contains('/') {
        true => cut_middle(text, columns, theme.glyphs().ellipsis),
        false => text.into(),
    }
}

/// What a row holds, or while it is empty what it wants; `field` where it is typed into.
fn draw_value(
    frame: &mut Frame,
    area: Rect,
    input: &Input,
    field: Option<&mut TextField>,
    theme: &Theme,
) {
    let words = match field {
        Some(field) => return draw_field(frame, area, field, input, theme),
        None if input.text.is_empty() => word(input.placeholder.clone(), Meaning::Muted),
        None => {
            let text = short_path(&input.text, area.width.into(), theme);
            word(text, Meaning::Text)
        }
    };
    text::draw(frame.buffer_mut(), area.x, area.y, area.width, &[words], theme);
}

/// The field that is typed into; while it is empty, what it wants.
pub(super) fn draw_field(
    frame: &mut Frame,
    area: Rect,
    field: &mut TextField,
    input: &Input,
    theme: &Theme,
) {
    field.draw(frame, area, theme, true);
    if field.is_empty() {
        let hint = [word(input.placeholder.clone(), Meaning::Muted)];
        let room = area.width.saturating_sub(1);
        text::draw(frame.buffer_mut(), area.x + 1, area.y, room, &hint, theme);
    }
}
