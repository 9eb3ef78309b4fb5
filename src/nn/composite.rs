//! The whole decoder in plain candle: the door for devices without fused kernels, and the oracle of the gradient checks.

use super::layout::{Layout, LinearSpans, NormSpans, Span};
use super::tape::Track;
use super::{ModelConfig, ModelShape, TokenBatch};
use crate::kernels::attention::{Heads, Mask, Past, Scores};
use crate::kernels::positions::Positions;
use crate::kernels::{activation, attention, embedding, linear, logprob, norm};
use candle_core::{DType, Device, Result, Tensor, Var};
use std::collections::BTreeMap;

/// The parameters of one forward pass by their offset in the flat buffer; packed parts are one tensor.
pub(crate) struct Leaves {
    tensors: BTreeMap<usize, Tensor>,
    vars: Vec<(Span, Var)>,
}

impl Leaves {
    /// Copies out of the flat weights, as leaves that candle differentiates by when `track` is set.
    pub fn new(layout: &Layout, weights: &Tensor, dtype: DType, track: Track) -> Result<Self> {
        let mut leaves = Leaves {
            tensors: BTreeMap::new(),
            vars: Vec::new(),
        };
        for span in layout.spans() {
            if leaves.tensors.contains_key(&span.offset) {
                continue;
            }
            let part = weights.narrow(0, span.offset, span.len())?;
            let part = if span.rows == 1 {
                part
            } else {
                part.reshape((span.rows, span.cols))?
            };
            let part = part.to_dtype(dtype)?;
            let leaf = match track {
                Track::Off => part,
                Track::Gradients => {
                    let var = Var::from_tensor(&part)?;
                    leaves.vars.push((span, var.clone()));
                    var.as_tensor().clone()
                }
            };
            leaves.tensors.insert(span.offset, leaf);
        }
        Ok(leaves)
    }

    fn get(&self, span: Span) -> Result<&Tensor> {
        match self.tensors.get(&span.offset) {
            Some(tensor) => Ok(tensor),
            None => candle_core::bail!("no parameter lies at offset {}", span.offset),
        }
    }
}

/// What a batch gave, (B, T) each; the first two with the graph that leads back to the leaves.
pub(crate) struct Graph {
    pub logp: Tensor,
    pub entropy: Tensor,
    /// 1 where the target was the likeliest token, else 0.
    pub likeliest: Tensor,
}

/// A decoder over one set of leaves.
pub(crate) struct Decoder<'a> {
    pub config: &'a ModelConfig,
    pub shape: &'a ModelShape,
    pub layout: &'a Layout,
    pub leaves: Leaves,
}

impl Decoder<'_> {
    /// `ids` (B, T) → hidden states after the last norm (B, T, D). `past` holds keys and values of earlier tokens by layer
    /// and is extended; an empty list starts afresh. `first` keeps the documents of packed rows apart.
    pub fn hidden(
        &self,
        ids: &Tensor,
        past: &mut Vec<Past>,
        first: Option<&[u32]>,
    ) -> Result<Tensor> {
        let start = match past.first() {
            Some(Some((k, _))) => k.dim(1)?,
            _ => 0,
        };
        past.resize(self.shape.n_layer, None);
        let vectors = match self.layout.positions {
            Some(span) => Some(self.leaves.get(span)?),
            None => None,
        };
        let positions = Positions {
            seq_len: ids.dim(1)?,
            start,
            first,
        };
        let mask = Mask {
            window: None,
            first,
        };
        let table = self.leaves.get(self.layout.tokens)?;
        let mut x = embedding::composite(ids, table, vectors, positions)?;
        let heads = Heads {
            n_head: self.shape.n_head,
            n_kv_head: self.shape.n_kv_head,
            head_dim: self.shape.head_dim,
        };
        let rope = self.config.position.rope();
        let rotation = rope.map(|rope| rope.rotation(heads.head_dim, self.shape.seq_len));
        let how = (mask, Scores::default());
        for (block, past) in self.layout.blocks.iter().zip(past) {
            let qkv = self.linear(&block.qkv, &self.norm(block.norm1.as_ref(), &x)?)?;
            let (mixed, present) =
                attention::composite_masked(heads, &qkv, rotation.as_ref(), past, how)?;
            *past = Some(present);
            x = (x + self.linear(&block.attn_out, &mixed)?)?;
            let mlp = block.mlp.first();
            let wide = self.linear(&mlp.wide, &self.norm(block.norm2.as_ref(), &x)?)?;
            let wide = activation::composite(self.config.mlp.activation(), &wide)?;
            x = (x + self.linear(&mlp.out, &wide)?)?;
        }
        self.norm(self.layout.norm.as_ref(), &x)
    }

    /// Hidden states (…, D) → logits (…, V).
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        linear::composite(hidden, self.leaves.get(self.layout.head)?, None)
    }

    /// Log-probabilities and entropies of a batch with their graph, and whether targets were the likeliest tokens.
    pub fn outputs(&self, batch: &TokenBatch) -> Result<Graph> {
        let shape = (batch.batch_size, batch.seq_len);
        let ids = Tensor::from_slice(batch.inputs, shape, &self.device())?;
        let targets = Tensor::from_slice(batch.targets, batch.targets.len(), &self.device())?;
        let hidden = self.hidden(&ids, &mut Vec::new(), batch.first)?;
        let head = self.leaves.get(self.layout.head)?;
        let (logp, entropy, likeliest) =
            logprob::composite(&hidden.flatten(0, 1)?, head, &targets)?;
        Ok(Graph {
            logp: logp.reshape(shape)?,
            entropy: entropy.reshape(shape)?,
            likeliest: likeliest.reshape(shape)?,
        })
    }

    /// Gradient of Σ dlogp · logp + Σ dentropy · entropy for each leaf.
    pub fn gradients(
        &self,
        outputs: &Graph,
        dlogp: &Tensor,
        dentropy: Option<&Tensor>,
    ) -> Result<Vec<(Span, Tensor)>> {
        let dtype = outputs.logp.dtype();
        let mut sum = (&outputs.logp * dlogp.detach().to_dtype(dtype)?)?.sum_all()?;
        if let Some(dentropy) = dentropy {
            sum = (sum + (&outputs.entropy * dentropy.detach().to_dtype(dtype)?)?.sum_all()?)?;
        }
        let grads = sum.backward()?;
        self.leaves
            .vars
            .iter()
            .map(|(span, var)| {
                let grad = match grads.get(var) {
                    Some(grad) => grad.flatten_all()?,
                    None => var.zeros_like()?.flatten_all()?,
                };
                Ok((*span, grad))
            })
            .collect()
    }

    pub fn device(&self) -> Device {
        self.leaves
            .tensors
            .values()
            .next()
            .map_or(Device::Cpu, |tensor| tensor.device().clone())
    }

    fn linear(&self, spans: &LinearSpans, x: &Tensor) -> Result<Tensor> {
        let bias = match spans.bias {
            Some(span) => Some(self.leaves.get(span)?),
            None => None,
        };
        linear::composite(x, self.leaves.get(spans.weight)?, bias)
    }

    fn norm(&self, spans: Option<&NormSpans>, x: &Tensor) -> Result<Tensor> {
        let Some(spans) = spans else {
            return Ok(x.clone());
        };
        let bias = match spans.bias {
            Some(span) => Some(self.leaves.get(span)?),
            None => None,
        };
        let gain = self.leaves.get(spans.gain)?;
        norm::composite(
            self.config.norm.kind(),
            x,
            gain,
            bias,
            self.config.norm.eps(),
        )
    }
}
