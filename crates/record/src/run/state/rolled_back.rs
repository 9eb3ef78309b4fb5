//! What a roll-back removes from the fold and the undo of a rescue restores: everything but checkpoints, whose files are
//! deleted.

use super::parts::{
    Diagnosed, Evaluation, Examined, Mark, MarkKind, Sample, push_bounded, push_sample,
};
use super::{MAX_EXAMINED, MAX_MARKS, MAX_SAMPLES, RunState};
use crate::run::layers::LayerRow;
use crate::run::series::Point;

/// What is newer than a step: the newest points of each series, and the rest as far as it is kept one by one.
#[derive(Debug, Clone, Default)]
pub(super) struct RolledBackState {
    series: Vec<(String, Vec<Point>)>,
    layers: Vec<(String, Vec<LayerRow>)>,
    evaluations: Vec<Evaluation>,
    samples: Vec<Sample>,
    examined: Vec<Examined>,
    marks: Vec<Mark>,
    diagnosed: Vec<(String, Diagnosed)>,
}

/// Those after a step.
fn newer<'a, T: Clone + 'a>(
    all: impl IntoIterator<Item = &'a T>,
    step: u64,
    of: impl Fn(&T) -> u64,
) -> Vec<T> {
    let found = all.into_iter().filter(|item| of(item) > step);
    found.cloned().collect()
}

impl RolledBackState {
    /// What comes after `step`.
    pub fn after(state: &RunState, step: u64) -> RolledBackState {
        let series = state.series.iter().map(|(id, series)| {
            let newer = series.recent().filter(|point| point.step > step);
            (id.clone(), newer.collect())
        });
        let layers = state.layers.iter();
        let layers = layers.map(|(id, map)| (id.clone(), newer(map.rows(), step, |row| row.step)));
        let diagnosed = state.diagnosed.iter();
        let diagnosed = diagnosed.filter(|(_, said)| said.step > step);
        let mut marks = newer(&state.marks, step, |mark| mark.step);
        marks.retain(|mark| mark.kind != MarkKind::Checkpoint);
        RolledBackState {
            series: series.collect(),
            layers: layers.collect(),
            evaluations: newer(&state.evaluations, step, |e| e.step),
            samples: newer(&state.samples, step, |s| s.step),
            examined: newer(&state.examined, step, |e| e.step),
            marks,
            diagnosed: diagnosed
                .map(|(id, said)| (id.clone(), said.clone()))
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
        for evaluation in self.evaluations.into_iter().filter(|e| e.step <= step) {
            push_bounded(&mut state.evaluations, evaluation, MAX_MARKS);
        }
        for sample in self.samples.into_iter().filter(|s| s.step <= step) {
            push_sample(&mut state.samples, sample, MAX_SAMPLES);
        }
        for examined in self.examined.into_iter().filter(|e| e.step <= step) {
            push_bounded(&mut state.examined, examined, MAX_EXAMINED);
        }
        for mark in self.marks.into_iter().filter(|mark| mark.step <= step) {
            state.skipped += u64::from(mark.kind == MarkKind::Skipped);
            push_bounded(&mut state.marks, mark, MAX_MARKS);
        }
        let counted = self.diagnosed.into_iter();
        state
            .diagnosed
            .extend(counted.filter(|(_, said)| said.step <= step));
    }
}
