//! Helpers for rules on per-block metrics.

use crate::base::stats::median;
use crate::diagnosis::view::View;

/// Consecutive probes that must agree.
const LOOKS: usize = 3;

/// Blocks for which `holds` was true of this metric in each of the newest probes, with their newest value. `None` while
/// there are too few.
pub(super) fn lasting(
    view: &View<'_>,
    id: &str,
    holds: impl Fn(&[f32], usize) -> bool,
) -> Vec<(usize, f64)> {
    let Some(map) = view.state.layers.get(id) else {
        return Vec::new();
    };
    let rows = map.rows();
    let newest = &rows[rows.len().saturating_sub(LOOKS)..];
    let young = view.state.step <= view.warmup().max(100);
    if young || newest.len() < LOOKS {
        return Vec::new();
    }
    let all = |block: usize| newest.iter().all(|row| holds(&row.values, block));
    let value = |block: usize| f64::from(newest[LOOKS - 1].values[block]);
    (0..map.n_layer())
        .filter(|b| all(*b))
        .map(|b| (b, value(b)))
        .collect()
}

/// The median of the other blocks that have a value.
pub(super) fn others(values: &[f32], block: usize) -> Option<f64> {
    let others = values.iter().enumerate();
    let others = others.filter(|(b, x)| *b != block && !x.is_nan());
    median(&others.map(|(_, x)| f64::from(*x)).collect::<Vec<_>>())
}

/// The step since which `holds` has been true of a block at each probe.
pub(super) fn since(
    view: &View<'_>,
    id: &str,
    block: usize,
    holds: impl Fn(&[f32], usize) -> bool,
) -> Option<u64> {
    let rows = view.state.layers.get(id)?.rows().iter().rev();
    let so = rows.take_while(|row| holds(&row.values, block));
    so.last().map(|row| row.step)
}
