//! How keys and the mouse move the dashboard's cursors.

use super::{Dashboard, SMOOTHING, Shown, USUAL_SMOOTHING, Zoom, catalog, whole_range};
use crate::run::RunState;
use crate::ui::action::Action;
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;

/// Share of the shown steps that a pan moves.
const PAN: f64 = 0.25;
/// Fewest steps that can be shown.
const MIN_SPAN: f64 = 4.0;

impl Dashboard {
    /// Does what an action asks for; false when it is not the dashboard's.
    pub fn act(&mut self, action: Action, state: &RunState) -> bool {
        let n = catalog::charts(state, &self.filter).len();
        match action {
            Action::ChartNext => self.select((self.selected + 1) % n.max(1)),
            Action::ChartPrevious => self.select((self.selected + n.max(1) - 1) % n.max(1)),
            Action::ChartLeft if self.cursor.is_some() => self.move_cursor(-1.0, state),
            Action::ChartRight if self.cursor.is_some() => self.move_cursor(1.0, state),
            Action::ChartLeft => self.select_towards(-1, 0),
            Action::ChartRight => self.select_towards(1, 0),
            Action::ChartUp => self.select_towards(0, -1),
            Action::ChartDown => self.select_towards(0, 1),
            Action::Zoom => self.full = !self.full,
            Action::Back => return self.back(),
            Action::ZoomIn => self.scale_range(0.5, None, state),
            Action::ZoomOut => self.scale_range(2.0, None, state),
            Action::PanLeft => self.pan(-PAN, state),
            Action::PanRight => self.pan(PAN, state),
            Action::ResetView => self.reset(),
            Action::ChartCursor => {
                self.cursor = if self.cursor.is_some() {
                    None
                } else {
                    Some(self.cursor_start(state))
                }
            }
            Action::LogScale => self.toggle_log(state),
            Action::Smooth => self.smoothing = (self.smoothing + 1) % SMOOTHING.len(),
            Action::LogUp => {
                self.log_end = None;
                self.log_back =
                    (self.log_back + self.log_page()).min(state.log.len().saturating_sub(1))
            }
            Action::LogDown => {
                self.log_end = None;
                self.log_back = self.log_back.saturating_sub(self.log_page());
            }
            _ => return false,
        }
        true
    }

    /// Lines of the log that a key scrolls: all that are shown but one, which stays for the eye.
    fn log_page(&self) -> usize {
        self.log_rows.saturating_sub(1).max(1)
    }

    /// Shows only charts whose name contains `filter`; empty shows all.
    pub fn set_filter(&mut self, filter: &str) {
        if self.filter != filter {
            self.filter = filter.into();
            self.selected = 0;
        }
    }

    /// The step under the cursor.
    pub fn cursor(&self) -> Option<u64> {
        self.cursor
    }

    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// A mouse event over the dashboard: a click selects the chart and reads it, a drag moves the cursor, the wheel zooms
    /// around the pointer, the right button takes the cursor away. False when nothing came of it.
    pub fn mouse(&mut self, event: MouseEvent, state: &RunState) -> bool {
        let Some(shown) = self.shown_at(event.column, event.row) else {
            return false;
        };
        let step = shown.plot.step_at(event.column);
        match event.kind {
            MouseEventKind::Down(MouseButton::Left) => {
                self.select(shown.chart);
                self.cursor = step.or(self.cursor);
            }
            MouseEventKind::Drag(MouseButton::Left) if step.is_some() => self.cursor = step,
            MouseEventKind::Down(MouseButton::Right) => self.cursor = None,
            MouseEventKind::ScrollUp => self.scale_range(0.5, step, state),
            MouseEventKind::ScrollDown => self.scale_range(2.0, step, state),
            _ => return false,
        }
        true
    }

    fn shown_at(&self, x: u16, y: u16) -> Option<Shown> {
        self.shown
            .iter()
            .find(|s| s.outline.contains((x, y).into()))
            .copied()
    }

    fn select(&mut self, chart: usize) {
        self.selected = chart;
        self.selecting = true;
    }

    /// The nearest chart in a direction, by the centres of the last frame.
    fn select_towards(&mut self, dx: i32, dy: i32) {
        self.selecting = true;
        let centre = |r: Rect| {
            (
                i32::from(r.x) * 2 + i32::from(r.width),
                (i32::from(r.y) * 2 + i32::from(r.height)) * 2,
            )
        };
        let Some(here) = self
            .shown
            .iter()
            .find(|s| s.chart == self.selected)
            .map(|s| centre(s.outline))
        else {
            return;
        };
        let distance = |s: &&Shown| {
            let (x, y) = centre(s.outline);
            let (along, aside) = (
                (x - here.0) * dx + (y - here.1) * dy,
                (x - here.0) * dy + (y - here.1) * dx,
            );
            (along > 0).then_some(along + 2 * aside.abs())
        };
        let nearest = self
            .shown
            .iter()
            .filter(|s| distance(s).is_some())
            .min_by_key(distance);
        if let Some(shown) = nearest {
            self.selected = shown.chart;
        }
    }

    fn cursor_start(&self, state: &RunState) -> u64 {
        let (from, to) = self.range(state);
        (state.step as f64).clamp(from, to) as u64
    }

    /// One column of the selected chart, at least one step; the view follows.
    fn move_cursor(&mut self, columns: f64, state: &RunState) {
        let (from, to) = self.range(state);
        let plot = self
            .shown
            .iter()
            .find(|s| s.chart == self.selected)
            .or(self.shown.first());
        let width = plot.map_or(64.0, |s| f64::from(s.plot.area.width.max(1)));
        let by = ((to - from) / width).max(1.0) * columns;
        let at = self.cursor.unwrap_or_default() as f64;
        let (first, last) = whole_range(state);
        let moved = (at + by).round().clamp(first, last);
        self.cursor = Some(moved as u64);
        if moved < from || moved > to {
            self.pan(PAN * columns.signum(), state);
        }
    }

    /// Shows `factor` times the steps, around `pivot`, the cursor, or the newest step.
    fn scale_range(&mut self, factor: f64, pivot: Option<u64>, state: &RunState) {
        let (from, to) = self.range(state);
        let whole = whole_range(state);
        let span = ((to - from) * factor).max(MIN_SPAN);
        if span >= whole.1 - whole.0 {
            self.zoom = None;
            return;
        }
        let pivot = pivot
            .or(self.cursor)
            .map_or((state.step as f64).min(to), |step| step as f64);
        let pivot = pivot.clamp(from, to);
        let left = pivot - (pivot - from) / (to - from) * span;
        self.show(left, span, state);
    }

    fn pan(&mut self, share: f64, state: &RunState) {
        let (from, to) = self.range(state);
        if self.zoom.is_some() {
            self.show(from + (to - from) * share, to - from, state);
        }
    }

    /// Shows `span` steps from `left` on, kept inside the run; at its end the view follows.
    fn show(&mut self, left: f64, span: f64, state: &RunState) {
        let (first, end) = whole_range(state);
        let from = left.clamp(first, (end - span).max(first));
        let to = from + span;
        let follows = state.running() && to >= state.step as f64 && from <= state.step as f64;
        self.zoom = Some(Zoom { from, to, follows });
    }

    fn toggle_log(&mut self, state: &RunState) {
        if let Some(chart) = catalog::charts(state, &self.filter).get(self.selected)
            && !self.logarithmic.remove(&chart.id)
        {
            self.logarithmic.insert(chart.id.clone());
        }
    }

    fn reset(&mut self) {
        self.zoom = None;
        self.cursor = None;
        self.smoothing = USUAL_SMOOTHING;
        self.logarithmic.clear();
    }

    /// Leaves the innermost thing; false when there was nothing to leave.
    fn back(&mut self) -> bool {
        if self.cursor.take().is_some() {
            return true;
        }
        if self.full {
            self.full = false;
            return true;
        }
        if !self.filter.is_empty() {
            self.set_filter("");
            return true;
        }
        if self.zoom.take().is_some() {
            return true;
        }
        std::mem::take(&mut self.selecting)
    }
}
