//! A chart of metrics over steps: lines of dots (smallest to largest value of each dot column, so that no spike hides),
//! points, axes with round numbers, marks, a cursor. Knows series and styles; which metric is shown how is the pane's.

use super::axis::{self, Axis, Scale};
use super::dots::{ACROSS, DOWN, Dots};
use crate::base::stats::Ema;
use crate::run::series::{Bucket, Series};
use crate::run::state::{Mark, MarkKind};
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
    /// A faint line through every reading, and a strong one through their moving average; the weight of the past decays by
    /// e in this share of the width.
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
    /// Values are bytes: labels count in binary units.
    pub bytes: bool,
    pub cursor: Option<u64>,
    /// The newest dot column is left out until its steps are complete: it would change with each of them.
    pub settled: bool,
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

/// Rows from which on a chart gets a step axis, and a line along it.
const ROWS_FOR_STEPS: u16 = 4;
const ROWS_FOR_AXIS_LINE: u16 = 9;
/// Columns from which on values get labels.
const COLUMNS_FOR_LABELS: u16 = 20;
/// Columns of value labels.
const LABEL_WIDTH: u16 = 5;
/// Layers of dots.
const FAINT: u8 = 1;
const STRONG: u8 = 2;
/// A value further above the bulk than this many times the bulk's height is cut off and marked.
const OUTLIER: f64 = 3.0;
/// Share of the data's height that an outgrown axis is extended by.
const ROOM: f64 = 0.6;
/// Columns from which on there is a bulk to be far from.
const MANY: usize = 20;

/// The parts of a chart's area.
struct Parts {
    plot: Rect,
    /// Columns left of the plot for labels; the line is the last of them.
    labels: u16,
    axis_line: bool,
    step_labels: bool,
}

impl Parts {
    fn of(area: Rect, steps: StepAxis) -> Self {
        let labels = if area.width >= COLUMNS_FOR_LABELS {
            LABEL_WIDTH + 1
        } else {
            0
        };
        let shown = steps == StepAxis::Shown;
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

/// A series in dot columns.
struct Columns<'a> {
    line: Line<'a>,
    buckets: Vec<Option<Bucket>>,
    smooth: Vec<Option<f64>>,
}

impl LineChart<'_> {
    /// Draws the chart; returns where its dots lie.
    pub fn draw(&self, buffer: &mut Buffer, area: Rect, theme: &Theme) -> Plot {
        let area = area.intersection(buffer.area);
        let parts = Parts::of(area, self.steps);
        let mut plot = Plot {
            area: parts.plot,
            from: self.from,
            to: self.to,
            axis: None,
        };
        if self.lines.is_empty() || parts.plot.is_empty() || self.to <= self.from {
            return plot;
        }
        let columns: Vec<Columns> = self
            .lines
            .iter()
            .map(|line| self.columns(*line, plot))
            .collect();
        let axis = self.axis(&columns, parts.plot.height);
        plot.axis = axis;
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

    fn columns<'a>(&self, line: Line<'a>, plot: Plot) -> Columns<'a> {
        let n = usize::from(plot.area.width) * ACROSS;
        // The last step of a run lies on the right end: a hair more than the range takes it in.
        let to = self.to + (self.to - self.from) * 1e-9;
        let tau = match line.look {
            Look::Smoothed(share) => share * n as f64,
            _ => 0.0,
        };
        // The average is already warm at the left edge: it starts four decay times before it.
        let lead = (tau * 4.0).ceil() as usize;
        let width = (to - self.from) / n as f64;
        let from = self.from - width * lead as f64;
        let mut buckets = line.series.columns(from, to, n + lead);
        if self.settled && matches!(line.look, Look::Line | Look::Thin | Look::Smoothed(_)) {
            settle(&mut buckets, line.series, from, width);
        }
        if tau <= 0.0 {
            let smooth = Vec::new();
            return Columns {
                line,
                buckets,
                smooth,
            };
        }
        let mut ema = Ema::new((-1.0 / tau).exp());
        let mut smooth: Vec<Option<f64>> = buckets
            .iter()
            .map(|b| Some(ema.push(b.as_ref()?.mean()?)))
            .collect();
        buckets.drain(..lead);
        smooth.drain(..lead);
        Columns {
            line,
            buckets,
            smooth,
        }
    }

    /// The range of the values shown; `None` when there is nothing finite to show.
    fn axis(&self, columns: &[Columns], rows: u16) -> Option<Axis> {
        let usable = |x: &f64| self.scale == Scale::Linear || *x > 0.0;
        let mut lows = Vec::new();
        let mut highs = Vec::new();
        for bucket in columns
            .iter()
            .flat_map(|c| c.buckets.iter().flatten())
            .filter(|b| b.n > 0)
        {
            lows.extend(
                Some(bucket.min)
                    .filter(usable)
                    .or(Some(bucket.max).filter(usable)),
            );
            highs.extend(Some(bucket.max).filter(usable));
        }
        lows.sort_by(f64::total_cmp);
        highs.sort_by(f64::total_cmp);
        let (mut low, mut high) = (*lows.first()?, *highs.last()?);
        if self.scale == Scale::Linear {
            high = high.min(without_outliers(&highs, low)).max(low);
            low = if self.from_zero && low > 0.0 {
                0.0
            } else {
                low
            };
            // Nothing but zeros lies on the floor, not in the middle of a range around it.
            if self.from_zero && low == 0.0 && high == 0.0 {
                high = 1.0;
            }
        }
        if self
            .held
            .is_some_and(|axis| axis.suits(low, high, self.scale))
        {
            return self.held;
        }
        if let Some(axis) = self.held.filter(|_| self.scale == Scale::Linear) {
            // Outgrown: leave room for more of the same on that side.
            // Room below never crosses zero: no norm, rate or loss will go there.
            let room = (high - low) * ROOM;
            let room_below = if low >= 0.0 { room.min(low) } else { room };
            low -= if low < axis.low { room_below } else { 0.0 };
            high += if high > axis.high { room } else { 0.0 };
        }
        // Few rows get a tight range with few labels rather than a wide range.
        let intervals = usize::from(rows).clamp(4, 8);
        Some(match (self.bytes, self.scale) {
            (true, Scale::Linear) => Axis::of_bytes(low, high, intervals),
            _ => Axis::snapped(low, high, intervals, self.scale),
        })
    }

    fn draw_band(&self, buffer: &mut Buffer, plot: Plot, axis: &Axis, theme: &Theme) {
        let edges = self
            .band
            .iter()
            .flat_map(|band| [band.low, band.high])
            .flatten();
        let dot = if theme.ascii { "." } else { "┈" };
        for edge in edges.filter(|edge| (0.0..=1.0).contains(&axis.place(*edge))) {
            let row = dot_row(axis, edge, plot.area.height) / DOWN;
            for x in plot.area.x..plot.area.right() {
                buffer.set_stringn(
                    x,
                    plot.area.y + row as u16,
                    dot,
                    1,
                    theme.style(Meaning::Muted),
                );
            }
        }
    }

    fn draw_data(
        &self,
        buffer: &mut Buffer,
        plot: Plot,
        axis: &Axis,
        columns: &[Columns],
        theme: &Theme,
    ) {
        // One canvas a series: a cell has one colour, and later series lie on top.
        for column in columns {
            if column.line.look == Look::Points {
                draw_points(buffer, plot, axis, column, theme);
                continue;
            }
            let joined = column.line.look == Look::Joined;
            let mut dots = Dots::new(plot.area.width, plot.area.height);
            let height = |value: f64| dot_row(axis, value, plot.area.height);
            let strong = column.smooth.is_empty() && !joined;
            let band = column.line.look != Look::Thin;
            let layer = if strong { STRONG } else { FAINT };
            trace_band(&mut dots, &column.buckets, height, layer, band);
            trace_line(&mut dots, &column.smooth, height, STRONG);
            let meaning = column.line.meaning;
            dots.draw(buffer, plot.area, theme.ascii, |layer| match layer {
                FAINT => theme.style(Meaning::Track),
                _ => theme.style(meaning),
            });
            if joined {
                draw_points(buffer, plot, axis, column, theme);
            }
        }
    }

    fn draw_step_axis(&self, buffer: &mut Buffer, parts: &Parts, theme: &Theme) {
        let plot = parts.plot;
        let muted = theme.style(Meaning::Muted);
        let border = theme.style(Meaning::Border);
        let ticks = axis::step_ticks(self.from, self.to, usize::from(plot.width), 10);
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

    fn draw_marks(&self, buffer: &mut Buffer, parts: &Parts, plot: Plot, theme: &Theme) {
        // Marks sit on the axis line where there is one, else on the lowest row of the plot.
        let y = if parts.axis_line {
            plot.area.bottom()
        } else {
            plot.area.bottom() - 1
        };
        for mark in self.marks.iter().filter(|m| m.kind != MarkKind::Evaluated) {
            let Some(x) = plot.column_of(mark.step) else {
                continue;
            };
            if matches!(mark.kind, MarkKind::Adjusted | MarkKind::Resumed) && parts.axis_line {
                let line = if theme.ascii { ":" } else { "┊" };
                for row in plot.area.y..plot.area.bottom() {
                    buffer.set_stringn(x, row, line, 1, theme.style(Meaning::Border));
                }
            }
            let meaning = if mark.kind >= MarkKind::Skipped {
                Meaning::Warn
            } else {
                Meaning::Mark
            };
            buffer.set_stringn(
                x,
                y,
                mark_glyph(mark.kind, theme.ascii),
                1,
                theme.style(meaning),
            );
        }
    }

    fn draw_cursor(&self, buffer: &mut Buffer, plot: Plot, axis: Option<&Axis>, theme: &Theme) {
        let Some((step, x)) = self
            .cursor
            .and_then(|step| Some((step, plot.column_of(step)?)))
        else {
            return;
        };
        let accent = theme.style(Meaning::Accent);
        for y in plot.area.y..plot.area.bottom() {
            if buffer[(x, y)].symbol() == " " {
                buffer.set_stringn(x, y, if theme.ascii { "|" } else { "│" }, 1, accent);
            }
        }
        for line in &self.lines {
            let value = line.series.nearest(step).and_then(|b| b.mean());
            if let (Some(axis), Some(value)) = (axis, value) {
                let row = dot_row(axis, value, plot.area.height) / DOWN;
                buffer[(x, plot.area.y + row as u16)].set_style(theme.style(Meaning::Cursor));
            }
        }
    }
}

/// Takes the newest column away while steps of it are still to come.
fn settle(buckets: &mut [Option<Bucket>], series: &Series, from: f64, width: f64) {
    let Some((i, newest)) = buckets
        .iter()
        .enumerate()
        .rev()
        .find_map(|(i, b)| Some((i, b.as_ref()?.last)))
    else {
        return;
    };
    let complete = from + width * (i + 1) as f64 <= newest as f64 + 1.0;
    let live = series.last().is_some_and(|p| p.step == newest);
    if live && !complete && buckets[..i].iter().any(Option::is_some) {
        buckets[i] = None;
    }
}

/// The mark of a kind, one column wide.
pub fn mark_glyph(kind: MarkKind, ascii: bool) -> &'static str {
    match (kind, ascii) {
        (MarkKind::Evaluated, _) => "o",
        (MarkKind::Checkpoint, false) => "◆",
        (MarkKind::Checkpoint, true) => "c",
        (MarkKind::Resumed, false) => "↻",
        (MarkKind::Resumed, true) => "r",
        (MarkKind::Note, false) => "¶",
        (MarkKind::Note, true) => "n",
        (MarkKind::Adjusted, false) => "△",
        (MarkKind::Adjusted, true) => "a",
        (MarkKind::Skipped, false) => "×",
        (MarkKind::Skipped, true) => "x",
        (MarkKind::Rescued, false) => "↶",
        (MarkKind::Rescued, true) => "R",
        (MarkKind::Warning, _) => "!",
    }
}

/// The largest value that the axis must hold: far outliers, at most a fiftieth of the columns, do not squeeze the rest.
fn without_outliers(highs: &[f64], low: f64) -> f64 {
    if highs.len() < MANY {
        return f64::INFINITY;
    }
    let bulk = highs[highs.len().saturating_sub(2 + highs.len() / 50)];
    let next_below_outliers = bulk + (bulk - low) * OUTLIER;
    if highs[highs.len() - 1] > next_below_outliers {
        bulk + (bulk - low) * 0.25
    } else {
        f64::INFINITY
    }
}

/// The row of dots of a value, 0 at the top; values outside of the axis lie on its edge.
fn dot_row(axis: &Axis, value: f64, rows: u16) -> usize {
    let last = usize::from(rows) * DOWN - 1;
    let share = axis.place(value);
    let share = if share.is_nan() {
        0.0
    } else {
        share.clamp(0.0, 1.0)
    };
    ((1.0 - share) * last as f64).round() as usize
}

/// A line through the means; as a `band`, also from the smallest to the largest value of each column.
fn trace_band(
    dots: &mut Dots,
    buckets: &[Option<Bucket>],
    height: impl Fn(f64) -> usize,
    layer: u8,
    band: bool,
) {
    let mut before: Option<(usize, usize)> = None;
    for (x, bucket) in buckets.iter().enumerate() {
        let Some(bucket) = bucket else {
            continue;
        };
        let Some(mean) = bucket.mean() else {
            before = None;
            continue;
        };
        if band {
            dots.vertical(x, height(bucket.min), height(bucket.max), layer);
        }
        let here = (x, height(mean));
        if let Some(before) = before {
            dots.line(before, here, layer);
        }
        before = Some(here);
    }
}

fn trace_line(dots: &mut Dots, values: &[Option<f64>], height: impl Fn(f64) -> usize, layer: u8) {
    let mut before: Option<(usize, usize)> = None;
    for (x, value) in values
        .iter()
        .enumerate()
        .filter_map(|(x, v)| v.map(|v| (x, v)))
    {
        let here = (x, height(value));
        dots.line(before.unwrap_or(here), here, layer);
        before = Some(here);
    }
}

fn draw_points(buffer: &mut Buffer, plot: Plot, axis: &Axis, column: &Columns, theme: &Theme) {
    let style = theme.style(column.line.meaning);
    for (i, bucket) in column.buckets.iter().enumerate() {
        if let Some(value) = bucket.as_ref().and_then(Bucket::mean) {
            let x = plot.area.x + (i / ACROSS) as u16;
            let y = plot.area.y + (dot_row(axis, value, plot.area.height) / DOWN) as u16;
            buffer.set_stringn(x, y, theme.glyphs().ring, 1, style);
        }
    }
}

/// What a line cannot show: values that are no numbers, and values beyond the axis, each marked on the top row.
fn draw_oddities(
    buffer: &mut Buffer,
    plot: Plot,
    axis: Option<&Axis>,
    columns: &[Columns],
    theme: &Theme,
) {
    for column in columns {
        for (i, bucket) in column.buckets.iter().enumerate() {
            let Some(bucket) = bucket else {
                continue;
            };
            let x = plot.area.x + (i / ACROSS) as u16;
            if bucket.non_finite > 0 {
                let glyph = if theme.ascii { "X" } else { "×" };
                buffer.set_stringn(x, plot.area.y, glyph, 1, theme.style(Meaning::Bad));
            } else if axis.is_some_and(|axis| bucket.n > 0 && axis.place(bucket.max) > 1.0 + 1e-6) {
                buffer.set_stringn(
                    x,
                    plot.area.y,
                    theme.glyphs().up,
                    1,
                    theme.style(Meaning::Warn),
                );
            }
        }
    }
}

fn draw_value_axis(buffer: &mut Buffer, parts: &Parts, axis: &Axis, theme: &Theme) {
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

#[cfg(test)]
mod tests;
