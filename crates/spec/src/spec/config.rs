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
use std::path::PathBuf;

/// The complete configuration of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// A short name; part of the run's directory name.
    pub name: String,
    /// One sentence on what this run demonstrates.
    pub about: String,
    /// Which list of presets it belongs to: your `own`, `demo` (runs as it is), `template` (needs your model and data),
    /// `size` (for planning).
    pub group: PresetGroup,
    /// Random seed of weights, batches and samples.
    pub seed: u64,
    /// The training objective.
    pub method: MethodConfig,
    /// The model architecture.
    pub model: ModelConfig,
    /// Trainable low-rank matrices on frozen weights. Default: none, all weights train.
    pub adapter: Option<AdapterConfig>,
    /// Training engine: llmtui's own on the CPU (`candle`), or PyTorch processes (`torch`), one per GPU; `auto` chooses for the
    /// machine when the run starts.
    pub engine: EngineConfig,
    /// Training and validation data.
    pub data: DataConfig,
    /// Sampling of the completions that grpo, rloo and ppo train on.
    pub rollout: RolloutConfig,
    /// How completions are scored: a list of rewards by name, or maps with their settings, `weight` and `name`. The first
    /// verifier (not `model`, `length` or `repetition`) decides whether a completion passes (`eval/pass@1`); its weight may be 0.
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
    /// Probes of the model during training.
    pub health: HealthConfig,
    /// What to do when the loss spikes or is non-finite.
    pub rescue: RescueConfig,
}

/// Training length, batch size and precision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Optimizer steps.
    #[schemars(range(min = 1))]
    pub max_steps: u64,
    /// Passes over the training data, instead of `train.max_steps`; 0.5 is half a pass. `-s max_steps=500` on a spec with
    /// epochs overrides them; if one file sets both, epochs count; both on the command line are refused. Once the data are
    /// read, the run's spec has the resulting `train.max_steps`. Default: none.
    #[schemars(range(min = 0.000001, max = 1000000.0))]
    pub epochs: Option<f64>,
    /// Warm-up as a fraction of the steps, rounded up; sets the schedule's `warmup_steps`; the schedule `none` has no
    /// warm-up. If one file sets both, the steps count; both on the command line are refused. Default: none.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub warmup_ratio: Option<f64>,
    /// Sequences per forward and backward pass.
    #[schemars(range(min = 1, max = 1000000))]
    pub micro_batch_size: usize,
    /// Micro-steps whose gradients are accumulated into one optimizer step.
    #[schemars(range(min = 1, max = 1000000))]
    pub grad_accum_steps: usize,
    /// Batch-size ramp: smaller batches at the start, as an ordered list of `{grad_accum_steps, until_step}`; after the last
    /// one `train.grad_accum_steps` applies. The learning rate still follows the schedule. Default: none.
    pub batch_ramp: Vec<BatchStage>,
    /// Global gradient norm above which gradients are scaled down; 0 turns clipping off.
    #[schemars(range(min = 0.0))]
    pub clip_norm: f64,
    /// Weight of the z-loss: the mean squared log-sum-exp of the logits, added to the training loss (PaLM: 1e-4) to keep logits from
    /// drifting; not part of `train/loss`. For pretrain and sft. 0 is off.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub z_loss: f64,
    /// Decay of an exponential moving average of the weights (EMA), e.g. 0.999; at update t at most (1 + t) / (10 + t), so that a
    /// short run is no average of its initial weights. Evaluations, samples, checkpoints and exports use the average; training
    /// continues from the weights. Default: none.
    #[schemars(range(min = 0.0, max = 0.9999999))]
    pub ema_decay: Option<f64>,
    /// Compute dtype: of matmul inputs and activations; accumulation, weights and moments are f32. `auto` selects bf16 if the CPU multiplies it faster; the
    /// run's log shows which one is used. Also used in evaluation.
    pub precision: Precision,
    /// Which activations are stored for the backward pass and which are recomputed. Results are bit-identical.
    /// `true` is `full`.
    pub activation_checkpointing: ActivationCheckpointing,
    /// Start from the weights of an existing model instead of random ones (short name `model.from`): a checkpoint folder, a
    /// Hugging Face model folder, a GGUF file (its weights are converted to f32, unless adapters train on it), or a hub id (`org/name`; of a GGUF file `org/name:Q4_K_M`). Values of `model` and
    /// `data.tokenizer` that the spec leaves out come from that model; `model.seq_len` may be smaller than its own.
    pub from: Option<std::path::PathBuf>,
    /// With adapters, dequantize a GGUF base to f32. Otherwise its weights stay quantized and frozen (QLoRA): a fraction of
    /// the memory, and the adapters compensate for the quantization.
    pub dequantize: bool,
    /// Grow embeddings and output head of the start model if the tokenizer has more tokens than they have rows (for example
    /// added chat markers), as `model.resize_token_embeddings` of transformers does. New rows are initialized to the mean
    /// of the others, and the run reports their number. With adapters they train with
    /// `adapter.lora.modules_to_save`. `model.vocab_size` may be larger than the number of tokens, for example a multiple of 64. Large
    /// enough tables are unchanged. Default: such a model is refused.
    pub resize_vocab: bool,
    /// Parameters that do not train: `embeddings`, `positions`, `attention`, `mixer`, `mlp`, `experts`, `router`, `norms`, `head`, or patterns of
    /// module names (`layers.0.*`; `*` for anything). Q, k and v of a block, gate and up, all `in_proj` of a mixer, and all
    /// experts of a block go together. They have no gradients and no moments. Default: none, and adapters freeze all.
    pub freeze: Vec<String>,
    /// Move the reference model towards the policy as training continues (TR-DPO, arXiv 2404.09656), for methods that compare with a copy
    /// of the start weights. Checkpoints hold it.
    pub sync_ref_model: bool,
    /// The policy's share of the reference at each such move, α: reference ← α · policy + (1 − α) · reference.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub ref_model_mixup_alpha: f64,
    /// Steps from one such move to the next.
    #[schemars(range(min = 1))]
    pub ref_model_sync_steps: u64,
    /// Number of compute threads. Default: all cores available to this process.
    #[schemars(range(min = 1, max = 1024))]
    pub threads: Option<usize>,
    /// Log every this many steps. The training loss of a line is the mean over the steps since the line before, as in transformers; other
    /// readings of the training are those of the newest step.
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
    /// always covers the whole split. null: the whole split every time.
    #[schemars(range(min = 1))]
    pub batches: Option<usize>,
    /// Maximum rows of a validation set per evaluation (of each source the first ones of the file), including the final one. Default: all.
    #[schemars(range(min = 1))]
    pub rows: Option<usize>,
    /// Additional validation sets, each with a name and a source as in `data.sources`. Each has its own loss curve, starting before
    /// the first step: it shows what a model forgets.
    pub extra: Vec<ExtraSet>,
    /// Evaluation tasks run during training: names (`llmtui eval --list`) or .yaml files. Their curves are
    /// `eval/NAME`.
    pub tasks: Vec<String>,
    /// Use only the first rows of each task; of one with groups (mmlu) as many of each group.
    #[schemars(range(min = 1))]
    pub task_limit: usize,
    /// Run tasks every this many steps, besides before the first step and after the last; 0: at each quarter of the run.
    pub task_every: u64,
    /// The metric that selects the best checkpoint: `eval/NAME` of eval.tasks, or another metric of evaluations,
    /// e.g. `val/rewards/margins`. A new best is saved at once. Default: the method's own.
    pub best_by: Option<String>,
    /// Early stopping: save and stop after this many scheduled evaluations in a row without a new best. Default: train to the last
    /// step.
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
    /// Prompt for samples: a user's turn in the chat template when training on chats (unless it has the template's markers), else
    /// text to continue. Empty: held-out questions in their template when training on answers, a line break when training on text.
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
    /// Number of latest checkpoints to keep; at least 2. The best evaluated one is also kept, and those that other runs in the runs
    /// directory start from or use as reward models.
    #[schemars(range(min = 2))]
    pub keep_last: usize,
    /// Also save at each evaluation that is the best so far, so that weights from before an overfit are not lost. The spec's own
    /// criterion (`eval.best_by`), early stopping (`eval.patience`) and methods with a criterion of their own do so anyway.
    pub save_best: bool,
}

/// Checks before the first step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PreflightConfig {
    /// Run the checks before training; a failed check stops the run unless forced.
    pub enabled: bool,
}

/// Probes of the model during training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    /// Measure activations, attention, gradients and weights by layer; the numbers of the training do not change.
    pub enabled: bool,
    /// Steps between probes; cheap ones run five times as often, expensive ones half as often.
    #[schemars(range(min = 1))]
    pub every: u64,
    /// A finished run, smaller as a rule, with the same method, schedule, tokens per parameter and lr · weight_decay · steps:
    /// its loss curve is what `collapse_residual` measures against, and forecasts the final loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference_run: Option<PathBuf>,
}

/// What to do when the loss spikes or is non-finite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RescueConfig {
    /// `off` does nothing. `warn` logs it, and a non-finite loss ends the run. `act` rolls back to the last stable checkpoint,
    /// skips the batches from the first outlier on, lowers the learning rate and continues.
    pub policy: RescuePolicy,
    /// Maximum rescues per run; after them `act` becomes `warn`.
    #[schemars(range(min = 1, max = 1000))]
    pub at_most: u64,
    /// A rescue multiplies the peak learning rate by this.
    #[schemars(range(min = 0.01, max = 1))]
    pub lr_factor: f64,
    /// Skip the update of a step whose loss or gradient norm is an outlier (OLMo's SkipStep), under any policy.
    pub skip_outliers: bool,
    /// Standard deviations above the mean of the window that make an outlier.
    #[schemars(range(min = 2, max = 100))]
    pub sigmas: f64,
    /// Window of steps for detecting outliers; none are detected until it is half full.
    #[schemars(range(min = 8, max = 10000))]
    pub window: usize,
    /// Number of consecutive outlier losses that count as a spike rather than a bad batch.
    #[schemars(range(min = 1, max = 1000))]
    pub patience: u64,
    /// Healthy steps after a checkpoint that make it stable. A rescue that finds none uses an older one, or the one before
    /// the spike with a reset optimizer.
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
            reference_run: None,
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
            freeze: Vec::new(),
            sync_ref_model: false,
            ref_model_mixup_alpha: 0.6,
            ref_model_sync_steps: 512,
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
            save_best: false,
        }
    }
}

impl Default for PreflightConfig {
    fn default() -> Self {
        PreflightConfig { enabled: true }
    }
}
