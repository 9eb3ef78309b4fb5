//! The few marks that the workbench draws besides letters, in Unicode and in ASCII. Charts have theirs in `widgets`.

use crate::base::human;
use ratatui::symbols::border;

/// One set of marks; every mark is one column wide.
#[derive(Debug, PartialEq)]
pub struct Glyphs {
    /// Points at the selected row.
    pub pointer: &'static str,
    /// A live run, an active state.
    pub dot: &'static str,
    /// Something that is not live.
    pub ring: &'static str,
    pub ok: &'static str,
    pub warn: &'static str,
    pub bad: &'static str,
    pub up: &'static str,
    pub down: &'static str,
    /// In front of a value above or below its band, where a triangle would be read as a change.
    pub above: &'static str,
    pub below: &'static str,
    /// Between parts of a line: in ASCII no minus, as numbers stand beside it.
    pub separator: &'static str,
    /// A mark of what is neither good nor bad.
    pub point: &'static str,
    pub ellipsis: &'static str,
    pub rule: &'static str,
    pub vertical: &'static str,
    /// Progress: done, half a column, not yet.
    pub bar: &'static str,
    pub bar_head: &'static str,
    pub track: &'static str,
    /// Eight levels, lowest first.
    pub levels: [&'static str; 8],
    /// Frames of the spinner.
    pub spinner: &'static [&'static str],
    /// The caret behind streaming text.
    pub caret: &'static str,
    pub border: border::Set<'static>,
}

static UNICODE: Glyphs = Glyphs {
    pointer: "▸",
    dot: "●",
    ring: "○",
    ok: "✓",
    warn: "!",
    bad: "✗",
    up: "▲",
    down: "▼",
    above: "↑",
    below: "↓",
    separator: "·",
    point: "·",
    ellipsis: "…",
    rule: "─",
    vertical: "│",
    bar: "━",
    bar_head: "╺",
    track: "━",
    levels: human::BARS,
    spinner: &["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"],
    caret: "▌",
    border: border::PLAIN,
};

static ASCII: Glyphs = Glyphs {
    pointer: ">",
    dot: "*",
    ring: "o",
    ok: "+",
    warn: "!",
    bad: "x",
    up: "^",
    down: "v",
    above: "^",
    below: "v",
    separator: "|",
    point: "-",
    ellipsis: "~",
    rule: "-",
    vertical: "|",
    bar: "=",
    bar_head: ">",
    track: "-",
    levels: ["_", "_", ".", ".", "-", "-", "=", "#"],
    spinner: &["|", "/", "-", "\\"],
    caret: "_",
    border: border::Set {
        top_left: "+",
        top_right: "+",
        bottom_left: "+",
        bottom_right: "+",
        vertical_left: "|",
        vertical_right: "|",
        horizontal_top: "-",
        horizontal_bottom: "-",
    },
};

impl Glyphs {
    pub fn of(ascii: bool) -> &'static Glyphs {
        if ascii { &ASCII } else { &UNICODE }
    }

    /// A mark in front of a number or a finding: in ASCII two columns wide, as `+` in front of a number is its sign.
    pub fn beside_numbers(&self, mark: &'static str) -> &'static str {
        match mark {
            _ if !std::ptr::eq(self, &ASCII) => mark,
            "+" => "ok",
            "!" => "! ",
            "x" => "x ",
            "^" => "^ ",
            "v" => "v ",
            "?" => "? ",
            _ => "  ",
        }
    }

    /// One row of bars for all `values`: [`sparkline`](human::sparkline) in these marks.
    pub fn sparkline(&self, values: &[f64], width: usize) -> String {
        human::sparkline(values, width, &self.levels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unicode_width::UnicodeWidthStr;

    #[test]
    fn every_mark_is_one_column_and_ascii_is_ascii() {
        for glyphs in [&UNICODE, &ASCII] {
            let marks = [
                glyphs.pointer,
                glyphs.dot,
                glyphs.ring,
                glyphs.ok,
                glyphs.warn,
                glyphs.bad,
                glyphs.up,
                glyphs.down,
                glyphs.above,
                glyphs.below,
                glyphs.separator,
                glyphs.ellipsis,
                glyphs.rule,
                glyphs.vertical,
                glyphs.bar,
                glyphs.bar_head,
                glyphs.track,
                glyphs.caret,
                glyphs.border.top_left,
                glyphs.border.vertical_left,
            ];
            for mark in marks
                .iter()
                .chain(glyphs.levels.iter())
                .chain(glyphs.spinner)
            {
                assert_eq!(mark.width(), 1, "{mark}");
                assert!(std::ptr::eq(glyphs, &UNICODE) || mark.is_ascii(), "{mark}");
            }
        }
    }

    #[test]
    fn no_mark_beside_a_number_is_a_sign_in_ascii() {
        for mark in [
            ASCII.ok,
            ASCII.warn,
            ASCII.bad,
            ASCII.up,
            ASCII.down,
            ASCII.point,
        ] {
            let beside = ASCII.beside_numbers(mark);
            assert!(
                beside.len() == 2 && !beside.contains(['+', '-']),
                "{beside}"
            );
        }
        assert_eq!(UNICODE.beside_numbers(UNICODE.ok), "✓");
    }
}
