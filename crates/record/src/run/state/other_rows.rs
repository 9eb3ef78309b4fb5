//! The last evaluation of a run may read more held-out rows than those before it. Its loss is then another one for that alone: how it
//! compares with the best all the same.

use super::{Evaluation, RunState};
use crate::base::human::grouped;

/// The last evaluation, which read the whole split, beside those that read fewer rows.
#[derive(Debug, Clone, PartialEq)]
pub struct OtherRows {
    /// Of the last evaluation.
    pub step: u64,
    /// Held-out rows of every evaluation: the best is the best on these.
    pub usual: u64,
    /// The last reading on those rows, where the log has it.
    pub on_usual: Option<f64>,
    /// The same on all rows.
    pub on_all: f64,
    pub all: u64,
}

impl OtherRows {
    /// `step 20: 3.691 on these, 3.486 on all 3,485`
    pub fn words(&self, number: impl Fn(f64) -> String) -> String {
        let on_usual = self.on_usual.map(|x| format!("{} on these, ", number(x)));
        format!(
            "step {}: {}{} on all {}",
            grouped(self.step),
            on_usual.unwrap_or_default(),
            number(self.on_all),
            grouped(self.all)
        )
    }
}

impl RunState {
    /// What the last evaluation has of a reading, where it read other rows than those by which the best was found.
    pub fn other_rows(&self, metric: &str) -> Option<OtherRows> {
        let reading = |e: &Evaluation| e.values.get(metric).copied().filter(|x| x.is_finite());
        let mut measured = self.evaluations.iter().rev();
        let last = measured.find(|e| reading(e).is_some())?;
        let usual = measured.find(|e| reading(e).is_some() && !e.whole)?;
        if !last.whole || last.n_windows == usual.n_windows {
            return None;
        }
        let said = self.finished.as_ref().and_then(|f| f.best.as_ref());
        let saved = self.checkpoints.iter().rev();
        let mut compared = said
            .into_iter()
            .chain(saved.filter_map(|saved| saved.by.as_ref()));
        let compared = compared.find(|by| by.step == last.step && by.metric == metric);
        Some(OtherRows {
            step: last.step,
            usual: usual.n_windows,
            on_usual: compared.map(|by| by.value.0),
            on_all: reading(last)?,
            all: last.n_windows,
        })
    }
}
