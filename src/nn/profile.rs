//! Where the time of a training step goes, kernel by kernel. Off, it costs nothing; on, one look at the clock before and
//! after each kernel. Work on other threads is inside the kernel that handed it out.

use crate::base::clock::{Clock, SystemClock};
use std::time::Duration;

/// The kernels of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Matrix products of linear layers with their bias and residual.
    LinearForward,
    LinearBackward,
    /// Causal attention with its own products, both directions.
    AttentionForward,
    AttentionBackward,
    Norm,
    Activation,
    Rotary,
    Embedding,
    /// Products with the vocabulary, log-probabilities and entropies, both directions.
    Head,
    /// Sums of gradients where the residual stream forks.
    Residual,
    /// Choosing experts, laying tokens out for them and putting them together again.
    Experts,
}

impl Part {
    pub const ALL: [Part; 11] = [
        Part::LinearForward,
        Part::LinearBackward,
        Part::AttentionForward,
        Part::AttentionBackward,
        Part::Norm,
        Part::Activation,
        Part::Rotary,
        Part::Embedding,
        Part::Head,
        Part::Residual,
        Part::Experts,
    ];

    /// The name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Part::LinearForward => "gemm forward",
            Part::LinearBackward => "gemm backward",
            Part::AttentionForward => "attention forward",
            Part::AttentionBackward => "attention backward",
            Part::Norm => "norm",
            Part::Activation => "activation",
            Part::Rotary => "rotary",
            Part::Embedding => "embedding",
            Part::Head => "head",
            Part::Residual => "residual",
            Part::Experts => "experts",
        }
    }
}

/// Time by part, while switched on.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    clock: Option<SystemClock>,
    spent: [Duration; Part::ALL.len()],
}

impl Profile {
    /// Begins to measure, from zero.
    pub fn start(&mut self) {
        *self = Profile {
            clock: Some(SystemClock::new()),
            ..Profile::default()
        };
    }

    pub fn measure<R>(&mut self, part: Part, work: impl FnOnce() -> R) -> R {
        let Some(clock) = self.clock else {
            return work();
        };
        let begun = clock.elapsed();
        let result = work();
        self.spent[part as usize] += clock.elapsed() - begun;
        result
    }

    /// Time of each part since the start; `None` when it never started.
    pub fn spent(&self) -> Option<[(Part, Duration); Part::ALL.len()]> {
        self.clock?;
        Some(Part::ALL.map(|part| (part, self.spent[part as usize])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart_and_an_idle_profile_knows_nothing() {
        let mut profile = Profile::default();
        assert_eq!(profile.measure(Part::Norm, || 5), 5);
        assert!(profile.spent().is_none());
        profile.start();
        let busy = || (0..200_000u64).map(std::hint::black_box).sum::<u64>();
        profile.measure(Part::Head, busy);
        let spent = profile.spent().unwrap();
        for (part, time) in spent {
            assert_eq!(time > Duration::ZERO, part == Part::Head, "{part:?}");
        }
        assert!(Part::ALL.iter().enumerate().all(|(i, p)| *p as usize == i));
    }
}
