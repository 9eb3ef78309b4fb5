//! The readings of a run that count, each as it was logged, and what the run says of itself: a fold over its events.

use super::pattern::Pattern;
use crate::base::clock::UnixMillis;
use crate::run::RunState;
use crate::run::rollback_buffer::RollbackBuffer;
use crate::wire::{Envelope, Event, Values};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where readings come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An optimizer step.
    Step,
    /// Held-out data, tasks, answers to held-out prompts.
    Evaluation,
    /// A sample of the machine.
    Machine,
    /// Probes, block by block.
    Blocks,
}

/// What was logged at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Counts the records of the log, those that no longer count too.
    pub serial: u64,
    pub kind: Kind,
    pub step: u64,
    pub t: UnixMillis,
    /// Tokens and epochs consumed, where they are known.
    pub tokens: Option<u64>,
    pub epoch: Option<f64>,
    /// Columns and their values.
    pub values: Vec<(u32, f64)>,
}

/// A run's metrics over its steps.
#[derive(Debug, Default)]
pub struct Curves {
    pub state: RunState,
    /// The run's folder, if it is one of ours.
    pub root: Option<PathBuf>,
    /// The log has no times: those of its events are not those of the readings.
    pub is_untimed: bool,
    /// Metrics that are wanted; all where there are none.
    wanted: Vec<Pattern>,
    /// The id of each column, by first appearance.
    ids: Vec<String>,
    /// Column of an id; `None` where it is not wanted.
    columns: BTreeMap<String, Option<u32>>,
    /// Step of the newest value of each column.
    newest: Vec<u64>,
    records: Vec<Record>,
    given_up: RollbackBuffer<Vec<Record>>,
    serial: u64,
    /// The earliest step whose readings were dropped since that was asked.
    dropped_from: Option<u64>,
}

impl Curves {
    /// Of the metrics that fit one of the patterns; of all where there is none.
    pub fn new(wanted: Vec<Pattern>) -> Curves {
        Curves {
            wanted,
            ..Curves::default()
        }
    }

    /// The records that count, in the order of the log.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// A column's metric.
    pub fn id(&self, column: u32) -> &str {
        self.ids.get(column as usize).map_or("", String::as_str)
    }

    /// The columns that have a value, as the run declared their metrics; blocks in their order.
    pub fn columns(&self) -> Vec<u32> {
        let mut used = vec![false; self.ids.len()];
        for (column, _) in self.records.iter().flat_map(|record| &record.values) {
            used[*column as usize] = true;
        }
        let declared = self.state.metrics.iter().map(|metric| metric.id.as_str());
        let place: BTreeMap<&str, usize> = declared.zip(0..).collect();
        let order = |column: &u32| {
            let id = self.id(*column);
            let (base, block) = block_of(id).unwrap_or((id, 0));
            let place = place.get(base).copied().unwrap_or(usize::MAX);
            (place, base.to_string(), block)
        };
        let mut columns: Vec<u32> = (0..)
            .zip(used)
            .filter_map(|(column, used)| used.then_some(column))
            .collect();
        columns.sort_by_cached_key(order);
        columns
    }

    /// Whether the log has readings of any metric, wanted or not.
    pub fn has_readings(&self) -> bool {
        !self.columns.is_empty()
    }

    /// Takes one event. A repeated one changes nothing.
    pub fn apply(&mut self, envelope: &Envelope) {
        let newest = self.state.last_seq;
        self.state.apply(envelope);
        if self.state.last_seq == newest {
            return;
        }
        let t = envelope.t;
        match &envelope.event {
            Event::Stepped { step, values, .. } => {
                self.take(Kind::Step, *step, t, numbers(values));
            }
            Event::Evaluated { step, values, .. } => {
                self.take(Kind::Evaluation, *step, t, numbers(values));
            }
            Event::HardwareSampled { values } => {
                self.take(Kind::Machine, self.state.step, t, numbers(values));
            }
            Event::Probed { step, layers } => {
                let blocks = layers.iter().flat_map(|(id, values)| {
                    let values = values.iter().enumerate();
                    values.map(move |(block, x)| (format!("{id}/{block}"), x.0))
                });
                self.take(Kind::Blocks, *step, t, blocks);
            }
            Event::RolledBack { step } => self.roll_back(*step),
            Event::StartedOver => self.start_over(),
            Event::Rescued { .. } => self.given_up.rescued(),
            Event::RescueUndone { step, .. } => {
                let restored = self.given_up.undone().into_iter();
                for record in restored.filter(|record| record.step <= *step) {
                    self.push(record);
                }
            }
            _ => {}
        }
    }

    /// The earliest step whose readings were dropped since this was asked last.
    pub(super) fn dropped_from(&mut self) -> Option<u64> {
        self.dropped_from.take()
    }

    fn take(
        &mut self,
        kind: Kind,
        step: u64,
        t: UnixMillis,
        values: impl Iterator<Item = (impl AsRef<str>, f64)>,
    ) {
        let values: Vec<(u32, f64)> = values
            .filter_map(|(id, x)| Some((self.column(id.as_ref())?, x)))
            .collect();
        if values.is_empty() {
            return;
        }
        for (column, _) in &values {
            self.forget_after(step, *column);
        }
        let of_training = matches!(kind, Kind::Step | Kind::Evaluation);
        let record = Record {
            serial: 0,
            kind,
            step,
            t,
            tokens: Some(self.state.tokens).filter(|n| of_training && *n > 0),
            epoch: self.state.epochs().filter(|_| of_training),
            values,
        };
        self.push(record);
    }

    fn push(&mut self, mut record: Record) {
        self.serial += 1;
        record.serial = self.serial;
        for (column, _) in &record.values {
            self.newest[*column as usize] = record.step;
        }
        self.records.push(record);
    }

    fn column(&mut self, id: &str) -> Option<u32> {
        if let Some(column) = self.columns.get(id) {
            return *column;
        }
        let wanted = self.wanted.is_empty() || self.wanted.iter().any(|p| p.matches(id));
        let column = u32::try_from(self.ids.len()).ok().filter(|_| wanted);
        if column.is_some() {
            self.ids.push(id.into());
            self.newest.push(0);
        }
        self.columns.insert(id.into(), column);
        column
    }

    /// A metric whose step goes back without a word was rolled back too: as in its series.
    fn forget_after(&mut self, step: u64, column: u32) {
        if self.newest[column as usize] <= step {
            return;
        }
        for record in self.records.iter_mut().filter(|record| record.step > step) {
            record.values.retain(|(of, _)| *of != column);
        }
        self.records.retain(|record| !record.values.is_empty());
        self.drops_from(step.saturating_add(1));
    }

    fn roll_back(&mut self, step: u64) {
        let (kept, given_up) = std::mem::take(&mut self.records)
            .into_iter()
            .partition(|record| record.step <= step);
        self.records = kept;
        self.given_up.rolled_back(given_up);
        for newest in &mut self.newest {
            *newest = (*newest).min(step);
        }
        self.drops_from(step.saturating_add(1));
    }

    fn start_over(&mut self) {
        self.records.clear();
        self.given_up = RollbackBuffer::default();
        self.newest.fill(0);
        self.drops_from(0);
    }

    fn drops_from(&mut self, step: u64) {
        let earlier = self.dropped_from.unwrap_or(step);
        self.dropped_from = Some(earlier.min(step));
    }
}

fn numbers(values: &Values) -> impl Iterator<Item = (&String, f64)> {
    values.iter().map(|(id, x)| (id, x.0))
}

/// The metric and the block of a column that has the values of one: `grad_norm/layer/3`.
pub(super) fn block_of(id: &str) -> Option<(&str, u64)> {
    let (base, block) = id.rsplit_once('/')?;
    let block = block.parse().ok()?;
    base.ends_with("/layer").then_some((base, block))
}
