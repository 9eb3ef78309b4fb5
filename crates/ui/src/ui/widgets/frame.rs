//! The parts of an outlined box: what lies inside its borders, and the words in the upper one.

use super::text::{self, Word};
use crate::ui::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Inside the borders.
pub fn inside(outline: Rect) -> Rect {
    Rect {
        x: outline.x + 1,
        y: outline.y + 1,
        width: outline.width.saturating_sub(2),
        height: outline.height.saturating_sub(2),
    }
}

/// Inside the borders, a column of air on both sides.
pub fn padded(outline: Rect) -> Rect {
    Rect {
        x: outline.x + 2,
        width: outline.width.saturating_sub(4),
        ..inside(outline)
    }
}

/// An area without borders, a column of air on both sides.
pub fn with_padding(area: Rect) -> Rect {
    Rect {
        x: area.x + 1,
        width: area.width.saturating_sub(2),
        ..area
    }
}

/// The words of a box, in its upper border.
pub fn title(buffer: &mut Buffer, outline: Rect, words: &[Word], theme: &Theme) {
    let room = outline.width.saturating_sub(2);
    text::draw(buffer, outline.x + 1, outline.y, room, words, theme);
}
