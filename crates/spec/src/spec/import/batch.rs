//! Counts of rows that are other ones here: those held out, and those of a micro-batch of KTO.

use super::{Fate, Reader};
use crate::spec::draft::shown;

impl Reader {
    /// A count of rows: what share of the data they are is not known before the data are read.
    pub(super) fn held_out_rows(&mut self, theirs: String, rows: f64) {
        let kept = shown(&self.draft.value("data.val_fraction"));
        let words = format!(
            "a count of rows: set data.val_fraction to {rows} over the number of rows (of 10,000: {}); it stays {kept}",
            rows / 10_000.0
        );
        self.line(Fate::NoEqual, theirs, "", words);
    }

    fn whole(&self, path: &str) -> Option<u64> {
        self.draft.value(path).as_u64()
    }

    /// KTO's baseline comes from the other answers of a micro-batch: where there are none, as many rows of a step as two lie in one.
    pub(super) fn judged_batch(&mut self) {
        const ROWS: &str = "train.micro_batch_size";
        const PARTS: &str = "train.grad_accum_steps";
        if self.draft.value("method") != "kto" || self.whole(ROWS) != Some(1) {
            return;
        }
        let parts = self.whole(PARTS).unwrap_or(1);
        // The product stays where it can.
        let rows = (2..=parts.min(64)).find(|n| parts.is_multiple_of(*n));
        let (rows, rest, words) = match rows {
            Some(n) => (n, parts / n, "as many rows in a step as there"),
            None => (2, parts, "twice as many rows in a step as there"),
        };
        let words = format!("{words}: the baseline comes from the other answers of a micro-batch");
        for (path, value) in [(ROWS, rows), (PARTS, rest)] {
            if self.whole(path) == Some(value) {
                continue;
            }
            let at = self
                .lines
                .iter()
                .position(|line| line.ours.starts_with(path));
            let theirs = match at {
                Some(at) => self.lines.remove(at).theirs,
                None => format!("({path})"),
            };
            self.set(theirs, path, &value.to_string(), &words);
        }
    }
}
