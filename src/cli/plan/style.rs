//! Lines of a plan on this terminal: truncated or wrapped to its width, in ASCII where it has no more.

use super::Context;
use unicode_width::UnicodeWidthStr;

/// Columns of a bar.
pub const BAR: usize = 16;

/// Layout options.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    pub ascii: bool,
    /// Columns; `None` if nothing is truncated.
    pub width: Option<usize>,
}

impl Style {
    /// Width of the terminal behind standard output; a pipe gets full lines.
    pub fn of(cx: &Context) -> Style {
        Style {
            ascii: cx.ascii || !cx.env.utf8,
            width: cx.columns(),
        }
    }

    pub fn bar(&self, share: f64) -> String {
        let full = if self.ascii { "#" } else { "▇" };
        let n = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
        let n = if share > 0.0 { n.max(1) } else { 0 };
        format!("{}{}", full.repeat(n), " ".repeat(BAR - n))
    }

    /// One line, truncated to the terminal.
    pub fn line(&self, text: &str) -> String {
        let text = if self.ascii {
            plain(text)
        } else {
            text.to_string()
        };
        match self.width {
            Some(width) if text.width() > width => {
                let mark = if self.ascii { "~" } else { "…" };
                let mut out = String::new();
                for c in text.chars() {
                    if out.width() + 1 >= width {
                        break;
                    }
                    out.push(c);
                }
                format!("{}{mark}\n", out.trim_end())
            }
            _ => format!("{}\n", text.trim_end()),
        }
    }

    /// A paragraph with a hanging indent.
    pub fn paragraph(&self, head: &str, text: &str) -> String {
        let indent = head.width();
        let room = self.width.unwrap_or(110).saturating_sub(indent).max(20);
        let mut out = String::new();
        let mut row = String::new();
        for word in text.split_whitespace() {
            if !row.is_empty() && row.width() + 1 + word.width() > room {
                out.push_str(&self.hung(head, &row, out.is_empty()));
                row.clear();
            }
            if !row.is_empty() {
                row.push(' ');
            }
            row.push_str(word);
        }
        out.push_str(&self.hung(head, &row, out.is_empty()));
        out
    }

    fn hung(&self, head: &str, row: &str, first: bool) -> String {
        let lead = if first {
            head.to_string()
        } else {
            " ".repeat(head.width())
        };
        self.line(&format!("{lead}{row}"))
    }
}

fn plain(text: &str) -> String {
    // One sign alone would say that the one is greater than the other.
    text.replace('→', "->")
        .chars()
        .map(|c| match c {
            '·' | '−' | '–' => '-',
            '×' => 'x',
            '…' => '~',
            '▇' => '#',
            c => c,
        })
        .collect()
}
