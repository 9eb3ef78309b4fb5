//! Help: every action with its keys, those of the current screen first.

use super::{Canvas, Overlay, Reply};
use crate::ui::action::{Action, Context, actions};
use crate::ui::hit::Target;
use crate::ui::keymap::Keymap;
use crate::ui::layout::{centred, fill, framed, wrap};
use crate::ui::request::Hints;
use crate::ui::theme::{Meaning, Theme};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

/// Columns of the keys.
const KEYS: u16 = 17;
/// Columns of the sheet.
const WIDTH: u16 = 96;

/// The sheet and how far it is scrolled.
#[derive(Debug)]
pub struct HelpSheet {
    order: Vec<Context>,
    scroll: usize,
    page: usize,
}

impl HelpSheet {
    /// `first`: the contexts of the screen from which help was asked.
    pub fn new(first: &[Context]) -> Self {
        let mut order = first.to_vec();
        order.extend(Context::ALL.iter().filter(|c| !first.contains(c)));
        HelpSheet {
            order,
            scroll: 0,
            page: 1,
        }
    }

    fn lines(&self, width: u16, theme: &Theme, keymap: &Keymap) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        for context in &self.order {
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
                let rows = wrap(info.doc, width.saturating_sub(KEYS + 1).max(8));
                for (i, row) in rows.into_iter().enumerate() {
                    let keys = if i == 0 { keys.as_str() } else { "" };
                    let keys = fill(keys, KEYS.into(), theme.glyphs().ellipsis);
                    lines.push(Line::from(vec![
                        Span::styled(keys, theme.style(Meaning::Key)),
                        Span::styled(format!(" {row}"), theme.style(Meaning::Text)),
                    ]));
                }
            }
        }
        lines
    }
}

impl Overlay for HelpSheet {
    fn hints(&self) -> Hints {
        Hints::of_overlay(vec![(Action::Down, "scroll"), (Action::PageDown, "page")])
    }

    fn act(&mut self, action: Action) -> Reply {
        self.scroll = match action {
            Action::Up => self.scroll.saturating_sub(1),
            Action::Down => self.scroll.saturating_add(1),
            Action::PageUp => self.scroll.saturating_sub(self.page),
            Action::PageDown => self.scroll.saturating_add(self.page),
            Action::Top => 0,
            Action::Bottom => usize::MAX,
            Action::Cancel | Action::Accept | Action::Help | Action::Leave => return Reply::Close,
            _ => self.scroll,
        };
        Reply::Stay
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect, canvas: &mut Canvas) {
        let width = WIDTH.min(area.width.saturating_sub(2));
        let lines = self.lines(width.saturating_sub(2), canvas.theme, canvas.keymap);
        let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
        let area = centred(area, width, height.min(area.height));
        let block = framed(canvas.theme, "help");
        let inner = block.inner(area);
        canvas.hits.add(area, Target::Overlay);
        self.page = usize::from(inner.height).saturating_sub(1).max(1);
        let last = lines.len().saturating_sub(usize::from(inner.height));
        self.scroll = self.scroll.min(last);
        let more = match self.scroll < last {
            true => format!(" {} more ", canvas.theme.glyphs().down),
            false => String::new(),
        };
        let more = Line::styled(more, canvas.theme.style(Meaning::Muted));
        let block = block.title_bottom(more.right_aligned());
        let shown: Vec<Line> = lines
            .into_iter()
            .skip(self.scroll)
            .take(inner.height.into())
            .collect();
        frame.render_widget(Clear, area);
        frame.render_widget(block, area);
        frame.render_widget(Paragraph::new(shown), inner);
    }
}

/// One of its kind.
#[cfg(test)]
pub(super) fn example() -> Box<dyn Overlay> {
    Box::new(HelpSheet::new(super::LIST))
}
