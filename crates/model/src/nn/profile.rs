//! How a pass calls its kernels: it runs them, times them one by one, or, in a counting pass, leaves them out. Timing costs
//! two clock reads per kernel; work on other threads is included in the kernel that spawned it.

use crate::base::clock::{Clock, SystemClock};
use std::time::Duration;

/// The kernels of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Matmuls of linear layers with their bias and residual.
    LinearForward,
    LinearBackward,
    /// Causal attention with its own matmuls, both directions.
    AttentionForward,
    AttentionBackward,
    /// What blocks have in place of attention, both directions.
    Mixer,
    Norm,
    Activation,
    Rotary,
    Embedding,
    /// Matmuls with the vocabulary, log-probabilities and entropies, both directions.
    Head,
    /// Sums of gradients where the residual stream forks.
    Residual,
    /// Routing, gathering tokens by expert, and combining the outputs.
    Experts,
}

impl Part {
    pub const ALL: [Part; 12] = [
        Part::LinearForward,
        Part::LinearBackward,
        Part::AttentionForward,
        Part::AttentionBackward,
        Part::Mixer,
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
            Part::Mixer => "mixer",
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

#[derive(Debug, Clone, Copy, Default)]
enum Mode {
    #[default]
    Run,
    Time(SystemClock),
    Skip,
}

/// The only place through which a pass calls kernels. Weights, gradients and buffers are looked up inside
/// the call, because a counting pass has none of them.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    mode: Mode,
    spent: [Duration; Part::ALL.len()],
}

impl Kernels {
    /// Kernels that are never run.
    pub fn skipped() -> Self {
        Kernels {
            mode: Mode::Skip,
            ..Kernels::default()
        }
    }

    /// Starts timing, from zero.
    pub fn start(&mut self) {
        *self = Kernels {
            mode: Mode::Time(SystemClock::new()),
            ..Kernels::default()
        };
    }

    #[inline]
    pub fn run(&mut self, part: Part, work: impl FnOnce()) {
        match self.mode {
            Mode::Run => work(),
            Mode::Time(clock) => {
                let begun = clock.elapsed();
                work();
                self.spent[part as usize] += clock.elapsed() - begun;
            }
            Mode::Skip => {}
        }
    }

    /// Time of each part since the start; `None` if it was never started.
    pub fn spent(&self) -> Option<[(Part, Duration); Part::ALL.len()]> {
        let Mode::Time(_) = self.mode else {
            return None;
        };
        Some(Part::ALL.map(|part| (part, self.spent[part as usize])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_distinguished_and_skipped_kernels_do_not_run() {
        let calls = std::cell::Cell::new(0);
        let call = || calls.set(calls.get() + 1);
        let mut kernels = Kernels::default();
        kernels.run(Part::Norm, call);
        Kernels::skipped().run(Part::Norm, call);
        assert_eq!(calls.get(), 1);
        assert!(kernels.spent().is_none());
        kernels.start();
        let busy = || {
            std::hint::black_box((0..200_000u64).map(std::hint::black_box).sum::<u64>());
        };
        kernels.run(Part::Head, busy);
        let spent = kernels.spent().unwrap();
        for (part, time) in spent {
            assert_eq!(time > Duration::ZERO, part == Part::Head, "{part:?}");
        }
        assert!(Part::ALL.iter().enumerate().all(|(i, p)| *p as usize == i));
    }
}
