//! The incremental forward behind generation, as a trait: this program's own model, or one on PyTorch's ranks.

use crate::nn::decoding::Decoding;
use candle_core::Result;
use std::ops::ControlFlow;

/// Texts side by side, of which keys and values are kept.
pub trait Reads {
    /// Reads on in several texts: (text, tokens) in the order of the texts, no tokens for none. Fills `logits` (pieces, V), those
    /// after the last token of each. Between the chunks of a long piece `pause` hears the text and how many more of its tokens are
    /// read, and may break off: then there are no logits.
    ///
    /// # Errors
    /// Weights that are damaged, or whoever holds them is gone.
    fn read_on(
        &mut self,
        pieces: &[(usize, &[u32])],
        logits: &mut Vec<f32>,
        pause: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>>;

    /// Lets text `to`, which comes later, hold what text `from` holds.
    fn take_over(&mut self, from: usize, to: usize);

    /// Forgets what is read of a text.
    fn forget(&mut self, text: usize);

    /// Whether what one of two texts holds can be copied to the other.
    fn together(&self, _one: usize, _other: usize) -> bool {
        true
    }
}

impl Reads for Decoding<'_> {
    fn read_on(
        &mut self,
        pieces: &[(usize, &[u32])],
        logits: &mut Vec<f32>,
        pause: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        self.read_batch(pieces, logits, pause)
    }

    fn take_over(&mut self, from: usize, to: usize) {
        self.copy(from, to);
    }

    fn forget(&mut self, text: usize) {
        self.restart(text);
    }
}
