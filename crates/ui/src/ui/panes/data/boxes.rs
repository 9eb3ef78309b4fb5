//! What the boxes of the pane have in common: words in their borders, the area inside, how far the reading is.

use super::DataPane;
use crate::base::human::grouped;
use crate::base::text::one_line;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// The words of a box, in its upper border.
pub(super) fn title(buffer: &mut Buffer, outline: Rect, words: &[Word], theme: &Theme) {
    let room = outline.width.saturating_sub(2);
    text::draw(buffer, outline.x + 1, outline.y, room, words, theme);
}

/// Inside the borders, a column of air on both sides.
pub(super) fn padded(outline: Rect) -> Rect {
    Rect {
        x: outline.x + 2,
        y: outline.y + 1,
        width: outline.width.saturating_sub(4),
        height: outline.height.saturating_sub(2),
    }
}

/// How far the reading is: a bar where the end is known, a count of rows always.
pub(super) fn progress_words(pane: &DataPane) -> Option<Vec<Word>> {
    let reading = pane.reading.as_ref()?;
    let share = match reading.progress.share {
        Some(share) => format!("  {:.0} %", 100.0 * share),
        None => String::new(),
    };
    let rows = grouped(reading.progress.rows);
    Some(vec![
        word("reading ", Meaning::Muted),
        word(one_line(&reading.name), Meaning::Title),
        word(format!("  {rows} rows{share}"), Meaning::Text),
    ])
}
