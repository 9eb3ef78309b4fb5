//! A counting pass: the same nodes in the same order over an arena of lengths, with their kernels left out. The result is the
//! memory of the pass, whatever its nodes are.

use super::{Pass, Plan};
use crate::kernels::logprob::Upstream;
use crate::kernels::matmul::Accumulation;
use crate::nn::fused::head::{HeadGradient, HeadPass};
use crate::nn::profile::Kernels;
use crate::nn::tape::{Arena, Track};

/// Memory that stays allocated from pass to pass, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// Activations at the end of a forward pass; in evaluation, those alive at the same time.
    pub activations: u64,
    /// Additional memory of the backward: gradients that do not fit into released activations, and recomputed blocks.
    pub gradients: u64,
    /// Logits of one chunk or of all rows, and the head's outputs per row.
    pub head: u64,
}

impl Footprint {
    pub fn total(&self) -> u64 {
        self.activations + self.gradients + self.head
    }
}

/// A placeholder that no kernel reads.
const NOTHING: HeadGradient = HeadGradient {
    tokens: Upstream {
        dlogp: &[],
        dentropy: None,
        z_loss: 0.0,
    },
    values: None,
    teacher: None,
};

impl Pass {
    /// A pass without memory and without kernels.
    pub fn counting(track: Track) -> Self {
        Pass {
            arena: Arena::counting(),
            kernels: Kernels::skipped(),
            ..Pass::new(track)
        }
    }

    /// The same of a pass over cached texts.
    pub fn decoding() -> Self {
        Pass {
            decodes: true,
            ..Pass::counting(Track::Off)
        }
    }

    /// The memory of a pass over `count` tokens in rows of `seq_len`: forward, and with gradients backward, for a loss with
    /// known coefficients.
    pub fn count(&mut self, plan: &Plan, count: usize, seq_len: usize) -> Footprint {
        self.begin(count, seq_len);
        let hidden = self.blocks(plan, 0, None);
        match self.track {
            Track::Off => self.head_forward(plan, hidden, None),
            Track::Gradients => {
                self.head_backward(plan, hidden, NOTHING, &mut [], HeadPass::Both);
                self.backward(plan, NOTHING, (&mut [], Accumulation::Add));
            }
        }
        let values = match plan.layout.value {
            Some(_) => count * size_of::<f32>(),
            None => 0,
        };
        Footprint {
            head: self.head_bytes + values as u64,
            ..self.footprint()
        }
    }
}
