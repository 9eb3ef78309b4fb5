//! A sheet of pictures in pixels: areas and lines by tiny-skia, texts in a bitmap font, so that no font file is needed.

use super::picture::{Face, Item, Page, Span, WIDTH};
use super::shapes::{Anchor, Drawing, Point, Shape};
use spleen_font::{FONT_12X24, FONT_16X32, PSF2Font};
use std::io;
use tiny_skia::{
    FillRule, LineJoin, Paint, Path, PathBuilder, Pixmap, PremultipliedColorU8, Stroke, Transform,
};

/// Pixels of the picture for one of the page: text of a bitmap font needs them.
const SCALE: f64 = 2.0;
/// Most pixels of a picture, 4 bytes each.
const MOST: f64 = 1e8;

type Rgb = [u8; 3];
const BLACK: Rgb = [0, 0, 0];
const SOFT: Rgb = [0x44, 0x44, 0x44];
const GRID: Rgb = [0xcc, 0xcc, 0xcc];
const SERIES: [Rgb; 2] = [[0x05, 0x50, 0xae], [0x95, 0x38, 0x00]];
/// As in the style of the SVG.
const BAND_OPACITY: f64 = 0.18;
const LINE_WIDTH: f64 = 1.6;
const GRID_WIDTH: f64 = 0.7;

/// The page as a PNG file.
///
/// # Errors
/// It has too many pixels.
pub(super) fn paint(page: &Page) -> io::Result<Vec<u8>> {
    let (width, height) = (SCALE * page.width, (SCALE * page.height).ceil());
    if width * height > MOST {
        let what = format!("{width:.0} × {height:.0} pixels are too many for a PNG; use .svg");
        return Err(io::Error::other(what));
    }
    let pixmap = Pixmap::new(width as u32, height as u32);
    let pixmap = pixmap.ok_or_else(|| io::Error::other("an empty picture"))?;
    let mut canvas = Canvas {
        pixmap,
        small: font(FONT_12X24)?,
        large: font(FONT_16X32)?,
    };
    // White, and opaque.
    canvas.pixmap.data_mut().fill(255);
    for (at, item) in &page.items {
        match item {
            Item::Words(face, spans) => canvas.words(at.map(|x| SCALE * x), *face, spans),
            Item::Picture(drawing) => canvas.drawing(*at, drawing),
        }
    }
    let pixels = canvas.pixmap.pixels().iter();
    let pixels: Vec<u8> = pixels
        .flat_map(|p| [p.red(), p.green(), p.blue()])
        .collect();
    crate::base::png::encode(width as usize, &pixels, &page.mark)
}

fn font(bytes: &'static [u8]) -> io::Result<PSF2Font<'static>> {
    PSF2Font::new(bytes).map_err(|_| io::Error::other("the font for pictures is damaged"))
}

struct Canvas {
    pixmap: Pixmap,
    /// Of 12 × 24 pixels.
    small: PSF2Font<'static>,
    /// Of 16 × 32 pixels.
    large: PSF2Font<'static>,
}

impl Canvas {
    /// A picture whose upper left corner is at a place of the page.
    fn drawing(&mut self, [left, top]: Point, drawing: &Drawing) {
        let scale = SCALE * WIDTH / drawing.width;
        let place = |[x, y]: Point| [SCALE * left + scale * x, SCALE * top + scale * y];
        for shape in &drawing.shapes {
            match shape {
                Shape::Band { series, points } => {
                    let path = path(points.iter().map(|p| place(*p)), true);
                    self.fill(path, color(*series), BAND_OPACITY);
                }
                Shape::Line { series, points } => {
                    let path = path(points.iter().map(|p| place(*p)), false);
                    self.stroke(path, color(*series), scale * LINE_WIDTH);
                }
                Shape::Level { y, from, to } => {
                    let path = path([[*from, *y], [*to, *y]].map(place).into_iter(), false);
                    self.stroke(path, GRID, scale * GRID_WIDTH);
                }
                Shape::Cells { opacity, cells } => {
                    for [x, y, width, height] in cells {
                        let corners = [
                            [*x, *y],
                            [x + width, *y],
                            [x + width, y + height],
                            [*x, y + height],
                        ];
                        let path = path(corners.map(place).into_iter(), true);
                        self.fill(path, color(0), *opacity);
                    }
                }
                Shape::Label { at, anchor, words } => {
                    let width = 12.0 * words.chars().count() as f64;
                    let [x, y] = place(*at);
                    let x = match anchor {
                        Anchor::Start => x,
                        Anchor::Middle => x - width / 2.0,
                        Anchor::End => x - width,
                    };
                    write(&mut self.pixmap, &mut self.small, [x, y], 1, words, SOFT);
                }
            }
        }
    }

    fn words(&mut self, [mut x, y]: Point, face: Face, spans: &[Span]) {
        let (font, size, ink) = match face {
            Face::Name => (&mut self.large, 2, BLACK),
            Face::Title => (&mut self.large, 1, BLACK),
            Face::Said => (&mut self.small, 1, SOFT),
        };
        for span in spans {
            let ink = span.series.map_or(ink, color);
            x = write(&mut self.pixmap, font, [x, y], size, &span.words, ink);
        }
    }

    fn fill(&mut self, path: Option<Path>, ink: Rgb, opacity: f64) {
        if let Some(path) = path {
            let paint = paint_of(ink, opacity);
            let (rule, as_it_is) = (FillRule::Winding, Transform::identity());
            self.pixmap.fill_path(&path, &paint, rule, as_it_is, None);
        }
    }

    fn stroke(&mut self, path: Option<Path>, ink: Rgb, width: f64) {
        if let Some(path) = path {
            let stroke = Stroke {
                width: width as f32,
                line_join: LineJoin::Round,
                ..Stroke::default()
            };
            let (paint, as_it_is) = (paint_of(ink, 1.0), Transform::identity());
            self.pixmap
                .stroke_path(&path, &paint, &stroke, as_it_is, None);
        }
    }
}

fn color(series: usize) -> Rgb {
    SERIES[series % SERIES.len()]
}

fn paint_of([r, g, b]: Rgb, opacity: f64) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(r, g, b, (255.0 * opacity).round() as u8);
    paint
}

/// A path through points; `None` where there is nothing to paint.
fn path(points: impl Iterator<Item = Point>, closed: bool) -> Option<Path> {
    let mut builder = PathBuilder::new();
    for (at, [x, y]) in points.enumerate() {
        match at {
            0 => builder.move_to(x as f32, y as f32),
            _ => builder.line_to(x as f32, y as f32),
        }
    }
    if closed {
        builder.close();
    }
    builder.finish()
}

/// What the font has for a letter that it has not.
fn near(letter: char) -> &'static [u8] {
    match letter {
        '—' | '–' | '−' => b"-",
        '→' => b">",
        '…' => b".",
        _ => b"?",
    }
}

/// Writes on a baseline, each pixel of the font `size` pixels wide, and says where the text ends.
fn write(
    pixmap: &mut Pixmap,
    font: &mut PSF2Font<'static>,
    [x, y]: Point,
    size: usize,
    words: &str,
    [r, g, b]: Rgb,
) -> f64 {
    let (columns, rows) = (font.width as usize, font.height as usize);
    // Letters of the font stand on a line at four fifths of its height.
    let top = y.round() as i64 - (size * rows * 4 / 5) as i64;
    let mut left = x.round() as i64;
    let ink = PremultipliedColorU8::from_rgba(r, g, b, 255);
    let (width, height) = (i64::from(pixmap.width()), i64::from(pixmap.height()));
    for letter in words.chars() {
        let mut bytes = [0; 4];
        let known = font.glyph_for_utf8(letter.encode_utf8(&mut bytes).as_bytes());
        let glyph = match known {
            Some(glyph) => Some(glyph),
            None => font.glyph_for_utf8(near(letter)),
        };
        for (row, bits) in glyph.into_iter().flatten().enumerate() {
            for column in bits.enumerate().filter(|(_, on)| *on).map(|(at, _)| at) {
                for (down, along) in (0..size).flat_map(|d| (0..size).map(move |a| (d, a))) {
                    let x = left + (size * column + along) as i64;
                    let y = top + (size * row + down) as i64;
                    if (0..width).contains(&x)
                        && (0..height).contains(&y)
                        && let Some(ink) = ink
                        && let Some(pixel) = pixmap.pixels_mut().get_mut((y * width + x) as usize)
                    {
                        *pixel = ink;
                    }
                }
            }
        }
        left += (size * columns) as i64;
    }
    left as f64
}
