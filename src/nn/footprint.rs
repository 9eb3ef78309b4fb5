//! How much memory a pass takes, counted without doing it: the same calls as `fused`, on sizes instead of numbers. The
//! planner asks; a test below holds this count against what a real step allocated.

use super::{ModelConfig, ModelShape};
use crate::kernels::logprob;

/// Bytes of f32.
const F32: u64 = 4;

/// What stays allocated from pass to pass, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// Activations that the backward needs; under evaluation, those that live at once.
    pub activations: u64,
    /// Gradients of activations while the backward walks down.
    pub gradients: u64,
    /// Logits of all rows or of one chunk, and what the head says of each row.
    pub head: u64,
}

impl Footprint {
    pub fn total(&self) -> u64 {
        self.activations + self.gradients + self.head
    }
}

/// A training pass over `batch` sequences of `seq_len` tokens on the fused door.
pub fn training(
    config: &ModelConfig,
    shape: &ModelShape,
    batch: usize,
    seq_len: usize,
) -> Footprint {
    let mut pass = Walk::new(Keep::All, batch * seq_len);
    pass.forward(config, shape);
    let mut gradients = Free::default();
    // The second backward may find the buffers of the first in another order.
    for _ in 0..2 {
        gradients.backward(&pass);
    }
    Footprint {
        activations: F32 * pass.total(),
        gradients: F32 * gradients.allocated,
        head: head(shape, batch * seq_len),
    }
}

/// An evaluation pass: buffers are used again as soon as nobody reads them.
pub fn evaluation(
    config: &ModelConfig,
    shape: &ModelShape,
    batch: usize,
    seq_len: usize,
) -> Footprint {
    let mut pass = Walk::new(Keep::Live, batch * seq_len);
    pass.forward(config, shape);
    Footprint {
        activations: F32 * pass.total(),
        gradients: 0,
        head: head(shape, batch * seq_len),
    }
}

fn head(shape: &ModelShape, rows: usize) -> u64 {
    let sizes = logprob::Sizes::new(rows, shape.d_model, shape.vocab_size);
    let answers = 3 * rows;
    F32 * (sizes.chunk_rows() * shape.vocab_size + answers) as u64
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    All,
    Live,
}

/// What the backward of a layer reads and writes: slots.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Takes the gradient of `y`, gives that of `x`.
    Layer { x: usize, y: usize },
    /// The same, and `y`'s gradient goes on to `residual`.
    Residual { x: usize, y: usize, residual: usize },
    /// Takes the gradient of the first activation.
    Embedding { x: usize },
}

/// The forward, slot by slot.
struct Walk {
    keep: Keep,
    rows: usize,
    slots: Vec<usize>,
    released: Vec<usize>,
    steps: Vec<Step>,
}

impl Walk {
    fn new(keep: Keep, rows: usize) -> Self {
        Walk {
            keep,
            rows,
            slots: Vec::new(),
            released: Vec::new(),
            steps: Vec::new(),
        }
    }

    fn total(&self) -> u64 {
        self.slots.iter().map(|len| *len as u64).sum()
    }

    /// A buffer of `width` numbers a token.
    fn slot(&mut self, width: usize) -> usize {
        let len = self.rows * width;
        let again = self.released.iter().position(|&s| self.slots[s] == len);
        if let Some(at) = again {
            return self.released.swap_remove(at);
        }
        self.slots.push(len);
        self.slots.len() - 1
    }

    fn release(&mut self, slot: usize) {
        if self.keep == Keep::Live {
            self.released.push(slot);
        }
    }

    fn layer(&mut self, x: usize, width: usize) -> usize {
        let y = self.slot(width);
        self.steps.push(Step::Layer { x, y });
        y
    }

    fn norm(&mut self, x: usize, d: usize) -> usize {
        let y = self.layer(x, d);
        let stats = self.slot(2);
        self.release(stats);
        y
    }

    fn projection(&mut self, x: usize, residual: usize, d: usize) -> usize {
        let y = self.slot(d);
        self.steps.push(Step::Residual { x, y, residual });
        y
    }

    fn forward(&mut self, config: &ModelConfig, shape: &ModelShape) {
        let d = shape.d_model;
        let q = shape.n_head * shape.head_dim;
        let kv = shape.n_kv_head * shape.head_dim;
        let wide = shape.d_ff * if config.mlp.gated() { 2 } else { 1 };
        let mut x = self.slot(d);
        self.steps.push(Step::Embedding { x });
        for _ in 0..shape.n_layer {
            let h = self.norm(x, d);
            let qkv = self.layer(h, q + 2 * kv);
            self.release(h);
            let mixed = self.layer(qkv, q);
            let lse = self.slot(shape.n_head);
            self.release(lse);
            self.release(qkv);
            let after = self.projection(mixed, x, d);
            self.release(mixed);
            self.release(x);
            let h = self.norm(after, d);
            let inner = self.layer(h, wide);
            self.release(h);
            let active = self.layer(inner, shape.d_ff);
            self.release(inner);
            x = self.projection(active, after, d);
            self.release(active);
            self.release(after);
        }
        self.norm(x, d);
    }
}

/// Buffers of gradients: the smallest free one that is large enough, else a new one.
#[derive(Debug, Default)]
struct Free {
    by_slot: Vec<Option<usize>>,
    free: Vec<usize>,
    allocated: u64,
}

impl Free {
    fn buffer(&mut self, len: usize) -> usize {
        let best = (0..self.free.len())
            .filter(|&i| self.free[i] >= len)
            .min_by_key(|&i| self.free[i]);
        if let Some(at) = best {
            return self.free.swap_remove(at);
        }
        self.allocated += len as u64;
        len
    }

    fn backward(&mut self, pass: &Walk) {
        self.by_slot = vec![None; pass.slots.len()];
        // The last norm's output is the second slot from the end: its statistics come after.
        let hidden = pass.slots.len() - 2;
        self.by_slot[hidden] = Some(self.buffer(pass.slots[hidden]));
        for step in pass.steps.iter().rev() {
            match *step {
                Step::Layer { x, y } => {
                    if let Some(dy) = self.by_slot[y].take() {
                        self.open(x, pass.slots[x]);
                        self.free.push(dy);
                    }
                }
                Step::Residual { x, y, residual } => {
                    if let Some(dy) = self.by_slot[y].take() {
                        self.open(x, pass.slots[x]);
                        match self.by_slot[residual] {
                            None => self.by_slot[residual] = Some(dy),
                            Some(_) => self.free.push(dy),
                        }
                    }
                }
                Step::Embedding { x } => {
                    if let Some(dx) = self.by_slot[x].take() {
                        self.free.push(dx);
                    }
                }
            }
        }
    }

    fn open(&mut self, slot: usize, len: usize) {
        if self.by_slot[slot].is_none() {
            self.by_slot[slot] = Some(self.buffer(len));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::mlp::MlpConfig;
    use crate::nn::norm::NormConfig;
    use crate::nn::position::PositionConfig;
    use crate::nn::{Model, TokenBatch};
    use candle_core::{Device, Tensor};

    /// What one step, and one evaluation, of a real model left allocated.
    fn measured(config: &ModelConfig, batch: usize, seq_len: usize) -> (Footprint, Footprint) {
        let mut model = Model::new(config, 65, &Device::Cpu).unwrap();
        model.init(1).unwrap();
        let tokens: Vec<u32> = (0..batch * seq_len).map(|i| (i % 65) as u32).collect();
        let view = TokenBatch {
            inputs: &tokens,
            targets: &tokens,
            batch_size: batch,
            seq_len,
        };
        for _ in 0..3 {
            let out = model.forward(&view).unwrap();
            let dlogp = Tensor::ones_like(&out.logp).unwrap();
            model.backward(&dlogp, None).unwrap();
            model.score(&view).unwrap();
        }
        model.footprints()
    }

    #[test]
    fn the_count_is_what_a_step_allocates() {
        let llama = ModelConfig {
            n_layer: 3,
            n_kv_head: Some(2),
            d_model: 48,
            position: PositionConfig::Rope(Default::default()),
            norm: NormConfig::RmsNorm(Default::default()),
            mlp: MlpConfig::SwiGlu(Default::default()),
            tie_embeddings: false,
            ..Default::default()
        };
        let gpt = ModelConfig {
            n_layer: 2,
            d_model: 32,
            bias: true,
            ..Default::default()
        };
        for config in [gpt, llama] {
            for (batch, seq_len) in [(1, 64), (3, 40)] {
                let shape = config.shape(65);
                let counted = (
                    training(&config, &shape, batch, seq_len),
                    evaluation(&config, &shape, batch, seq_len),
                );
                let measured = measured(&config, batch, seq_len);
                assert_eq!(counted, measured, "{config:?} {batch} × {seq_len}");
            }
        }
    }

    #[test]
    fn evaluation_takes_a_layer_and_training_takes_all() {
        let config = ModelConfig {
            n_layer: 12,
            ..Default::default()
        };
        let shape = config.shape(65);
        let (train, eval) = (
            training(&config, &shape, 2, 64),
            evaluation(&config, &shape, 2, 64),
        );
        assert!(train.activations > 8 * eval.activations);
        assert!(train.gradients < train.activations / 8);
        assert_eq!(train.head, eval.head);
    }
}
