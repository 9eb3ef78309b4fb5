//! A chart as inline SVG: a band from the lowest to the highest reading of each column, and the mean as a line. Colours are
//! classes of the page.

use super::sections::Curves;
use crate::base::human;
use crate::run::RunState;
use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 240.0;
/// Room for numbers at the left and below.
const LEFT: f64 = 62.0;
const BOTTOM: f64 = 24.0;
const TOP: f64 = 10.0;
const RIGHT: f64 = 10.0;
/// Points of a line.
const COLUMNS: usize = 300;
const TICKS: usize = 4;

struct Frame {
    steps: [f64; 2],
    values: [f64; 2],
}

impl Frame {
    fn x(&self, step: f64) -> f64 {
        let span = (self.steps[1] - self.steps[0]).max(1.0);
        LEFT + (step - self.steps[0]) / span * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let span = self.values[1] - self.values[0];
        HEIGHT - BOTTOM - (value - self.values[0]) / span * (HEIGHT - TOP - BOTTOM)
    }
}

/// (first step, lowest, mean, highest) of each column that has a reading.
type Columns = Vec<[f64; 4]>;

fn columns(state: &RunState, id: &str, steps: [f64; 2]) -> Columns {
    let Some(series) = state.series.get(id) else {
        return Vec::new();
    };
    let width = (steps[1] + 1.0 - steps[0]) / COLUMNS as f64;
    let found = series
        .columns(steps[0], steps[1] + 1.0, COLUMNS)
        .into_iter()
        .enumerate();
    let found = found.filter_map(|(at, bucket)| {
        let bucket = bucket?;
        let step = steps[0] + width * at as f64;
        Some([step, bucket.min, bucket.mean()?, bucket.max])
    });
    found.collect()
}

/// The chart; nothing where no series has two finite readings.
pub(super) fn svg(state: &RunState, curves: &Curves) -> Option<String> {
    let spans = curves
        .series
        .iter()
        .filter_map(|(_, id)| state.series.get(id)?.steps());
    let (from, to) = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    let steps = [from as f64, to as f64];
    let lines: Vec<Columns> = curves
        .series
        .iter()
        .map(|(_, id)| columns(state, id, steps))
        .collect();
    let all = || lines.iter().flatten();
    let (low, high) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), c| {
        (low.min(c[1]), high.max(c[3]))
    });
    if !(low.is_finite() && high.is_finite()) {
        return None;
    }
    let pad = if high > low {
        0.0
    } else {
        high.abs().max(1.0) * 0.05
    };
    let frame = Frame {
        steps,
        values: [low - pad, high + pad],
    };
    let label = super::html::escape(&curves.title);
    let mut out =
        format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">\n");
    grid(&mut out, &frame);
    for (n, line) in lines.iter().enumerate() {
        let (mut upper, mut lower, mut mean) = (String::new(), String::new(), String::new());
        for [step, low, middle, high] in line {
            let x = frame.x(*step);
            let _ = write!(upper, "{x:.1},{:.1} ", frame.y(*high));
            lower.insert_str(0, &format!("{x:.1},{:.1} ", frame.y(*low)));
            let _ = write!(mean, "{x:.1},{:.1} ", frame.y(*middle));
        }
        let _ = writeln!(
            out,
            "<polygon class=\"band c{n}\" points=\"{}{}\"/>",
            upper,
            lower.trim_end()
        );
        let _ = writeln!(
            out,
            "<polyline class=\"line c{n}\" points=\"{}\"/>",
            mean.trim_end()
        );
    }
    out.push_str("</svg>");
    Some(out)
}

fn grid(out: &mut String, frame: &Frame) {
    let at = |span: [f64; 2], n: usize| span[0] + (span[1] - span[0]) * n as f64 / TICKS as f64;
    for n in 0..=TICKS {
        let value = at(frame.values, n);
        let y = frame.y(value);
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            number(value)
        );
        let step = at(frame.steps, n);
        let anchor = match n {
            0 => "start",
            TICKS => "end",
            _ => "middle",
        };
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            frame.x(step),
            HEIGHT - 6.0,
            human::grouped(step.max(0.0).round() as u64)
        );
    }
}

/// A tick's number: short where it is large, with its digits where it is small.
fn number(value: f64) -> String {
    match value.abs() {
        a if a >= 1e3 => human::short(value),
        _ => human::number(value),
    }
}
