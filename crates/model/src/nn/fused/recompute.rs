//! Values that one cheap pass over a stored buffer can recompute, such as norms: if they are large, the forward releases them
//! as soon as a matmul has read them, and the backward of that matmul recomputes them. For a buffer larger than the caches
//! this costs hardly more than reading it back. Activation outputs are never stored: `activation` recomputes them for free.

use super::{Node, Pass, Plan};
use crate::kernels::norm;
use crate::nn::profile::Part;
use crate::nn::tape::{Slot, Track};

/// Buffers of at least this many bytes in f32 are recomputed: smaller ones may still be in a cache when they are read again.
const LARGE: usize = 4 << 20;

/// Whether a buffer of this many elements is recomputed for the backward.
fn is_recomputed(numbers: usize) -> bool {
    numbers * size_of::<f32>() >= LARGE
}

impl Pass {
    /// Marks the last use of a norm's output in the forward.
    pub(super) fn release_recomputable(&mut self, slot: Slot) {
        if self.keep == Track::Off || is_recomputed(self.arena.numbers(slot)) {
            self.arena.release(slot);
        }
    }

    /// Recomputes the value of `slot`, if it was released, from the state of its norm. Returns whether it did.
    pub(super) fn recompute(&mut self, plan: &Plan, slot: Slot) -> bool {
        if self.arena.len(slot) > 0 {
            return false;
        }
        let Some(Node::Norm {
            x,
            storage,
            stats,
            spans,
            ..
        }) = self.producer(slot)
        else {
            debug_assert!(false, "only a norm's output is released");
            return false;
        };
        let mut values = self.arena.buffer_in(storage, self.arena.len(x));
        let mut stats_values = self.arena.take(stats);
        let x_values = self.arena.get(x);
        self.kernels.run(Part::Norm, || {
            norm::forward(
                plan.norm_of(&spans),
                x_values,
                values.view_mut(),
                &mut stats_values,
            );
        });
        self.arena.put(stats, stats_values);
        self.arena.put(slot, values);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::matmul::ComputeDtype;
    use crate::nn::footprint::{self, Subject};
    use crate::nn::mlp::MlpConfig;
    use crate::nn::position::PositionConfig;
    use crate::nn::{ActivationCheckpointing, Model, ModelConfig, TokenBatch};
    use candle_core::{Device, Tensor};

    const VOCAB: usize = 11;
    const SEQ_LEN: usize = 64;
    const ROWS: usize = 1 << 16;

    fn config(llama: bool) -> ModelConfig {
        let config = ModelConfig {
            n_layer: 2,
            n_head: 2,
            d_model: 16,
            seq_len: SEQ_LEN,
            bias: !llama,
            ..Default::default()
        };
        if !llama {
            return config;
        }
        ModelConfig {
            n_kv_head: Some(1),
            d_ff: Some(20),
            position: PositionConfig::Rope(Default::default()),
            mlp: MlpConfig::SwiGlu(Default::default()),
            ..config
        }
    }

    /// Gradients of all rows in micro-steps of `batch_size` texts.
    fn gradients(model: &mut Model, batch_size: usize) -> Vec<f32> {
        model.params_mut().zero_grads().unwrap();
        let tokens: Vec<u32> = (0..=ROWS as u32).map(|i| i % 997 * 31 % 11).collect();
        let n = batch_size * SEQ_LEN;
        for from in (0..ROWS).step_by(n) {
            let batch = TokenBatch {
                inputs: &tokens[from..from + n],
                targets: &tokens[from + 1..=from + n],
                batch_size,
                seq_len: SEQ_LEN,
                first: None,
                temperature: 1.0,
                filled: None,
            };
            model.forward(&batch).unwrap();
            let dlogp = Tensor::full(-1.0f32 / ROWS as f32, (batch_size, SEQ_LEN), &Device::Cpu);
            model.backward(&dlogp.unwrap(), None).unwrap();
        }
        model.params().read_grads(<[f32]>::to_vec).unwrap()
    }

    #[test]
    fn gradients_equal_those_of_small_batches_and_the_predicted_bytes_are_exact() {
        assert!(is_recomputed(ROWS * 16) && !is_recomputed(1024 * 64));
        let parallel = ModelConfig {
            parallel_residual: true,
            ..config(false)
        };
        let cases = [
            (config(false), ActivationCheckpointing::None {}),
            (config(false), ActivationCheckpointing::Full {}),
            (config(true), ActivationCheckpointing::None {}),
            (parallel.clone(), ActivationCheckpointing::None {}),
            (parallel, ActivationCheckpointing::Full {}),
        ];
        for (config, checkpointing) in cases {
            let mut model = Model::new(&config, VOCAB, &Device::Cpu).unwrap();
            model.init(5).unwrap();
            model.set_checkpointing(checkpointing);
            let kept = gradients(&mut model, 16);
            let recomputed = gradients(&mut model, ROWS / SEQ_LEN);
            let largest = kept.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
            for (a, b) in kept.iter().zip(&recomputed) {
                assert!((a - b).abs() < 1e-4 * largest, "{a} and {b} of {largest}");
            }
            let (shape, texts) = (config.shape(VOCAB), ROWS / SEQ_LEN);
            let of = Subject {
                config: &config,
                shape: &shape,
                trained: Default::default(),
                is_packed: false,
                arithmetic: ComputeDtype::F32,
            };
            let predicted = footprint::training(of, (texts, SEQ_LEN), checkpointing);
            assert_eq!(model.footprints().0, predicted, "{checkpointing:?}");
        }
    }
}
