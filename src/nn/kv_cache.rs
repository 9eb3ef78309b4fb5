//! Reading a text piece by piece: keys and values of what was read are kept, so that each token is computed once.

use super::Model;
use super::composite::{Decoder, Track};
use crate::kernels::attention::Past;
use candle_core::{DType, IndexOp, Result, Tensor};

/// A text being read. Weights are those of the moment at which reading began.
pub(crate) struct Decoding<'a> {
    decoder: Decoder<'a>,
    past: Vec<Past>,
}

impl Model {
    /// Begins to read a text.
    pub(crate) fn decoding(&mut self) -> Result<Decoding<'_>> {
        Ok(Decoding {
            decoder: self.decoder(Track::Off)?,
            past: Vec::new(),
        })
    }
}

impl Decoding<'_> {
    /// Reads on by `tokens` and gives the logits (V) after the last of them.
    pub fn read(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let device = self.decoder.device();
        let ids = Tensor::from_slice(tokens, (1, tokens.len()), &device)?;
        let hidden = self.decoder.hidden(&ids, &mut self.past)?;
        let last = hidden.i((0, tokens.len() - 1..))?;
        self.decoder
            .logits(&last)?
            .squeeze(0)?
            .to_dtype(DType::F32)?
            .to_vec1()
    }

    /// Forgets what was read.
    pub fn restart(&mut self) {
        self.past.clear();
    }
}
