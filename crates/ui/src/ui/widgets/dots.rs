//! A canvas of dots, two columns and four rows to a cell: braille, or letters where there is only ASCII. Dots lie in layers;
//! a cell shows its topmost layer alone, so that a strong line stays readable on a faint band.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Dots of a cell: columns and rows.
pub const ACROSS: usize = 2;
pub const DOWN: usize = 4;

#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// One bit a dot, in the order of Unicode's braille patterns.
    dots: u8,
    /// 0: empty.
    layer: u8,
}

/// Dots over an area of the screen, (0, 0) at the top left.
#[derive(Debug)]
pub struct Dots {
    columns: usize,
    rows: usize,
    cells: Vec<Cell>,
}

/// Bit of the dot at (column, row) within its cell (Unicode 2800–28FF).
const BITS: [[u8; DOWN]; ACROSS] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

impl Dots {
    /// For `width`×`height` cells.
    pub fn new(width: u16, height: u16) -> Self {
        let (columns, rows) = (usize::from(width), usize::from(height));
        Dots {
            columns,
            rows,
            cells: vec![Cell::default(); columns * rows],
        }
    }

    /// Width in dots.
    pub fn width(&self) -> usize {
        self.columns * ACROSS
    }

    /// Height in dots.
    pub fn height(&self) -> usize {
        self.rows * DOWN
    }

    /// Sets a dot; outside of the canvas nothing happens.
    pub fn set(&mut self, x: usize, y: usize, layer: u8) {
        if x >= self.width() || y >= self.height() {
            return;
        }
        let cell = &mut self.cells[y / DOWN * self.columns + x / ACROSS];
        if layer < cell.layer {
            return;
        }
        if layer > cell.layer {
            *cell = Cell { dots: 0, layer };
        }
        cell.dots |= BITS[x % ACROSS][y % DOWN];
    }

    /// The dots of column `x` from `y0` to `y1`, both included, in either order.
    pub fn vertical(&mut self, x: usize, y0: usize, y1: usize, layer: u8) {
        for y in y0.min(y1)..=y0.max(y1) {
            self.set(x, y, layer);
        }
    }

    /// A straight line. It is unbroken: every column reaches half-way to its neighbour's height.
    pub fn line(&mut self, from: (usize, usize), to: (usize, usize), layer: u8) {
        let (from, to) = if from.0 <= to.0 {
            (from, to)
        } else {
            (to, from)
        };
        let run = (to.0 - from.0).max(1) as f64;
        let height =
            |x: f64| from.1 as f64 + (to.1 as f64 - from.1 as f64) * ((x - from.0 as f64) / run);
        for x in from.0..=to.0 {
            let left = height((x as f64 - 0.5).max(from.0 as f64)).round() as usize;
            let right = height((x as f64 + 0.5).min(to.0 as f64)).round() as usize;
            self.vertical(x, left, right, layer);
        }
    }

    /// True when the cell at (column, row) holds no dot.
    pub fn is_empty(&self, column: usize, row: usize) -> bool {
        column >= self.columns
            || row >= self.rows
            || self.cells[row * self.columns + column].layer == 0
    }

    /// Draws the cells that hold dots; `style` is asked for each layer.
    pub fn draw(&self, buffer: &mut Buffer, area: Rect, ascii: bool, style: impl Fn(u8) -> Style) {
        let width = usize::from(area.width).min(self.columns);
        for row in 0..usize::from(area.height).min(self.rows) {
            for column in 0..width {
                let cell = self.cells[row * self.columns + column];
                if cell.layer == 0 {
                    continue;
                }
                let (x, y) = (area.x + column as u16, area.y + row as u16);
                let glyph = if ascii {
                    letter(cell.dots)
                } else {
                    braille(cell.dots)
                };
                if let Some(target) = buffer.cell_mut((x, y)) {
                    target.set_char(glyph).set_style(style(cell.layer));
                }
            }
        }
    }
}

fn braille(dots: u8) -> char {
    char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' ')
}

/// The ASCII mark whose ink lies nearest to the dots.
fn letter(dots: u8) -> char {
    let row = |i: usize| dots & (BITS[0][i] | BITS[1][i]) != 0;
    match (row(0), row(1), row(2), row(3)) {
        (true, false, false, false) => '\'',
        (false, true, false, false) | (true, true, false, false) => '"',
        (false, _, true, false) => '-',
        (false, false, true, true) => '.',
        (false, false, false, true) => '_',
        (false, false, false, false) => ' ',
        _ => '|',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(dots: &Dots, ascii: bool) -> String {
        let area = Rect::new(0, 0, dots.columns as u16, dots.rows as u16);
        let mut buffer = Buffer::empty(area);
        dots.draw(&mut buffer, area, ascii, |_| Style::default());
        let row = |y| {
            (0..area.width)
                .map(|x| buffer[(x, y)].symbol())
                .collect::<String>()
        };
        (0..area.height).map(row).collect::<Vec<_>>().join("/")
    }

    #[test]
    fn each_dot_has_its_place() {
        let mut dots = Dots::new(2, 1);
        for (x, y) in [(0, 0), (1, 3), (2, 1), (3, 2)] {
            dots.set(x, y, 1);
        }
        assert_eq!(text(&dots, false), "⢁⠢");
        assert_eq!(text(&dots, true), "|-");
        dots.set(4, 0, 1);
        dots.set(0, 4, 1);
        assert_eq!(text(&dots, false), "⢁⠢", "outside is ignored");
    }

    #[test]
    fn lines_are_unbroken() {
        for to in 0..40 {
            let mut dots = Dots::new(6, 10);
            dots.line((0, 20), (11, to), 1);
            let column = |x: usize| -> Vec<usize> {
                (0..40)
                    .filter(|y| dots.cells[y / 4 * 6 + x / 2].dots & BITS[x % 2][y % 4] != 0)
                    .collect()
            };
            for x in 0..11 {
                let (a, b) = (column(x), column(x + 1));
                let near = a.iter().any(|y| b.iter().any(|z| y.abs_diff(*z) <= 1));
                assert!(near, "gap at column {x} on the way to {to}: {a:?} {b:?}");
            }
        }
    }

    #[test]
    fn the_top_layer_has_the_cell() {
        let mut dots = Dots::new(1, 1);
        dots.vertical(0, 0, 3, 1);
        dots.set(1, 1, 2);
        dots.set(0, 0, 1);
        assert_eq!(text(&dots, false), "⠐");
    }
}
