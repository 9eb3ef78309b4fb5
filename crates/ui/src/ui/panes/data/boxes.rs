//! What the boxes of the pane have in common: words in their borders, the area inside, how far the reading is.

use super::DataPane;
use crate::base::human::counted;
use crate::base::text::one_line;
use crate::ui::theme::Meaning;
use crate::ui::widgets::text::{Word, word};

/// How far the reading is: a bar where the end is known, a count of rows always.
pub(super) fn progress_words(pane: &DataPane) -> Option<Vec<Word>> {
    let reading = pane.reading.as_ref()?;
    let share = match reading.progress.share {
        Some(share) => format!("  {:.0} %", 100.0 * share),
        None => String::new(),
    };
    let rows = counted(reading.progress.rows, "row");
    Some(vec![
        word("reading ", Meaning::Muted),
        word(one_line(&reading.name), Meaning::Title),
        word(format!("  {rows}{share}"), Meaning::Text),
    ])
}
