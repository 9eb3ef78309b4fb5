//! The rows of the list: a metric, its newest value, whether it lies within its band, a small curve.

use super::map::level;
use crate::base::stats;
use crate::base::human;
use crate::metrics::id::{CLIPPED, UPDATE_RATIO};
use crate::run::RunState;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, word};
use crate::wire::{Band, ChartPlace, MetricInfo};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Columns of the name, and of the value.
const NAME: usize = 20;
const VALUE: usize = 8;

/// One metric that was measured.
pub struct Row<'a> {
    pub info: &'a MetricInfo,
    /// The newest; of blocks the one farthest up, or outside the band.
    pub value: f64,
    pub step: Option<u64>,
    pub judged: Judged,
    /// Means over blocks, oldest first, or the series in a few parts.
    curve: Vec<f64>,
}

/// What the band says of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    Inside,
    Outside,
    /// Outside, but the band does not hold before this step.
    Early(u64),
    /// There is no band.
    Free,
}

/// Points of a curve.
const POINTS: usize = 22;

/// The measured metrics that probes gave, and those of the dashboard that have a band, as declared.
pub fn rows(state: &RunState) -> Vec<Row<'_>> {
    let shown = state.metrics.iter().filter(|info| is_shown(info));
    shown.filter_map(|info| row(state, info)).collect()
}

/// Whether a metric is one of them, once it was measured.
pub fn is_shown(info: &MetricInfo) -> bool {
    info.place == ChartPlace::Health || info.band.is_some()
}

fn row<'a>(state: &RunState, info: &'a MetricInfo) -> Option<Row<'a>> {
    let holds = |x: f64| info.band.as_ref().map(|band| band.holds(x));
    // The bands hold after the warm-up and the first tenth of the run; before that nothing is called wrong.
    let tenth = state.head.as_ref().map_or(0, |head| head.max_steps / 10);
    let from = (state.warmup_steps() + 100).max(tenth) + 1;
    let judged = |value: f64| match holds(value) {
        None => Judged::Free,
        // A step that changes nothing is far from too large, and no good sign either.
        Some(true) if info.id == UPDATE_RATIO && value == 0.0 => Judged::Free,
        Some(true) => Judged::Inside,
        // The rule also knows the norm: without its warning the share says nothing, neither good nor bad.
        Some(false) if info.id == CLIPPED && !crate::diagnosis::warns(state, "clip_tight") => Judged::Free,
        Some(false) if state.step < from => Judged::Early(from),
        Some(false) => Judged::Outside,
    };
    if info.per_layer {
        let map = state.layers.get(&info.id)?;
        let last = map.last()?;
        let all = || last.values.iter().map(|x| f64::from(*x)).filter(|x| x.is_finite());
        let outside = all().find(|x| holds(*x) == Some(false));
        // Where no block has a number, that is the reading.
        let value = outside.or_else(|| all().reduce(f64::max)).unwrap_or(f64::NAN);
        let curve = map.rows().iter().map(|row| of_finite(&row.values)).collect();
        return Some(Row {
            info,
            value,
            step: Some(last.step),
            judged: judged(value),
            curve: thinned(curve, POINTS),
        });
    }
    let series = state.series.get(&info.id)?;
    let (from, to) = series.steps()?;
    let parts = series.columns(from as f64, to as f64 + 1.0, POINTS);
    // A single clipped step is no share.
    let value = match info.id == CLIPPED {
        true => series_mean(series),
        false => series.last()?.value,
    };
    Some(Row {
        info,
        value,
        step: Some(to),
        judged: judged(value),
        curve: parts.into_iter().flatten().filter_map(|b| b.mean()).collect(),
    })
}

/// Of the newest readings.
fn series_mean(series: &crate::run::Series) -> f64 {
    const NEWEST: usize = 300;
    let values: Vec<f64> = series.recent().rev().take(NEWEST).map(|p| p.value).collect();
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// NaN where no block has a number.
fn of_finite(values: &[f32]) -> f64 {
    let finite = values.iter().filter(|x| x.is_finite());
    stats::mean(finite.map(|x| f64::from(*x))).unwrap_or(f64::NAN)
}

/// At most so many points, means of their neighbours; NaN where one of them is.
fn thinned(values: Vec<f64>, most: usize) -> Vec<f64> {
    let step = values.len().div_ceil(most.max(1)).max(1);
    values.chunks(step).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect()
}

/// Columns of the band, and those of a curve below which there is none.
const BAND: usize = 10;
const LEAST_CURVE: usize = 4;

/// `▸ ✓ dead units       0.016 ≤ 0.5      ▁▁▂▂▃`; what does not fit is left out as a whole, the band before the curve.
pub fn draw(buffer: &mut Buffer, area: Rect, row: &Row, selected: bool, theme: &Theme) {
    let glyphs = theme.glyphs();
    let (mark, meaning) = match row.judged {
        Judged::Inside => (glyphs.ok, Meaning::Good),
        Judged::Outside => (glyphs.warn, Meaning::Warn),
        Judged::Early(_) => (glyphs.point, Meaning::Muted),
        Judged::Free => (" ", Meaning::Muted),
    };
    let mark = glyphs.beside_numbers(mark);
    let title = if row.info.label.is_empty() { &row.info.title } else { &row.info.label };
    let name = text::fit(title, NAME, theme.ascii);
    let value = number(row.info, row.value);
    let pointer = if selected { glyphs.pointer } else { " " };
    let title_meaning = if selected { Meaning::Accent } else { Meaning::Text };
    let mut words: Vec<Word> = vec![
        word(format!("{pointer} "), Meaning::Accent),
        word(format!("{mark} "), meaning),
        word(format!("{name:<NAME$}"), title_meaning),
        word(format!("{value:>VALUE$} "), meaning_of(row)),
    ];
    let room = usize::from(area.width).saturating_sub(3 + mark.chars().count() + NAME + VALUE + 1);
    let band = room >= 2 * (BAND + 1);
    if band {
        let range = row.info.band.as_ref().map_or(String::new(), |band| short(row.info, band, theme.ascii));
        let range = text::fit(&range, BAND, theme.ascii);
        words.push(word(format!("{range:<BAND$} "), Meaning::Muted));
    }
    let columns = room - if band { BAND + 1 } else { 0 };
    if columns >= LEAST_CURVE {
        words.extend(curve(row, columns, theme));
    }
    text::draw(buffer, area.x, area.y, area.width, &words, theme);
}

/// Whether a metric is shown in per cent, as the axis of its chart is.
pub fn is_percent(info: &MetricInfo) -> bool {
    info.unit == "share" && !info.per_layer
}

/// A value as the list shows it. A share outside its band has as many digits as tell it from the end of the band.
pub fn number(info: &MetricInfo, value: f64) -> String {
    if !is_percent(info) || !value.is_finite() {
        return human::number(value);
    }
    let shown = human::reading(value, "share");
    let band = info.band.filter(|band| !band.holds(value));
    let end = band.and_then(|band| band.high.filter(|high| value > *high).or(band.low));
    let alike = |end: &f64| human::reading(*end, "share") == shown;
    let Some(end) = end.filter(alike) else {
        return shown;
    };
    let differ = |digits: &usize| human::percent(value, *digits) != human::percent(end, *digits);
    human::percent(value, (1..4).find(differ).unwrap_or(4))
}

/// An end of a band.
pub fn end_of(info: &MetricInfo, end: f64) -> String {
    match is_percent(info) {
        true => human::reading(end, "share"),
        false => end.to_string(),
    }
}

/// `≤ 0.3`, `≥ 2`, `0.05–0.97`.
fn short(info: &MetricInfo, band: &Band, ascii: bool) -> String {
    let (most, least, to) = if ascii { ("<=", ">=", "-") } else { ("≤", "≥", "–") };
    let end = |end: f64| end_of(info, end);
    match (band.low.map(end), band.high.map(end)) {
        (Some(low), Some(high)) => format!("{low}{to}{high}"),
        (None, Some(high)) => format!("{most} {high}"),
        (Some(low), None) => format!("{least} {low}"),
        (None, None) => String::new(),
    }
}

fn meaning_of(row: &Row) -> Meaning {
    if row.judged == Judged::Outside { Meaning::Warn } else { Meaning::Text }
}

/// The curve in at most so many columns; what lies outside the band has a colour of its own.
fn curve(row: &Row, columns: usize, theme: &Theme) -> Vec<Word> {
    let values = thinned(row.curve.clone(), columns);
    let finite = || values.iter().copied().filter(|x| x.is_finite());
    let low = finite().fold(f64::INFINITY, f64::min);
    let high = finite().fold(f64::NEG_INFINITY, f64::max);
    let point = |x: &f64| {
        let outside = row.info.band.as_ref().is_some_and(|band| !band.holds(*x));
        // Before the bands hold, nothing is called wrong.
        let warned = outside && row.judged == Judged::Outside;
        let meaning = if warned { Meaning::Warn } else { Meaning::Series };
        word(level(*x, (low, high), theme).to_string(), meaning)
    };
    values.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Origin;

    /// One row in a list of so many columns.
    fn drawn(width: u16, curve: Vec<f64>) -> String {
        let info = MetricInfo {
            title: "Update to weight ratio".into(),
            label: "update ratio".into(),
            band: Some(Band { low: None, high: Some(0.3), origin: Origin::RuleOfThumb }),
            ..MetricInfo::default()
        };
        let row = Row { info: &info, value: 1.632, step: Some(9), judged: Judged::Outside, curve };
        let area = Rect::new(0, 0, width, 1);
        let mut buffer = Buffer::empty(area);
        draw(&mut buffer, area, &row, false, &Theme::ansi());
        (0..width).map(|x| buffer[(x, 0)].symbol().to_string()).collect::<String>().trim_end().to_string()
    }

    /// `1 % ≤ 1 %` stood beside a warning.
    #[test]
    fn a_share_outside_its_band_is_not_shown_as_its_end() {
        let shown = |value: f64, high: f64| {
            let info = MetricInfo {
                unit: "share".into(),
                band: Some(Band { low: None, high: Some(high), origin: Origin::RuleOfThumb }),
                ..MetricInfo::default()
            };
            (number(&info, value), end_of(&info, high))
        };
        let expected = |value: &str, end: &str| (value.to_string(), end.to_string());
        assert_eq!(shown(0.014, 0.01), expected("1.4 %", "1.0 %"));
        assert_eq!(shown(0.0104, 0.01), expected("1.04 %", "1.0 %"));
        assert_eq!(shown(0.304, 0.3), expected("30.4 %", "30 %"));
        assert_eq!(shown(0.296, 0.3), expected("30 %", "30 %"));
        assert_eq!(shown(f64::NAN, 0.3).0, "NaN");
    }

    /// The worst state of all looked like the best value.
    #[test]
    fn a_probe_without_a_number_is_no_zero() {
        assert!(of_finite(&[f32::NAN, f32::INFINITY]).is_nan());
        assert!(thinned(vec![1.0, f64::NAN], 1)[0].is_nan());
        let row = drawn(50, vec![1.0, 2.0, f64::NAN, f64::NAN, f64::NAN]);
        assert!(row.ends_with("▁█???"), "{row:?}");
    }

    /// At a learning rate of 0 the row said that all is well.
    #[test]
    fn updates_of_nothing_are_not_called_good() {
        let info = MetricInfo {
            id: UPDATE_RATIO.into(),
            place: ChartPlace::Health,
            band: Some(Band { low: None, high: Some(1e-2), origin: Origin::RuleOfThumb }),
            ..MetricInfo::default()
        };
        let mut state = RunState::new();
        state.metrics = vec![info];
        for (value, judged) in [(1e-3, Judged::Inside), (0.0, Judged::Free)] {
            let series = state.series.entry(UPDATE_RATIO.into()).or_default();
            series.push(1 + series.len(), value);
            assert_eq!(rows(&state)[0].judged, judged);
        }
    }

    #[test]
    fn a_row_has_a_curve_and_a_band_where_there_is_room_and_no_stump_of_either() {
        let rising = || (0..22).map(|x| 0.1 * f64::from(x)).collect::<Vec<f64>>();
        let narrow = drawn(34, rising());
        assert!(narrow.ends_with("1.632"), "{narrow:?}");
        let middle = drawn(50, rising());
        assert!(middle.contains("1.632 ▁") && middle.ends_with('█'), "{middle:?}");
        assert!(!middle.contains('≤') && !middle.contains('…'), "{middle:?}");
        assert!(middle.chars().count() <= 50);
        let wide = drawn(58, rising());
        assert!(wide.contains("1.632 ≤ 0.3") && wide.ends_with('█'), "{wide:?}");
        // A run that begins has few points, and none is made up.
        assert!(drawn(58, vec![0.1, 0.2]).ends_with("≤ 0.3      ▁█"));
    }
}
