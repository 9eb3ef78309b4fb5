//! A chart of metrics over steps: lines of dots (smallest to largest value of each dot column, so that no spike hides),
//! points, axes with round numbers, marks, a cursor. Knows series and styles; which metric is shown how is the pane's.

mod frame;
mod marks;
mod range;
mod trace;

use self::frame::{Parts, draw_value_axis};
use self::marks::draw_oddities;
pub use self::marks::mark_glyph;
use self::trace::Columns;
use super::axis::{Axis, Scale};
use crate::run::series::Series;
use crate::run::state::Mark;
use crate::ui::theme::{Meaning, Theme};
use crate::wire::Band;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Look {
    /// A line through every reading.
    Line,
    /// A line through the mean of each dot column, for what is set and not measured.
    Thin,
    /// A faint line through every reading, and a strong one through their moving average of this weight ([`crate::run::smooth`]).
    Smoothed(f64),
    /// A ring for each reading.
    Points,
    /// Rings on a faint line.
    Joined,
}

/// What stands beneath a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StepAxis {
    /// Numbers of steps.
    #[default]
    Shown,
    /// The same, as milliseconds: `1:40`.
    Millis,
    /// Nothing: the pane says what the width means.
    Hidden,
}

/// One series of a chart.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    pub series: &'a Series,
    pub meaning: Meaning,
    pub look: Look,
}

/// A chart, borrowed from whoever owns the data.
#[derive(Debug)]
pub struct LineChart<'a> {
    pub lines: Vec<Line<'a>>,
    pub marks: &'a [&'a Mark],
    /// Steps shown, right end excluded.
    pub from: f64,
    pub to: f64,
    pub scale: Scale,
    /// The value axis begins at zero.
    pub from_zero: bool,
    /// The metric's unit: bytes are labelled in binary units, times in milliseconds or seconds.
    pub unit: &'a str,
    pub cursor: Option<u64>,
    /// The run's newest step: the dot column that it lies in is left out until its steps are complete, as it would change
    /// with each of them.
    pub settled: Option<u64>,
    /// The value axis of the last frame: it stays while it still suits the data, so that the picture stands still.
    pub held: Option<Axis>,
    pub steps: StepAxis,
    /// Where values are expected: its edges are dotted lines behind the data, where the axis reaches them.
    pub band: Option<Band>,
}

/// Where a chart was drawn: turns columns of the screen into steps.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Plot {
    /// The dots alone, without axes.
    pub area: Rect,
    pub from: f64,
    pub to: f64,
    /// The value axis; `None` when there was nothing to show.
    pub axis: Option<Axis>,
}

impl Plot {
    /// The step under a column of the screen; `None` outside of the plot.
    pub fn step_at(&self, x: u16) -> Option<u64> {
        let inside = x >= self.area.x && x < self.area.right();
        let share =
            (f64::from(x.wrapping_sub(self.area.x)) + 0.5) / f64::from(self.area.width.max(1));
        inside.then(|| (self.from + share * (self.to - self.from)).round().max(0.0) as u64)
    }

    /// The column of a step; `None` when it is not shown.
    pub fn column_of(&self, step: u64) -> Option<u16> {
        let share = (step as f64 - self.from) / (self.to - self.from);
        let shown = share >= 0.0 && (share < 1.0 || step as f64 <= self.to) && self.area.width > 0;
        shown.then(|| {
            self.area.x + ((share * f64::from(self.area.width)) as u16).min(self.area.width - 1)
        })
    }
}

impl LineChart<'_> {
    /// Draws the chart; returns where its dots lie.
    pub fn draw(&self, buffer: &mut Buffer, area: Rect, theme: &Theme) -> Plot {
        let area = area.intersection(buffer.area);
        let mut parts = Parts::of(area, self.steps);
        let mut plot = Plot {
            area: parts.plot,
            from: self.from,
            to: self.to,
            axis: None,
        };
        if self.lines.is_empty() || parts.plot.is_empty() || self.to <= self.from {
            return plot;
        }
        let columns_of = |plot: Plot| -> Vec<Columns> {
            let lines = self.lines.iter();
            lines.map(|line| self.columns(*line, plot)).collect()
        };
        let mut columns = columns_of(plot);
        let axis = self.axis(&columns, parts.plot.height);
        plot.axis = axis;
        if let Some(wider) = axis.and_then(|axis| parts.widened(area, self.steps, &axis)) {
            (plot.area, parts) = (wider.plot, wider);
            columns = columns_of(plot);
        }
        self.draw_step_axis(buffer, &parts, theme);
        if let Some(axis) = &axis {
            draw_value_axis(buffer, &parts, axis, theme);
        }
        self.draw_marks(buffer, &parts, plot, theme);
        if let Some(axis) = &axis {
            self.draw_band(buffer, plot, axis, theme);
            self.draw_data(buffer, plot, axis, &columns, theme);
        }
        draw_oddities(buffer, plot, axis.as_ref(), &columns, theme);
        self.draw_cursor(buffer, plot, axis.as_ref(), theme);
        plot
    }
}

#[cfg(test)]
mod tests;
