//! A frame of the workbench as a PNG picture, for places that show no SVG. Letters come from a bitmap font; lines, dots, bars
//! and marks are painted, as in the SVG.

use super::svg::{Ground, dots_of};
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::Modifier;
use spleen_font::{FONT_16X32, PSF2Font};
use std::io;

/// Pixels of a cell, those of the font's letters, and of the margin around the screen.
const W: usize = 16;
const H: usize = 32;
const MARGIN: usize = 24;

type Color = [u8; 3];

/// The picture of a frame.
///
/// # Errors
/// The font or the compressor fails: both are part of the program.
pub fn png(buffer: &Buffer, ground: &Ground) -> io::Result<Vec<u8>> {
    let broken = |_| io::Error::other("the font for pictures is damaged");
    let mut font = PSF2Font::new(FONT_16X32).map_err(broken)?;
    let area = buffer.area;
    let (columns, rows) = (usize::from(area.width), usize::from(area.height));
    let mut canvas = Canvas::new(columns * W + 2 * MARGIN, rows * H + 2 * MARGIN, ground);
    for y in 0..area.height {
        for x in 0..area.width {
            let cell = &buffer[(area.x + x, area.y + y)];
            let at = (MARGIN + usize::from(x) * W, MARGIN + usize::from(y) * H);
            let mut tile = Tile {
                canvas: &mut canvas,
                at,
                color: value(&ground.ink(cell)),
            };
            if let Some(background) = ground.behind(cell) {
                tile.canvas.fill(at, (W, H), value(&background));
            }
            if !tile.shape(cell) {
                tile.letter(cell, &mut font);
            }
        }
    }
    crate::base::png::encode(canvas.width, &canvas.pixels, "")
}

/// `#0d1117` as bytes.
fn value(hex: &str) -> Color {
    let n = u32::from_str_radix(hex.trim_start_matches('#'), 16).unwrap_or(0);
    let [_, r, g, b] = n.to_be_bytes();
    [r, g, b]
}

struct Canvas {
    width: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    fn new(width: usize, height: usize, ground: &Ground) -> Canvas {
        let pixels = value(ground.background).repeat(width * height);
        Canvas { width, pixels }
    }

    fn set(&mut self, x: usize, y: usize, color: Color) {
        let at = 3 * (y * self.width + x);
        if x < self.width
            && let Some(pixel) = self.pixels.get_mut(at..at + 3)
        {
            pixel.copy_from_slice(&color);
        }
    }

    fn fill(&mut self, (left, top): (usize, usize), (width, height): (usize, usize), color: Color) {
        for y in top..top + height {
            for x in left..left + width {
                self.set(x, y, color);
            }
        }
    }
}

/// One cell of the screen.
struct Tile<'a> {
    canvas: &'a mut Canvas,
    at: (usize, usize),
    color: Color,
}

impl Tile<'_> {
    fn fill(&mut self, (x, y): (usize, usize), size: (usize, usize)) {
        let at = (self.at.0 + x, self.at.1 + y);
        self.canvas.fill(at, size, self.color);
    }

    /// All pixels of the tile whose centre lies inside.
    fn paint(&mut self, inside: impl Fn(f64, f64) -> bool) {
        for y in 0..H {
            for x in 0..W {
                if inside(x as f64 + 0.5, y as f64 + 0.5) {
                    self.fill((x, y), (1, 1));
                }
            }
        }
    }

    /// A line of a pen's width through these points.
    fn stroke(&mut self, points: &[(f64, f64)]) {
        for ends in points.windows(2) {
            let ((x0, y0), (x1, y1)) = (ends[0], ends[1]);
            let length = (x1 - x0).hypot(y1 - y0);
            self.paint(|x, y| {
                let along = ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / (length * length);
                let along = along.clamp(0.0, 1.0);
                let (dx, dy) = (x - x0 - along * (x1 - x0), y - y0 - along * (y1 - y0));
                dx.hypot(dy) <= 1.3
            });
        }
    }

    /// Paints a cell that is no letter; false when it is one.
    fn shape(&mut self, cell: &Cell) -> bool {
        let glyph = cell.symbol().chars().next().unwrap_or(' ');
        match glyph {
            ' ' => {}
            '\u{2800}'..='\u{28ff}' => {
                for (column, row) in dots_of(glyph) {
                    let (x, y) = (usize::from(column), usize::from(row));
                    let (x, y) = (W / 4 + x * W / 2, H / 8 + y * H / 4);
                    self.fill((x - 2, y - 1), (4, 2));
                    self.fill((x - 1, y - 2), (2, 4));
                }
            }
            '─' | '│' | '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' =>
            {
                let (x, y) = (W / 2 - 1, H / 2 - 1);
                for (joints, at, size) in [
                    ("─┐┘┤┬┴┼", (0, y), (W / 2 + 1, 2)),
                    ("─┌└├┬┴┼", (x, y), (W - x, 2)),
                    ("│└┘├┤┴┼", (x, 0), (2, H / 2 + 1)),
                    ("│┌┐├┤┬┼", (x, y), (2, H - y)),
                ] {
                    if joints.contains(glyph) {
                        self.fill(at, size);
                    }
                }
            }
            '┊' => (0..3).for_each(|i| self.fill((W / 2 - 1, 3 + i * 10), (2, 5))),
            '━' => self.fill((0, H / 2 - 2), (W, 4)),
            '╺' => self.fill((W / 2 + 2, H / 2 - 2), (W / 2 - 2, 4)),
            '▌' => self.fill((0, 0), (W / 2, H)),
            '▁'..='█' => {
                let tall = (H * 4 / 5) * (glyph as usize - 0x2580) / 8;
                self.fill((0, H * 7 / 8 - tall), (W - 2, tall));
            }
            '●' => self.paint(|x, y| (x - 8.0).hypot(y - 16.0) < 5.2),
            '○' | '◯' => self.paint(|x, y| (3.4..5.4).contains(&(x - 8.0).hypot(y - 16.0))),
            '◆' => self.paint(|x, y| (x - 8.0).abs() + (y - 16.0).abs() < 6.5),
            '▸' => self.paint(|x, y| x > 4.0 && x - 4.0 < 9.0 - 1.25 * (y - 16.0).abs()),
            '▲' => self.paint(|x, y| y < 22.0 && y > 10.0 && (x - 8.0).abs() < (y - 10.0) / 1.8),
            '▼' => self.paint(|x, y| y > 10.0 && y < 22.0 && (x - 8.0).abs() < (22.0 - y) / 1.8),
            '△' => self.stroke(&[(8.0, 10.0), (13.0, 21.0), (3.0, 21.0), (8.0, 10.0)]),
            '▽' => self.stroke(&[(8.0, 22.0), (13.0, 11.0), (3.0, 11.0), (8.0, 22.0)]),
            '✓' => self.stroke(&[(3.0, 17.0), (6.5, 22.0), (13.5, 9.0)]),
            '✗' => {
                self.stroke(&[(4.0, 10.0), (12.0, 22.0)]);
                self.stroke(&[(12.0, 10.0), (4.0, 22.0)]);
            }
            '→' => {
                self.stroke(&[(2.0, 16.0), (13.5, 16.0)]);
                self.stroke(&[(9.5, 11.5), (14.0, 16.0), (9.5, 20.5)]);
            }
            '↑' => {
                self.stroke(&[(8.0, 10.0), (8.0, 23.0)]);
                self.stroke(&[(3.5, 14.5), (8.0, 10.0), (12.5, 14.5)]);
            }
            '↓' => {
                self.stroke(&[(8.0, 9.0), (8.0, 22.0)]);
                self.stroke(&[(3.5, 17.5), (8.0, 22.0), (12.5, 17.5)]);
            }
            '−' => self.stroke(&[(3.0, 16.0), (13.0, 16.0)]),
            '…' => [2, 7, 12]
                .into_iter()
                .for_each(|x| self.fill((x, 23), (3, 3))),
            _ => return false,
        }
        true
    }

    /// A letter of the font; of one that it has not, a frame.
    fn letter(&mut self, cell: &Cell, font: &mut PSF2Font) {
        let mut bytes = [0; 4];
        let letter = cell.symbol().chars().next().unwrap_or(' ');
        let bold = usize::from(cell.modifier.contains(Modifier::BOLD));
        let Some(glyph) = font.glyph_for_utf8(letter.encode_utf8(&mut bytes).as_bytes()) else {
            let corners = [
                (3.0, 9.0),
                (13.0, 9.0),
                (13.0, 24.0),
                (3.0, 24.0),
                (3.0, 9.0),
            ];
            return self.stroke(&corners);
        };
        for (y, row) in glyph.enumerate() {
            for (x, on) in row.enumerate() {
                if on {
                    self.fill((x, y), (1 + bold, 1));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg::DARK;
    use super::*;
    use ratatui::layout::Rect;
    use ratatui::style::{Color as Hue, Style};
    use std::io::Read;

    /// Size and pixels of a picture, its checksums tried.
    fn decoded(png: &[u8]) -> (usize, usize, Vec<u8>) {
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
        let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
        let (mut at, mut data, mut names) = (8, Vec::new(), Vec::new());
        while at < png.len() {
            let length = number(at) as usize;
            let body = &png[at + 4..at + 8 + length];
            let mut sum = flate2::Crc::new();
            sum.update(body);
            assert_eq!(number(at + 8 + length), sum.sum());
            names.push(body[..4].to_vec());
            if body.starts_with(b"IDAT") {
                let mut inflated = flate2::read::ZlibDecoder::new(&body[4..]);
                inflated.read_to_end(&mut data).unwrap();
            }
            at += 12 + length;
        }
        assert_eq!(names, [b"IHDR", b"IDAT", b"IEND"]);
        let (width, height) = (number(16) as usize, number(20) as usize);
        let rows = data.chunks(3 * width + 1);
        assert!(rows.clone().all(|row| row[0] == 0));
        (
            width,
            height,
            rows.flat_map(|row| row[1..].to_vec()).collect(),
        )
    }

    #[test]
    fn letters_dots_lines_and_backgrounds_have_their_colours_in_their_places() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 6, 2));
        buffer.set_string(0, 0, "I█", Style::new().fg(Hue::Rgb(255, 0, 0)));
        buffer.set_string(2, 0, " ", Style::new().bg(Hue::Rgb(0, 0, 255)));
        buffer.set_string(0, 1, "⣿─✓字", Style::new().fg(Hue::Rgb(0, 255, 0)));
        let (width, height, pixels) = decoded(&png(&buffer, &DARK).unwrap());
        assert_eq!((width, height), (6 * W + 2 * MARGIN, 2 * H + 2 * MARGIN));
        let count = |column: usize, row: usize, color: Color| {
            let mut n = 0;
            for y in 0..H {
                for x in 0..W {
                    let at = (MARGIN + row * H + y) * width + MARGIN + column * W + x;
                    n += usize::from(pixels[3 * at..3 * at + 3] == color);
                }
            }
            n
        };
        let letter = count(0, 0, [255, 0, 0]);
        assert!((30..150).contains(&letter), "{letter}");
        assert!(count(1, 0, [255, 0, 0]) > 250);
        assert_eq!(count(2, 0, [0, 0, 255]), W * H);
        assert_eq!(count(0, 1, [0, 255, 0]), 8 * 12);
        assert_eq!(count(1, 1, [0, 255, 0]), 2 * W);
        for column in [2, 3] {
            assert!(count(column, 1, [0, 255, 0]) > 20, "{column}");
        }
        assert_eq!(count(5, 0, value(DARK.background)), W * H);
    }
}
