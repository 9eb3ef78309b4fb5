//! Bars of one row: how far something is, how full something is.

use crate::ui::theme::{Meaning, Theme};
use ratatui::buffer::Buffer;

/// A line that fills from the left, in halves of a column: `━━━━╺━━━━`. `share` is 0 to 1.
pub fn progress(
    buffer: &mut Buffer,
    x: u16,
    y: u16,
    width: u16,
    share: f64,
    meaning: Meaning,
    theme: &Theme,
) {
    let halves = (f64::from(width) * 2.0 * share.clamp(0.0, 1.0)).round() as u16;
    let glyphs = theme.glyphs();
    for i in 0..width {
        let (glyph, meaning) = match halves {
            h if i < h / 2 => (glyphs.bar, meaning),
            h if i == h / 2 && (h % 2 == 1 || (h > 0 && theme.ascii)) => {
                (glyphs.bar_head, Meaning::Track)
            }
            _ => (glyphs.track, Meaning::Track),
        };
        if buffer.area.contains((x + i, y).into()) {
            buffer.set_stringn(x + i, y, glyph, 1, theme.style(meaning));
        }
    }
}

/// A bar of blocks for a level of the machine: `▇▇▇▇▁▁▁▁`.
pub fn level(
    buffer: &mut Buffer,
    x: u16,
    y: u16,
    width: u16,
    share: f64,
    meaning: Meaning,
    theme: &Theme,
) {
    let full = (f64::from(width) * share.clamp(0.0, 1.0)).round() as u16;
    let levels = &theme.glyphs().levels;
    for i in 0..width {
        let (glyph, meaning) = match i < full {
            true => (levels[6], meaning),
            false => (levels[0], Meaning::Track),
        };
        if buffer.area.contains((x + i, y).into()) {
            buffer.set_stringn(x + i, y, glyph, 1, theme.style(meaning));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;

    fn row(draw: impl Fn(&mut Buffer)) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 10, 1));
        draw(&mut buffer);
        (0..10).map(|x| buffer[(x, 0)].symbol()).collect()
    }

    #[test]
    fn bars_fill_and_never_overflow() {
        let theme = Theme::ansi();
        let mut ascii = Theme::ansi();
        ascii.ascii = true;
        let draw =
            |share, theme: &Theme| row(|b| progress(b, 0, 0, 10, share, Meaning::Accent, theme));
        assert_eq!(draw(0.55, &theme), "━━━━━╺━━━━");
        assert_eq!(draw(0.5, &ascii), "=====>----");
        assert_eq!(draw(7.0, &ascii), "==========");
        assert_eq!(draw(f64::NAN, &ascii), "----------");
        assert_eq!(
            row(|b| level(b, 2, 0, 20, 0.2, Meaning::Good, &theme)),
            "  ▇▇▇▇▁▁▁▁"
        );
    }
}
