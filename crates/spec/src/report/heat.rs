//! Metrics by block over steps: a heat map, the first block at the top, darker for more. One shape for each shade, so that a deep
//! model's picture stays small.

use super::shapes::{Anchor, Drawing, Shape};
use crate::base::human;
use crate::run::RunState;
use crate::run::layers::{DECADES, LayerMap};
use crate::wire::MetricInfo;

const WIDTH: f64 = 640.0;
/// Room for numbers at the left and below.
const LEFT: f64 = 40.0;
const BOTTOM: f64 = 24.0;
const TOP: f64 = 6.0;
const RIGHT: f64 = 10.0;
/// Height of a block's row, pixels, and of all rows at most.
const ROW: f64 = 18.0;
const MOST: f64 = 360.0;
/// Columns of a map; more looks share one.
const COLUMNS: usize = 64;
/// Shades, from the lowest to the highest value.
const SHADES: usize = 12;

/// At most so many maps.
const MAX_MAPS: usize = 8;

/// A metric by block.
pub(super) struct Layers<'a> {
    pub info: &'a MetricInfo,
    map: &'a LayerMap,
}

/// Those of a run with several looks at several blocks, in the order of their declaration.
pub(super) fn layers(state: &RunState) -> Vec<Layers<'_>> {
    let declared = state.metrics.iter().filter(|info| info.per_layer);
    let found = declared.filter_map(|info| {
        let map = state.layers.get(&info.id)?;
        let told = map.rows().len() > 1 && map.n_layer() > 1;
        told.then_some(Layers { info, map })
    });
    found.take(MAX_MAPS).collect()
}

impl Layers<'_> {
    /// The newest look: lowest and highest value with their blocks, and its step.
    pub fn newest(&self) -> Option<[String; 3]> {
        let row = self.map.last()?;
        let finite = || row.values.iter().enumerate().filter(|(_, x)| x.is_finite());
        let by_value = |a: &(usize, &f32), b: &(usize, &f32)| a.1.total_cmp(b.1);
        let said =
            |(block, x): (usize, &f32)| format!("{} (block {block})", human::number(f64::from(*x)));
        Some([
            said(finite().min_by(by_value)?),
            said(finite().max_by(by_value)?),
            human::grouped(row.step),
        ])
    }

    /// `0.01 to 0.53, by logarithm`; nothing where no value is finite.
    pub fn range(&self) -> Option<String> {
        let scale = self.scale()?;
        let log = if scale.log { ", by logarithm" } else { "" };
        let number = |x: f32| human::number(f64::from(x));
        Some(format!(
            "{} to {}{log}",
            number(scale.low),
            number(scale.high)
        ))
    }

    fn scale(&self) -> Option<Scale> {
        let all = || self.map.rows().iter().flat_map(|row| &row.values).copied();
        let finite = || all().filter(|x| x.is_finite());
        let (low, high) = (finite().reduce(f32::min)?, finite().reduce(f32::max)?);
        Some(Scale {
            low,
            high,
            log: low > 0.0 && high > DECADES * low,
        })
    }

    /// The picture; nothing where no value is finite.
    pub fn drawing(&self) -> Option<Drawing> {
        let scale = self.scale()?;
        let (rows, blocks) = (self.map.rows(), self.map.n_layer());
        let per_column = rows.len().div_ceil(COLUMNS);
        let columns: Vec<_> = rows.chunks(per_column).collect();
        let wide = (WIDTH - LEFT - RIGHT) / columns.len() as f64;
        let high = ROW.min(MOST / blocks as f64);
        let bottom = TOP + high * blocks as f64;
        let mut shades = vec![Vec::new(); SHADES];
        for (at, looks) in columns.iter().enumerate() {
            for block in 0..blocks {
                let values = looks
                    .iter()
                    .filter_map(|row| row.values.get(block).copied());
                let (sum, n) = values
                    .filter(|value| value.is_finite())
                    .fold((0.0, 0), |(sum, n), value| (sum + value, n + 1));
                if n == 0 {
                    continue;
                }
                let shade = (scale.share(sum / n as f32) * SHADES as f32) as usize;
                let (x, y) = (LEFT + wide * at as f64, TOP + high * block as f64);
                shades[shade.min(SHADES - 1)].push([x, y, wide, high]);
            }
        }
        let shades = shades.into_iter().enumerate();
        let mut shapes: Vec<Shape> = shades
            .filter(|(_, cells)| !cells.is_empty())
            .map(|(shade, cells)| Shape::Cells {
                opacity: (shade + 1) as f64 / SHADES as f64,
                cells,
            })
            .collect();
        let mut label = |at, anchor, words| shapes.push(Shape::Label { at, anchor, words });
        for block in [0, blocks - 1] {
            let y = TOP + high * (block as f64 + 0.5) + 4.0;
            label([LEFT - 6.0, y], Anchor::End, block.to_string());
        }
        if let (Some(first), Some(last)) = (rows.first(), rows.last()) {
            let y = bottom + BOTTOM - 6.0;
            label([LEFT, y], Anchor::Start, human::grouped(first.step));
            label([WIDTH - RIGHT, y], Anchor::End, human::grouped(last.step));
        }
        Some(Drawing {
            label: format!("{}, by block", self.info.title),
            width: WIDTH,
            height: bottom + BOTTOM,
            shapes,
        })
    }
}

struct Scale {
    low: f32,
    high: f32,
    log: bool,
}

impl Scale {
    /// From 0 to 1.
    fn share(&self, value: f32) -> f32 {
        let at = |x: f32| if self.log { x.ln() } else { x };
        let (low, high) = (at(self.low), at(self.high));
        match high > low {
            true => ((at(value) - low) / (high - low)).clamp(0.0, 1.0),
            false => 0.5,
        }
    }
}
