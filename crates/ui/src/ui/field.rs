//! A text field: one line or several. Keys that the keymap did not take come here.

use super::theme::{Meaning, Theme};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui_textarea::{CursorMove, TextArea, WrapMode};

/// Most bytes that one paste brings in; the rest is dropped.
pub const MAX_PASTE: usize = 64 << 10;

/// Deletes the text before the cursor, whichever key asked for it.
pub const KILL_LINE: KeyEvent = KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL);

/// Editable text.
#[derive(Debug)]
pub struct TextField {
    area: TextArea<'static>,
    lines: Lines,
}

/// How many lines a field may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    One,
    Many,
}

impl TextField {
    pub fn new(lines: Lines, text: &str) -> Self {
        let mut field = TextField {
            area: TextArea::default(),
            lines,
        };
        field.set(text);
        field
    }

    pub fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    pub fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    /// Replaces the text; the cursor goes to its end.
    pub fn set(&mut self, text: &str) {
        let lines = match self.lines {
            Lines::One => vec![crate::base::text::one_line(text)],
            Lines::Many => crate::base::text::sanitize(text)
                .split('\n')
                .map(String::from)
                .collect(),
        };
        self.area = TextArea::new(lines);
        self.area.move_cursor(CursorMove::Bottom);
        self.area.move_cursor(CursorMove::End);
    }

    pub fn clear(&mut self) {
        self.set("");
    }

    pub fn key(&mut self, key: KeyEvent) {
        match key == KILL_LINE {
            true => self.area.delete_line_by_head(),
            false => self.area.input(key),
        };
        if self.lines == Lines::One && self.area.lines().len() > 1 {
            let text = self.text();
            self.set(&text);
        }
    }

    pub fn new_line(&mut self) {
        if self.lines == Lines::Many {
            self.area.insert_newline();
        }
    }

    /// Pasted text is text: a newline in it triggers nothing, control sequences lose their power.
    pub fn paste(&mut self, text: &str) {
        let mut end = text.len().min(MAX_PASTE);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let clean = match self.lines {
            Lines::One => crate::base::text::one_line(&text[..end]),
            Lines::Many => crate::base::text::sanitize(&text[..end]),
        };
        self.area.insert_str(clean);
    }

    /// True when the cursor stands in the first line, where Up means the prompt before.
    pub fn at_first_line(&self) -> bool {
        self.area.cursor().0 == 0
    }

    /// True when the cursor stands in the last line.
    pub fn at_last_line(&self) -> bool {
        self.area.cursor().0 + 1 >= self.area.lines().len()
    }

    /// Rows that the text needs at `width`, at least one.
    pub fn rows(&self, width: u16) -> u16 {
        let width = usize::from(width.max(1));
        let rows = self.area.lines().iter().map(|line| {
            let columns = unicode_width::UnicodeWidthStr::width(line.as_str());
            columns / width + 1
        });
        u16::try_from(rows.sum::<usize>())
            .unwrap_or(u16::MAX)
            .max(1)
    }

    pub fn draw(&mut self, frame: &mut Frame, area: Rect, theme: &Theme, focused: bool) {
        if area.is_empty() {
            return;
        }
        self.area.set_style(theme.style(Meaning::Text));
        self.area.set_cursor_line_style(theme.style(Meaning::Text));
        self.area.set_wrap_mode(match self.lines {
            Lines::One => WrapMode::None,
            Lines::Many => WrapMode::WordOrGlyph,
        });
        self.area.set_cursor_style(match focused {
            true => theme.style(Meaning::Cursor),
            false => theme.style(Meaning::Text),
        });
        frame.render_widget(&self.area, area);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_pasting_and_clearing() {
        let mut field = TextField::new(Lines::One, "ab");
        field.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE));
        field.paste("d\nq\x1b[2J");
        assert_eq!(field.text(), "abcd q·[2J");
        field.key(KeyEvent::new(KeyCode::Char('j'), KeyModifiers::CONTROL));
        assert!(!field.text().contains('\n'));
        field.clear();
        assert!(field.is_empty());
        let mut field = TextField::new(Lines::Many, "one");
        field.new_line();
        field.paste("two");
        assert_eq!(field.text(), "one\ntwo");
        assert!(!field.at_first_line() && field.at_last_line());
        assert_eq!((field.rows(10), field.rows(2)), (2, 4));
    }

    #[test]
    fn kill_line_deletes_what_stands_before_the_cursor() {
        let mut field = TextField::new(Lines::One, "runs/old.jsonl");
        for _ in 0.."old.jsonl".len() {
            field.key(KeyEvent::new(KeyCode::Left, KeyModifiers::NONE));
        }
        field.key(KILL_LINE);
        assert_eq!(field.text(), "old.jsonl");
    }

    #[test]
    fn a_huge_paste_is_bounded() {
        let mut field = TextField::new(Lines::Many, "");
        field.paste(&"ä".repeat(MAX_PASTE));
        assert!(field.text().len() <= MAX_PASTE);
    }
}
