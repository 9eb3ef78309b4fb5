//! Memory of a pass besides weights, gradients and moments, predicted to the byte for the planner; the tests below compare it
//! with real steps.
//!
//! With R = batch_size · seq_len rows, Q = (n_head + 2 n_kv_head) · head_dim, A = n_head · head_dim, K and V the widths of a
//! delta net's keys and values, I the width of Mamba 2's heads and G that of B, of all groups, F = d_ff and W = F, or 2 F for a gated feed-forward block, a block whose activations are stored
//! has per row
//!
//! ```text
//! 4 d_model + W + 4                       values of f32, and
//!   Q + A + n_head                        of attention,
//!   Q + 3 A + n_head                      of attention with a gate,
//!   P + L + 4 A + A' + n_head + 2 n       of latent attention,
//!   4 d_model                             of a short convolution, or
//!   2 K + 4 V + 2 n_value_head            of a gated delta net, with the states of its heads every 64 tokens, or
//!   4 I + 2 G + n_head                    of Mamba 2, with the same
//! ```
//!
//! (norm outputs, the middle and the end of the residual stream; the activation function's input; statistics of the norms. Of
//! attention queries, keys and values, its output and log-sum-exp, the gate and what it leaves; of a mixer the projections of its
//! input and its output, of a delta net each token's update as well, and of Mamba 2 what its heads give), minus the norm outputs if they are large, and minus the
//! middle of the stream with a parallel residual; in bf16
//! norm outputs, queries, keys, values, attention's output and the activation function's input take half (`fused/plan`, among).
//! Of latent attention P is the width of the projections of the block's input, L the widths of its latent vectors after their norms, A that of
//! all heads in attention (queries, keys, values and output alike), A' that of values where it is less, and n
//! the number of those norms.
//! In a block with a mixer in place of attention, Q + A + n_head are the width of its projections, what goes to its projection out,
//! and of a gated delta net each token's update and the states between segments (`kernels/gated_delta`).
//! Without activation checkpointing all n_layer blocks are stored; with it ⌈n_layer / n⌉ − 1 boundaries of d_model and one
//! segment of n blocks. In addition there are the first row of the residual stream, the last norm, and the few gradients that
//! are alive at once. The exact number comes from the pass itself, because buffers are shared by size: it runs over a counting
//! arena, without its kernels (`fused/count`).

use super::freeze::TrainableSet;
pub use super::fused::Footprint;
use super::fused::{Pass, Plan};
use super::kv_cache::{BlockShape, CHUNK, KvShape};
use super::layout::Layout;
use super::step_position::StepPosition;
use super::tables::Tables;
use super::tape::Track;
use super::weights::Weights;
use super::{ActivationCheckpointing, KvPrecision, ModelConfig, ModelShape};
use crate::kernels::logprob;
pub use crate::kernels::matmul::ComputeDtype;
use crate::kernels::numbers::Storage;

/// The model of a pass, and its compute settings.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub config: &'a ModelConfig,
    pub shape: &'a ModelShape,
    pub trained: TrainableSet<'a>,
    /// Whether its matrices are kept as a file has them.
    pub is_packed: bool,
    pub arithmetic: ComputeDtype,
}

/// A training pass over `batch` sequences of `seq_len` tokens on the fused backend, for a loss whose gradient is known
/// beforehand. Other losses keep the logits of all rows, up to 64 MiB.
pub fn training(
    of: Subject,
    at_once: (usize, usize),
    checkpointing: ActivationCheckpointing,
) -> Footprint {
    count(of, Track::Gradients, at_once, checkpointing)
}

/// An evaluation pass: buffers are reused as soon as nothing reads them.
pub fn evaluation(of: Subject, at_once: (usize, usize)) -> Footprint {
    count(of, Track::Off, at_once, ActivationCheckpointing::default())
}

impl Subject<'_> {
    /// The dtype of its KV cache.
    pub fn kv_storage(&self) -> Storage {
        KvPrecision::AsTrained.resolve(self.arithmetic, false)
    }
}

/// Bytes of keys and values, and of states, of texts that are decoded together, each with space for `tokens`. Copies of
/// states are not counted: `Model::context_bytes` does, for inference.
pub fn cache(of: Subject, (texts, tokens): (usize, usize)) -> u64 {
    let shape = KvShape {
        heads: of.config.kept_heads(),
        blocks: &BlockShape::of(of.config),
        storage: of.kv_storage(),
    };
    texts as u64 * shape.bytes(tokens)
}

/// Additional memory for decoding them: a pass over a chunk of prompts or over the next token of each text, and its logits.
pub fn decoding(of: Subject, (texts, tokens): (usize, usize)) -> u64 {
    let rows = texts.max(CHUNK.min(texts * tokens));
    let at_once = (rows.div_ceil(tokens.max(1)), tokens);
    let pass = match of.config.mla {
        Some(_) => count_with(Pass::decoding(), of, at_once, Default::default()),
        None => evaluation(of, at_once),
    };
    pass.activations + (texts * of.shape.vocab_size * size_of::<f32>()) as u64
}

fn count(
    of: Subject,
    track: Track,
    at_once: (usize, usize),
    checkpointing: ActivationCheckpointing,
) -> Footprint {
    count_with(Pass::counting(track), of, at_once, checkpointing)
}

fn count_with(
    mut pass: Pass,
    of: Subject,
    (batch, seq_len): (usize, usize),
    checkpointing: ActivationCheckpointing,
) -> Footprint {
    let plan = Plan {
        arithmetic: of.arithmetic,
        checkpointing,
        config: of.config,
        shape: of.shape,
        layout: &Layout::trained(of.config, of.shape, of.trained),
        tables: &Tables::default(),
        step_position: StepPosition::default(),
        weights: Weights::Absent {
            are_stored: of.is_packed,
        },
        adapters: true,
        magnitudes: &[],
        embedding_noise: 0.0,
    };
    pass.count(&plan, batch * seq_len, seq_len)
}

/// Rows whose logits exist at once, out of `rows`.
pub fn head_rows(shape: &ModelShape, rows: usize) -> usize {
    logprob::Sizes::in_chunks(rows, shape.d_model, shape.vocab_size).chunk_rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::adapter::{Lora, Targets};
    use crate::nn::freeze::is_frozen;
    use crate::nn::mixer::{GatedDeltaNetConfig, Mamba2Config, MixerConfig};
    use crate::nn::mlp::MlpConfig;
    use crate::nn::position::PositionConfig;
    use crate::nn::{AdapterConfig, MlaConfig, Model, ParamInfo, TokenBatch};
    use candle_core::{Device, Tensor};

    fn subject<'a>(
        config: &'a ModelConfig,
        shape: &'a ModelShape,
        trained: TrainableSet<'a>,
    ) -> Subject<'a> {
        Subject {
            config,
            shape,
            trained,
            is_packed: false,
            arithmetic: ComputeDtype::F32,
        }
    }

    fn llama(n_layer: usize) -> ModelConfig {
        ModelConfig {
            n_layer,
            n_head: 4,
            n_kv_head: Some(2),
            d_model: 16,
            d_ff: Some(20),
            seq_len: 6,
            position: PositionConfig::Rope(Default::default()),
            mlp: MlpConfig::SwiGlu(Default::default()),
            ..Default::default()
        }
    }

    fn gpt2(n_layer: usize) -> ModelConfig {
        ModelConfig {
            n_layer,
            n_head: 2,
            d_model: 16,
            seq_len: 6,
            bias: true,
            ..Default::default()
        }
    }

    fn neox(n_layer: usize) -> ModelConfig {
        ModelConfig {
            parallel_residual: true,
            position: PositionConfig::Rope(Default::default()),
            ..gpt2(n_layer)
        }
    }

    /// Every second block has attention.
    fn hybrid(n_layer: usize, mixer: MixerConfig) -> ModelConfig {
        ModelConfig {
            mixer: Some(mixer),
            attention_every: Some(2),
            ..llama(n_layer)
        }
    }

    fn short_conv(n_layer: usize) -> ModelConfig {
        hybrid(n_layer, MixerConfig::ShortConv(Default::default()))
    }

    fn gated_delta(n_layer: usize) -> ModelConfig {
        let net = GatedDeltaNetConfig {
            n_key_head: 2,
            n_value_head: 4,
            key_dim: 5,
            value_dim: 3,
            conv_len: 3,
        };
        ModelConfig {
            attention_gate: true,
            ..hybrid(n_layer, MixerConfig::GatedDeltaNet(net))
        }
    }

    fn mamba2(n_layer: usize) -> ModelConfig {
        let net = Mamba2Config {
            n_head: 4,
            head_dim: 5,
            state_dim: 3,
            n_group: 2,
            conv_len: 3,
            ..Mamba2Config::default()
        };
        hybrid(n_layer, MixerConfig::Mamba2(net))
    }

    fn latent(n_layer: usize) -> ModelConfig {
        let mla = MlaConfig {
            kv_rank: 9,
            q_rank: Some(8),
            nope_dim: 8,
            rope_dim: 4,
            v_dim: 5,
            ..MlaConfig::default()
        };
        ModelConfig {
            n_kv_head: None,
            mla: Some(mla),
            ..llama(n_layer)
        }
    }

    const VOCAB: usize = 11;

    #[test]
    fn keys_and_values_use_the_predicted_memory() {
        let windowed = ModelConfig {
            sliding_window: Some(4),
            ..llama(3)
        };
        let hybrid = ModelConfig {
            mixer: Some(MixerConfig::ShortConv(Default::default())),
            attention_every: Some(3),
            ..llama(4)
        };
        for config in [llama(3), gpt2(2), windowed, hybrid] {
            let shape = config.shape(VOCAB);
            let blocks = BlockShape::of(&config);
            for arithmetic in [ComputeDtype::F32, ComputeDtype::Bf16] {
                let of = Subject {
                    arithmetic,
                    ..subject(&config, &shape, TrainableSet::default())
                };
                let kept = crate::nn::kv_cache::KvShape {
                    heads: shape.heads(),
                    blocks: &blocks,
                    storage: of.kv_storage(),
                };
                for tokens in [5, 2 * CHUNK] {
                    let one = crate::nn::kv_cache::KvCache::new(kept, tokens).bytes();
                    assert_eq!(cache(of, (7, tokens)), 7 * one as u64);
                    let kept = config.attention_layers().count();
                    let numbers = 7 * 2 * kept * tokens * shape.heads().kv_width();
                    // Two values of b ∘ x of each channel, in f32.
                    let states = 7 * 4 * (shape.n_layer - kept) * 2 * shape.d_model;
                    if config.sliding_window.is_none() {
                        assert_eq!(
                            cache(of, (7, tokens)) as usize,
                            of.kv_storage().size() * numbers + states
                        );
                    }
                }
            }
        }
    }

    fn policies() -> Vec<ActivationCheckpointing> {
        let every = [1, 2, 3, 4].map(|n| ActivationCheckpointing::EveryN { n });
        let mut all = vec![
            ActivationCheckpointing::None {},
            ActivationCheckpointing::Full {},
        ];
        all.extend(every);
        all
    }

    /// Gradients and log-probabilities of two micro-steps, and the memory that each left allocated.
    fn run(
        config: &ModelConfig,
        trained: TrainableSet,
        checkpointing: ActivationCheckpointing,
    ) -> (Vec<u32>, Vec<f32>, [(Footprint, Footprint); 2]) {
        let mut model = Model::new(config, VOCAB, &Device::Cpu).unwrap();
        if let Some(adapter) = trained.adapter {
            model.adapt(adapter).unwrap();
        } else {
            let trains = |info: &ParamInfo| !is_frozen(info, trained.frozen);
            model.train_only(trains).unwrap();
        }
        model.init(5).unwrap();
        model.set_checkpointing(checkpointing);
        let tokens: Vec<u32> = (0..13).map(|i| i * 7 % 11).collect();
        let batch = TokenBatch {
            inputs: &tokens[..12],
            targets: &tokens[1..],
            batch_size: 2,
            seq_len: 6,
            first: None,
            temperature: 1.0,
            filled: None,
        };
        let dlogp = Tensor::full(-0.1f32, (2, 6), &Device::Cpu).unwrap();
        let mut logp = Vec::new();
        let bytes = [(); 2].map(|()| {
            let outputs = model.forward(&batch).unwrap();
            logp = outputs.logp.flatten_all().unwrap().to_vec1().unwrap();
            model.backward(&dlogp, Some(&dlogp)).unwrap();
            model.score(&batch).unwrap();
            model.footprints()
        });
        let bits = |g: &[f32]| g.iter().map(|x| x.to_bits()).collect();
        (model.params().read_grads(bits).unwrap(), logp, bytes)
    }

    /// None, on all layers with dropout, on attention only without, and with magnitudes.
    fn adapters() -> [Option<AdapterConfig>; 4] {
        let lora = |targets, dropout| {
            let config = Lora {
                rank: 3,
                targets,
                dropout,
                ..Lora::default()
            };
            Some(AdapterConfig::Lora(config))
        };
        let attention = lora(Targets::AttentionOnly, 0.0);
        let scaled = lora(Targets::All, 0.1)
            .map(|AdapterConfig::Lora(lora)| AdapterConfig::Lora(Lora { dora: true, ..lora }));
        [None, lora(Targets::All, 0.1), attention, scaled]
    }

    #[test]
    fn checkpointing_is_bit_identical_and_the_predicted_bytes_are_exact() {
        for n_layer in [1, 2, 3, 5] {
            for config in [gpt2(n_layer), llama(n_layer), neox(n_layer)] {
                for adapter in adapters() {
                    check(&config, TrainableSet::with(adapter.as_ref()));
                }
            }
        }
    }

    #[test]
    fn the_predicted_bytes_are_exact_with_mixers_and_their_adapters() {
        let mixers = [short_conv, gated_delta, mamba2, latent];
        for config in mixers.iter().flat_map(|of| [of(2), of(3)]) {
            for adapter in adapters() {
                check(&config, TrainableSet::with(adapter.as_ref()));
            }
        }
    }

    /// Two blocks more, which differ in their mixing alone.
    #[test]
    fn blocks_of_each_kind_keep_what_the_formula_says() {
        let pair = |config: &dyn Fn(usize) -> ModelConfig| {
            let bytes = |n_layer| {
                let config = config(n_layer);
                let shape = config.shape(VOCAB);
                let of = subject(&config, &shape, TrainableSet::default());
                training(of, (2, 6), ActivationCheckpointing::None {}).activations
            };
            bytes(14) - bytes(12)
        };
        let gated = |n_layer| ModelConfig {
            attention_gate: true,
            ..llama(n_layer)
        };
        // 12 rows. Four heads of four features, with two of keys and values: Q + A + n_head.
        let (row, attention) = (12 * 4, 32 + 16 + 4);
        let same = pair(&llama) - 2 * row * attention;
        assert_eq!(pair(&short_conv) - same, row * (attention + 4 * 16));
        // Queries from a latent vector, heads of 12 and values of 5 features.
        let latent = 8 + 9 + 4 + 8 + 9 + 4 * 4 * 12 + 4 * 5 + 4 + 2 * 2;
        assert_eq!(pair(&self::latent) - same, 2 * row * latent);
        let with_gate = attention + 2 * 16;
        assert_eq!(pair(&gated) - same, 2 * row * with_gate);
        // Widths of 10 and 12. Each text has one state of four heads, whose sides are whole lines of 16.
        let (net, states) = (2 * 10 + 4 * 12 + 2 * 4, 4 * 2 * 4 * 16 * 16);
        assert_eq!(pair(&gated_delta) - same, row * (with_gate + net) + states);
        // Heads of 20 features in all, B and C of six; sides of states as above.
        let (net, states) = (4 * 20 + 2 * 6 + 4, 4 * 2 * 4 * 16 * 16);
        assert_eq!(pair(&mamba2) - same, row * (attention + net) + states);
    }

    #[test]
    fn the_predicted_bytes_are_exact_where_parts_are_frozen() {
        for names in [
            vec!["mlp"],
            vec!["attention", "norms"],
            vec!["*.0.*", "embeddings"],
        ] {
            let frozen: Vec<String> = names.iter().map(ToString::to_string).collect();
            let trained = TrainableSet {
                adapter: None,
                frozen: &frozen,
            };
            for config in [gpt2(3), llama(3), neox(3)] {
                check(&config, trained);
            }
        }
    }

    fn check(config: &ModelConfig, trained: TrainableSet) {
        let kept = run(config, trained, ActivationCheckpointing::None {});
        for checkpointing in policies() {
            let what = format!("{checkpointing:?} of {} {trained:?}", config.n_layer);
            let (grads, logp, bytes) = run(config, trained, checkpointing);
            assert!(grads == kept.0, "{what}: gradients differ");
            assert_eq!(logp, kept.1, "{what}");
            let shape = config.shape(VOCAB);
            let predicted = (
                training(subject(config, &shape, trained), (2, 6), checkpointing),
                evaluation(subject(config, &shape, trained), (2, 6)),
            );
            assert_eq!(bytes, [predicted; 2], "{what}");
        }
    }

    #[test]
    fn memory_decreases_as_the_formula_predicts() {
        let (config, rows) = (gpt2(12), 12);
        let shape = config.shape(VOCAB);
        let bytes = |checkpointing| {
            let footprint = training(
                subject(&config, &shape, TrainableSet::default()),
                (2, 6),
                checkpointing,
            );
            footprint.activations + footprint.gradients
        };
        let kept = bytes(ActivationCheckpointing::None {});
        let half = bytes(ActivationCheckpointing::EveryN { n: 6 });
        let full = bytes(ActivationCheckpointing::Full {});
        // (4 + 3 + 1 + 4) d + n_head + 4 numbers per block and row, and one boundary.
        let block = rows * 4 * (12 * 16 + 2 + 4);
        assert_eq!(kept - half, 6 * block - rows * 4 * 16);
        assert!(full < kept / 4, "{full} of {kept}");
    }

    #[test]
    fn a_parallel_residual_keeps_one_stream_less_of_each_block() {
        let bytes = |config: &ModelConfig| {
            let shape = config.shape(VOCAB);
            let of = subject(config, &shape, TrainableSet::default());
            training(of, (2, 6), ActivationCheckpointing::None {}).activations
        };
        let parallel = ModelConfig {
            parallel_residual: true,
            ..gpt2(12)
        };
        // 12 rows of 16 values. All blocks share one buffer, and so does the last norm.
        let stream = 12 * 4 * 16;
        assert_eq!(bytes(&gpt2(12)) - bytes(&parallel), 12 * stream);
    }

    #[test]
    fn evaluation_needs_one_layer_and_training_all() {
        let config = gpt2(12);
        let shape = config.shape(65);
        let kept = ActivationCheckpointing::None {};
        let (train, eval) = (
            training(
                subject(&config, &shape, TrainableSet::default()),
                (2, 64),
                kept,
            ),
            evaluation(subject(&config, &shape, TrainableSet::default()), (2, 64)),
        );
        assert!(train.activations > 8 * eval.activations);
        assert!(train.gradients < train.activations / 8);
        assert_eq!(train.head, eval.head);
    }

    #[test]
    fn a_combined_head_pass_holds_a_chunk_of_logits() {
        const VOCAB: usize = 1100;
        let config = ModelConfig {
            n_layer: 2,
            n_head: 1,
            d_model: 4,
            seq_len: 66,
            ..Default::default()
        };
        let tokens: Vec<u32> = (0..=1056).map(|i| i * 31 % VOCAB as u32).collect();
        let batch = TokenBatch::plain(&tokens[..1056], &tokens[1..], 16, 66);
        for checkpointing in [
            ActivationCheckpointing::None {},
            ActivationCheckpointing::Full {},
        ] {
            let mut model = Model::new(&config, VOCAB, &Device::Cpu).unwrap();
            model.init(5).unwrap();
            model.set_checkpointing(checkpointing);
            for _ in 0..2 {
                model
                    .accumulate_linear(&batch, &[-0.1; 1056], |_| ())
                    .unwrap();
            }
            let shape = config.shape(VOCAB);
            let predicted = training(
                subject(&config, &shape, TrainableSet::default()),
                (16, 66),
                checkpointing,
            );
            assert_eq!(model.footprints().0, predicted);
            assert_eq!(predicted.head, 4 * (528 * (1100 + 4) + 4 * 1056));
        }
    }
}
