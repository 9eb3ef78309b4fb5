//! A stacked bar: parts of a whole against a limit. Colours repeat, shades do not follow them, so that neighbours differ
//! without colour too.

use crate::ui::theme::{Meaning, Theme};
use ratatui::buffer::Buffer;

/// Colours in the order of the parts.
const MEANINGS: [Meaning; 6] = [
    Meaning::Train,
    Meaning::Validation,
    Meaning::Good,
    Meaning::Mark,
    Meaning::Text,
    Meaning::Muted,
];
const SHADES: [&str; 4] = ["█", "▓", "▒", "░"];
const ASCII_SHADES: [&str; 4] = ["#", "=", "+", ":"];

/// The mark of part number `i`, in the bar and in its row.
pub fn mark(i: usize, theme: &Theme) -> (&'static str, Meaning) {
    let shades = if theme.ascii { ASCII_SHADES } else { SHADES };
    (shades[i % shades.len()], MEANINGS[i % MEANINGS.len()])
}

/// Columns of each part so that together they are as long as their sum; a part that is there gets at least one column
/// while there is room.
pub fn columns(parts: &[u64], scale: f64, width: u16) -> Vec<u16> {
    let per_column = scale / f64::from(width.max(1));
    let mut end = 0.0;
    let mut at = 0_u16;
    parts
        .iter()
        .map(|bytes| {
            end += *bytes as f64;
            let to = ((end / per_column).round() as u16).min(width);
            let n = to.saturating_sub(at);
            at = at.max(to);
            n
        })
        .collect()
}

/// Draws parts from the left; `limit` marks the end of what there is.
pub fn draw(
    buffer: &mut Buffer,
    at: (u16, u16),
    width: u16,
    parts: &[u64],
    scale: f64,
    theme: &Theme,
) {
    let (x, y) = at;
    let mut column = 0;
    for (i, n) in columns(parts, scale, width).into_iter().enumerate() {
        let (glyph, meaning) = mark(i, theme);
        for _ in 0..n {
            put(buffer, x + column, y, glyph, meaning, theme);
            column += 1;
        }
    }
    let rest = if theme.ascii { "." } else { "·" };
    for free in column..width {
        put(buffer, x + free, y, rest, Meaning::Track, theme);
    }
}

fn put(buffer: &mut Buffer, x: u16, y: u16, glyph: &str, meaning: Meaning, theme: &Theme) {
    if buffer.area.contains((x, y).into()) {
        buffer.set_stringn(x, y, glyph, 1, theme.style(meaning));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_long_as_their_share_and_never_longer_than_the_bar() {
        assert_eq!(columns(&[10, 10, 20], 40.0, 20), [5, 5, 10]);
        assert_eq!(columns(&[10, 10, 20], 80.0, 20), [3, 2, 5]);
        assert_eq!(columns(&[100, 100], 40.0, 20).iter().sum::<u16>(), 20);
        assert_eq!(columns(&[1, 1, 1, 997], 1000.0, 10).iter().sum::<u16>(), 10);
        assert_eq!(columns(&[5], 0.0, 0), [0]);
    }

    #[test]
    fn neighbours_differ_without_colour() {
        let theme = Theme::ansi();
        for i in 0..12 {
            assert_ne!(mark(i, &theme).0, mark(i + 1, &theme).0);
        }
    }
}
