//! Where things lie: the frame around every pane, centred boxes, wrapped text.

use super::theme::{Meaning, Theme};
pub use crate::base::text::{cut, cut_middle};
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Block;
use std::ops::Range;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Below this the workbench only says that it needs more room.
pub const MIN_WIDTH: u16 = 24;
pub const MIN_HEIGHT: u16 = 6;

/// The frame around every pane:
/// ```text
/// tabs    llmtui  1 Home  2 Run  3 Chat            shakespeare · pretrain · ● training
/// body    …
/// hints   ⏎ start  / filter  : palette  ? help  q leave
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    pub tabs: Rect,
    pub body: Rect,
    pub hints: Rect,
}

/// `None` when the terminal is too small for anything.
pub fn screen(area: Rect) -> Option<Screen> {
    if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        return None;
    }
    let row = |y| Rect {
        y,
        height: 1,
        ..area
    };
    Some(Screen {
        tabs: row(area.y),
        body: Rect {
            y: area.y + 1,
            height: area.height - 2,
            ..area
        },
        hints: row(area.bottom() - 1),
    })
}

/// A box of at most that size in the middle of `area`.
pub fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    }
}

/// The first `height` rows of `area` and the rest.
pub fn split_top(area: Rect, height: u16) -> (Rect, Rect) {
    let height = height.min(area.height);
    (
        Rect { height, ..area },
        Rect {
            y: area.y + height,
            height: area.height - height,
            ..area
        },
    )
}

/// All but the last `height` rows of `area`, and those.
pub fn split_bottom(area: Rect, height: u16) -> (Rect, Rect) {
    split_top(area, area.height - height.min(area.height))
}

/// A bordered box with its title in the border.
pub fn framed<'a>(theme: &Theme, title: &'a str) -> Block<'a> {
    Block::bordered()
        .border_set(theme.glyphs().border)
        .border_style(theme.style(Meaning::BorderFocused))
        .title(Span::styled(
            format!(" {title} "),
            theme.style(Meaning::Title),
        ))
        .style(theme.style(Meaning::Text))
}

/// `─ runs ──────` across `width` columns.
pub fn rule(theme: &Theme, title: &str, width: u16) -> Line<'static> {
    let glyphs = theme.glyphs();
    let used = title.width() + 3;
    let rest = usize::from(width).saturating_sub(used);
    Line::from(vec![
        Span::styled(format!("{} ", glyphs.rule), theme.style(Meaning::Border)),
        Span::styled(title.to_string(), theme.style(Meaning::Title)),
        Span::styled(
            format!(" {}", glyphs.rule.repeat(rest)),
            theme.style(Meaning::Border),
        ),
    ])
}

/// [`cut`] and filled with blanks to exactly `width` columns.
pub fn fill(text: &str, width: usize, ellipsis: &str) -> String {
    let mut out = cut(text, width, ellipsis);
    out.push_str(&" ".repeat(width.saturating_sub(out.width())));
    out
}

/// The text in at most `width` columns: where it was cut, whole words and `ellipsis`, unless the last word is most of it.
pub fn cut_at_word(text: &str, width: usize, ellipsis: &str) -> String {
    let short = cut(text, width, ellipsis);
    if text.width() <= width {
        return short;
    }
    let kept = short.strip_suffix(ellipsis).unwrap_or(&short);
    let whole = text[kept.len()..].starts_with(' ');
    match kept.rfind(' ').filter(|at| !whole && *at * 2 >= kept.len()) {
        Some(at) => format!("{} {ellipsis}", kept[..at].trim_end()),
        None => short,
    }
}

/// Breaks text into rows of at most `width` columns, at blanks where there are any, else behind a slash of a path. Empty
/// lines stay.
pub fn wrap(text: &str, width: u16) -> Vec<String> {
    wrap_ranges(text, width)
        .into_iter()
        .map(|range| text[range].to_string())
        .collect()
}

/// [`wrap`] as byte ranges, so that the caller can style parts of a row.
pub fn wrap_ranges(text: &str, width: u16) -> Vec<Range<usize>> {
    let width = usize::from(width.max(1));
    let mut rows = Vec::new();
    let mut start = 0;
    for line in text.split('\n') {
        wrap_line((text, line), start, width, &mut rows);
        start += line.len() + 1;
    }
    rows
}

/// `line` begins at byte `start` of `text`.
fn wrap_line((text, line): (&str, &str), start: usize, width: usize, rows: &mut Vec<Range<usize>>) {
    let mut row = start..start;
    let mut used = 0;
    let mut at = start;
    for word in line.split_inclusive(' ') {
        let columns = word.trim_end_matches(' ').width();
        if used > 0 && used + columns > width && columns <= width {
            rows.push(row);
            row = at..at;
            used = 0;
        }
        let from = at;
        for c in word.chars() {
            let columns = c.width().unwrap_or(0);
            if used + columns <= width {
                row.end = at + c.len_utf8();
                used += columns;
            } else if c != ' ' {
                let begun = row.start.max(from);
                // A slash alone at the end of a row would be a riddle.
                let slash = text[begun..at].rfind('/').filter(|slash| *slash > 0);
                let end = slash.map_or(at, |slash| begun + slash + 1);
                let rest = end..at + c.len_utf8();
                used = text[rest.clone()].width();
                row.end = end;
                rows.push(row);
                row = rest;
            }
            at += c.len_utf8();
        }
    }
    rows.push(row);
}

/// The first row to show so that `selected` is visible and `scroll` changes as little as possible.
pub fn scroll_to(selected: usize, scroll: usize, height: usize) -> usize {
    match height {
        0 => selected,
        _ => scroll.clamp((selected + 1).saturating_sub(height), selected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_sentence_ends_with_a_whole_word() {
        let text = "checkpoint step-001000 is kept, the best so far";
        assert_eq!(
            cut_at_word(text, 40, "…"),
            "checkpoint step-001000 is kept, the …"
        );
        assert_eq!(cut_at_word(text, 60, "…"), text);
        assert_eq!(cut_at_word("aaaaaaaaaaaaaaaa", 5, "…"), "aaaa…");
        assert!((1..50).all(|width| cut_at_word(text, width, "…").width() <= width));
    }

    #[test]
    fn wraps_at_blanks_and_breaks_long_words() {
        assert_eq!(wrap("to be or not", 5), ["to be", "or ", "not"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("a\n\nb", 9), ["a", "", "b"]);
        assert_eq!(wrap("日本語", 4), ["日本", "語"]);
        assert_eq!(wrap("", 4), [""]);
        let path = ["runs/", "2026-11-30/", "gguf/a-Q8.gguf"];
        assert_eq!(wrap(&path.concat(), 14), path);
        assert_eq!(wrap("see /tmp/abcd/e", 8), ["see /tmp", "/abcd/e"]);
    }

    #[test]
    fn fills_by_columns() {
        assert_eq!(fill("ab", 4, "…"), "ab  ");
        assert_eq!(fill("abcdef", 0, "…"), "");
    }

    #[test]
    fn boxes_stay_inside() {
        let area = Rect::new(0, 0, 20, 5);
        assert_eq!(centred(area, 100, 3), Rect::new(0, 1, 20, 3));
        assert_eq!(screen(area), None);
        let screen = screen(Rect::new(0, 0, 80, 24)).unwrap();
        assert_eq!(
            (screen.body.y, screen.body.height, screen.hints.y),
            (1, 22, 23)
        );
        assert_eq!(split_bottom(area, 9).0.height, 0);
    }

    #[test]
    fn scrolling_moves_as_little_as_possible() {
        assert_eq!(scroll_to(5, 0, 3), 3);
        assert_eq!(scroll_to(4, 3, 3), 3);
        assert_eq!(scroll_to(1, 3, 3), 1);
        assert_eq!(scroll_to(1, 3, 0), 1);
    }
}
