//! Where the boxes of the pane lie, and what stands there while there is nothing to show.

use super::boxes::progress_words;
use super::{DataPane, browser, facts};
use crate::ui::action::Action;
use crate::ui::panes::PaneContext;
use crate::ui::theme::Meaning;
use crate::ui::widgets::Lattice;
use crate::ui::widgets::bar;
use crate::ui::widgets::text;
use ratatui::Frame;
use ratatui::layout::Rect;

/// Below this width the rows have the screen for themselves.
const NARROW: u16 = 64;
/// Columns of the facts, and their bounds.
const FACTS_SHARE: f64 = 0.38;
const FACTS_WIDTH: (u16, u16) = (31, 54);

pub(super) fn draw(pane: &mut DataPane, frame: &mut Frame, area: Rect, context: &mut PaneContext) {
    let Some(shown) = pane.shown.clone() else {
        return nothing_yet(pane, frame, area, context);
    };
    let theme = context.theme;
    let buffer = frame.buffer_mut();
    let width = (f64::from(area.width) * FACTS_SHARE) as u16;
    let width = width.clamp(FACTS_WIDTH.0, FACTS_WIDTH.1);
    let (left, right) = match area.width < NARROW {
        true => (None, area),
        false => (
            Some(Rect { width, ..area }),
            Rect {
                x: area.x + width - 1,
                width: area.width - width + 1,
                ..area
            },
        ),
    };
    let boxes = left.map(|left| facts::Boxes::of(left, &shown.report));
    let mut lattice = Lattice::new(area);
    let outlines = boxes.iter().flat_map(facts::Boxes::outlines);
    outlines.chain([right]).for_each(|outline| {
        lattice.outline(outline);
    });
    lattice.draw(buffer, theme);
    if let Some(boxes) = &boxes {
        facts::draw(pane, buffer, boxes, &shown.report, context);
    }
    browser::draw(pane, buffer, right, &shown, context);
}

fn nothing_yet(pane: &DataPane, frame: &mut Frame, area: Rect, context: &PaneContext) {
    let theme = context.theme;
    let buffer = frame.buffer_mut();
    let inner = Rect {
        x: area.x + 2,
        y: area.y + 1.min(area.height),
        width: area.width.saturating_sub(4),
        height: area.height.saturating_sub(1),
    };
    if let (Some(reading), Some(words)) = (&pane.reading, progress_words(pane)) {
        text::draw(buffer, inner.x, inner.y, inner.width, &words, theme);
        let width = inner.width.min(60);
        if let (Some(share), true) = (reading.progress.share, inner.height > 1) {
            bar::progress(
                buffer,
                inner.x,
                inner.y + 1,
                width,
                share,
                Meaning::Accent,
                theme,
            );
        }
        return;
    }
    let key = context.keymap.label(Action::OpenData);
    let (words, meaning) = match &pane.error {
        Some(why) => (
            format!(
                "{}\n\n{key} {}",
                crate::base::text::sanitize(why),
                match &pane.mapping {
                    Some(_) => "opens it again, with its columns mapped so.",
                    None => "opens other data.",
                }
            ),
            Meaning::Bad,
        ),
        None => (
            format!(
                "No dataset open.\n\n{key} asks for a file, a folder or a glob and shows what is in it: rows, lengths, \
                 duplicates, broken text, and every row as the model sees it.\n\nWith a run open, its data are shown \
                 here."
            ),
            Meaning::Muted,
        ),
    };
    let mut rest = inner;
    for paragraph in words.split("\n\n") {
        let used = text::paragraph(buffer, rest, paragraph, meaning, theme) + 1;
        rest.y += used.min(rest.height);
        rest.height = rest.height.saturating_sub(used);
    }
}
