//! A metric by block over time: a row for each block, a column for each look, the newest value and its bar at the right. The
//! height of a mark says the value, so that colour is not needed to read it; what lies outside its band has another one.

use crate::base::stats;
use crate::base::human;
use crate::run::layers::{DECADES, LayerMap, LayerRow};
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{Word, word};
use crate::wire::MetricInfo;
use ratatui::layout::Rect;

/// Columns of a block's number, of the newest value, of its bar.
const LABEL: usize = 4;
const VALUE: usize = 9;
const BAR: usize = 10;


/// The lines of the picture: blocks from first to last, then what the marks mean.
pub fn lines(map: &LayerMap, info: &MetricInfo, area: Rect, theme: &Theme) -> Vec<Vec<Word>> {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let bar = if width >= 60 { BAR } else { 0 };
    let columns = width.saturating_sub(LABEL + VALUE + bar + 1).max(1);
    let rows = height.saturating_sub(2).max(1);
    let n_layer = map.n_layer();
    let group = n_layer.div_ceil(rows).max(1);
    let looks = columns_of(map.rows(), columns);
    let scale = Scale::of(&looks);
    let blocks = (0..n_layer).step_by(group).map(|from| {
        let to = (from + group).min(n_layer);
        let mean = |row: &LayerRow| mean(row.values[from..to].iter().copied());
        let mut words = vec![word(format!("{from:>3} "), Meaning::Muted)];
        let used = looks.len();
        for row in &looks {
            let value = mean(row);
            let outside = info.band.is_some_and(|band| value.is_finite() && !band.holds(value));
            let meaning = if outside { Meaning::Warn } else { Meaning::Series };
            push(&mut words, level(scale.at(value), scale.ends(), theme), meaning);
        }
        let newest = map.last().map_or(f64::NAN, mean);
        let gap = columns.saturating_sub(used);
        let text = format!("{:gap$}{:>VALUE$}", "", human::number(newest));
        let outside = info.band.is_some_and(|band| !band.holds(newest));
        words.push(word(text, if outside { Meaning::Warn } else { Meaning::Text }));
        if bar > 0 {
            words.push(word(profile(scale.share(newest), bar, theme), Meaning::Series));
        }
        words
    });
    let mut lines: Vec<Vec<Word>> = blocks.collect();
    lines.push(legend(map, &scale, theme));
    lines
}

/// Adds a mark to the last word if it means the same.
fn push(words: &mut Vec<Word>, mark: &str, meaning: Meaning) {
    match words.last_mut() {
        Some(last) if last.meaning == meaning => last.text.push_str(mark),
        _ => words.push(word(mark, meaning)),
    }
}

/// `block  step 10 to 4,000   ▁ 0.02  █ 0.97`
fn legend(map: &LayerMap, scale: &Scale, theme: &Theme) -> Vec<Word> {
    let levels = theme.glyphs().levels;
    let steps = match (map.rows().first(), map.last()) {
        (Some(a), Some(b)) => {
            format!("steps {} to {}", human::grouped(a.step), human::grouped(b.step))
        }
        _ => String::new(),
    };
    let (low, high) = (human::number(scale.low), human::number(scale.high));
    let kind = if scale.log { ", log" } else { "" };
    let text = format!("    {steps}  {} {low}  {} {high}{kind}", levels[0], levels[7]);
    vec![word(text, Meaning::Muted)]
}

/// At most `columns` of the looks, the newest among them; where there are more, each the mean of some.
fn columns_of(rows: &[LayerRow], columns: usize) -> Vec<LayerRow> {
    let size = rows.len().div_ceil(columns).max(1);
    let part = |part: &[LayerRow]| {
        let mut first = part[0].clone();
        for (layer, value) in first.values.iter_mut().enumerate() {
            *value = mean(part.iter().map(|row| row.values[layer])) as f32;
        }
        first
    };
    rows.chunks(size).map(part).collect()
}

/// Of those that are finite; NaN of none.
pub(super) fn mean(values: impl Iterator<Item = f32>) -> f64 {
    let finite = values.filter(|x| x.is_finite()).map(f64::from);
    stats::mean(finite).unwrap_or(f64::NAN)
}

/// What the lowest and the highest mark stand for.
struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    fn of(looks: &[LayerRow]) -> Scale {
        let all = || looks.iter().flat_map(|row| &row.values).filter(|x| x.is_finite());
        let low = f64::from(all().copied().fold(f32::INFINITY, f32::min));
        let high = f64::from(all().copied().fold(f32::NEG_INFINITY, f32::max));
        Scale {
            low,
            high,
            log: low > 0.0 && high > f64::from(DECADES) * low,
        }
    }

    fn at(&self, value: f64) -> f64 {
        if self.log { value.ln() } else { value }
    }

    fn ends(&self) -> (f64, f64) {
        (self.at(self.low), self.at(self.high))
    }

    fn share(&self, value: f64) -> f64 {
        let (low, high) = self.ends();
        if high > low { ((self.at(value) - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 }
    }
}

/// The mark of a value between the ends; what is not finite has a question mark.
pub fn level(value: f64, (low, high): (f64, f64), theme: &Theme) -> &'static str {
    let levels = theme.glyphs().levels;
    if !value.is_finite() {
        return "?";
    }
    let share = if high > low { (value - low) / (high - low) } else { 0.0 };
    levels[((share * 8.0) as usize).min(7)]
}

fn profile(share: f64, width: usize, theme: &Theme) -> String {
    let n = (share * (width - 1) as f64).round() as usize;
    format!(" {}", theme.glyphs().bar.repeat(n))
}
