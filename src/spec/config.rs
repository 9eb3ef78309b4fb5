//! A run as said: the merged text of presets and overrides, typed. Field comments are form labels, help and docs.

use crate::base::sampling::Sampling;
use crate::{
    data::DataConfig,
    methods::MethodConfig,
    nn::{ActivationCheckpointing, AdapterConfig, ModelConfig, Precision},
    optim::OptimizerConfig,
    optim::schedule::ScheduleConfig,
};
use serde::{Deserialize, Serialize};

/// Everything that decides a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// A short name; part of the run's directory name.
    pub name: String,
    /// One sentence on what this run teaches.
    pub about: String,
    /// Seed of weights, batches and samples.
    pub seed: u64,
    /// What the model learns from.
    pub method: MethodConfig,
    /// What the model is made of.
    pub model: ModelConfig,
    /// Small trainable matrices beside frozen weights. Default: none, all weights train.
    pub adapter: Option<AdapterConfig>,
    /// Where training text comes from.
    pub data: DataConfig,
    /// How long and in what portions.
    pub train: TrainConfig,
    /// The update rule.
    pub optimizer: OptimizerConfig,
    /// How the learning rate changes.
    pub schedule: ScheduleConfig,
    /// When validation loss is measured.
    pub eval: EvalConfig,
    /// When text is sampled for the eye.
    pub sample: SampleConfig,
    /// When the state is saved and what is kept.
    pub checkpoint: CheckpointConfig,
    /// Checks before the first step.
    pub preflight: PreflightConfig,
}

/// How long and in what portions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Optimizer steps.
    #[schemars(range(min = 1))]
    pub max_steps: u64,
    /// Sequences that pass through the model at once.
    #[schemars(range(min = 1, max = 1000000))]
    pub micro_batch_size: usize,
    /// Micro-steps whose gradients are summed into one optimizer step.
    #[schemars(range(min = 1, max = 1000000))]
    pub grad_accum_steps: usize,
    /// Global gradient norm above which gradients are scaled down; 0 turns clipping off.
    #[schemars(range(min = 0.0))]
    pub clip_norm: f64,
    /// Number format of matrix products; everything between them, weights and moments are f32. `auto` takes bf16 where
    /// the processor multiplies it faster, and the run's log says what was taken. Evaluation uses the same.
    pub precision: Precision,
    /// Which activations wait for the backward pass in memory, and which are computed a second time instead. The numbers
    /// are the same, bit for bit. `true` is `full`.
    pub activation_checkpointing: ActivationCheckpointing,
    /// Start from the weights of a model instead of random ones (short name `model.from`): a checkpoint folder, a model
    /// folder of Hugging Face, a GGUF file (its weights become f32), or an id of the hub (`org/name`). What the spec leaves out of `model` and
    /// `data.tokenizer` then comes from there; `model.seq_len` may be smaller than the base's.
    pub from: Option<std::path::PathBuf>,
    /// Number of compute threads. Default: all cores this process may use.
    #[schemars(range(min = 1, max = 1024))]
    pub threads: Option<usize>,
    /// Write a `Stepped` event every this many steps.
    #[schemars(range(min = 1))]
    pub log_every: u64,
}

/// When validation loss is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvalConfig {
    /// Evaluate every this many steps, and after the last one; 0 only after the last.
    pub every: u64,
    /// Random validation batches of micro_batch_size windows for each evaluation during training; the one after the last
    /// step always reads the whole split. Default: the whole split every time.
    #[schemars(range(min = 1))]
    pub batches: Option<usize>,
}

/// When text is sampled for the eye.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SampleConfig {
    /// Sample every this many steps, and after the last one; 0 only after the last.
    pub every: u64,
    /// What the sample continues.
    pub prompt: String,
    /// How its tokens are chosen.
    pub sampling: Sampling,
}

/// When the state is saved and what is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Save every this many steps, and after the last one; 0 only after the last.
    pub every: u64,
    /// Checkpoints kept, newest first; at least 2. The best by validation loss is kept besides.
    #[schemars(range(min = 2))]
    pub keep_last: usize,
}

/// Checks before the first step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PreflightConfig {
    /// Run the checks before training; a failed check stops the run unless it is forced.
    pub enabled: bool,
}

impl Default for RunConfig {
    fn default() -> Self {
        RunConfig {
            name: "run".into(),
            about: String::new(),
            seed: 1337,
            method: MethodConfig::Pretrain(Default::default()),
            model: ModelConfig::default(),
            adapter: None,
            data: DataConfig::default(),
            train: TrainConfig::default(),
            optimizer: OptimizerConfig::AdamW(Default::default()),
            schedule: ScheduleConfig::Cosine(Default::default()),
            eval: EvalConfig::default(),
            sample: SampleConfig::default(),
            checkpoint: CheckpointConfig::default(),
            preflight: PreflightConfig { enabled: true },
        }
    }
}

impl Default for TrainConfig {
    fn default() -> Self {
        TrainConfig {
            max_steps: 1000,
            micro_batch_size: 12,
            grad_accum_steps: 1,
            clip_norm: 1.0,
            precision: Precision::default(),
            activation_checkpointing: ActivationCheckpointing::default(),
            from: None,
            threads: None,
            log_every: 1,
        }
    }
}

impl Default for EvalConfig {
    fn default() -> Self {
        EvalConfig {
            every: 250,
            batches: Some(20),
        }
    }
}

impl Default for SampleConfig {
    fn default() -> Self {
        SampleConfig {
            every: 500,
            prompt: "\n".into(),
            sampling: Sampling::default(),
        }
    }
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        CheckpointConfig {
            every: 500,
            keep_last: 2,
        }
    }
}

impl Default for PreflightConfig {
    fn default() -> Self {
        PreflightConfig { enabled: true }
    }
}
