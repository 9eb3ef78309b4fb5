//! Reading a text piece by piece: keys and values of what was read are kept, so that each token is computed once.

use super::composite::Decoder;
use super::fused::{Pass, Plan};
use crate::kernels::attention::{Heads, Past};
use crate::kernels::threads;
use candle_core::{DType, IndexOp, Result, Tensor};

/// Keys and values of one text, for each layer and key/value head `capacity` rows of head_dim.
pub(crate) struct KvCache {
    layers: Vec<(Vec<f32>, Vec<f32>)>,
    capacity: usize,
    len: usize,
}

impl KvCache {
    pub fn new(n_layer: usize, heads: Heads, capacity: usize) -> Self {
        let empty = || vec![0.0; heads.n_kv_head * capacity * heads.head_dim];
        KvCache {
            layers: (0..n_layer).map(|_| (empty(), empty())).collect(),
            capacity,
            len: 0,
        }
    }

    /// Tokens held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Keys, values and capacity of one layer.
    pub fn layer(&self, layer: usize) -> (&[f32], &[f32], usize) {
        let (keys, values) = &self.layers[layer];
        (keys, values, self.capacity)
    }

    /// Copies keys and values of new rows of `qkv` behind what is there; [`KvCache::advance`] counts them once all layers
    /// have them.
    pub fn append(&mut self, layer: usize, heads: Heads, qkv: &[f32]) {
        let (d, width) = (heads.head_dim, heads.qkv_width());
        let (keys, values) = &mut self.layers[layer];
        for (i, row) in qkv.chunks_exact(width).enumerate() {
            let (row_keys, row_values) = row[heads.q_width()..].split_at(heads.kv_width());
            for kv in 0..heads.n_kv_head {
                let to = (kv * self.capacity + self.len + i) * d;
                keys[to..to + d].copy_from_slice(&row_keys[kv * d..][..d]);
                values[to..to + d].copy_from_slice(&row_values[kv * d..][..d]);
            }
        }
    }

    pub fn advance(&mut self, tokens: usize) {
        self.len += tokens;
    }

    fn clear(&mut self) {
        self.len = 0;
    }
}

/// A text being read. Weights are those of the moment at which reading began.
pub(crate) enum Decoding<'a> {
    Composite {
        decoder: Decoder<'a>,
        past: Vec<Past>,
    },
    Fused {
        plan: Plan<'a>,
        pass: &'a mut Pass,
        cache: KvCache,
    },
}

impl Decoding<'_> {
    /// Reads on by `tokens` and fills `logits` (V), those after the last of them; the buffer may be used again.
    pub fn read(&mut self, tokens: &[u32], logits: &mut Vec<f32>) -> Result<()> {
        match self {
            Decoding::Composite { decoder, past } => {
                let ids = Tensor::from_slice(tokens, (1, tokens.len()), &decoder.device())?;
                let hidden = decoder.hidden(&ids, past, None)?;
                let last = decoder.logits(&hidden.i((0, tokens.len() - 1..))?)?;
                *logits = last.squeeze(0)?.to_dtype(DType::F32)?.to_vec1()?;
            }
            Decoding::Fused { plan, pass, cache } => threads::enter(|| {
                pass.logits(plan, tokens, tokens.len(), Some(cache), 1, logits);
            }),
        }
        Ok(())
    }

    /// Forgets what was read.
    pub fn restart(&mut self) {
        match self {
            Decoding::Composite { past, .. } => past.clear(),
            Decoding::Fused { cache, .. } => cache.clear(),
        }
    }
}
