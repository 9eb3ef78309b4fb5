//! What stands around the dots: the value axis on the left, the step axis below.

use super::trace::dot_row;
use super::{LineChart, StepAxis};
use crate::base::human;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::axis::{self, Axis};
use crate::ui::widgets::dots::DOWN;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::time::Duration;

/// Rows from which on a chart gets a step axis, and a line along it.
const ROWS_FOR_STEPS: u16 = 4;
const ROWS_FOR_AXIS_LINE: u16 = 9;
/// Columns from which on values get labels.
const COLUMNS_FOR_LABELS: u16 = 20;
/// Columns of value labels.
const LABEL_WIDTH: u16 = 5;

/// The parts of a chart's area.
pub(super) struct Parts {
    pub plot: Rect,
    /// Columns left of the plot for labels; the line is the last of them.
    pub labels: u16,
    pub axis_line: bool,
    pub step_labels: bool,
}

impl Parts {
    pub fn of(area: Rect, steps: StepAxis) -> Self {
        let labels = if area.width >= COLUMNS_FOR_LABELS {
            LABEL_WIDTH + 1
        } else {
            0
        };
        let shown = steps != StepAxis::Hidden;
        let step_labels = shown && area.height >= ROWS_FOR_STEPS;
        let axis_line = shown && area.height >= ROWS_FOR_AXIS_LINE;
        let plot = Rect {
            x: area.x + labels,
            width: area.width - labels,
            height: area.height - u16::from(step_labels) - u16::from(axis_line),
            ..area
        };
        Parts {
            plot,
            labels,
            axis_line,
            step_labels,
        }
    }
}

impl LineChart<'_> {
    pub(super) fn draw_step_axis(&self, buffer: &mut Buffer, parts: &Parts, theme: &Theme) {
        let plot = parts.plot;
        let muted = theme.style(Meaning::Muted);
        let border = theme.style(Meaning::Border);
        let ticks = match self.steps {
            // In whole seconds: fractions of one have no label.
            StepAxis::Millis => axis::step_ticks(
                self.from / 1e3,
                self.to / 1e3,
                usize::from(plot.width),
                10,
                |s| human::duration(Duration::from_secs_f64(s.max(0.0))),
            ),
            StepAxis::Shown | StepAxis::Hidden => axis::step_ticks(
                self.from,
                self.to,
                usize::from(plot.width),
                10,
                axis::step_label,
            ),
        };
        let line_y = plot.bottom();
        if parts.axis_line {
            let line = if theme.ascii { "-" } else { "─" };
            for x in plot.x..plot.right() {
                buffer.set_stringn(x, line_y, line, 1, border);
            }
            if parts.labels > 0 {
                buffer.set_stringn(
                    plot.x - 1,
                    line_y,
                    if theme.ascii { "+" } else { "└" },
                    1,
                    border,
                );
            }
        }
        let label_y = line_y + u16::from(parts.axis_line);
        let mut free = 0;
        for (column, label) in ticks {
            let x = plot.x + column as u16;
            if parts.axis_line {
                buffer.set_stringn(x, line_y, if theme.ascii { "+" } else { "┬" }, 1, border);
            }
            let start = (x.saturating_sub(label.len() as u16 / 2))
                .max(plot.x)
                .min(plot.right().saturating_sub(label.len() as u16));
            if parts.step_labels && start >= free && start >= plot.x {
                buffer.set_stringn(start, label_y, &label, label.len(), muted);
                free = start + label.len() as u16 + 1;
            }
        }
    }
}

pub(super) fn draw_value_axis(buffer: &mut Buffer, parts: &Parts, axis: &Axis, theme: &Theme) {
    if parts.labels == 0 {
        return;
    }
    let (plot, border) = (parts.plot, theme.style(Meaning::Border));
    let line_x = plot.x - 1;
    for y in plot.y..plot.bottom() {
        buffer.set_stringn(line_x, y, theme.glyphs().vertical, 1, border);
    }
    let row_of = |value: f64| dot_row(axis, value, plot.height) / DOWN;
    let ticks = axis.ticks();
    for (value, label) in labelled(&ticks, row_of) {
        let fits = label.len() <= usize::from(LABEL_WIDTH);
        let label = if fits { label } else { short_label(value) };
        if label.len() > usize::from(LABEL_WIDTH) {
            continue;
        }
        let y = plot.y + row_of(value) as u16;
        buffer.set_stringn(line_x, y, if theme.ascii { "+" } else { "┤" }, 1, border);
        let x = line_x - label.len() as u16;
        buffer.set_stringn(x, y, &label, label.len(), theme.style(Meaning::Muted));
    }
}

/// Every k-th tick, so that labels keep a row between them; the ends are among them when k allows it.
fn labelled(ticks: &[(f64, String)], row_of: impl Fn(f64) -> usize) -> Vec<(f64, String)> {
    let apart = |k: usize| {
        let rows: Vec<usize> = ticks.iter().step_by(k).map(|t| row_of(t.0)).collect();
        rows.windows(2).all(|pair| pair[0].abs_diff(pair[1]) >= 2)
    };
    let last = ticks.len().saturating_sub(1);
    let even = (1..=last)
        .filter(|k| last.is_multiple_of(*k))
        .find(|k| apart(*k));
    let stride = even
        .filter(|k| *k < last || last == 1)
        .or_else(|| (1..=last).find(|k| apart(*k)));
    ticks
        .iter()
        .step_by(stride.unwrap_or(last.max(1)))
        .cloned()
        .collect()
}

/// For values that no label of the usual kind fits: an exponent alone.
fn short_label(value: f64) -> String {
    format!("{value:.0e}")
}
