//! Memory used by the ranks, as they report it after each update.

use super::Remote;
use crate::metrics::ranks;
use crate::wire::Values;
use crate::workers::Answer;

impl Remote {
    /// The memory that ranks hold, as far as it changed since this was asked last.
    pub fn take_memory(&mut self) -> Values {
        std::mem::take(&mut self.memory_news)
    }

    pub(super) fn record_memory(&mut self, answers: &[Answer]) {
        for (rank, answer) in answers.iter().enumerate().take(ranks::MOST) {
            for (id, value) in ranks::parse_memory(rank, &answer.frame.header["memory"]) {
                if self.memory.insert(id.clone(), value) != Some(value) {
                    self.memory_news.insert(id, value);
                }
            }
        }
    }
}
