//! A metric in a few numbers: how many values, the first, the last, and the extremes with their steps.

use super::Curves;
use super::curves::block_of;
use crate::run::series::Point;
use crate::watch::declaration;
use crate::wire::{Direction, MetricInfo};

/// One metric of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    pub id: String,
    pub info: MetricInfo,
    /// It is of one block of the model.
    pub of_block: bool,
    pub n: u64,
    /// NaN and infinite values among them.
    pub non_finite: u64,
    pub first: Point,
    pub last: Point,
    /// Of the finite values, the earliest of equals.
    pub lowest: Option<Point>,
    pub highest: Option<Point>,
}

impl Summary {
    /// The best finite value, where one direction is better.
    pub fn best(&self) -> Option<Point> {
        match self.info.direction {
            Direction::Lower => self.lowest,
            Direction::Higher => self.highest,
            Direction::Neutral => None,
        }
    }

    fn take(&mut self, point: Point) {
        self.n += 1;
        // Tables may have been read one behind the other.
        if point.step < self.first.step {
            self.first = point;
        }
        if point.step >= self.last.step {
            self.last = point;
        }
        if !point.value.is_finite() {
            self.non_finite += 1;
            return;
        }
        if self.lowest.is_none_or(|lowest| point.value < lowest.value) {
            self.lowest = Some(point);
        }
        if self
            .highest
            .is_none_or(|highest| point.value > highest.value)
        {
            self.highest = Some(point);
        }
    }
}

/// Every metric that has a value, as the run declared them.
pub fn summaries(curves: &Curves) -> Vec<Summary> {
    let mut found: Vec<Option<Summary>> = Vec::new();
    for record in curves.records() {
        for (column, x) in &record.values {
            let point = Point {
                step: record.step,
                value: *x,
            };
            let at = *column as usize;
            if found.len() <= at {
                found.resize(at + 1, None);
            }
            found[at]
                .get_or_insert_with(|| empty(curves, *column, point))
                .take(point);
        }
    }
    let columns = curves.columns().into_iter();
    columns
        .filter_map(|column| found.get_mut(column as usize)?.take())
        .collect()
}

fn empty(curves: &Curves, column: u32, first: Point) -> Summary {
    let id = curves.id(column);
    let block = block_of(id);
    let base = block.map_or(id, |(base, _)| base);
    Summary {
        id: id.into(),
        info: curves
            .state
            .metric(base)
            .cloned()
            .unwrap_or_else(|| declaration(base)),
        of_block: block.is_some(),
        n: 0,
        non_finite: 0,
        first,
        last: first,
        lowest: None,
        highest: None,
    }
}
