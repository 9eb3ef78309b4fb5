//! Lines one below the other, as far as there is room.

use crate::ui::theme::Theme;
use crate::ui::widgets::text::{self, Word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Rows from the top of an area.
pub(super) struct Cursor {
    pub area: Rect,
    pub y: u16,
}

impl Cursor {
    pub(super) fn next(&mut self) -> Option<u16> {
        let y = self.y;
        self.y += 1;
        (y < self.area.bottom()).then_some(y)
    }

    pub(super) fn line(&mut self, buffer: &mut Buffer, words: &[Word], theme: &Theme) {
        let (x, width) = (self.area.x + 1, self.area.width.saturating_sub(1));
        if let Some(y) = self.next() {
            text::draw(buffer, x, y, width, words, theme);
        }
    }
}
