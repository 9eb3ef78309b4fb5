//! Timing of a step's phases before the update.

use std::time::Duration;

pub const WRITING: &str = "time/writing";
pub const SCORING: &str = "time/scoring";
pub const COMPARING: &str = "time/comparing";

/// Times of the parts of a rollout.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Parts {
    pub writing: Duration,
    /// Rewards.
    pub scoring: Duration,
    /// Log-probabilities of the completions under the reference and the sampling policy.
    pub comparing: Duration,
}

impl Parts {
    pub fn add(&mut self, other: &Parts) {
        self.writing += other.writing;
        self.scoring += other.scoring;
        self.comparing += other.comparing;
    }

    /// Each with the id of its share.
    pub fn shares(&self) -> [(&'static str, Duration); 3] {
        [
            (WRITING, self.writing),
            (SCORING, self.scoring),
            (COMPARING, self.comparing),
        ]
    }
}
