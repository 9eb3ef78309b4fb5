//! Which metrics of a log are reported: all that this program knows, and the first ones of the others.

use super::names::Mapping;
use crate::base::human;
use std::collections::BTreeSet;

/// Different metrics of a run that this program does not know; what comes later is left out. Those it knows always have a place.
pub const MAX_METRICS: usize = 256;
/// Names left out that are counted.
const MAX_COUNTED: usize = 100_000;

/// The places that metrics of one log have.
#[derive(Debug, Default)]
pub struct Places {
    /// Metrics with a place that this program does not know.
    foreign: BTreeSet<String>,
    /// Names that were left out.
    left_out: BTreeSet<String>,
    limit_reported: bool,
}

impl Places {
    /// Whether a metric that had no reading yet is reported: it is known here or mapped by the user, or is among the first unknown
    /// ones.
    pub fn has(&mut self, name: &str, id: &str, mapping: &Mapping) -> bool {
        if self.foreign.contains(id) {
            return true;
        }
        if self.left_out.contains(id) {
            return false;
        }
        if mapping.is_always_reported(name) {
            return true;
        }
        if self.foreign.len() < MAX_METRICS {
            return self.foreign.insert(id.into());
        }
        if self.left_out.len() < MAX_COUNTED {
            self.left_out.insert(id.into());
        }
        false
    }

    /// Said once, with their number: metrics were left out, beside so many that are reported.
    pub fn warning(&mut self, reported: usize) -> Option<String> {
        let first = self.left_out.first()?;
        if std::mem::replace(&mut self.limit_reported, true) {
            return None;
        }
        let n = self.left_out.len();
        let (left_out, all) = (
            human::grouped(n as u64),
            human::grouped((n + reported) as u64),
        );
        Some(format!(
            "the log has {all} metrics: {left_out} of them, such as {first}, are skipped; all known ones are read"
        ))
    }
}
