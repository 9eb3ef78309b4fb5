//! Rows kept for browsing: all of a small set; of a large one its beginning and the rows with findings, within a budget.

use super::{Faults, Row};
use crate::data::{Example, Place, RowFault};
use std::sync::Arc;

/// The part of the budget that is left for rows with findings after the beginning.
const FOR_FINDINGS: usize = 4;

/// A row kept.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptRow {
    /// From 1, among all rows that were looked at.
    pub number: u64,
    pub place: Place,
    /// `None` for a row that could not be read.
    pub example: Option<Example>,
    /// Its findings by kind, with the fault.
    pub faults: Vec<(&'static str, String)>,
    pub characters: u64,
    pub tokens: Option<u64>,
}

/// Rows to browse, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    pub rows: Vec<Arc<KeptRow>>,
    /// Rows looked at.
    pub of: u64,
}

impl Kept {
    /// What is omitted, in words.
    pub fn limit(&self) -> Option<String> {
        let kept = self.rows.len() as u64;
        (kept < self.of).then(|| {
            format!(
                "browsing {} of {} rows: the first ones and rows with findings",
                crate::base::human::grouped(kept),
                crate::base::human::grouped(self.of)
            )
        })
    }
}

pub(super) struct Keeper {
    budget: usize,
    used: usize,
    rows: Vec<Arc<KeptRow>>,
}

impl Keeper {
    pub fn new(budget: usize) -> Keeper {
        Keeper {
            budget,
            used: 0,
            rows: Vec::new(),
        }
    }

    /// Bytes of the budget for a row: the beginning may take three quarters of it, rows with findings all.
    fn room(&mut self, bytes: usize, faulty: bool) -> bool {
        let limit = match faulty {
            true => self.budget,
            false => self.budget - self.budget / FOR_FINDINGS,
        };
        let fits = self.used + bytes <= limit;
        if fits {
            self.used += bytes;
        }
        fits
    }

    pub fn take(&mut self, number: u64, row: Row, faults: &Faults) {
        let bytes = row.characters as usize * 2 + 256;
        if !self.room(bytes, !faults.list.is_empty()) {
            return;
        }
        self.rows.push(Arc::new(KeptRow {
            number,
            characters: row.characters,
            tokens: row.tokens(),
            place: row.place,
            example: Some(row.example),
            faults: faults.list.clone(),
        }));
    }

    pub fn take_fault(&mut self, number: u64, fault: &RowFault) {
        if !self.room(256 + fault.what.len(), true) {
            return;
        }
        let words = match fault.fix.is_empty() {
            true => fault.what.clone(),
            false => format!("{}; {}", fault.what, fault.fix),
        };
        self.rows.push(Arc::new(KeptRow {
            number,
            place: fault.place.clone(),
            example: None,
            faults: vec![("unreadable", words)],
            characters: 0,
            tokens: None,
        }));
    }

    pub fn finish(self, of: u64) -> Kept {
        Kept {
            rows: self.rows,
            of,
        }
    }
}
