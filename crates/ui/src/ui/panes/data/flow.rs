//! A sample broken into the lines of the screen. Every cell's meaning is decided here; drawing only puts it down.

use super::Mode;
use super::sample::{Sample, Side, Token};
use crate::base::text::sanitize;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, word};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A piece of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub word: Word,
    /// Every second token has a shade.
    pub shaded: bool,
}

/// A line of the screen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    pub spans: Vec<Span>,
    /// Something on it is supervised.
    pub supervised: bool,
}

/// Breaks a sample into lines of at most `width` columns.
pub fn lines(sample: &Sample, mode: Mode, width: u16, theme: &Theme) -> Vec<Line> {
    let mut flow = Flow {
        width: usize::from(width.max(1)),
        theme,
        lines: Vec::new(),
        line: Line::default(),
        column: 0,
    };
    match mode {
        Mode::Raw => flow.parts(sample),
        // Without tokens there is nothing else to show.
        _ if sample.sides.is_empty() => flow.parts(sample),
        mode => sample.sides.iter().for_each(|side| flow.side(side, mode)),
    }
    if sample.cut {
        flow.heading("the rest of this paragraph is not shown");
    }
    flow.lines
}

struct Flow<'a> {
    width: usize,
    theme: &'a Theme,
    lines: Vec<Line>,
    line: Line,
    column: usize,
}

impl Flow<'_> {
    fn break_line(&mut self) {
        self.lines.push(std::mem::take(&mut self.line));
        self.column = 0;
    }

    /// Ends the last line of a block, where there is one.
    fn end(&mut self) {
        if self.column > 0 {
            self.break_line();
        }
    }

    fn heading(&mut self, words: &str) {
        self.end();
        if !self.lines.is_empty() {
            self.break_line();
        }
        let dash = self.theme.glyphs().rule;
        let words = text::fit(
            &format!("{dash}{dash} {words}"),
            self.width,
            self.theme.ascii,
        );
        self.put(&words, Meaning::Accent, false);
        self.break_line();
    }

    fn put(&mut self, text: &str, meaning: Meaning, shaded: bool) {
        self.column += text.width();
        self.line.spans.push(Span {
            word: word(text, meaning),
            shaded,
        });
    }

    /// A text that may not fit on the rest of the line: on a new line where it fits there, else broken anywhere.
    fn flow(&mut self, text: &str, meaning: Meaning, shaded: bool, supervised: bool) {
        let width = text.width();
        let full = self.column >= self.width;
        let fits_alone = self.column + width > self.width && width <= self.width;
        if self.column > 0 && width > 0 && (full || fits_alone) {
            self.break_line();
        }
        let mut rest = text;
        loop {
            self.line.supervised |= supervised && !rest.is_empty();
            let end = fitting(rest, self.width - self.column);
            self.put(&rest[..end], meaning, shaded);
            rest = &rest[end..];
            if rest.is_empty() {
                return;
            }
            self.break_line();
        }
    }

    fn side(&mut self, side: &Side, mode: Mode) {
        if !side.label.is_empty() {
            self.heading(&format!(
                "{}: {} tokens, {} supervised",
                side.label, side.n, side.supervised
            ));
        }
        let mut supervised = false;
        for (i, token) in side.tokens.iter().enumerate() {
            if token.supervised != supervised {
                self.bound(token.supervised);
                supervised = token.supervised;
            }
            self.token(token, mode == Mode::Tokens, i % 2 == 1);
        }
        if supervised {
            self.bound(false);
        }
        self.end();
        if side.left_out > 0 {
            self.heading(&format!("{} more tokens are not shown", side.left_out));
        }
    }

    /// The mark where learning begins or ends: colour is not alone in telling it.
    fn bound(&mut self, begins: bool) {
        let mark = match (begins, self.theme.ascii) {
            (true, false) => "⟦",
            (false, false) => "⟧",
            (true, true) => "[[",
            (false, true) => "]]",
        };
        // The end belongs to the line of what it ends, also where that ended its line.
        if let (false, 0, Some(last)) = (begins, self.column, self.lines.last_mut()) {
            last.spans.push(Span {
                word: word(mark, Meaning::Good),
                shaded: false,
            });
            return;
        }
        if begins && self.column + mark.width() >= self.width
            || self.column + mark.width() > self.width
        {
            self.break_line();
        }
        self.put(mark, Meaning::Good, false);
        self.line.supervised = true;
    }

    fn token(&mut self, token: &Token, delimited: bool, odd: bool) {
        let meaning = match (token.special, token.supervised) {
            (true, _) => Meaning::Mark,
            (_, true) => Meaning::Good,
            _ => Meaning::Text,
        };
        let shaded = delimited && odd;
        if delimited && token.text.is_empty() {
            // A part of a letter that stands with a later token.
            self.flow(
                self.theme.glyphs().separator,
                Meaning::Muted,
                shaded,
                token.supervised,
            );
        }
        let newline = if self.theme.ascii { "$" } else { "⏎" };
        for (i, part) in sanitize(&token.text)
            .replace('\t', "    ")
            .split('\n')
            .enumerate()
        {
            if i > 0 {
                if delimited {
                    self.flow(newline, Meaning::Muted, shaded, token.supervised);
                }
                self.break_line();
            }
            if !part.is_empty() {
                self.flow(part, meaning, shaded, token.supervised);
            }
        }
    }

    fn parts(&mut self, sample: &Sample) {
        for (role, text) in &sample.parts {
            self.heading(&sanitize(role).replace('\n', " "));
            for paragraph in sanitize(text).replace('\t', "    ").split('\n') {
                for line in crate::ui::layout::wrap(paragraph, self.width as u16) {
                    self.put(line.trim_end(), Meaning::Text, false);
                    self.break_line();
                }
            }
        }
    }
}

/// Bytes of the beginning of a text that fit in so many columns; at least one letter, so that it goes on.
fn fitting(text: &str, columns: usize) -> usize {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > columns {
            return if at == 0 { c.len_utf8() } else { at };
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str, supervised: bool) -> Token {
        Token {
            text: text.into(),
            supervised,
            special: text.starts_with('<'),
        }
    }

    fn shown(tokens: Vec<Token>, mode: Mode, width: u16) -> Vec<String> {
        let side = Side {
            n: tokens.len(),
            tokens,
            ..Side::default()
        };
        let sample = Sample {
            sides: vec![side],
            ..Sample::default()
        };
        let line = |line: &Line| {
            let text: String = line.spans.iter().map(|s| s.word.text.as_str()).collect();
            let mark = if line.supervised { "|" } else { " " };
            format!("{mark}{text}")
        };
        lines(&sample, mode, width, &Theme::ansi())
            .iter()
            .map(line)
            .collect()
    }

    #[test]
    fn tokens_wrap_whole_and_learning_is_bounded_by_marks() {
        let tokens = vec![
            token("<user>", false),
            token("Hi", false),
            token("\n", false),
            token("Good", true),
            token(" morning", true),
            token("<end>", true),
        ];
        assert_eq!(
            shown(tokens.clone(), Mode::Tokens, 12),
            [" <user>Hi⏎", "|⟦Good", "| morning", "|<end>⟧"]
                .map(String::from)
                .to_vec()
                .iter()
                .map(String::clone)
                .collect::<Vec<_>>()
        );
        assert_eq!(
            shown(tokens, Mode::Rendered, 40),
            [" <user>Hi", "|⟦Good morning<end>⟧"]
        );
    }

    #[test]
    fn neighbours_differ_in_shade_and_learnt_ones_in_meaning() {
        let side = Side {
            tokens: vec![token("a", false), token("b", true), token("c", true)],
            ..Side::default()
        };
        let sample = Sample {
            sides: vec![side],
            ..Sample::default()
        };
        let lines = lines(&sample, Mode::Tokens, 20, &Theme::ansi());
        let seen: Vec<(&str, Meaning, bool)> = lines[0]
            .spans
            .iter()
            .map(|s| (s.word.text.as_str(), s.word.meaning, s.shaded))
            .collect();
        assert_eq!(
            seen,
            [
                ("a", Meaning::Text, false),
                ("⟦", Meaning::Good, false),
                ("b", Meaning::Good, true),
                ("c", Meaning::Good, false),
                ("⟧", Meaning::Good, false),
            ]
        );
    }

    #[test]
    fn a_long_token_is_broken_and_control_characters_lose_their_power() {
        let lines = shown(vec![token("abcdefgh\u{1b}[2J", false)], Mode::Tokens, 5);
        assert_eq!(lines, [" abcde", " fgh·[", " 2J"]);
        assert!(shown(vec![token("日本語", false)], Mode::Tokens, 1).len() >= 3);
        // Behind a full line, too.
        let tokens = vec![token("abcde", false), token("fghijkl", false)];
        assert_eq!(shown(tokens, Mode::Tokens, 5), [" abcde", " fghij", " kl"]);
    }

    #[test]
    fn raw_parts_stand_under_their_roles() {
        let sample = Sample {
            parts: vec![
                ("user".into(), "one two three".into()),
                ("assistant".into(), "four\nfive".into()),
            ],
            ..Sample::default()
        };
        let lines = lines(&sample, Mode::Tokens, 9, &Theme::ansi());
        let text: Vec<String> = lines
            .iter()
            .map(|l| l.spans.iter().map(|s| s.word.text.as_str()).collect())
            .collect();
        assert_eq!(
            text,
            [
                "── user",
                "one two",
                "three",
                "",
                "── assis…",
                "four",
                "five"
            ]
        );
    }
}
