//! The whole decoder in plain candle: the door for devices without fused kernels, and the oracle of the gradient checks.

use super::layout::{Layout, LinearSpans, NormSpans, Span};
use super::tape::Track;
use super::{ModelConfig, ModelShape};
use crate::kernels::attention::{Heads, Past};
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
        for span in spans(layout) {
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

fn spans(layout: &Layout) -> Vec<Span> {
    let mut spans = vec![layout.tokens, layout.head];
    spans.extend(layout.positions);
    let mut norm = |n: &NormSpans| {
        spans.push(n.gain);
        spans.extend(n.bias);
    };
    norm(&layout.norm);
    for block in &layout.blocks {
        norm(&block.norm1);
        norm(&block.norm2);
    }
    for block in &layout.blocks {
        for part in [block.qkv, block.attn_out, block.mlp_in, block.mlp_out] {
            spans.push(part.weight);
            spans.extend(part.bias);
        }
    }
    spans
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
    /// and is extended; an empty list starts afresh.
    pub fn hidden(&self, ids: &Tensor, past: &mut Vec<Past>) -> Result<Tensor> {
        let start = match past.first() {
            Some(Some((k, _))) => k.dim(1)?,
            _ => 0,
        };
        past.resize(self.shape.n_layer, None);
        let positions = match self.layout.positions {
            Some(span) => Some(self.leaves.get(span)?),
            None => None,
        };
        let table = self.leaves.get(self.layout.tokens)?;
        let mut x = embedding::composite(ids, table, positions, start)?;
        let heads = Heads {
            n_head: self.shape.n_head,
            n_kv_head: self.shape.n_kv_head,
            head_dim: self.shape.head_dim,
        };
        let theta = self.config.position.rotary_theta();
        for (block, past) in self.layout.blocks.iter().zip(past) {
            let qkv = self.linear(&block.qkv, &self.norm(&block.norm1, &x)?)?;
            let (mixed, present) = attention::composite(heads, &qkv, theta, past)?;
            *past = Some(present);
            x = (x + self.linear(&block.attn_out, &mixed)?)?;
            let wide = self.linear(&block.mlp_in, &self.norm(&block.norm2, &x)?)?;
            let wide = activation::composite(self.config.mlp.activation(), &wide)?;
            x = (x + self.linear(&block.mlp_out, &wide)?)?;
        }
        self.norm(&self.layout.norm, &x)
    }

    /// Hidden states (…, D) → logits (…, V).
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        linear::composite(hidden, self.leaves.get(self.layout.head)?, None)
    }

    /// `ids`, `targets` (B, T) → log-probability and entropy, each (B, T), with their graph.
    pub fn outputs(&self, ids: &Tensor, targets: &Tensor) -> Result<(Tensor, Tensor)> {
        let (batch_size, seq_len) = ids.dims2()?;
        let hidden = self.hidden(ids, &mut Vec::new())?.flatten(0, 1)?;
        let head = self.leaves.get(self.layout.head)?;
        let (logp, entropy) = logprob::composite(&hidden, head, &targets.flatten_all()?)?;
        Ok((
            logp.reshape((batch_size, seq_len))?,
            entropy.reshape((batch_size, seq_len))?,
        ))
    }

    /// Gradient of Σ dlogp · logp + Σ dentropy · entropy for each leaf.
    pub fn gradients(
        &self,
        outputs: &(Tensor, Tensor),
        dlogp: &Tensor,
        dentropy: Option<&Tensor>,
    ) -> Result<Vec<(Span, Tensor)>> {
        let dtype = outputs.0.dtype();
        let mut sum = (&outputs.0 * dlogp.detach().to_dtype(dtype)?)?.sum_all()?;
        if let Some(dentropy) = dentropy {
            sum = (sum + (&outputs.1 * dentropy.detach().to_dtype(dtype)?)?.sum_all()?)?;
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

    fn norm(&self, spans: &NormSpans, x: &Tensor) -> Result<Tensor> {
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
