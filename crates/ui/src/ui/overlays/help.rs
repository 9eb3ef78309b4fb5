//! Help: every action with its keys, those of the current screen first.

use super::sheet::Sheet;
use super::{Canvas, Overlay, Reply};
use crate::ui::action::{Action, Context, actions};
use crate::ui::keymap::Keymap;
use crate::ui::layout::{fill, wrap};
use crate::ui::request::Hints;
use crate::ui::signs;
use crate::ui::theme::{Meaning, Theme};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Columns of the keys.
const KEYS: u16 = 17;
/// Columns of the sheet.
const WIDTH: u16 = 96;

/// The contexts in the order of the sheet.
#[derive(Debug)]
pub struct HelpSheet {
    order: Vec<Context>,
    sheet: Sheet,
}

impl HelpSheet {
    /// `first`: the contexts of the screen from which help was asked.
    pub fn new(first: &[Context]) -> Self {
        let mut order = first.to_vec();
        order.extend(Context::ALL.iter().filter(|c| !first.contains(c)));
        HelpSheet {
            order,
            sheet: Sheet::default(),
        }
    }
}

fn lines(order: &[Context], width: u16, theme: &Theme, keymap: &Keymap) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for context in order {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.push(Line::styled(context.title(), theme.style(Meaning::Title)));
        for info in actions().filter(|a| a.context == *context) {
            let keys: Vec<String> = keymap.keys(info.action).map(|k| k.to_string()).collect();
            let keys = if keys.is_empty() {
                "(palette)".into()
            } else {
                keys.join("  ")
            };
            lines.extend(entry(&keys, info.doc, width, theme));
        }
        if let Some((title, rows)) = signs::behind(*context, theme.ascii) {
            lines.push(Line::default());
            lines.push(Line::styled(title, theme.style(Meaning::Title)));
            let rows = rows.into_iter();
            lines.extend(rows.flat_map(|(sign, words)| entry(sign, words, width, theme)));
        }
    }
    lines
}

/// Keys or a sign, and what they do or mean.
fn entry(keys: &str, words: &str, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let rows = wrap(words, width.saturating_sub(KEYS + 1).max(8)).into_iter();
    let line = |(i, row): (usize, String)| {
        let keys = if i == 0 { keys } else { "" };
        let keys = fill(keys, KEYS.into(), theme.glyphs().ellipsis);
        Line::from(vec![
            Span::styled(keys, theme.style(Meaning::Key)),
            Span::styled(format!(" {row}"), theme.style(Meaning::Text)),
        ])
    };
    rows.enumerate().map(line).collect()
}

impl Overlay for HelpSheet {
    fn hints(&self) -> Hints {
        Hints::of_overlay(vec![(Action::Down, "scroll"), (Action::PageDown, "page")])
    }

    fn act(&mut self, action: Action) -> Reply {
        match action {
            Action::Cancel | Action::Accept | Action::Help | Action::Leave => Reply::Close,
            _ => {
                self.sheet.act(action);
                Reply::Stay
            }
        }
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        let order = &self.order;
        let lines = |width, canvas: &Canvas| lines(order, width, canvas.theme, canvas.keymap);
        let place = (area, WIDTH);
        self.sheet.draw(frame, place, canvas, "help", lines);
    }
}

/// One of its kind.
#[cfg(test)]
pub(super) fn example() -> Box<dyn Overlay> {
    Box::new(HelpSheet::new(super::LIST))
}
