//! A run as written: the merged presets and overrides, typed. Field comments are form labels, help and docs.

use super::{BatchStage, PresetGroup, RolloutConfig};
use crate::base::every::Every;
use crate::base::sampling::Sampling;
use crate::data::source::SourceConfig;
use crate::rewards::WeightedReward;
use crate::{
    data::DataConfig,
    methods::MethodConfig,
    nn::{ActivationCheckpointing, AdapterConfig, ModelConfig, Precision},
    optim::OptimizerConfig,
    optim::schedule::ScheduleConfig,
    workers::EngineConfig,
};
use serde::{Deserialize, Serialize};

/// The complete configuration of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// A short name; part of the run's directory name.
    pub name: String,
    /// One sentence on what this run demonstrates.
    pub about: String,
    /// Which list of presets it stands in: your `own`, `demo` (complete as it is), `template` (wants a model and data of
    /// yours), `size` (to plan with).
    pub group: PresetGroup,
    /// Random seed of weights, batches and samples.
    pub seed: u64,
    /// The training objective.
    pub method: MethodConfig,
    /// The model architecture.
    pub model: ModelConfig,
    /// Small trainable matrices beside frozen weights. Default: none, all weights train.
    pub adapter: Option<AdapterConfig>,
    /// What computes: this program on the processor (`candle`), or processes of PyTorch (`torch`), one for each GPU; `auto` is
    /// what suits the machine, decided when the run starts.
    pub engine: EngineConfig,
    /// Training and validation data.
    pub data: DataConfig,
    /// Answers of the model that methods like grpo and rloo learn from.
    pub rollout: RolloutConfig,
    /// What such an answer is worth: a list of rewards by name, or maps with their settings, `weight` and `name`. The first
    /// decides whether an answer passes (`eval/pass@1`); its weight may be 0.
    pub rewards: Vec<WeightedReward>,
    /// Training length, batch size and precision.
    pub train: TrainConfig,
    /// The optimizer.
    pub optimizer: OptimizerConfig,
    /// The learning-rate schedule.
    pub schedule: ScheduleConfig,
    /// Validation during training.
    pub eval: EvalConfig,
    /// Text samples during training.
    pub sample: SampleConfig,
    /// When checkpoints are saved and which are kept.
    pub checkpoint: CheckpointConfig,
    /// Checks before the first step.
    pub preflight: PreflightConfig,
    /// Looking inside the model while it trains.
    pub health: HealthConfig,
    /// What happens when the loss spikes or is non-finite.
    pub rescue: RescueConfig,
}

/// Training length, batch size and precision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Optimizer steps.
    #[schemars(range(min = 1))]
    pub max_steps: u64,
    /// Passes over the training data, in place of `train.max_steps`; 0.5 is half a pass. `-s max_steps=500` on a spec with
    /// epochs means the steps; where one file says both, the epochs count; both on the command line are refused. Once the
    /// data are read, the run's spec says in `train.max_steps` what they come to. Default: none.
    #[schemars(range(min = 0.000001, max = 1000000.0))]
    pub epochs: Option<f64>,
    /// Warm-up as a share of the steps, rounded up, in place of the schedule's `warmup_steps`, which become that many; the schedule
    /// `none` has none. Default: none.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub warmup_ratio: Option<f64>,
    /// Sequences per forward and backward pass.
    #[schemars(range(min = 1, max = 1000000))]
    pub micro_batch_size: usize,
    /// Micro-steps whose gradients are accumulated into one optimizer step.
    #[schemars(range(min = 1, max = 1000000))]
    pub grad_accum_steps: usize,
    /// Batch-size ramp: smaller batches at the beginning, as a list of `{grad_accum_steps, until_step}` in order; behind the
    /// last one `train.grad_accum_steps` holds. The learning rate stays what the schedule says. Default: none.
    pub batch_ramp: Vec<BatchStage>,
    /// Global gradient norm above which gradients are scaled down; 0 turns clipping off.
    #[schemars(range(min = 0.0))]
    pub clip_norm: f64,
    /// Weight of the z-loss: this times the mean squared log-sum-exp of the logits is added to what trains (PaLM: 1e-4), which keeps
    /// logits from drifting; `train/loss` does not count it. For pretrain and sft. 0 is off.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub z_loss: f64,
    /// Decay of an exponential moving average of the weights (EMA), 0.999 for one. Evaluations, samples, checkpoints and exports see
    /// the average, training goes on from the weights. Default: none.
    #[schemars(range(min = 0.0, max = 0.9999999))]
    pub ema_decay: Option<f64>,
    /// Number format of matmul inputs and of what lies between matmuls; accumulation, weights and moments are f32. `auto` selects bf16 where the processor
    /// multiplies it faster; the run's log says which one is used. Evaluation uses the same.
    pub precision: Precision,
    /// Which activations are stored for the backward pass and which are recomputed. Results are identical bit for bit.
    /// `true` is `full`.
    pub activation_checkpointing: ActivationCheckpointing,
    /// Start from the weights of an existing model instead of random ones (short name `model.from`): a checkpoint folder, a
    /// Hugging Face model folder, a GGUF file (its weights are converted to f32, unless adapters train on it), or a hub id (`org/name`). Values of `model` and
    /// `data.tokenizer` that the spec leaves out come from that model; `model.seq_len` may be smaller than its own.
    pub from: Option<std::path::PathBuf>,
    /// Under adapters, turn the weights of a GGUF base into f32. Without it they stay in the file's formats, frozen (QLoRA):
    /// a fraction of the memory, and the adapters learn what those formats lose.
    pub dequantize: bool,
    /// Let embeddings and output head of the start model grow where the tokenizer has more tokens than they have rows, as
    /// `model.resize_token_embeddings` of transformers does: somebody added chat marks, for one. Each new row begins as the
    /// mean of the others, and the run says how many there are. Under adapters they learn with
    /// `adapter.lora.modules_to_save`. `model.vocab_size` may say more rows than there are tokens, a multiple of 64 for one.
    /// Tables that have rows enough stay as they are. Default: such a model is refused.
    pub resize_vocab: bool,
    /// Number of compute threads. Default: all cores available to this process.
    #[schemars(range(min = 1, max = 1024))]
    pub threads: Option<usize>,
    /// Write a `Stepped` event every this many steps.
    #[schemars(range(min = 1))]
    pub log_every: u64,
}

/// Validation during training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvalConfig {
    /// Evaluate every this many steps, and after the last one; below 1 a share of the run (0.1: ten times), 0 only after the last.
    pub every: Every,
    /// Random validation batches of micro_batch_size windows per evaluation during training; the one after the last step
    /// always covers the whole split, and so do all where it holds no more. Default: the whole split every time.
    #[schemars(range(min = 1))]
    pub batches: Option<usize>,
    /// Most rows of a validation set that one evaluation reads, the first ones; the one after the last step, too. Default: all.
    #[schemars(range(min = 1))]
    pub rows: Option<usize>,
    /// More validation sets, each with a name and a source of rows as in `data.sources`. Their losses are curves of their own, from
    /// before the first step on: what a model forgets of what it knew shows there.
    pub extra: Vec<ExtraSet>,
    /// Evaluation tasks that the weights are asked during training: names (`llmtui eval --list`) or .yaml files. Their curves are
    /// `eval/NAME`.
    pub tasks: Vec<String>,
    /// Ask only the first rows of each task.
    #[schemars(range(min = 1))]
    pub task_limit: usize,
    /// Ask tasks every this many steps, besides before the first one and after the last; 0: at each quarter of the run.
    pub task_every: u64,
    /// The reading by which the best checkpoint is chosen: `eval/NAME` of eval.tasks, or another one that evaluations measure,
    /// e.g. `val/rewards/margins`. A new best is saved at once. Default: that of the method.
    pub best_by: Option<String>,
    /// Save and stop after so many scheduled evaluations in a row without a new best; a new best is saved at once. Default: train
    /// to the last step.
    #[schemars(range(min = 1))]
    pub patience: Option<u64>,
}

/// A validation set beside the run's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtraSet {
    /// Its curve is `extra/NAME`.
    pub name: String,
    /// A file, a folder, a data set of the hub, or made-up rows.
    pub source: SourceConfig,
}

/// Text samples during training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SampleConfig {
    /// Sample every this many steps, and after the last one; below 1 a share of the run, 0 only after the last.
    pub every: Every,
    /// Prompt to continue. Empty: held-out questions, as their template writes them, where answers are learned; a line break
    /// where texts are.
    pub prompt: String,
    /// Sampling settings.
    pub sampling: Sampling,
}

/// When checkpoints are saved and which are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Save every this many steps, and after the last one; below 1 a share of the run, 0 only after the last.
    pub every: Every,
    /// Checkpoints kept, newest first; at least 2. The best of those that were evaluated is kept as well, and what other runs of the
    /// runs directory begin from or judge by.
    #[schemars(range(min = 2))]
    pub keep_last: usize,
}

/// Checks before the first step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PreflightConfig {
    /// Run the checks before training; a failed check stops the run unless forced.
    pub enabled: bool,
}

/// Looking inside the model while it trains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    /// Measure activations, attention, gradients and weights by layer; the numbers of the training do not change.
    pub enabled: bool,
    /// Steps between two looks; cheap ones come five times as often, dear ones half as often.
    #[schemars(range(min = 1))]
    pub every: u64,
}

/// What happens when the loss spikes or is non-finite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RescueConfig {
    /// `off` does nothing. `warn` says it in the log, and a loss that is non-finite ends the run. `act` goes back to the last
    /// stable checkpoint, leaves out the batches from the first outlier on, lowers the learning rate and goes on.
    pub policy: RescuePolicy,
    /// Most rescues of a run; after them `act` is `warn`.
    #[schemars(range(min = 1, max = 1000))]
    pub at_most: u64,
    /// A rescue multiplies the peak learning rate by this.
    #[schemars(range(min = 0.01, max = 1))]
    pub lr_factor: f64,
    /// Leave out the update of a step whose loss or gradient norm is an outlier (OLMo's SkipStep), under any policy.
    pub skip_outliers: bool,
    /// An outlier is so many standard deviations above the mean of the window.
    #[schemars(range(min = 2, max = 100))]
    pub sigmas: f64,
    /// Steps that an outlier is measured against; with fewer than half of them nothing is one.
    #[schemars(range(min = 8, max = 10000))]
    pub window: usize,
    /// So many losses in a row that are outliers are a spike, not one bad batch.
    #[schemars(range(min = 1, max = 1000))]
    pub patience: u64,
    /// A checkpoint is stable once so many steps after it were healthy. A rescue that finds none takes an older one, or
    /// the one before the spike with a fresh optimizer state.
    #[schemars(range(min = 1, max = 100000))]
    pub stable_after: u64,
}

/// What a spike leads to.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RescuePolicy {
    /// Nothing.
    Off,
    /// A warning.
    #[default]
    Warn,
    /// A roll-back to a stable checkpoint, with a lower learning rate and without the batches.
    Act,
}

impl Default for RescueConfig {
    fn default() -> Self {
        RescueConfig {
            policy: RescuePolicy::default(),
            at_most: 3,
            lr_factor: 0.5,
            skip_outliers: false,
            sigmas: 6.0,
            window: 128,
            patience: 5,
            stable_after: 10,
        }
    }
}

impl Default for HealthConfig {
    fn default() -> Self {
        HealthConfig {
            enabled: true,
            every: 50,
        }
    }
}

impl Default for RunConfig {
    fn default() -> Self {
        RunConfig {
            name: "run".into(),
            about: String::new(),
            group: PresetGroup::Own,
            seed: 1337,
            method: MethodConfig::Pretrain(Default::default()),
            model: ModelConfig::default(),
            adapter: None,
            engine: EngineConfig::Candle(Default::default()),
            data: DataConfig::default(),
            rollout: RolloutConfig::default(),
            rewards: Vec::new(),
            train: TrainConfig::default(),
            optimizer: OptimizerConfig::AdamW(Default::default()),
            schedule: ScheduleConfig::Cosine(Default::default()),
            eval: EvalConfig::default(),
            sample: SampleConfig::default(),
            checkpoint: CheckpointConfig::default(),
            preflight: PreflightConfig { enabled: true },
            health: HealthConfig::default(),
            rescue: RescueConfig::default(),
        }
    }
}

impl Default for TrainConfig {
    fn default() -> Self {
        TrainConfig {
            max_steps: 1000,
            epochs: None,
            warmup_ratio: None,
            micro_batch_size: 12,
            grad_accum_steps: 1,
            batch_ramp: Vec::new(),
            clip_norm: 1.0,
            z_loss: 0.0,
            ema_decay: None,
            precision: Precision::default(),
            activation_checkpointing: ActivationCheckpointing::default(),
            from: None,
            dequantize: false,
            resize_vocab: false,
            threads: None,
            log_every: 1,
        }
    }
}

impl Default for EvalConfig {
    fn default() -> Self {
        EvalConfig {
            every: Every::Steps(250),
            batches: Some(20),
            rows: None,
            extra: Vec::new(),
            tasks: Vec::new(),
            task_limit: 100,
            task_every: 0,
            best_by: None,
            patience: None,
        }
    }
}

impl Default for SampleConfig {
    fn default() -> Self {
        SampleConfig {
            every: Every::Steps(500),
            prompt: String::new(),
            sampling: Sampling::default(),
        }
    }
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        CheckpointConfig {
            every: Every::Steps(500),
            keep_last: 2,
        }
    }
}

impl Default for PreflightConfig {
    fn default() -> Self {
        PreflightConfig { enabled: true }
    }
}
