//! What a roll-back takes out of the fold, kept as long as it may come back: the undo of a rescue brings the curves back that
//! the rescue cut off.

use super::RunState;
use super::parts::Evaluation;
use crate::run::layers::LayerRow;
use crate::run::series::Point;

/// The newest points of each series, rows of each map and evaluations after a step.
#[derive(Debug, Clone, Default)]
pub(super) struct GivenUp {
    series: Vec<(String, Vec<Point>)>,
    layers: Vec<(String, Vec<LayerRow>)>,
    evaluations: Vec<Evaluation>,
}

impl GivenUp {
    /// What comes after `step`, as far as it is known point by point.
    pub fn after(state: &RunState, step: u64) -> GivenUp {
        let series = state.series.iter().map(|(id, series)| {
            let newer = series.recent().filter(|point| point.step > step);
            (id.clone(), newer.collect())
        });
        let layers = state.layers.iter().map(|(id, map)| {
            let newer = map.rows().iter().filter(|row| row.step > step);
            (id.clone(), newer.cloned().collect())
        });
        GivenUp {
            series: series.collect(),
            layers: layers.collect(),
            evaluations: state
                .evaluations
                .iter()
                .filter(|e| e.step > step)
                .cloned()
                .collect(),
        }
    }

    /// Puts it back, up to `step`.
    pub fn restore(self, state: &mut RunState, step: u64) {
        for (id, points) in self.series {
            if let Some(series) = state.series.get_mut(&id) {
                let counted = points.into_iter().filter(|point| point.step <= step);
                counted.for_each(|point| series.push(point.step, point.value));
            }
        }
        for (id, rows) in self.layers {
            if let Some(map) = state.layers.get_mut(&id) {
                let counted = rows.into_iter().filter(|row| row.step <= step);
                counted.for_each(|row| map.push(row.step, row.values));
            }
        }
        let counted = self.evaluations.into_iter().filter(|e| e.step <= step);
        state.evaluations.extend(counted);
    }
}
