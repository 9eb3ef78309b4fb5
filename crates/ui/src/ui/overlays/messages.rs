//! The messages of this session, newest first and in full: in the corner they are cut, and they go.

use super::sheet::Sheet;
use super::{Canvas, Overlay, Reply};
use crate::run::state::Level;
use crate::ui::action::Action;
use crate::ui::layout::wrap;
use crate::ui::request::Hints;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::toasts::mark;
use crate::ui::widgets::text::readable;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Columns of the sheet.
const WIDTH: u16 = 104;

/// The messages and the box that they are read in.
#[derive(Debug)]
pub struct Messages {
    said: Vec<(Level, String)>,
    sheet: Sheet,
}

impl Messages {
    /// `said`: newest first.
    pub fn new(said: Vec<(Level, String)>) -> Self {
        Messages {
            said,
            sheet: Sheet::default(),
        }
    }
}

fn lines(said: &[(Level, String)], width: u16, theme: &Theme) -> Vec<Line<'static>> {
    if said.is_empty() {
        return vec![Line::styled("no messages yet", theme.style(Meaning::Muted))];
    }
    let mut lines = Vec::new();
    for (level, text) in said {
        let (sign, meaning) = mark(*level, theme);
        let rows = wrap(&readable(text, theme), width.saturating_sub(2).max(8));
        for (i, row) in rows.into_iter().enumerate() {
            lines.push(Line::from(vec![
                Span::styled(if i == 0 { sign } else { " " }, theme.style(meaning)),
                Span::styled(format!(" {row}"), theme.style(Meaning::Text)),
            ]));
        }
    }
    lines
}

impl Overlay for Messages {
    fn hints(&self) -> Hints {
        Hints::of_overlay(vec![(Action::Down, "scroll"), (Action::PageDown, "page")])
    }

    fn act(&mut self, action: Action) -> Reply {
        match action {
            Action::Cancel | Action::Accept | Action::Messages | Action::Leave => Reply::Close,
            _ => {
                self.sheet.act(action);
                Reply::Stay
            }
        }
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        let said = &self.said;
        let lines = |width, canvas: &Canvas| lines(said, width, canvas.theme);
        let place = (area, WIDTH);
        self.sheet.draw(frame, place, canvas, "messages", lines);
    }
}

/// One of its kind.
#[cfg(test)]
pub(super) fn example() -> Box<dyn Overlay> {
    Box::new(Messages::new(vec![(Level::Warn, "mind the gap".into())]))
}
