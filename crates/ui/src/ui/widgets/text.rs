//! Lines of words: drawn where they fit, cut with an ellipsis where they do not, wrapped where there is room.

use crate::base::text::one_line;
use crate::base::turns::question;
use crate::ui::theme::{Meaning, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use std::borrow::Cow;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Words with their meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    pub meaning: Meaning,
}

/// `word("1.764", Meaning::Train)`
pub fn word(text: impl Into<String>, meaning: Meaning) -> Word {
    Word {
        text: text.into(),
        meaning,
    }
}

/// A word beside what matters.
pub fn muted(text: impl Into<String>) -> Word {
    word(text, Meaning::Muted)
}

/// Labels of list items: `A`, `B`, …
pub fn letter(at: usize) -> String {
    char::from(b'A' + u8::try_from(at).unwrap_or(25).min(25)).to_string()
}

/// Columns that the words take.
pub fn width(words: &[Word]) -> usize {
    words.iter().map(|w| w.text.width()).sum()
}

/// The same of what the terminal shows of them.
fn shown_width(words: &[Word], theme: &Theme) -> usize {
    words.iter().map(|w| readable(&w.text, theme).width()).sum()
}

/// Draws words from (x, y) on, at most `max` columns; cut words end in an ellipsis. Returns the column after the last one.
pub fn draw(buffer: &mut Buffer, x: u16, y: u16, max: u16, words: &[Word], theme: &Theme) -> u16 {
    let mut at = x;
    let end = x.saturating_add(max);
    let cut = shown_width(words, theme) > usize::from(max);
    for (i, Word { text, meaning }) in words.iter().enumerate() {
        let text = &*readable(text, theme);
        let room = usize::from(end - at);
        if room == 0 {
            break;
        }
        let style = theme.style(*meaning);
        if cut && text.width() >= room {
            // A word that fills the last column is cut as well, where another one would follow; a number stays whole.
            let cuts = text.ends_with(char::is_alphabetic);
            let follows = cuts && words[i + 1..].iter().any(|w| !w.text.trim().is_empty());
            let text = match follows && text.width() == room {
                true => fit(&format!("{text} "), room, theme.ascii),
                false => fit(text, room, theme.ascii),
            };
            return put(buffer, at, y, &text, room, style);
        }
        at = put(buffer, at, y, text, room, style);
    }
    at
}

/// Draws words that end at column `right` (excluded). Nothing is drawn when they do not fit in `max` columns.
pub fn draw_right(
    buffer: &mut Buffer,
    right: u16,
    y: u16,
    max: u16,
    words: &[Word],
    theme: &Theme,
) {
    let width = shown_width(words, theme);
    if width <= usize::from(max) && width <= usize::from(right) {
        draw(buffer, right - width as u16, y, width as u16, words, theme);
    }
}

/// A letter of formulas, spelled out.
fn greek(c: char) -> Option<&'static str> {
    Some(match c {
        'α' => "alpha",
        'β' => "beta",
        'γ' => "gamma",
        'δ' | 'Δ' => "delta",
        'ε' => "eps",
        'λ' => "lambda",
        'π' => "pi",
        'ρ' => "rho",
        'σ' => "sigma",
        '√' => "sqrt",
        '₁' => "1",
        '₂' => "2",
        _ => return None,
    })
}

/// The nearest likeness of a letter that ASCII lacks.
fn likeness(c: char) -> char {
    match c {
        c if c.is_ascii() => c,
        '−' | '–' | '—' | '─' => '-',
        // Between parts of a line: beside a number a minus would be its sign.
        '·' => '|',
        '×' => 'x',
        '°' => ' ',
        '…' => '~',
        '‘' | '’' => '\'',
        '“' | '”' => '"',
        _ => '?',
    }
}

/// What the terminal can show of a text: letters that ASCII lacks become their nearest likeness, or a question mark.
pub fn readable<'a>(text: &'a str, theme: &Theme) -> Cow<'a, str> {
    if !theme.ascii || text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut depth = 0_usize;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match c {
            // A product, as in `√(2 · n)`: parts of a line are not in parentheses.
            '·' if depth > 0 => shown.push('*'),
            // One sign alone would say that the one is greater than the other.
            '→' => shown.push_str("->"),
            '≥' => shown.push_str(">="),
            '≤' => shown.push_str("<="),
            '±' => shown.push_str("+-"),
            c => match greek(c) {
                Some(name) => shown.push_str(name),
                None => shown.push(likeness(c)),
            },
        }
    }
    Cow::Owned(shown)
}

fn put(buffer: &mut Buffer, x: u16, y: u16, text: &str, max: usize, style: Style) -> u16 {
    if !buffer.area.contains((x, y).into()) {
        return x;
    }
    buffer.set_stringn(x, y, text, max, style).0
}

/// `text` in at most `max` columns, cut with an ellipsis.
pub fn fit(text: &str, max: usize, ascii: bool) -> String {
    if text.width() <= max {
        return text.into();
    }
    let ellipsis = if ascii { '~' } else { '…' };
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > max {
            break;
        }
        used += wide;
        out.push(c);
    }
    if max > 0 {
        out.push(ellipsis);
    }
    out
}

/// Words as lines: broken where they have line breaks, and where the width ends.
pub fn broken(words: impl IntoIterator<Item = Word>, width: usize) -> Vec<Vec<Word>> {
    let (mut lines, mut line, mut taken) = (Vec::new(), Vec::new(), 0);
    let room = width.max(1);
    for Word { text, meaning } in words {
        for (at, part) in text.split('\n').enumerate() {
            if at > 0 {
                lines.push(std::mem::take(&mut line));
                taken = 0;
            }
            if taken > 0 && taken + part.width() > room {
                lines.push(std::mem::take(&mut line));
                taken = 0;
            }
            taken += part.width();
            if !part.is_empty() {
                line.push(word(part, meaning));
            }
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Parts as lines of at most `width` columns where they allow it: those that fit stand in a line with `between` them, and none is
/// broken.
pub fn flow(parts: Vec<Vec<Word>>, between: &Word, width: usize) -> Vec<Vec<Word>> {
    let mut lines: Vec<Vec<Word>> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line)
                if self::width(line) + between.text.width() + self::width(&part) <= width =>
            {
                line.push(between.clone());
                line.extend(part);
            }
            _ => lines.push(part),
        }
    }
    lines
}

/// Breaks a text into lines of at most `columns`, at spaces where there are some; at most `rows` lines, the last of them cut
/// with an ellipsis when text is left over. Line breaks of the text hold.
pub fn wrap(text: &str, columns: usize, rows: usize, ascii: bool) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    if columns == 0 || rows == 0 {
        return lines;
    }
    'text: for paragraph in text.lines() {
        let mut rest = paragraph.trim_end();
        loop {
            if lines.len() == rows {
                if let Some(last) = lines.last_mut() {
                    *last = elided(last, columns, ascii);
                }
                break 'text;
            }
            let at = break_at(rest, columns);
            lines.push(rest[..at].trim_end().to_string());
            rest = rest[at..].trim_start();
            if rest.is_empty() {
                break;
            }
        }
    }
    lines
}

/// A line that says that text was left over.
fn elided(line: &str, columns: usize, ascii: bool) -> String {
    let ellipsis = if ascii { '~' } else { '…' };
    fit(&format!("{line}{ellipsis}"), columns, ascii)
}

/// Byte where a line of at most `columns` ends; never 0 for a text that is not empty. A word that fits no line is broken behind a
/// slash, as paths are read.
fn break_at(text: &str, columns: usize) -> usize {
    let (mut used, mut space) = (0, None);
    for (i, c) in text.char_indices() {
        if c == ' ' {
            space = Some(i);
        }
        used += c.width().unwrap_or(0);
        if used > columns {
            let space = space.filter(|s| *s > 0);
            let word = space.map_or(0, |s| s + 1).min(i);
            let whole = text[word..].split(' ').next().unwrap_or_default();
            let slash = text[word..i].rfind('/').filter(|slash| *slash > 0);
            // A letter wider than the line stands alone on it.
            let end = if i == 0 { c.len_utf8() } else { i };
            return match slash.filter(|_| whole.width() > columns) {
                Some(slash) => word + slash + 1,
                None => space.unwrap_or(end),
            };
        }
    }
    text.len()
}

/// Wraps and draws a text; returns the rows used.
pub fn paragraph(
    buffer: &mut Buffer,
    area: Rect,
    text: &str,
    meaning: Meaning,
    theme: &Theme,
) -> u16 {
    let lines = wrap(
        &readable(text, theme),
        usize::from(area.width),
        usize::from(area.height),
        theme.ascii,
    );
    for (row, line) in lines.iter().enumerate() {
        put(
            buffer,
            area.x,
            area.y + row as u16,
            line,
            usize::from(area.width),
            theme.style(meaning),
        );
    }
    lines.len() as u16
}

/// What tells a prompt apart from others, in one line: the question in it, or all of one without turns.
pub fn asked(prompt: &str) -> String {
    one_line(question(prompt).as_deref().unwrap_or(prompt))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::theme::{ColorDepth, Themes};

    #[test]
    fn a_path_that_fits_no_line_is_broken_behind_a_slash() {
        let text = "saved as /home/somebody/experiments/2026/quickstart.yaml";
        let lines = wrap(text, 24, 9, false);
        assert_eq!(
            lines,
            [
                "saved as /home/somebody/",
                "experiments/2026/",
                "quickstart.yaml"
            ]
        );
        // One that fits the next line begins there.
        assert_eq!(
            wrap("saved as a/b/c.yaml", 12, 9, false),
            ["saved as", "a/b/c.yaml"]
        );
        assert_eq!(wrap("aaaaaaaaaa", 4, 9, false), ["aaaa", "aaaa", "aa"]);
    }

    #[test]
    fn cut_text_ends_in_an_ellipsis_and_wide_letters_are_not_split() {
        assert_eq!(fit("steady", 6, false), "steady");
        assert_eq!(fit("steady", 5, false), "stea…");
        assert_eq!(fit("日本語", 4, false), "日…");
        assert_eq!(fit("steady", 3, true), "st~");
        assert_eq!(fit("steady", 0, false), "");
    }

    #[test]
    fn a_word_in_the_last_column_says_that_others_would_follow() {
        let theme = Themes::embedded().get("ansi", ColorDepth::Ansi16, false);
        let line = |words: &[&str]| {
            let words: Vec<Word> = words
                .iter()
                .map(|text| word(*text, Meaning::Text))
                .collect();
            let mut buffer = Buffer::empty(Rect::new(0, 0, 6, 1));
            draw(&mut buffer, 0, 0, 6, &words, &theme);
            buffer
                .content
                .iter()
                .map(|cell| cell.symbol())
                .collect::<String>()
        };
        assert_eq!(line(&["steady", " and more"]), "stead…");
        assert_eq!(line(&["steady", "   "]), "steady");
        assert_eq!(line(&["steady"]), "steady");
        assert_eq!(line(&["1.7640", " and more"]), "1.7640");
    }

    /// `4.177 > 4.151` would be a comparison.
    #[test]
    fn an_arrow_in_ascii_is_no_greater_than() {
        let theme = Themes::embedded().get("ansi", ColorDepth::Ansi16, true);
        assert_eq!(
            readable("4.177 → 4.151, ≥ 2", &theme),
            "4.177 -> 4.151, >= 2"
        );
        // `?2 0.999` names no coefficient.
        assert_eq!(
            readable("β₂ 0.999, 0.02 / √(2 · n)", &theme),
            "beta2 0.999, 0.02 / sqrt(2 * n)"
        );
        assert_eq!(readable("1.5 (a) · 2", &theme), "1.5 (a) | 2");
        let words = [word("a → b", Meaning::Text)];
        let mut buffer = Buffer::empty(Rect::new(0, 0, 8, 1));
        draw_right(&mut buffer, 8, 0, 8, &words, &theme);
        let line: String = buffer.content.iter().map(|cell| cell.symbol()).collect();
        assert_eq!(line, "  a -> b");
    }

    #[test]
    fn text_wraps_at_spaces_and_says_when_it_goes_on() {
        assert_eq!(
            wrap("to be or not to be", 8, 9, false),
            ["to be or", "not to", "be"]
        );
        assert_eq!(
            wrap("to be or not to be", 8, 2, false),
            ["to be or", "not to…"]
        );
        assert_eq!(wrap("ROMEO:\nAy me", 20, 3, false), ["ROMEO:", "Ay me"]);
        assert_eq!(wrap("abcdefghij", 4, 3, false), ["abcd", "efgh", "ij"]);
        assert!(wrap("x", 0, 3, false).is_empty());
    }

    #[test]
    fn words_are_drawn_once_and_cut_as_a_whole() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
        let words = [
            word("train ", Meaning::Muted),
            word("1.764", Meaning::Train),
            word(" val", Meaning::Muted),
        ];
        let end = draw(&mut buffer, 1, 0, 9, &words, &Theme::ansi());
        let text: String = (0..12).map(|x| buffer[(x, 0)].symbol()).collect();
        assert_eq!((text.as_str(), end), (" train 1.…  ", 10));
    }
}
