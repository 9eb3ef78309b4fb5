//! The rows of the list: a metric, its newest value, whether it lies within its band, a small curve.

use super::map::level;
use crate::base::human;
use crate::run::RunState;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, word};
use crate::wire::{ChartPlace, MetricInfo};
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
    /// `None` without a band.
    pub inside: Option<bool>,
    /// Means over blocks, oldest first, or the series in a few parts.
    curve: Vec<f64>,
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
    let young = state.step <= (state.warmup_steps() + 100).max(tenth);
    let judged = |inside: Option<bool>| inside.map(|inside| inside || young);
    if info.per_layer {
        let map = state.layers.get(&info.id)?;
        let last = map.last()?;
        let all = || last.values.iter().map(|x| f64::from(*x)).filter(|x| x.is_finite());
        let outside = all().find(|x| holds(*x) == Some(false));
        let value = outside.or_else(|| all().reduce(f64::max))?;
        let curve = map.rows().iter().map(|row| mean(&row.values)).collect();
        return Some(Row {
            info,
            value,
            step: Some(last.step),
            inside: judged(holds(value)),
            curve: thinned(curve),
        });
    }
    let series = state.series.get(&info.id)?;
    let (from, to) = series.steps()?;
    let parts = series.columns(from as f64, to as f64 + 1.0, POINTS);
    // A single clipped step is no share.
    let value = match info.id == crate::metrics::id::CLIPPED {
        true => series_mean(series),
        false => series.last()?.value,
    };
    Some(Row {
        info,
        value,
        step: Some(to),
        inside: judged(holds(value)),
        curve: parts.into_iter().flatten().filter_map(|b| b.mean()).collect(),
    })
}

/// Of the newest readings.
fn series_mean(series: &crate::run::Series) -> f64 {
    const NEWEST: usize = 300;
    let values: Vec<f64> = series.recent().rev().take(NEWEST).map(|p| p.value).collect();
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn mean(values: &[f32]) -> f64 {
    let finite: Vec<f64> =
        values.iter().filter(|x| x.is_finite()).map(|x| f64::from(*x)).collect();
    finite.iter().sum::<f64>() / finite.len().max(1) as f64
}

fn thinned(values: Vec<f64>) -> Vec<f64> {
    let step = values.len().div_ceil(POINTS).max(1);
    values.chunks(step).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect()
}

/// `▸ ✓ dead units       0.016 ▁▁▂▂▃`
pub fn draw(buffer: &mut Buffer, area: Rect, row: &Row, selected: bool, theme: &Theme) {
    let glyphs = theme.glyphs();
    let (mark, meaning) = match row.inside {
        Some(true) => (glyphs.ok, Meaning::Good),
        Some(false) => (glyphs.warn, Meaning::Warn),
        None => (" ", Meaning::Muted),
    };
    let title = if row.info.label.is_empty() { &row.info.title } else { &row.info.label };
    let name = text::fit(title, NAME, theme.ascii);
    let value = human::number(row.value);
    let pointer = if selected { glyphs.pointer } else { " " };
    let title_meaning = if selected { Meaning::Accent } else { Meaning::Text };
    let words: Vec<Word> = vec![
        word(format!("{pointer} "), Meaning::Accent),
        word(format!("{mark} "), meaning),
        word(format!("{name:<NAME$}"), title_meaning),
        word(format!("{value:>VALUE$} "), meaning_of(row)),
        word(curve(&row.curve, theme), Meaning::Series),
    ];
    text::draw(buffer, area.x, area.y, area.width, &words, theme);
}

fn meaning_of(row: &Row) -> Meaning {
    if row.inside == Some(false) { Meaning::Warn } else { Meaning::Text }
}

fn curve(values: &[f64], theme: &Theme) -> String {
    let finite = || values.iter().copied().filter(|x| x.is_finite());
    let low = finite().fold(f64::INFINITY, f64::min);
    let high = finite().fold(f64::NEG_INFINITY, f64::max);
    values.iter().map(|x| level(*x, (low, high), theme)).collect()
}
