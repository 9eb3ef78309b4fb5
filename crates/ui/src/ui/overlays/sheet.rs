//! Text in a box that is scrolled: what help and the messages have in common.

use super::Canvas;
use crate::ui::action::Action;
use crate::ui::hit::Target;
use crate::ui::layout::{centred, framed};
use crate::ui::theme::Meaning;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Clear, Paragraph};

/// How far it is scrolled, and the rows of a page as it was drawn last.
#[derive(Debug, Default)]
pub struct Sheet {
    scroll: usize,
    page: usize,
}

impl Sheet {
    /// Scrolls; any other action changes nothing.
    pub fn act(&mut self, action: Action) {
        let page = self.page.max(1);
        self.scroll = match action {
            Action::Up => self.scroll.saturating_sub(1),
            Action::Down => self.scroll.saturating_add(1),
            Action::PageUp => self.scroll.saturating_sub(page),
            Action::PageDown => self.scroll.saturating_add(page),
            Action::Top => 0,
            Action::Bottom => usize::MAX,
            _ => self.scroll,
        };
    }

    /// The box in the middle of `area`, as high as its lines if there is room; `lines` gets the columns inside.
    pub fn draw(
        &mut self,
        frame: &mut Frame,
        (area, width): (Rect, u16),
        canvas: &mut Canvas,
        title: &str,
        lines: impl FnOnce(u16, &Canvas) -> Vec<Line<'static>>,
    ) {
        let width = width.min(area.width.saturating_sub(2));
        let lines = lines(width.saturating_sub(2), canvas);
        let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
        let area = centred(area, width, height.min(area.height));
        let block = framed(canvas.theme, title);
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
        let shown: Vec<Line> = lines
            .into_iter()
            .skip(self.scroll)
            .take(inner.height.into())
            .collect();
        frame.render_widget(Clear, area);
        frame.render_widget(block.title_bottom(more.right_aligned()), area);
        frame.render_widget(Paragraph::new(shown), inner);
    }
}
