//! Short words in the corner that go by themselves.

use super::layout::{cut, wrap};
use super::theme::{Meaning, Theme};
use crate::base::clock::UnixMillis;
use crate::base::text::one_line;
use crate::run::state::Level;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Block;
use ratatui::widgets::{Clear, Paragraph};
use std::collections::VecDeque;
use unicode_width::UnicodeWidthStr;

/// Shown at once; older ones give way.
const MAX_SHOWN: usize = 3;
/// Rows of one; longer ones are cut.
const MAX_ROWS: usize = 3;
/// Columns of the words.
const WIDTH: u16 = 48;
/// Below this height news that ask for nothing take one row at the bottom, and no box over what is being read.
const TALL: u16 = 28;

#[derive(Debug)]
struct Toast {
    level: Level,
    text: String,
    until: UnixMillis,
}

/// The words on the screen, newest last.
#[derive(Debug, Default)]
pub struct Toasts {
    list: VecDeque<Toast>,
}

impl Toasts {
    pub fn add(&mut self, now: UnixMillis, level: Level, text: &str) {
        let millis = match level {
            Level::Info | Level::Good => 4_000,
            Level::Warn => 8_000,
            Level::Bad => 15_000,
        };
        let text = one_line(text);
        // News of the same kind (`checkpoint …`) replaces what it said before.
        let kind = |text: &str| text.split(' ').next().map(String::from);
        self.list
            .retain(|toast| toast.level != level || kind(&toast.text) != kind(&text));
        self.list.push_back(Toast {
            level,
            text,
            until: UnixMillis(now.0 + millis),
        });
        while self.list.len() > MAX_SHOWN {
            self.list.pop_front();
        }
    }

    /// Drops what has been shown long enough; true when something went.
    pub fn expire(&mut self, now: UnixMillis) -> bool {
        let before = self.list.len();
        self.list.retain(|toast| toast.until > now);
        self.list.len() != before
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn draw(&self, frame: &mut Frame, area: Rect, theme: &Theme) {
        let in_a_row =
            |toast: &&Toast| area.height < TALL && matches!(toast.level, Level::Info | Level::Good);
        self.draw_boxes(frame, area, theme, |toast| !in_a_row(&toast));
        if let Some(toast) = self.list.iter().rev().find(in_a_row) {
            draw_row(toast, frame, area, theme);
        }
    }

    /// Boxes in the corner, the newest on top.
    fn draw_boxes(
        &self,
        frame: &mut Frame,
        area: Rect,
        theme: &Theme,
        wanted: impl Fn(&Toast) -> bool,
    ) {
        let glyphs = theme.glyphs();
        let mut y = area.y;
        for toast in self.list.iter().rev().filter(|toast| wanted(toast)) {
            let room = WIDTH.min(area.width.saturating_sub(6));
            let mut rows = wrap(&toast.text, room);
            if rows.len() > MAX_ROWS {
                let rest = rows.split_off(MAX_ROWS - 1).join(" ");
                rows.push(cut(&rest, room.into(), glyphs.ellipsis));
            }
            let width = rows
                .iter()
                .map(|row| row.trim_end().width())
                .max()
                .unwrap_or(0);
            let width = u16::try_from(width + 5).unwrap_or(u16::MAX).min(area.width);
            let height = u16::try_from(rows.len() + 2)
                .unwrap_or(3)
                .min(area.bottom().saturating_sub(y));
            let place = Rect {
                x: area.right() - width,
                y,
                width,
                height,
            };
            if height < 3 {
                return;
            }
            let (mark, meaning) = mark(toast.level, theme);
            let line = |(i, row): (usize, String)| {
                Line::from(vec![
                    Span::styled(if i == 0 { mark } else { " " }, theme.style(meaning)),
                    Span::styled(format!(" {row}"), theme.style(Meaning::Text)),
                ])
            };
            let lines: Vec<Line> = rows.into_iter().enumerate().map(line).collect();
            let block = Block::bordered()
                .border_set(glyphs.border)
                .border_style(theme.style(meaning));
            frame.render_widget(Clear, place);
            frame.render_widget(Paragraph::new(lines).block(block), place);
            y = place.bottom();
        }
    }
}

/// One row at the bottom, to the right.
fn draw_row(toast: &Toast, frame: &mut Frame, area: Rect, theme: &Theme) {
    let (mark, meaning) = mark(toast.level, theme);
    let room = usize::from(area.width).saturating_sub(4);
    let text = cut(&toast.text, room, theme.glyphs().ellipsis);
    let width = u16::try_from(text.width() + 4)
        .unwrap_or(u16::MAX)
        .min(area.width);
    let place = Rect {
        x: area.right() - width,
        y: area.bottom().saturating_sub(1),
        width,
        height: 1.min(area.height),
    };
    let line = Line::from(vec![
        Span::styled(format!(" {mark}"), theme.style(meaning)),
        Span::styled(format!(" {text} "), theme.style(Meaning::Text)),
    ]);
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(line), place);
}

fn mark(level: Level, theme: &Theme) -> (&'static str, Meaning) {
    let glyphs = theme.glyphs();
    match level {
        Level::Info => (glyphs.dot, Meaning::Accent),
        Level::Good => (glyphs.ok, Meaning::Good),
        Level::Warn => (glyphs.warn, Meaning::Warn),
        Level::Bad => (glyphs.bad, Meaning::Bad),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toasts_go_and_never_pile_up() {
        let mut toasts = Toasts::default();
        for i in 0..9 {
            toasts.add(UnixMillis(0), Level::Info, &format!("n{i} is new"));
        }
        toasts.add(UnixMillis(0), Level::Bad, "worse");
        toasts.add(UnixMillis(0), Level::Bad, "worse");
        assert_eq!(toasts.list.len(), MAX_SHOWN);
        assert!(!toasts.expire(UnixMillis(3_999)));
        assert!(toasts.expire(UnixMillis(4_000)));
        assert_eq!(toasts.list.len(), 1);
        assert!(toasts.expire(UnixMillis(15_000)) && toasts.is_empty());
    }
}
