//! The incremental forward behind generation, as a trait: this program's own model, or one on PyTorch's ranks.

use crate::nn::decoding::Decoding;
use candle_core::Result;
use std::ops::ControlFlow;

/// A batch of texts with KV caches.
pub trait BatchDecoder {
    /// Appends tokens to several texts: (text, tokens) in the order of the texts; texts without new tokens are not listed. Fills
    /// `logits` (pieces, V), those after the last token of each. Between two chunks of a long piece `pause` gets the text and the
    /// number of tokens just prefilled, and may cancel: then there are no logits.
    ///
    /// # Errors
    /// Damaged weights, or the ranks that hold them are gone.
    fn append_tokens(
        &mut self,
        pieces: &[(usize, &[u32])],
        logits: &mut Vec<f32>,
        pause: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>>;

    /// Copies the cache of text `from` to the later text `to`.
    fn copy_cache(&mut self, from: usize, to: usize);

    /// Clears the cache of a text.
    fn clear_cache(&mut self, text: usize);

    /// Whether the cache of one text can be copied to the other (both on one rank).
    fn together(&self, _one: usize, _other: usize) -> bool {
        true
    }
}

impl BatchDecoder for Decoding<'_> {
    fn append_tokens(
        &mut self,
        pieces: &[(usize, &[u32])],
        logits: &mut Vec<f32>,
        pause: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        self.read_batch(pieces, logits, pause)
    }

    fn copy_cache(&mut self, from: usize, to: usize) {
        self.copy(from, to);
    }

    fn clear_cache(&mut self, text: usize) {
        self.restart(text);
    }
}
