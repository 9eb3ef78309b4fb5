//! The line of key hints: `p pause  c checkpoint  ? help`. What does not fit is left out from the right, the last hint
//! (help) stays.

use super::text::{self, Word, word};
use crate::ui::theme::{Meaning, Theme};
use ratatui::buffer::Buffer;
use unicode_width::UnicodeWidthStr;

/// Draws (key, label) pairs from (x, y) on in at most `max` columns.
pub fn draw(buffer: &mut Buffer, x: u16, y: u16, max: u16, hints: &[(&str, &str)], theme: &Theme) {
    let shown = choose(hints, usize::from(max));
    let mut words: Vec<Word> = Vec::with_capacity(shown.len() * 3);
    for (key, label) in shown {
        if !words.is_empty() {
            words.push(word("  ", Meaning::Muted));
        }
        words.push(word(key, Meaning::Key));
        words.push(word(format!(" {label}"), Meaning::Muted));
    }
    text::draw(buffer, x, y, max, &words, theme);
}

/// The hints that fit, the last one among them whenever it fits alone.
fn choose<'a>(hints: &[(&'a str, &'a str)], max: usize) -> Vec<(&'a str, &'a str)> {
    let size = |hint: &(&str, &str)| hint.0.width() + hint.1.width() + 3;
    let Some((last, rest)) = hints.split_last() else {
        return Vec::new();
    };
    let mut room = (max + 2).saturating_sub(size(last));
    let mut shown = Vec::new();
    for hint in rest {
        if size(hint) > room {
            break;
        }
        room -= size(hint);
        shown.push(*hint);
    }
    shown.push(*last);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;

    #[test]
    fn help_stays_when_there_is_little_room() {
        let hints = [("p", "pause"), ("c", "checkpoint"), ("?", "help")];
        let row = |max: u16| {
            let mut buffer = Buffer::empty(Rect::new(0, 0, 40, 1));
            draw(&mut buffer, 0, 0, max, &hints, &Theme::ansi());
            let text: String = (0..40).map(|x| buffer[(x, 0)].symbol()).collect();
            text.trim_end().to_string()
        };
        assert_eq!(row(40), "p pause  c checkpoint  ? help");
        assert_eq!(row(29), "p pause  c checkpoint  ? help");
        assert_eq!(row(28), "p pause  ? help");
        assert_eq!(row(6), "? help");
        assert_eq!(row(0), "");
    }
}
