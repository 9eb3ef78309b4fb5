//! A planning request: a model, how it is trained, and on what.

mod answers;
mod choices;

use super::arch::Arch;
use super::gpus::{Gpu, Price};
pub use super::method::Method;
use super::scheme::{Precision, UpdateState};
use crate::base::finding::Finding;
use crate::methods::ReferenceChoice;
use crate::nn::adapter::Lora as LoraConfig;
use crate::nn::{AdapterConfig, ParamInfo, Role, TrainableSet, param_infos_of};
use crate::spec::{BatchStage, Saves, TrainConfig};
pub use answers::{Answers, RewardModels, TeacherModel};
pub use choices::{AttentionKind, BaseFormat, Checkpointing, Logits, Lora, LoraTargets};

/// Which trainer is estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimator {
    /// A typical GPU trainer: formulas of the literature.
    General,
    /// This program's engine on a CPU: its actual allocations.
    Engine,
}

/// The device.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// For display: `H100`, `24 GB`, `this machine`.
    pub name: String,
    /// Bytes available per device; `None` if unknown.
    pub memory: Option<u64>,
    /// Dense peak per device, FLOP/s, of a GPU that with 16-bit factors; `None` if unknown.
    pub peak_flops: Option<f64>,
    /// That of a GPU in f32.
    pub f32_flops: Option<f64>,
    /// Memory bandwidth of a GPU, bytes per second.
    pub bandwidth: Option<f64>,
    /// US dollars per device-hour.
    pub price_per_hour: Option<f64>,
    /// The source of that price; `None` if the user set it.
    pub price_source: Option<Price>,
    /// Bytes that earlier runs of this size on it took beyond their plans; negative where they took fewer.
    pub memory_excess: Option<f64>,
}

impl Device {
    /// Sets a peak given by the user, FLOP/s, whatever the number format.
    pub fn set_peak(&mut self, flops: f64) {
        (self.peak_flops, self.f32_flops) = (Some(flops), Some(flops));
    }

    /// Sets a price given by the user.
    pub fn set_price(&mut self, dollars: f64) {
        (self.price_per_hour, self.price_source) = (Some(dollars), None);
    }

    pub fn of(gpu: &Gpu) -> Device {
        Device {
            name: gpu.name.into(),
            memory: Some(gpu.memory()),
            peak_flops: Some(gpu.bf16_tflops * 1e12),
            f32_flops: Some(gpu.f32_tflops * 1e12),
            bandwidth: Some(gpu.bandwidth_gbs * 1e9),
            price_per_hour: gpu.price.map(|p| p.dollars()),
            price_source: gpu.price,
            memory_excess: None,
        }
    }

    /// Nothing known except, possibly, a limit.
    pub fn limit(name: &str, memory: Option<u64>) -> Device {
        Device {
            name: name.into(),
            memory,
            peak_flops: None,
            f32_flops: None,
            bandwidth: None,
            price_per_hour: None,
            price_source: None,
            memory_excess: None,
        }
    }
}

/// The source of a number that the user did not give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueSource {
    Stated,
    Assumed,
    /// From earlier runs on this machine.
    Learned,
    /// Benchmarked on this machine, now or earlier.
    Probed,
}

/// Whether a run starts with preflight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preflight {
    #[default]
    Off,
    On,
}

/// What this engine holds besides the model; 0 and defaults for the general estimator.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EngineExtras {
    /// Bytes of the dataset: text while reading, then tokens.
    pub data_bytes: u64,
    /// Sequences per evaluation batch; 0 without evaluation.
    pub eval_batch: u64,
    /// Checks before the first step.
    pub preflight: Preflight,
    /// The spec's precision setting; the request has its resolution on this machine.
    pub asked: crate::nn::Precision,
    /// When checkpoints are saved, and how many stay, where a spec says.
    pub saves: Option<Saves>,
    /// Tokens per epoch, if known.
    pub epoch_tokens: Option<u64>,
    /// Places that steps fill in one pass over them, where `tokens` counts padding too.
    pub pass_tokens: Option<u64>,
    /// How long the rows are.
    pub rows: RowLengths,
    /// The model's own answers, where a spec learns from those.
    pub answers: Option<Answers>,
    /// The models that score those.
    pub rewards: RewardModels,
    /// The model whose distributions are learned, in distillation.
    pub teacher: TeacherModel,
    /// Bytes of a base that stays in its file's formats under adapters.
    pub packed_bytes: Option<u64>,
    /// Ranks of PyTorch, where a spec is trained by those.
    pub ranks: Option<Ranks>,
    /// The run starts from trained weights.
    pub has_base: bool,
    /// An average of the policy's weights is kept beside them (`train.ema_decay`).
    pub has_average: bool,
    /// The reference moves with the policy (`train.sync_ref_model`): checkpoints hold it.
    pub moves_reference: bool,
}

/// Mean lengths of rows that hold one sequence each and are padded to the longest of their batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rows {
    /// Target tokens.
    pub tokens: f64,
    /// The same with the padding.
    pub places: f64,
}

/// Widths of padded batches are multiples of so many places (docs/data.md).
const WIDTH: f64 = 32.0;

impl Rows {
    /// Places of rows of so many tokens, in batches of rows of like length.
    pub fn padded(tokens: f64) -> f64 {
        (tokens / WIDTH).ceil().max(1.0) * WIDTH
    }
}

/// How rows lie in batches.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum RowLengths {
    /// Each is full: one text.
    #[default]
    Full,
    /// Whole documents lie side by side.
    Packed {
        /// Of their places, from 0 to 1; `None` where it was not read, and full rows are assumed.
        filled: Option<f64>,
    },
    /// Each holds one sequence; how long those are was not read, so full ones are assumed.
    Assumed,
    /// The same, read.
    Read(Rows),
}

/// Ranks of PyTorch as a spec asks for them (`engine: torch`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    /// `None`: one for each GPU.
    pub count: Option<u64>,
    /// Rows of a micro-batch, all ranks together, where a request on GPUs is that of a spec.
    pub rows: Option<u64>,
    /// Machines that share them, all like this one; `None`: those of a SLURM job.
    pub machines: Option<u64>,
    /// None of them is this one, so that nothing is known of their GPUs.
    pub elsewhere: bool,
    /// FSDP2: each holds a share of weights, gradients and moments.
    pub sharded: bool,
    /// It holds them in main memory.
    pub offloaded: bool,
    /// Whether they compute on GPUs where there are any, and whether they do nowhere else.
    pub gpus_allowed: bool,
    pub gpus_asked: bool,
    /// Whether matmuls are in bf16 on a GPU.
    pub bf16: bool,
    /// Whether the model is compiled (torch.compile); `None`: where it pays.
    pub compiled: Option<bool>,
    /// Micro-batches from which on it pays.
    pub worth_compiling: u64,
}

/// What a plan says of the reference model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferencePlan {
    None,
    /// A second copy of the weights.
    Copy,
    /// The base below the adapter.
    AdapterOff,
    /// One number a sequence, computed before the first step.
    Precomputed,
}

/// All inputs of a plan. Plain numbers: changing one and planning again is cheap.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The spec's or the model's name.
    pub name: String,
    pub arch: Arch,
    pub estimator: Estimator,
    pub method: Method,
    pub precision: Precision,
    pub update: UpdateState,
    pub lora: Option<Lora>,
    /// The adapters as a spec says them, for this program's own engine; their rank is that of `lora`.
    pub adapter: Option<AdapterConfig>,
    /// Parts and modules that do not train (`train.freeze`); without effect beside adapters.
    pub frozen: Vec<String>,
    pub base: BaseFormat,
    /// Where the reference's log-probabilities come from, for methods that have one.
    pub reference: ReferenceChoice,
    pub checkpointing: Checkpointing,
    pub logits: Logits,
    pub attention: AttentionKind,
    /// Devices that share the batch.
    pub n_devices: u64,
    /// 0 none, 1 optimizer, 2 and gradients, 3 and weights (arXiv 1910.02054).
    pub zero: u8,
    /// Micro-batch size per device, in sequences.
    pub micro_batch: u64,
    pub grad_accum: u64,
    pub seq_len: u64,
    /// Completions sampled at once by a rollout method: on each device, or by all ranks of PyTorch together.
    pub rollouts: u64,
    /// Target tokens of the whole run.
    pub tokens: u64,
    pub tokens_source: ValueSource,
    /// Smaller batches at the beginning.
    pub batch_ramp: Vec<BatchStage>,
    /// MFU: fraction of peak that model FLOPs reach.
    pub mfu: f64,
    pub mfu_source: ValueSource,
    pub device: Device,
    pub extras: EngineExtras,
    /// What its spec's settings are advised against.
    pub settings: Vec<Finding>,
    /// Why its spec cannot have `engine: torch`, if it cannot.
    pub torch_refuses: Option<String>,
    /// What leaves its AdamW the rates that it has, after `-s optimizer=adamw8bit`: ` -s optimizer.adamw8bit.lr=0.001`.
    pub rates_in_8_bits: String,
}

impl Request {
    /// Trains on so many tokens, with as many steps more or fewer.
    pub fn set_tokens(&mut self, n: u64) {
        if let Some(saves) = &mut self.extras.saves {
            let steps = u128::from(saves.steps) * u128::from(n) / u128::from(self.tokens.max(1));
            saves.steps = u64::try_from(steps).unwrap_or(u64::MAX).max(1);
        }
        (self.tokens, self.tokens_source) = (n, ValueSource::Stated);
    }

    /// Tokens per optimizer step, all devices together; both answers of pairs, no padding.
    pub fn batch_tokens(&self) -> u64 {
        let rows = self.micro_rows() * self.method.sequences() * self.grad_accum;
        (rows as f64 * self.row_tokens()).round() as u64
    }

    /// Rows of a micro-batch, all devices together: fewer than those have places for where they cannot be shared evenly.
    pub fn micro_rows(&self) -> u64 {
        let places = self.micro_batch * self.n_devices;
        let rows = self.extras.ranks.and_then(|ranks| ranks.rows);
        // Of another micro-batch, after a change, all places are taken.
        rows.filter(|rows| rows.div_ceil(self.n_devices.max(1)) == self.micro_batch)
            .unwrap_or(places)
    }

    /// Rows of a micro-batch before ranks share it: what a spec says, whichever engine trains it.
    pub fn all_rows(&self) -> u64 {
        match (self.estimator, self.extras.ranks) {
            (Estimator::General, Some(_)) => self.micro_rows(),
            _ => self.micro_batch,
        }
    }

    /// Target tokens of a sequence, on average.
    pub fn row_tokens(&self) -> f64 {
        let longest = self.seq_len as f64;
        match self.extras.rows {
            RowLengths::Read(rows) => rows.tokens.min(longest),
            RowLengths::Packed { filled } => filled.unwrap_or(1.0) * longest,
            RowLengths::Full | RowLengths::Assumed => longest,
        }
    }

    /// Places of a sequence, on average: how far attention reaches.
    pub fn row_places(&self) -> f64 {
        let longest = self.seq_len as f64;
        match self.extras.rows {
            RowLengths::Read(rows) => rows.places.min(longest),
            RowLengths::Full | RowLengths::Packed { .. } | RowLengths::Assumed => longest,
        }
    }

    /// Whether rows may hold fewer tokens than places, and how many was not read.
    pub fn has_unread_rows(&self) -> bool {
        matches!(
            self.extras.rows,
            RowLengths::Assumed | RowLengths::Packed { filled: None }
        )
    }

    /// Places that are computed for a token, those of padding among them.
    pub fn places_per_token(&self) -> f64 {
        (self.row_places() / self.row_tokens().max(f64::MIN_POSITIVE)).max(1.0)
    }

    /// Counts the run's tokens by the lengths that its rows have; its steps stay as many.
    pub fn set_rows(&mut self, rows: RowLengths) {
        let before = self.row_tokens();
        self.extras.rows = rows;
        let share = self.row_tokens() / before.max(f64::MIN_POSITIVE);
        self.tokens = (self.tokens as f64 * share).round() as u64;
        // Passes are counted in the same tokens.
        if matches!(
            rows,
            RowLengths::Read(_) | RowLengths::Packed { filled: Some(_) }
        ) {
            self.extras.pass_tokens = None;
        }
    }

    /// The most steps that read no more than so many tokens, those of a batch ramp being smaller.
    pub fn steps_within(&self, tokens: u64) -> u64 {
        let micro_steps = tokens / (self.batch_tokens() / self.grad_accum.max(1)).max(1);
        self.lengths().steps_within(micro_steps)
    }

    /// Micro-batches of the first `steps` steps.
    pub fn micro_steps(&self, steps: u64) -> u64 {
        self.lengths().micro_steps(steps)
    }

    /// The settings that say how many micro-batches make a step.
    fn lengths(&self) -> TrainConfig {
        TrainConfig {
            grad_accum_steps: self.grad_accum as usize,
            batch_ramp: self.batch_ramp.clone(),
            ..TrainConfig::default()
        }
    }

    /// The peak of a device in the number format of the matmuls, FLOP/s; `None` if unknown.
    pub fn peak_flops(&self) -> Option<f64> {
        match (self.estimator, self.precision) {
            (Estimator::General, Precision::Fp32) => self.device.f32_flops,
            // Measured here in that format.
            _ => self.device.peak_flops,
        }
    }

    /// Whether its time is that of answers as long as they may be: how soon the model ends them is not known before. Not where part of the
    /// time is not counted.
    pub fn is_timed_at_most(&self) -> bool {
        let counted = self.estimator == Estimator::Engine || super::writing::is_counted(self);
        counted && self.method.rolls_out() && !self.scores_on_cpu()
    }

    /// The word in front of its time: `about`, or `at most`.
    pub fn about(&self) -> &'static str {
        match self.is_timed_at_most() {
            true => "at most",
            false => "about",
        }
    }

    /// Whether all that the model knows comes from this run: the laws of tokens per parameter are about such runs alone.
    pub fn is_from_scratch(&self) -> bool {
        let adapts = self.lora.is_some() || self.adapter.is_some();
        self.method == Method::Pretrain && !adapts && !self.extras.has_base
    }

    /// Where the reference comes from.
    pub fn reference_plan(&self) -> ReferencePlan {
        let own = self.answers().map(|answers| answers.has_reference);
        let has_reference = own.unwrap_or_else(|| self.method.has_reference());
        match (has_reference, self.reference) {
            (false, _) => ReferencePlan::None,
            (true, ReferenceChoice::Precomputed) => ReferencePlan::Precomputed,
            (true, ReferenceChoice::AdapterOff) => ReferencePlan::AdapterOff,
            (true, ReferenceChoice::Auto) if self.is_its_own_reference() => {
                ReferencePlan::AdapterOff
            }
            (true, ReferenceChoice::Auto | ReferenceChoice::Frozen) => ReferencePlan::Copy,
        }
    }

    /// Whether the model without its adapter stays what it was: no table of the base trains beside it.
    fn is_its_own_reference(&self) -> bool {
        let trains = |adapter: AdapterConfig| {
            let tables = [Role::Embedding, Role::Head];
            tables.iter().any(|role| adapter.trains_whole(*role))
        };
        self.lora.is_some() && !self.engine_adapter().is_some_and(trains)
    }

    /// Whether checkpoints hold a copy of the reference: one that a cold start or the steps themselves have moved.
    pub fn saves_reference(&self) -> bool {
        let has_cold_start = self.answers().is_some_and(Answers::has_cold_start);
        (has_cold_start || self.extras.moves_reference)
            && self.reference_plan() == ReferencePlan::Copy
    }

    /// Whether the loss is linear in log-probabilities, so that the head never holds all logits.
    pub fn is_linear(&self) -> bool {
        match self.answers() {
            Some(answers) => answers.is_linear,
            None => self.method.is_linear(),
        }
    }

    /// Places per device and micro-step where all rows are full: what memory has to hold.
    pub fn micro_tokens(&self) -> u64 {
        self.micro_batch * self.method.sequences() * self.seq_len
    }

    /// Trainable parameters.
    pub fn n_trainable(&self) -> u64 {
        // What a spec says is counted matrix by matrix, whoever trains it.
        let exact = self.estimator == Estimator::Engine || self.adapter.is_some();
        match self.lora {
            Some(lora) if !exact => lora.params(&self.arch),
            None if self.frozen.is_empty() => self.arch.n_params(),
            _ => {
                let infos = self.param_infos();
                let trained = infos.iter().filter(|info| info.trains());
                trained.map(|info| info.len as u64).sum()
            }
        }
    }

    /// Whether the model is trained as a whole but for parts that are frozen by name.
    pub fn has_frozen_parts(&self) -> bool {
        self.lora.is_none() && !self.frozen.is_empty()
    }

    /// Its parameters, those of adapters among them.
    pub fn param_infos(&self) -> Vec<ParamInfo> {
        let (config, shape) = (self.arch.config(), self.arch.shape());
        let adapter = self.engine_adapter();
        let trained = TrainableSet {
            adapter: adapter.as_ref(),
            frozen: &self.frozen,
        };
        param_infos_of(config, shape.vocab_size, trained)
    }

    /// `rank 8`, or from where to where ranks of single modules are.
    pub fn rank_words(&self) -> Option<String> {
        let AdapterConfig::Lora(lora) = self.engine_adapter()?;
        Some(match lora.ranks() {
            (least, most) if least < most => format!("ranks {least} to {most}"),
            (rank, _) => format!("rank {rank}"),
        })
    }

    /// Trains adapters of another rank or on other layers; what is not named stays as it was, or is usual.
    pub fn adapt(&mut self, rank: Option<u64>, targets: Option<LoraTargets>) {
        let said = self.lora.unwrap_or(Lora {
            rank: 8,
            targets: LoraTargets::All,
        });
        if let (Some(targets), Some(AdapterConfig::Lora(lora))) = (targets, &mut self.adapter) {
            lora.targets = targets.config();
        }
        self.lora = Some(Lora {
            rank: rank.unwrap_or(said.rank),
            targets: targets.unwrap_or(said.targets),
        });
    }

    /// The adapters of this program's own engine.
    pub fn engine_adapter(&self) -> Option<AdapterConfig> {
        let lora = self.lora?;
        let config = match &self.adapter {
            Some(AdapterConfig::Lora(said)) => LoraConfig {
                rank: lora.rank as usize,
                ..said.clone()
            },
            None => lora.config(),
        };
        Some(AdapterConfig::Lora(config))
    }
}

#[cfg(test)]
mod tests;
