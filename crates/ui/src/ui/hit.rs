//! What lies under the mouse: each draw notes the places that answer to a click.

use super::action::Action;
use ratatui::layout::{Position, Rect};

/// What a click at a place means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The same as the action's key.
    Action(Action),
    /// A row of the pane's list, by its index.
    Row(usize),
    /// A row of the topmost overlay.
    OverlayRow(usize),
    /// The overlay itself, between its rows.
    Overlay,
    /// The pane, which knows its own places.
    Pane,
}

/// Places in the order of drawing: the last one drawn lies on top.
#[derive(Debug, Default)]
pub struct HitMap {
    places: Vec<(Rect, Target)>,
}

impl HitMap {
    pub fn clear(&mut self) {
        self.places.clear();
    }

    pub fn add(&mut self, area: Rect, target: Target) {
        self.places.push((area, target));
    }

    pub fn at(&self, column: u16, row: u16) -> Option<Target> {
        let position = Position::new(column, row);
        self.places
            .iter()
            .rev()
            .find(|(area, _)| area.contains(position))
            .map(|(_, target)| *target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_place_answers() {
        let mut hits = HitMap::default();
        hits.add(Rect::new(0, 0, 10, 10), Target::Pane);
        hits.add(Rect::new(2, 2, 2, 2), Target::OverlayRow(1));
        assert_eq!(hits.at(3, 3), Some(Target::OverlayRow(1)));
        assert_eq!(hits.at(9, 9), Some(Target::Pane));
        assert_eq!(hits.at(10, 9), None);
    }
}
