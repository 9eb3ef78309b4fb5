//! Inputs that a model rejects: wrong shapes, tokens outside the vocabulary.

use super::{Backend, Model, ModelConfig, ModelShape, TokenBatch};
use crate::nn::Balancing;
use candle_core::{Result, Tensor, bail};

impl Model {
    /// Rejects inputs that cannot be trained on.
    pub(super) fn check_training(&self, batch: &TokenBatch) -> Result<()> {
        self.params.require_trainable()?;
        if self.adapter.is_some() && !self.adapters_on {
            bail!("model: only adapters train, but they are off: set_adapters(true)")
        }
        self.check_batch(batch)
    }

    /// Rejects generation with a reward model.
    pub(super) fn check_writes(&self) -> Result<()> {
        if self.config.is_reward_model() {
            bail!("model: it is a reward model: it scores texts and cannot generate")
        }
        Ok(())
    }

    pub(super) fn check_batch(&self, batch: &TokenBatch) -> Result<()> {
        let (batch_size, seq_len) = (batch.batch_size, batch.seq_len);
        self.check_tokens("inputs", batch.inputs, batch_size, seq_len)?;
        self.check_tokens("targets", batch.targets, batch_size, seq_len)?;
        let tokens = batch_size * seq_len;
        if let Some(first) = batch.first {
            let after = |(i, &first): (usize, &u32)| first as usize > i % seq_len;
            if first.len() != tokens || first.iter().enumerate().any(after) {
                bail!("first: expected {tokens} positions, none after its own token's")
            }
        }
        if let Some(filled) = batch.filled {
            let beyond = |filled: &u32| *filled as usize > seq_len;
            if filled.len() != batch_size || filled.iter().any(beyond) {
                bail!("filled: expected {batch_size} numbers of places, none above {seq_len}")
            }
        }
        Ok(())
    }

    /// Rejects ids that would index outside a table.
    pub(super) fn check_tokens(
        &self,
        name: &str,
        tokens: &[u32],
        batch: usize,
        len: usize,
    ) -> Result<()> {
        if tokens.len() != batch * len || tokens.is_empty() {
            bail!(
                "{name}: expected {batch} × {len} tokens, got {}",
                tokens.len()
            )
        }
        if self.layout.positions.is_some() && len > self.shape.seq_len {
            bail!(
                "{name}: sequences of {len} tokens, but learned positions end at seq_len {}",
                self.shape.seq_len
            )
        }
        self.check_ids(name, tokens)
    }

    pub(crate) fn check_ids(&self, name: &str, tokens: &[u32]) -> Result<()> {
        let vocab_size = self.shape.vocab_size;
        match tokens.iter().position(|&id| id as usize >= vocab_size) {
            Some(at) => bail!(
                "{name}: token {} at index {at} is outside the vocabulary of {vocab_size}",
                tokens[at]
            ),
            None => Ok(()),
        }
    }
}

/// Rejects gradients of another shape than the batch's.
pub(super) fn upstream(
    expected: &[usize],
    dlogp: &Tensor,
    dentropy: Option<&Tensor>,
    dvalue: Option<&Tensor>,
) -> Result<()> {
    for (name, tensor) in [
        ("dlogp", Some(dlogp)),
        ("dentropy", dentropy),
        ("dvalue", dvalue),
    ] {
        if let Some(tensor) = tensor
            && tensor.dims() != expected
        {
            bail!(
                "{name}: expected shape {expected:?}, got {:?}",
                tensor.dims()
            )
        }
    }
    Ok(())
}

pub(super) fn shape(config: &ModelConfig, shape: &ModelShape, backend: Backend) -> Result<()> {
    let sizes = [
        shape.n_layer,
        shape.n_head,
        shape.n_kv_head,
        shape.head_dim,
        shape.d_model,
        shape.d_ff,
        shape.seq_len,
        shape.vocab_size,
    ];
    if sizes.contains(&0) {
        bail!("model: every size must be at least 1, got {shape:?}")
    }
    if backend == Backend::Composite
        && let Some(moe) = &config.moe
        && let Balancing::Bias { rate } = moe.balancing
        && rate > 0.0
    {
        bail!(
            "model: experts are balanced by biases on the CPU's fused kernels alone; say balancing: loss, or a rate of 0"
        )
    }
    match config.faults().first() {
        Some(fault) => bail!("model: {}; {}", fault.what, fault.hint),
        None => Ok(()),
    }
}
