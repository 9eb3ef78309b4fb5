//! One row for each step: what was measured there at any time, side by side.

use super::curves::{Kind, Record};
use crate::base::clock::UnixMillis;
use std::collections::BTreeMap;

/// What is known of a step. Of several readings of a metric the last one stands, as of the machine within a long step.
#[derive(Debug, PartialEq)]
pub struct Row {
    pub step: u64,
    /// When the step was logged, or the newest reading where none was.
    pub t: UnixMillis,
    pub tokens: Option<u64>,
    pub epoch: Option<f64>,
    pub values: BTreeMap<u32, f64>,
}

impl Row {
    /// Seconds since 1970.
    pub fn time(&self) -> f64 {
        self.t.0 as f64 / 1e3
    }
}

/// The rows of these records, step by step.
pub fn rows(records: &[Record]) -> Vec<Row> {
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by_key(|record| record.step);
    sorted.chunk_by(|a, b| a.step == b.step).map(row).collect()
}

fn row(records: &[&Record]) -> Row {
    let stepped = records.iter().rev().find(|r| r.kind == Kind::Step);
    let newest = records.iter().map(|r| r.t).max().unwrap_or_default();
    let values = records.iter().flat_map(|record| &record.values);
    Row {
        step: records.first().map_or(0, |record| record.step),
        t: stepped.map_or(newest, |record| record.t),
        tokens: records.iter().filter_map(|record| record.tokens).max(),
        epoch: records.iter().rev().find_map(|record| record.epoch),
        values: values.copied().collect(),
    }
}
