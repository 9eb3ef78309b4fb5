//! What stands around the dots: the value axis on the left, the step axis below.

use super::trace::dot_row;
use super::{LineChart, StepAxis};
use crate::base::human;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::axis::{self, Axis};
use crate::ui::widgets::dots::DOWN;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Rows from which on a chart gets a step axis, and a line along it.
const ROWS_FOR_STEPS: u16 = 4;
const ROWS_FOR_AXIS_LINE: u16 = 9;
/// Columns from which on values get labels.
const COLUMNS_FOR_LABELS: u16 = 20;
/// Columns of value labels, and the most that they get where no two true ones fit these.
const LABEL_WIDTH: u16 = 5;
const WIDEST_LABEL: u16 = 8;

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
        Parts::with_labels(area, steps, LABEL_WIDTH)
    }

    /// With so many columns for the labels of values.
    fn with_labels(area: Rect, steps: StepAxis, width: u16) -> Self {
        let labels = if area.width >= COLUMNS_FOR_LABELS {
            width + 1
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

    /// With columns for the labels of this axis, where it needs more; `None` where these do.
    pub fn widened(&self, area: Rect, steps: StepAxis, axis: &Axis) -> Option<Self> {
        let enough = |width: &u16| value_labels(axis, self.plot.height, *width).len() > 1;
        let width = (LABEL_WIDTH..=WIDEST_LABEL).find(enough)?;
        let wider = self.labels > 0 && width > LABEL_WIDTH;
        wider.then(|| Parts::with_labels(area, steps, width))
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
                human::seconds,
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
    for (value, label) in value_labels(axis, plot.height, parts.labels - 1) {
        let y = plot.y + row_of(axis, value, plot.height) as u16;
        buffer.set_stringn(line_x, y, if theme.ascii { "+" } else { "┤" }, 1, border);
        let x = line_x - label.len() as u16;
        buffer.set_stringn(x, y, &label, label.len(), theme.style(Meaning::Muted));
    }
}

/// The row of a value in a plot of so many, from its top.
fn row_of(axis: &Axis, value: f64, rows: u16) -> usize {
    dot_row(axis, value, rows) / DOWN
}

/// The ticks that get a label, and their labels: each the tick's value in full, and no two alike. Where the labels of the axis are too
/// wide, a coarser step has shorter ones.
fn value_labels(axis: &Axis, rows: u16, width: u16) -> Vec<(f64, String)> {
    let fits = |label: &str| label.len() <= usize::from(width);
    let row = |value: f64| row_of(axis, value, rows);
    let ticks = axis.ticks();
    let usual = labelled(&ticks, row);
    if usual.iter().all(|(_, label)| fits(label)) {
        return usual;
    }
    let apart = |ticks: &[(f64, String)]| {
        let rows: Vec<usize> = ticks.iter().map(|tick| row(tick.0)).collect();
        rows.windows(2).all(|pair| pair[0].abs_diff(pair[1]) >= 2)
    };
    let coarser = (1..ticks.len()).map(|k| axis.coarser(k));
    let coarser =
        coarser.filter(|ticks| ticks.iter().all(|(_, label)| fits(label)) && apart(ticks));
    // Of as many labels those of the finer step, which come first.
    let most = coarser
        .rev()
        .max_by_key(Vec::len)
        .filter(|ticks| ticks.len() > 1);
    most.unwrap_or_else(|| {
        let mut short = ticks;
        short.retain(|(_, label)| fits(label));
        labelled(&short, row)
    })
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
