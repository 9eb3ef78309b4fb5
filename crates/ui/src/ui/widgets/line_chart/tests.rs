//! Charts as pictures: every claim of the module is looked at.

use super::*;
use crate::run::state::MarkKind;

fn series(points: impl IntoIterator<Item = (u64, f64)>) -> Series {
    let mut series = Series::new();
    for (step, value) in points {
        series.push(step, value);
    }
    series
}

fn chart<'a>(series: &'a Series, look: Look, marks: &'a [&'a Mark]) -> LineChart<'a> {
    let line = Line {
        series,
        meaning: Meaning::Series,
        look,
    };
    LineChart {
        lines: vec![line],
        marks,
        from: 0.0,
        to: 100.0,
        scale: Scale::Linear,
        from_zero: false,
        unit: "",
        cursor: None,
        settled: None,
        held: None,
        steps: StepAxis::Shown,
        band: None,
    }
}

fn picture(chart: &LineChart, w: u16, h: u16, ascii: bool) -> (String, Plot) {
    let area = Rect::new(0, 0, w, h);
    let mut buffer = Buffer::empty(area);
    let mut theme = Theme::ansi();
    theme.ascii = ascii;
    let plot = chart.draw(&mut buffer, area, &theme);
    let row = |y| (0..w).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let rows: Vec<String> = (0..h).map(|y| row(y).trim_end().to_string()).collect();
    (rows.join("\n"), plot)
}

#[test]
fn a_falling_line_with_axes() {
    let s = series((0..=100).map(|i| (i, 4.0 - i as f64 * 0.03)));
    let (text, _) = picture(&chart(&s, Look::Line, &[]), 40, 12, false);
    insta::assert_snapshot!(text);
    let (text, _) = picture(&chart(&s, Look::Line, &[]), 40, 12, true);
    assert!(text.is_ascii(), "{text}");
}

/// The dots of a picture inside its axes, by rows.
fn plotted(text: &str) -> Vec<String> {
    let rows = text.lines().filter_map(|row| row.split_once(['┤', '│']));
    rows.map(|(_, dots)| dots.to_string()).collect()
}

/// The smoothed line went straight across steps without a loss.
#[test]
fn a_smoothed_line_ends_where_there_is_no_value() {
    let hole = |i: u64| if (30..70).contains(&i) { f64::NAN } else { 4.0 };
    let s = series((0..=100).map(|i| (i, hole(i))));
    let (text, plot) = picture(&chart(&s, Look::Smoothed(0.98), &[]), 60, 12, false);
    let middle = usize::from(plot.area.width) / 2;
    let empty = plotted(&text).iter().all(|row| {
        let cell = row.chars().nth(middle).unwrap_or(' ');
        !('\u{2801}'..='\u{28ff}').contains(&cell)
    });
    assert!(empty, "{text}");
}

/// Zeros of a warm-up lay on the lowest row and read as its value.
#[test]
fn a_log_scale_draws_no_zeros() {
    let s = series((0..=100).map(|i| (i, if i < 50 { 0.0 } else { 1e-4 * i as f64 })));
    for look in [Look::Line, Look::Smoothed(0.98), Look::Points] {
        let mut chart = chart(&s, look, &[]);
        chart.scale = Scale::Log;
        let (text, plot) = picture(&chart, 60, 12, false);
        let left = usize::from(plot.area.width) / 3;
        for row in plotted(&text) {
            let row: String = row.chars().take(left).collect();
            assert!(row.trim().is_empty(), "{look:?}\n{text}");
        }
    }
}

/// The labels of a picture's value axis, the topmost first.
fn value_labels(text: &str) -> Vec<String> {
    let labels = text.lines().filter_map(|row| row.split_once('┤'));
    labels.map(|(label, _)| label.trim().to_string()).collect()
}

/// Half a number is another number: `7e-3` is no label of 0.0075.
#[test]
fn value_labels_are_true_and_differ() {
    let s = series((0..=100).map(|i| (i, 0.00017 * i as f64)));
    let mut ratio = chart(&s, Look::Line, &[]);
    ratio.from_zero = true;
    let (text, _) = picture(&ratio, 100, 40, false);
    assert_eq!(
        value_labels(&text),
        ["0.015", "0.010", "0.005", "0"],
        "{text}"
    );

    for (low, high, height) in [
        (0.0, 0.0095, 12),
        (0.0, 0.0095, 5),
        (-0.0095, 0.0, 12),
        (-0.0175, -0.012, 30),
        (0.0, 1.2e-4, 30),
        (3e-4, 3.002e-4, 30),
        (4.133, 4.1339, 30),
        (12.34, 12.345, 30),
        (12_340.0, 12_345.0, 30),
        (123_400.0, 123_420.0, 30),
        (-1.234e-3, 1.234e-3, 9),
    ] {
        let s = series((0..=100).map(|i| (i, low + (high - low) * i as f64 / 100.0)));
        for scale in [Scale::Linear, Scale::Log] {
            let mut chart = chart(&s, Look::Line, &[]);
            chart.scale = scale;
            let (text, plot) = picture(&chart, 60, height, false);
            let labels = value_labels(&text);
            let Some(axis) = plot.axis else { continue };
            assert!(labels.len() > 1, "{text}");
            // Where the label stands is what it says, within the height of a row.
            let row = |label: &String| {
                text.lines()
                    .position(|row| row.trim().starts_with(&format!("{label}┤")))
            };
            for label in &labels {
                let (digits, unit) = match label.strip_suffix('k') {
                    Some(digits) => (digits, 1e3),
                    None => (label.as_str(), 1.0),
                };
                let value = digits.parse::<f64>().unwrap() * unit;
                let place = (1.0 - axis.place(value)) * f64::from(plot.area.height);
                let at = row(label).unwrap() as f64 + 0.5;
                assert!(
                    (place - at).abs() <= 1.0,
                    "{label} at {at}, not {place}\n{text}"
                );
            }
            let different: std::collections::BTreeSet<&String> = labels.iter().collect();
            assert_eq!(different.len(), labels.len(), "{text}");
        }
    }
}

/// An axis that is outgrown gets room for more, but there is no more than all.
#[test]
fn a_share_has_no_room_above_the_whole() {
    let s = series((0..=100).map(|i| (i, 0.0068 * i as f64)));
    let mut chart = chart(&s, Look::Line, &[]);
    (chart.from_zero, chart.unit) = (true, "share");
    chart.held = Some(Axis::of_unit("share", 0.0, 0.05, 4, Scale::Linear));
    let (text, _) = picture(&chart, 40, 8, false);
    assert!(text.contains("80%") && !text.contains("120%"), "{text}");
}

#[test]
fn nothing_but_zeros_lies_on_the_floor() {
    let s = series((0..=100).map(|i| (i, 0.0)));
    let mut chart = chart(&s, Look::Line, &[]);
    chart.from_zero = true;
    let (text, plot) = picture(&chart, 40, 8, false);
    let low = plot.axis.map(|axis| axis.low);
    assert_eq!(low, Some(0.0), "{text}");
}

#[test]
fn one_spike_among_thousands_is_drawn() {
    let s = series((0..100_000).map(|i| {
        (
            i,
            if i == 77_777 {
                9.0
            } else {
                1.0 + (i % 3) as f64 * 0.1
            },
        )
    }));
    let mut c = chart(&s, Look::Smoothed(0.95), &[]);
    c.to = 100_000.0;
    let (text, plot) = picture(&c, 60, 10, false);
    let x = usize::from(plot.column_of(77_777).unwrap());
    let marked = text.lines().next().and_then(|row| row.chars().nth(x));
    assert_eq!(marked, Some('▲'), "{text}");
}

#[test]
fn not_a_number_is_marked_and_breaks_the_line() {
    let values = (0..=100).map(|i| {
        (
            i,
            if (40..60).contains(&i) {
                f64::NAN
            } else {
                1.0 + i as f64 * 0.01
            },
        )
    });
    let s = series(values);
    let (text, plot) = picture(&chart(&s, Look::Line, &[]), 46, 8, false);
    let top: Vec<char> = text.lines().next().unwrap_or_default().chars().collect();
    let inside = usize::from(plot.column_of(50).unwrap());
    assert_eq!(top.get(inside), Some(&'×'), "{text}");
    let column = |x: usize| {
        text.lines()
            .skip(1)
            .take(5)
            .any(|row| row.chars().nth(x).is_some_and(|c| c > '⠀' && c <= '⣿'))
    };
    assert!(
        !column(inside) && column(inside - 10) && column(inside + 10),
        "{text}"
    );
}

#[test]
fn a_log_axis_shows_decades_and_leaves_zeros_out() {
    let s = series((0..=100).map(|i| {
        (
            i,
            if i % 10 == 0 {
                0.0
            } else {
                10f64.powf(-(i as f64) / 25.0)
            },
        )
    }));
    let mut c = chart(&s, Look::Line, &[]);
    c.scale = Scale::Log;
    let (text, _) = picture(&c, 40, 12, false);
    for label in ["1┤", "0.1┤", "0.01┤"] {
        assert!(text.contains(label), "{label} in\n{text}");
    }
}

#[test]
fn marks_and_the_cursor_stand_at_their_steps() {
    let s = series((0..=100).map(|i| (i, (i as f64 / 9.0).sin())));
    let mark = |step, kind| Mark {
        step,
        kind,
        text: String::new(),
    };
    let (kept, note) = (mark(25, MarkKind::Checkpoint), mark(75, MarkKind::Adjusted));
    let marks = [&kept, &note];
    let mut c = chart(&s, Look::Line, &marks);
    c.cursor = Some(50);
    let (text, plot) = picture(&c, 60, 14, false);
    let axis: Vec<char> = text.lines().nth(12).unwrap_or_default().chars().collect();
    let at = |step| axis[usize::from(plot.column_of(step).unwrap())];
    assert_eq!((at(25), at(75)), ('◆', '△'), "{text}");
    let cursor = usize::from(plot.column_of(50).unwrap());
    assert!(
        text.lines()
            .take(12)
            .filter(|row| row.chars().nth(cursor) == Some('│'))
            .count()
            > 6,
        "{text}"
    );
}

#[test]
fn columns_and_steps_are_inverse() {
    let plot = Plot {
        area: Rect::new(7, 2, 50, 5),
        from: 100.0,
        to: 600.0,
        axis: None,
    };
    for x in 7..57 {
        let step = plot.step_at(x).unwrap();
        assert_eq!(plot.column_of(step), Some(x));
    }
    assert_eq!((plot.step_at(6), plot.step_at(57)), (None, None));
    assert_eq!((plot.column_of(99), plot.column_of(601)), (None, None));
    assert_eq!(
        plot.column_of(600),
        Some(56),
        "the last step lies on the edge"
    );
}

#[test]
fn a_held_axis_stays_until_it_is_outgrown() {
    let axis_of = |high: f64, held| {
        let s = series([(0, 1.0), (50, high), (100, 1.5)]);
        let mut c = chart(&s, Look::Line, &[]);
        c.held = held;
        picture(&c, 40, 10, false).1.axis
    };
    let first = axis_of(3.9, None);
    assert_eq!(axis_of(3.2, first), first, "smaller data stay on it");
    let grown = axis_of(4.6, first).unwrap();
    assert!(grown.high >= 5.5, "it grows with room to spare: {grown:?}");
    assert_ne!(
        axis_of(1.6, first),
        first,
        "data that fill too little of it get a new one"
    );
}

#[test]
fn the_newest_column_waits_until_its_steps_are_complete() {
    let s = series((0..=50).map(|i| (i, i as f64)));
    let mut c = chart(&s, Look::Line, &[]);
    c.to = 1_000.0;
    let open = picture(&c, 30, 6, false).0;
    c.settled = Some(50);
    assert_ne!(picture(&c, 30, 6, false).0, open);
    c.to = 50.0;
    let few_steps = picture(&c, 90, 6, false).0;
    c.settled = None;
    assert_eq!(
        picture(&c, 90, 6, false).0,
        few_steps,
        "every step has its column: none waits"
    );
}

/// The newest of sparse readings waited for the one after it, as its column had no later reading; the first of all was not
/// drawn at all.
#[test]
fn a_sparse_reading_waits_for_the_steps_of_its_column_only() {
    let readings = |newest: u64| series([(0, 1.0), (130, 2.0), (newest, 4.0)]);
    let drawn = |s: &Series, settled| {
        let mut c = chart(s, Look::Thin, &[]);
        (c.to, c.settled) = (1_000.0, settled);
        picture(&c, 30, 6, false)
    };
    // Two dot columns a cell, and the newest reading at the beginning of one of them.
    let plot = drawn(&readings(300), None).1;
    let steps = 1_000.0 / (2.0 * f64::from(plot.area.width));
    let newest = (12.0 * steps).ceil() as u64 + 1;
    let s = readings(newest);
    let whole = drawn(&s, None).0;
    assert_ne!(drawn(&s, Some(newest)).0, whole, "its column goes on");
    let complete = (13.0 * steps).ceil() as u64 + 1;
    assert_eq!(drawn(&s, Some(complete)).0, whole);
}

#[test]
fn odd_areas_and_empty_series_are_quiet() {
    let empty = Series::new();
    let s = series([(0, f64::NAN)]);
    for (w, h) in (0..50)
        .step_by(3)
        .flat_map(|w| (0..20).map(move |h| (w, h)))
    {
        for series in [&empty, &s] {
            picture(&chart(series, Look::Line, &[]), w, h, false);
            picture(&chart(series, Look::Smoothed(0.99), &[]), w, h, true);
            picture(&chart(series, Look::Joined, &[]), w, h, false);
        }
    }
}

#[test]
fn a_band_is_dotted_where_the_axis_reaches_it() {
    let s = series((0..=100).map(|i| (i, 1.0 + i as f64 * 0.01)));
    let mut chart = chart(&s, Look::Line, &[]);
    let dotted = |chart: &LineChart, dot: &str, ascii| {
        let (text, _) = picture(chart, 40, 12, ascii);
        text.lines()
            .filter(|row| row.matches(dot).count() > 10)
            .count()
    };
    assert_eq!(dotted(&chart, "┈", false), 0);
    let band = |low, high| {
        Some(Band {
            low,
            high,
            ..Band::default()
        })
    };
    chart.band = band(None, Some(1.5));
    assert_eq!(dotted(&chart, "┈", false), 1);
    chart.band = band(Some(1.1), Some(1.9));
    assert_eq!(dotted(&chart, "..", true), 2);
    chart.band = band(Some(0.1), Some(9.0));
    assert_eq!(dotted(&chart, "┈", false), 0, "out of sight");
}

#[test]
fn a_live_axis_stays_tight_and_moves_a_few_times_only() {
    // Half of the height is for the data, whatever the loss began at and however often it outgrew its axis.
    let loss = |step: u64| 1.7 + 2.4 * (-(step as f64) / 150.0).exp();
    let (mut held, mut moves) = (None::<Axis>, 0);
    for newest in (10..=2_000).step_by(10) {
        let s = series((0..=newest).map(|i| (i, loss(i))));
        let mut chart = chart(&s, Look::Line, &[]);
        (chart.to, chart.held) = (2_000.0, held);
        let (text, plot) = picture(&chart, 40, 9, false);
        let axis = plot.axis.unwrap();
        let filled = axis.place(loss(0)) - axis.place(loss(newest));
        assert!(newest < 50 || filled > 0.45, "{newest}: {filled}\n{text}");
        moves += usize::from(held != plot.axis);
        held = plot.axis;
    }
    assert!(moves <= 8, "{moves}");
}
