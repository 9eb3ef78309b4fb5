//! A frame of the workbench as an SVG picture. Letters are text; lines, dots and bars are drawn as shapes, so that the picture
//! looks the same whatever fonts the reader has.

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Pixels of a cell and of the margin around the screen.
const W: f64 = 8.4;
const H: f64 = 18.0;
const FONT: f64 = 14.0;
const MARGIN: f64 = 14.0;

/// What a picture stands on: the colours that a terminal would choose for itself.
#[derive(Debug, PartialEq, Eq)]
pub struct Ground {
    pub(super) background: &'static str,
    foreground: &'static str,
    /// The sixteen colours by their codes.
    named: [u32; 16],
}

pub static DARK: Ground = Ground {
    background: "#0d1117",
    foreground: "#c8ccd4",
    named: [
        0x484f58, 0xff7b72, 0x3fb950, 0xd29922, 0x58a6ff, 0xbc8cff, 0x39c5cf, 0xb1bac4, 0x6e7681,
        0xffa198, 0x56d364, 0xe3b341, 0x79c0ff, 0xd2a8ff, 0x56d4dd, 0xf0f6fc,
    ],
};

/// For themes whose text is dark.
pub static LIGHT: Ground = Ground {
    background: "#ffffff",
    foreground: "#24292f",
    named: [
        0x24292f, 0xcf222e, 0x116329, 0x8a5a00, 0x0969da, 0x8250df, 0x1b7c83, 0x6e7781, 0x57606a,
        0xa40e26, 0x1a7f37, 0x9a6700, 0x218bff, 0xa475f9, 0x3192aa, 0x8c959f,
    ],
};

/// Shapes of one colour, collected into one path each.
#[derive(Default)]
struct Paths {
    /// Thin strokes by colour.
    lines: BTreeMap<String, String>,
    /// Round dots by colour.
    dots: BTreeMap<String, String>,
    /// Filled rectangles by colour.
    fills: BTreeMap<String, String>,
}

/// The picture of a frame; `title` is for those who cannot see it.
pub fn svg(buffer: &Buffer, title: &str, ground: &Ground) -> String {
    let area = buffer.area;
    let (width, height) = (
        f64::from(area.width) * W + 2.0 * MARGIN,
        f64::from(area.height) * H + 2.0 * MARGIN,
    );
    let mut paths = Paths::default();
    let mut text = String::new();
    for y in 0..area.height {
        let mut x = 0;
        while x < area.width {
            let cell = &buffer[(x, y)];
            let (left, top) = (MARGIN + f64::from(x) * W, MARGIN + f64::from(y) * H);
            if let Some(background) = ground.behind(cell) {
                let _ = write!(
                    paths.fills.entry(background).or_default(),
                    "M{left:.1} {top:.1}h{W}v{H}h-{W}z"
                );
            }
            if shape(&mut paths, cell, left, top, ground) {
                x += 1;
                continue;
            }
            let run = run_length(buffer, x, y);
            write_text(&mut text, buffer, (x, y), run, ground);
            x += run;
        }
    }
    let mut out = String::new();
    let _ = writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}" role="img" aria-label="{}">"#,
        escape(title)
    );
    let _ = writeln!(
        out,
        r#"<rect width="{width:.0}" height="{height:.0}" rx="8" fill="{}"/>"#,
        ground.background
    );
    for (color, path) in &paths.fills {
        let _ = writeln!(out, r#"<path fill="{color}" d="{path}"/>"#);
    }
    for (color, path) in &paths.lines {
        let _ = writeln!(
            out,
            r#"<path fill="none" stroke="{color}" stroke-width="1.1" d="{path}"/>"#
        );
    }
    for (color, path) in &paths.dots {
        let _ = writeln!(
            out,
            r#"<path fill="none" stroke="{color}" stroke-width="2.3" stroke-linecap="round" d="{path}"/>"#
        );
    }
    let fonts =
        "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace";
    let _ = write!(
        out,
        "<g font-family=\"{fonts}\" font-size=\"{FONT}\" xml:space=\"preserve\">\n{text}</g>\n</svg>\n"
    );
    out
}

/// Draws a cell that is no letter; false when it is one.
fn shape(paths: &mut Paths, cell: &Cell, left: f64, top: f64, ground: &Ground) -> bool {
    let glyph = cell.symbol().chars().next().unwrap_or(' ');
    let color = ground.ink(cell);
    let (dots, lines, fills) = (&mut paths.dots, &mut paths.lines, &mut paths.fills);
    match glyph {
        ' ' => {}
        '\u{2800}'..='\u{28ff}' => braille(dots.entry(color).or_default(), glyph, left, top),
        '─' | '│' | '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' => {
            border(lines.entry(color).or_default(), glyph, left, top);
        }
        '┊' => {
            let path = lines.entry(color).or_default();
            let x = left + W / 2.0;
            for down in [1.5, 7.5, 13.5] {
                let _ = write!(path, "M{x:.1} {:.1}v3", top + down);
            }
        }
        '━' | '╺' => {
            let from = if glyph == '╺' {
                left + W / 2.0 + 1.0
            } else {
                left
            };
            let _ = write!(
                fills.entry(color).or_default(),
                "M{from:.1} {:.1}H{:.1}v3H{from:.1}z",
                top + H / 2.0 - 1.5,
                left + W
            );
        }
        '▁'..='█' => {
            let tall = H * 0.8 * f64::from(glyph as u32 - 0x2580) / 8.0;
            let bottom = top + H * 0.86;
            let wide = W - 1.2;
            let path = fills.entry(color).or_default();
            let _ = write!(
                path,
                "M{left:.1} {bottom:.1}h{wide:.1}v-{tall:.1}h-{wide:.1}z"
            );
        }
        _ => return false,
    }
    true
}

/// Columns and rows of the dots of a braille letter.
pub(super) fn dots_of(glyph: char) -> impl Iterator<Item = (u8, u8)> {
    // Bits in the order of the letters.
    const PLACES: [(u8, u8); 8] = [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
        (1, 2),
        (0, 3),
        (1, 3),
    ];
    let bits = u32::from(glyph).saturating_sub(0x2800);
    let is_set = move |(bit, _): &(u32, (u8, u8))| bits >> bit & 1 == 1;
    let all = (0..).zip(PLACES);
    all.filter(is_set).map(|(_, place)| place)
}

/// Draws the dots of a braille letter.
fn braille(path: &mut String, glyph: char, left: f64, top: f64) {
    for (column, row) in dots_of(glyph) {
        let x = left + W * (0.25 + 0.5 * f64::from(column));
        let y = top + H * (0.125 + 0.25 * f64::from(row));
        let _ = write!(path, "M{x:.1} {y:.1}h0");
    }
}

/// The arms of a border's letter, from its middle.
fn border(path: &mut String, glyph: char, left: f64, top: f64) {
    let (mid_x, mid_y) = (left + W / 2.0, top + H / 2.0);
    if "─┐┘┤┬┴┼".contains(glyph) {
        let _ = write!(path, "M{left:.1} {mid_y:.1}H{mid_x:.1}");
    }
    if "─┌└├┬┴┼".contains(glyph) {
        let _ = write!(path, "M{mid_x:.1} {mid_y:.1}h{:.1}", W / 2.0);
    }
    if "│└┘├┤┴┼".contains(glyph) {
        let _ = write!(path, "M{mid_x:.1} {top:.1}V{mid_y:.1}");
    }
    if "│┌┐├┤┬┼".contains(glyph) {
        let _ = write!(path, "M{mid_x:.1} {mid_y:.1}v{:.1}", H / 2.0);
    }
}

/// Cells from (x, y) on that are drawn as one piece of text: one style, plain letters.
fn run_length(buffer: &Buffer, x: u16, y: u16) -> u16 {
    let first = &buffer[(x, y)];
    let plain = |cell: &Cell| cell.symbol().is_ascii();
    if !plain(first) {
        return 1;
    }
    let same = |at: &u16| {
        let cell = &buffer[(*at, y)];
        plain(cell) && cell.style() == first.style() && !is_filled(cell)
    };
    let run = (x..buffer.area.width).take_while(same).count().max(1);
    let blank = |n: &usize| buffer[(x + *n as u16 - 1, y)].symbol() == " ";
    (1..=run).rev().find(|n| *n == 1 || !blank(n)).unwrap_or(1) as u16
}

fn write_text(out: &mut String, buffer: &Buffer, (x, y): (u16, u16), run: u16, ground: &Ground) {
    let cell = &buffer[(x, y)];
    let text: String = (x..x + run).map(|x| buffer[(x, y)].symbol()).collect();
    let (left, base) = (
        MARGIN + f64::from(x) * W,
        MARGIN + f64::from(y) * H + H * 0.72,
    );
    let weight = if cell.modifier.contains(Modifier::BOLD) {
        " font-weight=\"600\""
    } else {
        ""
    };
    let length = f64::from(run) * W;
    let place = match run {
        1 => format!(r#"x="{:.1}" text-anchor="middle""#, left + W / 2.0),
        _ => format!(r#"x="{left:.1}" textLength="{length:.1}""#),
    };
    let _ = writeln!(
        out,
        r#"<text {place} y="{base:.1}" fill="{}"{weight}>{}</text>"#,
        ground.ink(cell),
        escape(&text)
    );
}

/// Whether a cell has a background of its own.
fn is_filled(cell: &Cell) -> bool {
    cell.modifier.contains(Modifier::REVERSED) || cell.bg != Color::Reset
}

impl Ground {
    /// The colour of what is drawn in a cell.
    pub(super) fn ink(&self, cell: &Cell) -> String {
        match cell.modifier.contains(Modifier::REVERSED) {
            true => self
                .color(cell.bg)
                .unwrap_or_else(|| self.background.into()),
            false => self
                .color(cell.fg)
                .unwrap_or_else(|| self.foreground.into()),
        }
    }

    /// The colour behind it, where that is not the ground's own.
    pub(super) fn behind(&self, cell: &Cell) -> Option<String> {
        match cell.modifier.contains(Modifier::REVERSED) {
            true => Some(
                self.color(cell.fg)
                    .unwrap_or_else(|| self.foreground.into()),
            ),
            false => self.color(cell.bg),
        }
    }

    fn color(&self, color: Color) -> Option<String> {
        let named = |n: usize| Some(format!("#{:06x}", self.named[n]));
        match color {
            Color::Rgb(r, g, b) => Some(format!("#{r:02x}{g:02x}{b:02x}")),
            Color::Reset => None,
            Color::Black => named(0),
            Color::Red => named(1),
            Color::Green => named(2),
            Color::Yellow => named(3),
            Color::Blue => named(4),
            Color::Magenta => named(5),
            Color::Cyan => named(6),
            Color::Gray => named(7),
            Color::DarkGray => named(8),
            Color::LightRed => named(9),
            Color::LightGreen => named(10),
            Color::LightYellow => named(11),
            Color::LightBlue => named(12),
            Color::LightMagenta => named(13),
            Color::LightCyan => named(14),
            Color::White => named(15),
            Color::Indexed(n @ 0..16) => named(n.into()),
            // A cube of six levels each, then 24 greys.
            Color::Indexed(n @ 16..232) => {
                let level = |part: u8| if part == 0 { 0 } else { 55 + 40 * part };
                let n = n - 16;
                let (r, g, b) = (level(n / 36), level(n / 6 % 6), level(n % 6));
                Some(format!("#{r:02x}{g:02x}{b:02x}"))
            }
            Color::Indexed(n) => {
                let grey = 8 + 10 * (n - 232);
                Some(format!("#{grey:02x}{grey:02x}{grey:02x}"))
            }
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    #[test]
    fn letters_are_text_dots_are_shapes_and_named_colours_have_values() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 2));
        buffer.set_string(0, 0, "a < b", Style::new().fg(Color::Green));
        buffer.set_string(0, 1, "⠁─█", Style::new().fg(Color::Indexed(196)));
        let picture = svg(&buffer, "loss & text", &DARK);
        assert!(
            picture.contains("a &lt; b") && picture.contains("#3fb950"),
            "{picture}"
        );
        assert!(picture.contains("aria-label=\"loss &amp; text\""));
        assert_eq!(picture.matches("#ff0000").count(), 3, "{picture}");
        assert!(!picture.contains('⠁'));
        assert!(picture.trim_end().ends_with("</svg>"));
    }
}
