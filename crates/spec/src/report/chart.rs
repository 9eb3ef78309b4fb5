//! A chart: a band from the lowest to the highest reading of each column, and a line through their means, smoothed where there are
//! many, as on the screen.

use super::sections::Curves;
use super::shapes::{Anchor, Drawing, Shape};
use crate::base::human;
use crate::run::{RunState, Series, smooth};
use crate::wire::id;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 200.0;
/// Room for numbers at the left and below.
const LEFT: f64 = 62.0;
const BOTTOM: f64 = 24.0;
const TOP: f64 = 10.0;
const RIGHT: f64 = 10.0;
/// Points of a line.
const COLUMNS: usize = 300;
/// Marks of an axis, about.
const TICKS: f64 = 5.0;

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

/// (first step, lowest, mean or average, highest) of each column that has a reading.
type Columns = Vec<[f64; 4]>;

/// The weight of the past in a smoothed line, and what the report says of it.
const WEIGHT: f64 = 0.95;
const SMOOTHED: &str = "EMA 0.95";
/// A curve of fewer readings is drawn through each of them.
const MANY: u64 = 100;

/// How the line is smoothed; `None` where no series is.
pub(super) fn legend(state: &RunState, curves: &Curves) -> Option<&'static str> {
    let many = |id: &str| {
        state
            .series
            .get(id)
            .is_some_and(|series| smooths(id, series))
    };
    curves
        .series
        .iter()
        .any(|(_, id)| many(id))
        .then_some(SMOOTHED)
}

/// What is set and not measured is drawn as it is.
fn smooths(id: &str, series: &Series) -> bool {
    id != id::LR && series.len() >= MANY
}

fn columns(state: &RunState, id: &str, steps: [f64; 2]) -> Columns {
    let Some(series) = state.series.get(id) else {
        return Vec::new();
    };
    let width = (steps[1] + 1.0 - steps[0]) / COLUMNS as f64;
    let range = (steps[0], steps[1] + 1.0);
    let buckets = series.columns(range.0, range.1, COLUMNS);
    let decay = match smooths(id, series) {
        true => smooth::decay(series, range, COLUMNS, WEIGHT),
        false => 0.0,
    };
    let line = smooth::smooth(&buckets, decay);
    let found = buckets.into_iter().zip(line).enumerate();
    let found = found.filter_map(|(at, (bucket, average))| {
        let bucket = bucket?;
        let step = steps[0] + width * at as f64;
        let average = average.filter(|average| average.is_finite())?;
        Some([step, bucket.min, average, bucket.max])
    });
    found.collect()
}

/// The chart; nothing where no series has two finite readings.
pub(super) fn drawing(state: &RunState, curves: &Curves) -> Option<Drawing> {
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
    let frame = Frame {
        steps,
        values: span(low, high),
    };
    let (mut shapes, frame) = (grid(&frame), &frame);
    for (series, line) in lines.iter().enumerate() {
        let along = |value: fn(&[f64; 4]) -> f64| {
            let points = line.iter().map(move |c| [frame.x(c[0]), frame.y(value(c))]);
            points.collect::<Vec<_>>()
        };
        let (upper, mut lower) = (along(|c| c[3]), along(|c| c[1]));
        lower.reverse();
        let points = [upper, lower].concat();
        shapes.push(Shape::Band { series, points });
        let points = along(|c| c[2]);
        shapes.push(Shape::Line { series, points });
    }
    Some(Drawing {
        label: curves.title.clone(),
        width: WIDTH,
        height: HEIGHT,
        shapes,
    })
}

/// The values of the frame: those of the series, and some room where they are all the same. Zeros lie on the floor: a norm or a share
/// has none below.
fn span(low: f64, high: f64) -> [f64; 2] {
    match high > low {
        true => [low, high],
        false if high == 0.0 => [0.0, 1.0],
        false => [low - high.abs() * 0.05, high + high.abs() * 0.05],
    }
}

fn grid(frame: &Frame) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (value, words) in ticks(frame.values) {
        let y = frame.y(value);
        shapes.push(Shape::Level {
            y,
            from: LEFT,
            to: WIDTH - RIGHT,
        });
        shapes.push(Shape::Label {
            at: [LEFT - 6.0, y + 4.0],
            anchor: Anchor::End,
            words,
        });
    }
    for (step, words) in ticks(frame.steps) {
        let x = frame.x(step);
        // A number at the edge stays inside.
        let anchor = match x {
            x if x > WIDTH - RIGHT - 20.0 => Anchor::End,
            x if x < LEFT + 12.0 => Anchor::Start,
            _ => Anchor::Middle,
        };
        let at = [x, HEIGHT - 6.0];
        shapes.push(Shape::Label { at, anchor, words });
    }
    shapes
}

/// Round numbers inside a span, 1, 2 or 5 times a power of ten apart, with as many digits as tell them apart.
fn ticks([low, high]: [f64; 2]) -> Vec<(f64, String)> {
    let rough = (high - low) / TICKS;
    if !(rough.is_finite() && rough > 0.0) {
        return vec![(low, number(low, 1.0))];
    }
    let power = 10f64.powf(rough.log10().floor());
    let apart = [1.0, 2.0, 5.0, 10.0].map(|n| n * power);
    let apart = apart
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(10.0 * power);
    // A span's ends may be round themselves.
    let (first, last) = ((low / apart - 1e-9).ceil(), (high / apart + 1e-9).floor());
    let count = (last - first).clamp(0.0, 2.0 * TICKS) as usize;
    let at = |n: usize| (first + n as f64) * apart;
    (0..=count).map(|n| (at(n), number(at(n), apart))).collect()
}

/// A tick's number: short where it is large, and no more digits than its step has.
fn number(value: f64, apart: f64) -> String {
    let digits = (-apart.log10().floor()).max(0.0) as usize;
    match value.abs() {
        a if a < 1e-9 * apart => "0".into(),
        a if a >= 1e4 => human::short(value),
        a if a >= 1e3 && value > 0.0 => human::grouped(value.round() as u64),
        _ if digits > 4 => format!("{value:.1e}"),
        _ => format!("{value:.digits$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{span, ticks};

    fn labels(low: f64, high: f64) -> Vec<String> {
        ticks([low, high])
            .into_iter()
            .map(|(_, label)| label)
            .collect()
    }

    /// Shares of 0 stood on an axis from -0.04 to 0.04.
    #[test]
    fn equal_values_get_room_on_their_own_side_of_zero() {
        assert_eq!(span(0.0, 0.0), [0.0, 1.0]);
        let [low, high] = span(0.02, 0.02);
        assert!(0.0 < low && low < 0.02 && 0.02 < high && high < 0.03);
        assert!(span(-2.0, -2.0)[1] < 0.0);
        assert_eq!(span(1.0, 3.0), [1.0, 3.0]);
    }

    #[test]
    fn ticks_are_round_numbers_inside_the_span() {
        assert_eq!(labels(1.016, 5.924), ["2", "3", "4", "5"]);
        assert_eq!(labels(1.0, 900.0), ["200", "400", "600", "800"]);
        assert_eq!(labels(0.0, 1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(
            labels(3.3e-5, 2e-3),
            ["0.0005", "0.0010", "0.0015", "0.0020"]
        );
        assert_eq!(labels(0.0, 18_000.0), ["0", "5,000", "10k", "15k"]);
        assert_eq!(labels(7.0, 7.0).len(), 1, "a span of nothing has one mark");
    }
}
