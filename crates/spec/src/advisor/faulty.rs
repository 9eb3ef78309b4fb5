//! Rows of a file that a run cannot read: how many, the first of them, and whether leaving them out helps. Reads nothing.

use crate::base::human::grouped;
use crate::data::{DataError, RowFault};

/// Rows that a run cannot read, while they are counted.
#[derive(Debug, Default)]
pub(super) struct FaultyRows {
    count: u64,
    pub first: Option<RowFault>,
}

impl FaultyRows {
    pub fn add(&mut self, fault: RowFault) {
        self.count += 1;
        let at = |fault: &RowFault| (fault.place.file.clone(), fault.place.row);
        let earlier = |first: &RowFault| at(first) <= at(&fault);
        if !self.first.as_ref().is_some_and(earlier) {
            self.first = Some(fault);
        }
    }

    /// What is known of them among so many rows; `None` where all can be read.
    ///
    /// # Errors
    /// Half of the rows or more are among them: the format or the columns are wrong, not the rows.
    pub fn among(self, rows: u64) -> Result<Option<Faulty>, String> {
        let Some(first) = self.first else {
            return Ok(None);
        };
        let faulty = Faulty {
            count: self.count,
            of: rows,
            first: DataError::Row(first.clone()).to_string(),
        };
        match self.count * 2 >= rows {
            true if rows == 1 => Err(format!("{}; {}", faulty.first, first.fix)),
            true => Err(format!("{}; {}", faulty.summary(), first.fix)),
            false => Ok(Some(faulty)),
        }
    }
}

/// Rows that a run cannot read, fewer than half of those inspected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faulty {
    pub count: u64,
    /// Rows inspected.
    pub of: u64,
    /// The place of the first and what is wrong with it.
    first: String,
}

impl Faulty {
    /// `5 of 300 rows cannot be read, the first at rows.json:386: …`
    pub fn summary(&self) -> String {
        let first = match self.count {
            1 => "",
            _ => "the first ",
        };
        format!(
            "{} of {} rows cannot be read: {first}{}",
            grouped(self.count),
            grouped(self.of),
            self.first
        )
    }

    /// As many of so many rows.
    pub(super) fn share_of(&self, rows: u64) -> u64 {
        match rows == self.of {
            true => self.count,
            false => (self.count as f64 * rows as f64 / self.of.max(1) as f64) as u64,
        }
    }
}
