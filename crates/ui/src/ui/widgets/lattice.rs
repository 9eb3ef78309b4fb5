//! Boxes that share their borders. Every line is drawn once; where lines meet, the joint follows from the directions in
//! which they leave, in Unicode or ASCII.

use crate::ui::theme::{Meaning, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

const UP: u8 = 1;
const DOWN: u8 = 2;
const LEFT: u8 = 4;
const RIGHT: u8 = 8;

/// Joints by their directions, as bits.
const JOINTS: [char; 16] = [
    ' ', '│', '│', '│', '─', '┘', '┐', '┤', '─', '└', '┌', '├', '─', '┴', '┬', '┼',
];

/// Lines over an area, not yet drawn.
#[derive(Debug)]
pub struct Lattice {
    area: Rect,
    /// Directions in which lines leave each cell.
    arms: Vec<u8>,
    /// The box to stand out.
    focus: Option<Rect>,
}

impl Lattice {
    pub fn new(area: Rect) -> Self {
        let cells = usize::from(area.width) * usize::from(area.height);
        Lattice {
            area,
            arms: vec![0; cells],
            focus: None,
        }
    }

    fn add(&mut self, x: u16, y: u16, arms: u8) {
        if x >= self.area.x && x < self.area.right() && y >= self.area.y && y < self.area.bottom() {
            let index = usize::from(y - self.area.y) * usize::from(self.area.width)
                + usize::from(x - self.area.x);
            self.arms[index] |= arms;
        }
    }

    /// Adds the outline of `outer` and returns what is inside. Neighbours share a line when their outlines overlap by one.
    pub fn outline(&mut self, outer: Rect) -> Rect {
        if outer.width < 2 || outer.height < 2 {
            return Rect::new(outer.x, outer.y, 0, 0);
        }
        let (left, top) = (outer.x, outer.y);
        let (right, bottom) = (outer.right() - 1, outer.bottom() - 1);
        for x in left..right {
            for y in [top, bottom] {
                self.add(x, y, RIGHT);
                self.add(x + 1, y, LEFT);
            }
        }
        for y in top..bottom {
            for x in [left, right] {
                self.add(x, y, DOWN);
                self.add(x, y + 1, UP);
            }
        }
        Rect::new(left + 1, top + 1, outer.width - 2, outer.height - 2)
    }

    /// The box that the keys act on.
    pub fn focus(&mut self, outer: Rect) {
        self.focus = Some(outer);
    }

    pub fn draw(&self, buffer: &mut Buffer, theme: &Theme) {
        for (index, arms) in self.arms.iter().enumerate().filter(|(_, arms)| **arms != 0) {
            let x = self.area.x + (index % usize::from(self.area.width)) as u16;
            let y = self.area.y + (index / usize::from(self.area.width)) as u16;
            let focused = self.focus.is_some_and(|f| on_outline(f, x, y));
            let meaning = if focused {
                Meaning::BorderFocused
            } else {
                Meaning::Border
            };
            if let Some(cell) = buffer.cell_mut((x, y)) {
                cell.set_char(joint(*arms, theme.ascii))
                    .set_style(theme.style(meaning));
            }
        }
    }
}

fn on_outline(outer: Rect, x: u16, y: u16) -> bool {
    let inside = outer.contains((x, y).into());
    inside && (x == outer.x || y == outer.y || x + 1 == outer.right() || y + 1 == outer.bottom())
}

fn joint(arms: u8, ascii: bool) -> char {
    if !ascii {
        return JOINTS[usize::from(arms & 15)];
    }
    match (arms & (UP | DOWN) != 0, arms & (LEFT | RIGHT) != 0) {
        (true, true) => '+',
        (true, false) => '|',
        _ => '-',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(ascii: bool) -> Vec<String> {
        let area = Rect::new(0, 0, 7, 5);
        let mut lattice = Lattice::new(area);
        assert_eq!(
            lattice.outline(Rect::new(0, 0, 4, 5)),
            Rect::new(1, 1, 2, 3)
        );
        lattice.outline(Rect::new(3, 0, 4, 3));
        lattice.outline(Rect::new(3, 2, 4, 3));
        lattice.outline(Rect::new(90, 90, 4, 3));
        lattice.outline(Rect::new(1, 1, 1, 9));
        let mut buffer = Buffer::empty(area);
        let mut theme = Theme::ansi();
        theme.ascii = ascii;
        lattice.draw(&mut buffer, &theme);
        (0..5)
            .map(|y| (0..7).map(|x| buffer[(x, y)].symbol()).collect())
            .collect()
    }

    #[test]
    fn shared_borders_meet() {
        assert_eq!(
            picture(false),
            ["┌──┬──┐", "│  │  │", "│  ├──┤", "│  │  │", "└──┴──┘"]
        );
        assert_eq!(
            picture(true),
            ["+--+--+", "|  |  |", "|  +--+", "|  |  |", "+--+--+"]
        );
    }
}
