//! The right side: one row, as the model sees it.

use crate::ui::widgets::frame::{self, inside, title};
use super::flow::{self, Line};
use super::{DataPane, Mode};
use crate::base::human::{counted, grouped};
use crate::base::text::one_line;
use crate::data::inspect::Inspected;
use crate::ui::panes::PaneContext;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

pub(super) fn draw(
    pane: &mut DataPane,
    buffer: &mut Buffer,
    outline: Rect,
    shown: &Inspected,
    context: &mut PaneContext,
) {
    let theme = context.theme;
    let inner = inside(outline);
    head(pane, buffer, outline, theme);
    let Some(row) = pane.row().cloned() else {
        let area = frame::with_padding(inner);
        let words = match (pane.filtered(), shown.kept.of) {
            (true, _) => "No row matches. {cancel} shows all rows.",
            (_, 0) => "There are no rows.",
            _ => "No row is kept for browsing.",
        };
        text::paragraph(buffer, area, &context.keymap.fill(words), Meaning::Muted, theme);
        return;
    };
    let mut area = inner;
    for (id, what) in &row.faults {
        if area.height < 2 {
            break;
        }
        let title = crate::data::inspect::checks::find(id).map_or(*id, |kind| kind.title);
        let words = [
            word(format!("{} ", theme.glyphs().warn), Meaning::Warn),
            word(format!("{title}: "), Meaning::Warn),
            word(one_line(what), Meaning::Text),
        ];
        text::draw(
            buffer,
            area.x + 1,
            area.y,
            area.width.saturating_sub(2),
            &words,
            theme,
        );
        area.y += 1;
        area.height -= 1;
    }
    let Some(sample) = &pane.sample else { return };
    let text_width = area.width.saturating_sub(3);
    let lines = flow::lines(sample, pane.mode, text_width, theme);
    pane.page = usize::from(area.height);
    pane.most = lines.len().saturating_sub(usize::from(area.height));
    pane.scroll = pane.scroll.min(pane.most);
    for (line, y) in lines.iter().skip(pane.scroll).zip(area.y..area.bottom()) {
        draw_line(buffer, (area.x, y), text_width, line, theme);
    }
    foot(pane, buffer, outline, shown, theme);
}

/// A gutter that marks supervised lines, then the line.
fn draw_line(buffer: &mut Buffer, (x, y): (u16, u16), width: u16, line: &Line, theme: &Theme) {
    let gutter = match (line.supervised, theme.ascii) {
        (true, false) => "▎",
        (true, true) => "|",
        (false, _) => " ",
    };
    text::draw(buffer, x, y, 1, &[word(gutter, Meaning::Good)], theme);
    let mut at = x + 2;
    let right = at + width;
    for span in &line.spans {
        let wide = (span.word.text.width() as u16).min(right.saturating_sub(at));
        text::draw(buffer, at, y, wide, std::slice::from_ref(&span.word), theme);
        if span.shaded && wide > 0 {
            let place = Rect::new(at, y, wide, 1).intersection(buffer.area);
            buffer.set_style(place, theme.style(Meaning::Shade));
        }
        at += wide;
    }
}

/// `row 3 of 1,000 · chat.jsonl:41`, and what is left out.
fn head(pane: &DataPane, buffer: &mut Buffer, outline: Rect, theme: &Theme) {
    let Some(row) = pane.row() else {
        title(buffer, outline, &[word(" rows ", Meaning::Title)], theme);
        return;
    };
    let of = grouped(pane.matching.len() as u64);
    let at = grouped(pane.at as u64 + 1);
    let place = row.place.to_string();
    let place = one_line(place.rsplit('/').next().unwrap_or(&place));
    let mut words = vec![word(format!(" {at} of {of} "), Meaning::Title)];
    let mut filters = Vec::new();
    if let Some(id) = pane.only {
        filters.push(id.replace('_', " "));
    }
    if !pane.search.is_empty() {
        filters.push(format!("“{}”", one_line(&pane.search)));
    }
    if !filters.is_empty() {
        words.push(word(
            format!("with {} ", filters.join(" and ")),
            Meaning::Warn,
        ));
    }
    let right = [word(format!(" {place} "), Meaning::Muted)];
    let room = outline.width.saturating_sub(3);
    let used = text::width(&words) as u16;
    title(buffer, outline, &words, theme);
    let left = room.saturating_sub(used + 1);
    text::draw_right(buffer, outline.right() - 1, outline.y, left, &right, theme);
}

/// In the lower border: how it is shown, how much there is, how to read the marks.
fn foot(pane: &DataPane, buffer: &mut Buffer, outline: Rect, shown: &Inspected, theme: &Theme) {
    let y = outline.bottom().saturating_sub(1);
    let Some(sample) = &pane.sample else { return };
    let dot = theme.glyphs().separator;
    let mut words: Vec<Word> = vec![word(format!(" as {} ", pane.mode.word()), Meaning::Title)];
    let mut marks = None;
    let (n, supervised) = sample.sides.iter().fold((0, 0), |(n, supervised), side| {
        (n + side.n, supervised + side.supervised)
    });
    if n > 0 {
        words.push(word(
            format!("{dot} {} ", counted(n as u64, "token")),
            Meaning::Text,
        ));
        if pane.mode != Mode::Raw {
            let supervised = format!("{dot} {} supervised ", grouped(supervised as u64));
            words.push(word(supervised, Meaning::Good));
            marks = Some(if theme.ascii { "[[ ]] " } else { "⟦ ⟧ " });
        }
    }
    let mut right = Vec::new();
    if pane.most > 0 {
        let share = 100 * pane.scroll / pane.most.max(1);
        right.push(word(format!(" {share} % "), Meaning::Muted));
    } else if shown.kept.limit().is_some() {
        let of = format!(" {} in all ", counted(shown.kept.of, "row"));
        right.push(word(of, Meaning::Muted));
    }
    let room = outline.width.saturating_sub(2);
    // How to read the marks gives way to where one is.
    let taken = text::width(&words) + text::width(&right) + 1;
    let fits = |marks: &&str| taken + marks.width() <= usize::from(room);
    words.extend(marks.filter(fits).map(|marks| word(marks, Meaning::Good)));
    let end = text::draw(buffer, outline.x + 1, y, room, &words, theme);
    let left = outline.right().saturating_sub(end + 2);
    text::draw_right(buffer, outline.right() - 1, y, left, &right, theme);
}
