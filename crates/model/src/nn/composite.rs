//! The oracle: the whole decoder in plain candle, on any device and in any dtype. The gradient checks compare the fused
//! implementation with it.

use super::layout::{
    AdapterSpans, ExpertFactors, ExpertSpans, FeedForwardSpans, Layout, LinearSpans, MlpSpans,
    NormSpans, Span,
};
use super::position::wave;
use super::step_position::{Place, StepPosition};
use super::tables::rotations;
use super::tape::Track;
use super::{HeadKind, ModelConfig, ModelShape, TokenBatch};
use crate::kernels::experts::Counted;
use crate::kernels::positions::Positions;
use crate::kernels::{
    activation, dropout, embedding, experts, linear, logprob, norm, row_gate, score, softcap,
};
use candle_core::{D, DType, Device, Result, Tensor, Var};
use std::collections::BTreeMap;

mod mamba2;
mod mixing;

use mixing::BlockPast;
pub(crate) use mixing::Past;

/// The parameters of one forward pass by their offset in the flat buffer; packed parts are one tensor.
pub(crate) struct Leaves {
    tensors: BTreeMap<usize, Tensor>,
    vars: Vec<(Span, Var)>,
}

impl Leaves {
    /// Copies the parameters out of the flat weights, as leaves that candle differentiates by if `track` is set.
    ///
    /// # Errors
    /// candle's own.
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
                Track::Gradients if span.grad.is_some() => {
                    let var = Var::from_tensor(&part)?;
                    leaves.vars.push((span, var.clone()));
                    var.as_tensor().clone()
                }
                _ => part,
            };
            leaves.tensors.insert(span.offset, leaf);
        }
        Ok(leaves)
    }

    /// The gradient of a scalar for each leaf, flat.
    ///
    /// # Errors
    /// candle's own.
    pub fn gradients(&self, sum: &Tensor) -> Result<Vec<(Span, Tensor)>> {
        let grads = sum.backward()?;
        let of = |(span, var): &(Span, Var)| {
            let grad = match grads.get(var) {
                Some(grad) => grad.flatten_all()?,
                None => var.zeros_like()?.flatten_all()?,
            };
            Ok((*span, grad))
        };
        self.vars.iter().map(of).collect()
    }

    fn get(&self, span: Span) -> Result<&Tensor> {
        match self.tensors.get(&span.offset) {
            Some(tensor) => Ok(tensor),
            None => candle_core::bail!("no parameter lies at offset {}", span.offset),
        }
    }
}

/// Outputs for a batch, (B, T) each; the first two with the graph back to the leaves.
pub(crate) struct Graph {
    pub logp: Tensor,
    pub entropy: Tensor,
    /// 1 if the target had the highest probability (top-1), else 0.
    pub top1: Tensor,
    /// Of the value head, with its graph.
    pub value: Option<Tensor>,
    /// The experts' balancing losses.
    pub balance: Option<Tensor>,
}

/// A decoder over one set of leaves.
pub(crate) struct Decoder<'a> {
    pub config: &'a ModelConfig,
    pub shape: &'a ModelShape,
    pub layout: &'a Layout,
    pub leaves: Leaves,
    /// Dropout and expert balancing are on if gradients are tracked.
    pub track: Track,
    pub step_position: StepPosition,
    /// Whether adapters are on.
    pub adapters: bool,
}

/// `x` times a factor, if there is one.
fn times(x: Tensor, factor: Option<f64>) -> Result<Tensor> {
    match factor {
        Some(factor) => x * factor,
        None => Ok(x),
    }
}

impl Decoder<'_> {
    /// `ids` (B, T) → hidden states after the last norm (B, T, D). `past` holds what is kept of earlier tokens, and is
    /// extended; empty at the start. `first` separates the documents of packed rows.
    ///
    /// # Errors
    /// candle's own: ids outside of the vocabulary, positions beyond the table.
    pub fn hidden(&self, ids: &Tensor, past: &mut Past, first: Option<&[u32]>) -> Result<Tensor> {
        Ok(self.hidden_and_balance(ids, past, (first, None))?.0)
    }

    /// The same with the experts' balancing losses, if there are experts.
    fn hidden_and_balance(
        &self,
        ids: &Tensor,
        past: &mut Past,
        (first, filled): (Option<&[u32]>, Option<&[u32]>),
    ) -> Result<(Tensor, Option<Tensor>)> {
        let positions = Positions {
            seq_len: ids.dim(1)?,
            start: past.tokens,
            first,
        };
        past.tokens += positions.seq_len;
        past.blocks.resize(self.shape.n_layer, BlockPast::default());
        let mut x = self.embedded(ids, positions)?;
        let rotations = rotations(self.config, self.shape);
        let mut balance = None;
        for (layer, past) in past.blocks.iter_mut().enumerate() {
            let block = &self.layout.blocks[layer];
            let h = self.norm(block.norm1.as_ref(), &x)?;
            let mixed = self.mixed((layer, &block.mixing), &h, (past, positions), &rotations)?;
            let place = Place::Attention(layer);
            let after = self.joined(&x, mixed, block.norm1_after.as_ref(), place)?;
            let read = if self.config.parallel_residual {
                &x
            } else {
                &after
            };
            let h = self.norm(block.norm2.as_ref(), read)?;
            let mixed = match &block.mlp {
                MlpSpans::One(spans) => self.feed_forward(spans, &h)?,
                MlpSpans::Many(spans) => {
                    let (y, share) = self.experts((layer, spans), &h, filled)?;
                    balance = Some(match balance {
                        None => share,
                        Some(sum) => (sum + share)?,
                    });
                    y
                }
            };
            let place = Place::Mlp(layer);
            x = self.joined(&after, mixed, block.norm2_after.as_ref(), place)?;
        }
        Ok((self.norm(self.layout.norm.as_ref(), &x)?, balance))
    }

    /// Token embeddings plus position embeddings.
    fn embedded(&self, ids: &Tensor, positions: Positions) -> Result<Tensor> {
        let table = self.leaves.get(self.layout.tokens)?;
        let vectors = match self.layout.positions {
            Some(span) => Some(self.leaves.get(span)?.clone()),
            None if self.config.position.adds_position_vectors() => {
                let (len, d) = (positions.start + positions.seq_len, self.shape.d_model);
                let values: Vec<f64> = (0..len).flat_map(|at| wave(at, d)).collect();
                let waves = Tensor::from_vec(values, (len, d), &Device::Cpu)?;
                Some(waves.to_dtype(table.dtype())?.to_device(table.device())?)
            }
            None => None,
        };
        let scale = self.config.embedding_scale.unwrap_or(1.0);
        let x = embedding::composite(ids, (table, scale), vectors.as_ref(), positions)?;
        self.dropped(x, Place::Embedding)
    }

    fn feed_forward(&self, spans: &FeedForwardSpans, h: &Tensor) -> Result<Tensor> {
        let wide = self.linear(&spans.wide, h)?;
        let active = activation::composite(self.config.mlp.activation(), &wide)?;
        self.linear(&spans.out, &active)
    }

    /// All experts over all tokens, each weighted by its gate, and the shared one; and this block's balancing losses, over the `filled`
    /// positions of each row.
    fn experts(
        &self,
        (layer, spans): (usize, &ExpertSpans),
        h: &Tensor,
        filled: Option<&[u32]>,
    ) -> Result<(Tensor, Tensor)> {
        let Some(moe) = self.config.experts(layer) else {
            candle_core::bail!("block {layer} has no experts")
        };
        let x = h.flatten_to(D::Minus2)?;
        let logit_bias = match spans.logit_bias {
            Some(span) => Some(self.leaves.get(span)?),
            None => None,
        };
        let logits = linear::composite(&x, self.leaves.get(spans.router)?, logit_bias)?;
        let bias = match spans.bias {
            Some(span) => Some(self.leaves.get(span)?),
            None => None,
        };
        let [gates, shares, mask, lse] = experts::composite(moe.router(), &logits, bias)?;
        let mut y = x.zeros_like()?;
        for e in 0..spans.count {
            let out = self.expert(spans, e, &x)?;
            y = (y + out.broadcast_mul(&gates.narrow(1, e, 1)?)?)?;
        }
        if let Some(shared) = &spans.shared {
            let out = self.feed_forward(&shared.mlp, &x)?;
            let out = match shared.gate {
                Some(gate) => {
                    let vector = self.leaves.get(gate)?.reshape((1, gate.cols))?;
                    row_gate::composite(&out, &linear::composite(&x, &vector, None)?)?
                }
                None => out,
            };
            y = (y + out)?;
        }
        let weights = self.counted(h, filled)?;
        let mean = |x: &Tensor| x.broadcast_mul(&weights)?.sum(0);
        let aux = ((mean(&mask)? * mean(&shares)?)?.sum_all()? * spans.count as f64)?;
        let z = mean(&lse.sqr()?.unsqueeze(1)?)?.sum_all()?;
        let blocks = self.config.expert_blocks() as f64;
        let share = ((aux * moe.aux_loss_coef)? + (z * moe.z_loss_coef)?)?;
        let share = (share * (self.step_position.share / blocks))?;
        Ok((y.reshape(h.shape())?, share))
    }

    /// Expert number `e` with its adapters.
    fn expert(&self, spans: &ExpertSpans, e: usize, x: &Tensor) -> Result<Tensor> {
        let own = spans.expert(e);
        let [low_wide, low_out] = spans.low;
        let wide = self.with_factors(low_wide, e, x, self.linear(&own.wide, x)?)?;
        let active = activation::composite(self.config.mlp.activation(), &wide)?;
        let out = self.linear(&own.out, &active)?;
        self.with_factors(low_out, e, &active, out)
    }

    /// `y` + scale · B (A `x`) of expert `e`.
    fn with_factors(
        &self,
        factors: Option<ExpertFactors>,
        e: usize,
        x: &Tensor,
        y: Tensor,
    ) -> Result<Tensor> {
        let Some(factors) = factors.filter(|_| self.adapters) else {
            return Ok(y);
        };
        let of = |all: Span, one: Span| -> Result<Tensor> {
            let all_values = self.leaves.get(all)?.reshape((all.rows, all.cols))?;
            all_values.narrow(0, e * one.rows, one.rows)
        };
        let low = linear::composite(x, &of(factors.all_a, factors.a(e))?, None)?;
        let added = linear::composite(&low, &of(factors.all_b, factors.b(e))?, None)?;
        y + (added * f64::from(factors.scale))?
    }

    /// The weight of each token of `h` (B, T, D) in a mean over those that are not padding, (B · T, 1).
    fn counted(&self, h: &Tensor, filled: Option<&[u32]>) -> Result<Tensor> {
        let (rows, seq_len) = (h.dim(0)?, h.dim(1)?);
        let counted = Counted {
            seq_len,
            filled: filled.unwrap_or_default(),
        };
        let n = rows * seq_len;
        let counts: Vec<f64> = (0..n)
            .map(|at| f64::from(u8::from(counted.has(at))))
            .collect();
        let total = counts.iter().sum::<f64>().max(1.0);
        let weights: Vec<f64> = counts.iter().map(|counts| counts / total).collect();
        Tensor::from_vec(weights, (n, 1), h.device())?.to_dtype(h.dtype())
    }

    /// The residual stream plus a sub-layer's output.
    fn joined(
        &self,
        x: &Tensor,
        added: Tensor,
        after: Option<&NormSpans>,
        place: Place,
    ) -> Result<Tensor> {
        let scale = self.config.residual_scale;
        match self.config.norm_placement.is_before_sum() {
            true => x + times(self.dropped(self.norm(after, &added)?, place)?, scale)?,
            false => self.norm(after, &(x + times(self.dropped(added, place)?, scale)?)?),
        }
    }

    fn dropped(&self, x: Tensor, place: Place) -> Result<Tensor> {
        match self.step_position.dropout(self.config.dropout, place) {
            Some(drop) if self.track == Track::Gradients => dropout::composite(&drop, &x),
            _ => Ok(x),
        }
    }

    /// Hidden states (…, D) → logits (…, V).
    ///
    /// # Errors
    /// candle's own.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let head = self.leaves.get(self.layout.head)?;
        let head = head.reshape((self.layout.head.rows, self.layout.head.cols))?;
        let logits = linear::composite(hidden, &head, None)?;
        if self.config.is_reward_model() {
            return Ok(logits);
        }
        let logits = times(logits, self.config.logit_scale)?;
        match self.config.logit_softcap {
            Some(cap) => softcap::composite(&logits, cap),
            None => Ok(logits),
        }
    }

    /// Log-probabilities and entropies of a batch with their graph, and whether targets were the top-1 tokens.
    ///
    /// # Errors
    /// candle's own: ids outside of the vocabulary, positions beyond the table.
    pub fn outputs(&self, batch: &TokenBatch) -> Result<Graph> {
        let shape = (batch.batch_size, batch.seq_len);
        let ids = Tensor::from_slice(batch.inputs, shape, &self.device())?;
        let targets = Tensor::from_slice(batch.targets, batch.targets.len(), &self.device())?;
        let (hidden, balance) =
            self.hidden_and_balance(&ids, &mut Past::default(), (batch.first, batch.filled))?;
        let head = self.leaves.get(self.layout.head)?;
        let hidden = hidden.flatten(0, 1)?;
        let (logp, entropy, top1) = match self.config.head {
            HeadKind::Score => {
                let head = head.reshape((1, self.layout.head.cols))?;
                let scores = score::composite(&hidden, &head)?;
                let zeros = scores.zeros_like()?;
                (scores, zeros.clone(), zeros)
            }
            HeadKind::Vocabulary => {
                // As `fused::head`: c · tanh(s z / c) / T is (c / T) · tanh((s z / T) / (c / T)).
                let temperature = f64::from(batch.temperature);
                let cap = self.config.logit_softcap.map(|cap| cap / temperature);
                let scale = self.config.logit_scale.unwrap_or(1.0);
                let tempered = (&hidden / (temperature / scale))?;
                logprob::composite(&tempered, head, &targets, cap)?
            }
        };
        let value = match self.layout.value {
            Some(span) => {
                let vector = self.leaves.get(span)?.reshape((1, span.cols))?;
                Some(score::composite(&hidden, &vector)?.reshape(shape)?)
            }
            None => None,
        };
        Ok(Graph {
            value,
            balance,
            logp: logp.reshape(shape)?,
            entropy: entropy.reshape(shape)?,
            top1: top1.reshape(shape)?,
        })
    }

    /// Gradient of Σ dlogp · logp + Σ dentropy · entropy + Σ dvalue · value + balancing losses, for each leaf.
    ///
    /// # Errors
    /// candle's own: gradients of another shape than the outputs.
    pub fn gradients(
        &self,
        outputs: &Graph,
        dlogp: &Tensor,
        dentropy: Option<&Tensor>,
        dvalue: Option<&Tensor>,
    ) -> Result<Vec<(Span, Tensor)>> {
        let dtype = outputs.logp.dtype();
        let mut sum = (&outputs.logp * dlogp.detach().to_dtype(dtype)?)?.sum_all()?;
        if let Some(dentropy) = dentropy {
            sum = (sum + (&outputs.entropy * dentropy.detach().to_dtype(dtype)?)?.sum_all()?)?;
        }
        if let (Some(value), Some(dvalue)) = (&outputs.value, dvalue) {
            sum = (sum + (value * dvalue.detach().to_dtype(dtype)?)?.sum_all()?)?;
        }
        if let Some(balance) = &outputs.balance {
            sum = (sum + balance)?;
        }
        self.leaves.gradients(&sum)
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
        let weight = self.leaves.get(spans.weight)?;
        match spans.adapter.filter(|_| self.adapters) {
            Some(number) => {
                let y = linear::composite(x, weight, None)?;
                let y = self.adapted(&self.layout.adapters[number], x, (y, weight))?;
                match bias {
                    Some(bias) => y.broadcast_add(bias),
                    None => Ok(y),
                }
            }
            None => linear::composite(x, weight, bias),
        }
    }

    /// `y` (…, out) + scale · B (A · dropout(`x`)), for the features that have an adapter; scaled to their magnitudes, if
    /// any.
    fn adapted(
        &self,
        adapter: &AdapterSpans,
        x: &Tensor,
        (y, weight): (Tensor, &Tensor),
    ) -> Result<Tensor> {
        let drop = self
            .step_position
            .dropout(adapter.dropout, Place::Adapter(adapter.lane))
            .filter(|_| self.track == Track::Gradients);
        let x = match drop {
            Some(drop) => dropout::composite(&drop, x)?,
            None => x.clone(),
        };
        let a = self.leaves.get(adapter.a)?;
        let low = linear::composite(&x, &a.reshape((adapter.a.rows, adapter.a.cols))?, None)?;
        let (mut pieces, mut end) = (Vec::new(), 0);
        for part in adapter.parts() {
            let Span { rows, cols, .. } = part.b;
            let low = low.narrow(D::Minus1, part.low, part.rank)?;
            let b = self.leaves.get(part.b)?.reshape((rows, cols))?;
            let added = (linear::composite(&low, &b, None)? * f64::from(part.scale))?;
            pieces.push(y.narrow(D::Minus1, end, part.first - end)?);
            let mut sum = (y.narrow(D::Minus1, part.first, rows)? + added)?;
            if let Some(magnitude) = part.magnitude {
                let a = self.leaves.get(adapter.a)?;
                let a = a.reshape((adapter.a.rows, adapter.a.cols))?;
                let a = a.narrow(0, part.low, part.rank)?;
                let change = (b.matmul(&a)? * f64::from(part.scale))?;
                let whole = (weight.narrow(0, part.first, rows)? + change)?;
                // A constant, as in the paper's section 4.3.
                let norm = whole.sqr()?.sum(1)?.sqrt()?.detach();
                let magnitude = self.leaves.get(magnitude)?.reshape(rows)?;
                sum = sum.broadcast_mul(&(magnitude / norm)?)?;
            }
            pieces.push(sum);
            end = part.first + rows;
        }
        pieces.push(y.narrow(D::Minus1, end, y.dim(D::Minus1)? - end)?);
        pieces.retain(|piece| piece.elem_count() > 0);
        Tensor::cat(&pieces, D::Minus1)
    }

    fn norm(&self, spans: Option<&NormSpans>, x: &Tensor) -> Result<Tensor> {
        let Some(spans) = spans else {
            return Ok(x.clone());
        };
        let bias = match spans.bias {
            Some(span) => Some(self.leaves.get(span)?),
            None => None,
        };
        let gain = self.gain(spans.gain)?;
        norm::composite(
            self.config.norm.kind(),
            x,
            &gain,
            bias,
            self.config.norm.eps(),
        )
    }

    /// The effective gain.
    fn gain(&self, span: Span) -> Result<Tensor> {
        self.leaves.get(span)? + self.config.norm.gain_offset()
    }
}
