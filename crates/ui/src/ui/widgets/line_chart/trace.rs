//! The data as dots: series in dot columns, bands, lines and rings.

use super::{Line, LineChart, Look, Plot};
use crate::run::series::Bucket;
use crate::run::smooth;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::axis::Axis;
use crate::ui::widgets::dots::{ACROSS, DOWN, Dots};
use ratatui::buffer::Buffer;

/// Layers of dots.
const FAINT: u8 = 1;
const STRONG: u8 = 2;

/// A series in dot columns.
pub(super) struct Columns<'a> {
    pub line: Line<'a>,
    pub buckets: Vec<Option<Bucket>>,
    pub smooth: Vec<Option<f64>>,
}

impl LineChart<'_> {
    pub(super) fn columns<'a>(&self, line: Line<'a>, plot: Plot) -> Columns<'a> {
        let n = usize::from(plot.area.width) * ACROSS;
        // The last step of a run lies on the right end: a hair more than the range takes it in.
        let to = self.to + (self.to - self.from) * 1e-9;
        let decay = match line.look {
            Look::Smoothed(weight) => smooth::decay(line.series, (self.from, to), n, weight),
            _ => 0.0,
        };
        // The average is already warm at the left edge.
        let lead = smooth::lead(decay);
        let width = (to - self.from) / n as f64;
        let from = self.from - width * lead as f64;
        let mut buckets = line.series.columns(from, to, n + lead);
        let settles = matches!(line.look, Look::Line | Look::Thin | Look::Smoothed(_));
        if let Some(step) = self.settled.filter(|_| settles) {
            settle(&mut buckets, step, from, width);
        }
        let mut smooth = match line.look {
            Look::Smoothed(_) => smooth::smooth(&buckets, decay),
            _ => Vec::new(),
        };
        buckets.drain(..lead);
        smooth.drain(..lead.min(smooth.len()));
        Columns {
            line,
            buckets,
            smooth,
        }
    }

    pub(super) fn draw_data(
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
            let height = |value: f64| shown_row(axis, value, plot.area.height);
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
}

/// Takes the newest column away while steps of it are still to come: the run is at `step`, whatever was read last.
fn settle(buckets: &mut [Option<Bucket>], step: u64, from: f64, width: f64) {
    let Some(i) = buckets.iter().rposition(Option::is_some) else {
        return;
    };
    let complete = from + width * (i + 1) as f64 <= step as f64 + 1.0;
    if !complete && buckets[..i].iter().any(Option::is_some) {
        buckets[i] = None;
    }
}

/// The row of dots of a value, 0 at the top; values outside of the axis lie on its edge.
pub(super) fn dot_row(axis: &Axis, value: f64, rows: u16) -> usize {
    let last = usize::from(rows) * DOWN - 1;
    let share = axis.place(value);
    let share = if share.is_nan() {
        0.0
    } else {
        share.clamp(0.0, 1.0)
    };
    ((1.0 - share) * last as f64).round() as usize
}

/// The same, of what the axis has a place for: on a log scale zero and less have none.
fn shown_row(axis: &Axis, value: f64, rows: u16) -> Option<usize> {
    axis.place(value)
        .is_finite()
        .then(|| dot_row(axis, value, rows))
}

/// A line through the means; as a `band`, also from the smallest to the largest value of each column.
fn trace_band(
    dots: &mut Dots,
    buckets: &[Option<Bucket>],
    height: impl Fn(f64) -> Option<usize>,
    layer: u8,
    band: bool,
) {
    let mut before: Option<(usize, usize)> = None;
    for (x, bucket) in buckets.iter().enumerate() {
        let Some(bucket) = bucket else {
            continue;
        };
        let Some(row) = bucket.mean().and_then(&height) else {
            before = None;
            continue;
        };
        if band {
            let end = |value: f64| height(value).unwrap_or(row);
            dots.vertical(x, end(bucket.min), end(bucket.max), layer);
        }
        let here = (x, row);
        if let Some(before) = before {
            dots.line(before, here, layer);
        }
        before = Some(here);
    }
}

fn trace_line(
    dots: &mut Dots,
    values: &[Option<f64>],
    height: impl Fn(f64) -> Option<usize>,
    layer: u8,
) {
    let mut before: Option<(usize, usize)> = None;
    for (x, value) in values
        .iter()
        .enumerate()
        .filter_map(|(x, v)| v.map(|v| (x, v)))
    {
        let Some(row) = height(value) else {
            before = None;
            continue;
        };
        let here = (x, row);
        dots.line(before.unwrap_or(here), here, layer);
        before = Some(here);
    }
}

fn draw_points(buffer: &mut Buffer, plot: Plot, axis: &Axis, column: &Columns, theme: &Theme) {
    let style = theme.style(column.line.meaning);
    for (i, bucket) in column.buckets.iter().enumerate() {
        let mean = bucket.as_ref().and_then(Bucket::mean);
        if let Some(row) = mean.and_then(|mean| shown_row(axis, mean, plot.area.height)) {
            let x = plot.area.x + (i / ACROSS) as u16;
            let y = plot.area.y + (row / DOWN) as u16;
            buffer.set_stringn(x, y, theme.glyphs().ring, 1, style);
        }
    }
}
