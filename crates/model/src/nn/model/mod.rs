//! The decoder as methods and the engine use it: token batches in, log-probabilities out, gradients back. This file has the state
//! of a model; `run` has its passes, `accumulate` a whole micro-step, `check` the inputs that it rejects.

mod accumulate;
fn by_name(infos: &[ParamInfo]) -> BTreeMap<&str, &ParamInfo> {
    let named = infos.iter().map(|info| (info.name.as_str(), info));
    named.collect()
}

#[cfg(test)]
mod adapter_tests;
mod adapters;
mod check;
#[cfg(test)]
mod expert_tests;
mod experts;
#[cfg(test)]
mod hybrid_tests;
#[cfg(test)]
mod latent_tests;
#[cfg(test)]
mod option_tests;
mod run;
mod teacher;
#[cfg(test)]
mod teacher_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod value_tests;
mod vocabulary;

pub use accumulate::{DistilledGradient, TokenValues, Upstream};
pub use experts::ExpertLoad;
pub use teacher::{Divergence, Teacher, TeacherScores, TeacherValues};
pub use vocabulary::grown;

use super::checkpointing::ActivationCheckpointing;
use super::composite::{Graph, Leaves};
use super::footprint::Footprint;
use super::fused::Pass;
use super::layout::{AdapterSpans, Layout, Span};
use super::profile::Part;
use super::step_position::StepPosition;
use super::tables::Tables;
use super::tap::SharedTap;
use super::tape::Track;
use super::weights::{Stored, StoredTensor};
use super::{
    AdapterConfig, HeadKind, Init, KvPrecision, ModelConfig, ModelShape, Naming, ParamInfo, Params,
    Role,
};
use crate::base::rng::{Rng, Stream};
use crate::kernels::matmul::ComputeDtype;
use crate::kernels::numbers::Storage;
use crate::kernels::threads;
use candle_core::{Device, Result, Tensor, bail};
use std::collections::BTreeMap;
use std::time::Duration;

/// Sequences with their targets, row-major (B, T).
#[derive(Debug, Clone, Copy)]
pub struct TokenBatch<'a> {
    pub inputs: &'a [u32],
    pub targets: &'a [u32],
    pub batch_size: usize,
    pub seq_len: usize,
    /// The position in its row where each token's document begins, in packed rows: attention does not look before it and
    /// positions restart there. `None`: each row is one document.
    pub first: Option<&'a [u32]>,
    /// Log-probabilities and entropies are those of the softmax of logits / temperature.
    pub temperature: f32,
    /// For each row, the number of leading positions that are not padding, (B): experts are balanced over these. `None`:
    /// there is no padding.
    pub filled: Option<&'a [u32]>,
}

impl<'a> TokenBatch<'a> {
    /// Rows of one text each.
    pub const fn plain(
        inputs: &'a [u32],
        targets: &'a [u32],
        batch_size: usize,
        seq_len: usize,
    ) -> Self {
        TokenBatch {
            inputs,
            targets,
            batch_size,
            seq_len,
            first: None,
            temperature: 1.0,
            filled: None,
        }
    }
}

/// The inputs of a method's loss; (B, T) f32 each, in nats, without a graph.
#[derive(Debug, Clone)]
pub struct TokenOutputs {
    /// Log-probability of each target; of a reward model the score at each token.
    pub logp: Tensor,
    /// Entropy of each predicted distribution.
    pub entropy: Tensor,
    /// 1 where the target had the highest probability (top-1), else 0.
    pub top1: Tensor,
    /// The value at each token, if the model has a value head.
    pub value: Option<Tensor>,
    /// Beside a teacher.
    pub teacher: Option<TeacherScores>,
}

/// Approximate FLOPs per normal random number.
const NORMAL_COST: usize = 64;

/// How a model computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// Fused kernels on a tape: CPU.
    Fused,
    /// The oracle: plain candle operations and candle's autograd, on any device.
    Composite,
}

/// A decoder-only transformer with its parameters.
pub struct Model {
    config: ModelConfig,
    shape: ModelShape,
    adapter: Option<AdapterConfig>,
    /// Whether passes use the adapters.
    adapters_on: bool,
    layout: Layout,
    params: Params,
    /// Weights in a file's own formats, if they are not in `params`.
    stored: Option<Stored>,
    backend: Backend,
    arithmetic: ComputeDtype,
    kv_precision: KvPrecision,
    checkpointing: ActivationCheckpointing,
    /// State of the last training forward for its backward.
    recorded: Option<Recorded>,
    training: Pass,
    evaluation: Pass,
    tables: Tables,
    step_position: StepPosition,
    /// Load of the experts in the current optimizer step so far.
    loads: experts::Loads,
    /// Gradient of the loss with respect to the head's outputs, reused every step.
    upstream: Upstream,
    regularizers: Regularizers,
    /// What it learns to be like, in distillation.
    teacher: Option<Teacher>,
}

/// Regularization in training for losses that are linear in log-probabilities; zeros disable it. Not
/// applied in evaluations.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Regularizers {
    /// Weight of the mean squared log-sum-exp of the logits (z-loss).
    pub z_loss: f64,
    /// NEFTune's α: noise on embeddings, uniform in ±α / √(tokens · features of a row).
    pub embedding_noise: f64,
}

enum Recorded {
    /// In the training pass; (B, T).
    Fused(usize, usize),
    Composite {
        leaves: Leaves,
        outputs: Graph,
    },
}

impl Model {
    /// A model with zero weights; [`Model::init`] or a checkpoint fills them. `vocab_size` is the tokenizer's, used if
    /// the config has none.
    /// On a CPU it uses the fused kernels, elsewhere the composites.
    ///
    /// # Errors
    /// Invalid sizes, or too little memory.
    pub fn new(config: &ModelConfig, vocab_size: usize, device: &Device) -> Result<Model> {
        let backend = if device.is_cpu() {
            Backend::Fused
        } else {
            Backend::Composite
        };
        Model::with_backend(config, vocab_size, device, backend)
    }

    /// The same with a chosen backend; the fused one is only for CPUs.
    ///
    /// # Errors
    /// As [`Model::new`]; the fused backend on any device but a CPU.
    pub fn with_backend(
        config: &ModelConfig,
        vocab_size: usize,
        device: &Device,
        backend: Backend,
    ) -> Result<Model> {
        if backend == Backend::Fused && !device.is_cpu() {
            bail!("model: the fused backend is for the CPU, not for {device:?}")
        }
        let shape = config.shape(vocab_size);
        check::shape(config, &shape, backend)?;
        let layout = Layout::new(config, &shape);
        let params = Params::new(layout.infos.clone(), layout.n_base, device)?;
        Ok(Model::assemble(
            (config, shape),
            layout,
            params,
            None,
            backend,
        ))
    }

    /// A model with the same base weights and no adapter, for evaluation only: an unchanging reference.
    ///
    /// # Errors
    /// Quantized weights.
    pub fn frozen_copy(&self) -> Result<Model> {
        // A copy in f32 may be more than the memory holds.
        self.params.require_present()?;
        let device = self.params.device();
        let config = ModelConfig {
            value_head: false,
            ..self.config.clone()
        };
        let mut copy = Model::with_backend(&config, self.shape.vocab_size, device, self.backend)?;
        copy.arithmetic = self.arithmetic;
        copy.kv_precision = self.kv_precision;
        self.params.read_weights(|ours| {
            copy.params
                .write_weights(|base| base.copy_from_slice(&ours[..base.len()]))
        })??;
        Ok(copy)
    }

    /// Copies by name the base weights of `other` that this model has too: all but the head. Of learned positions a shorter
    /// context uses the first ones.
    ///
    /// # Errors
    /// A parameter of another shape, or one other than the head that `other` lacks.
    pub fn copy_trunk(&mut self, other: &Model) -> Result<()> {
        let theirs = by_name(other.params.base());
        let mut pairs = Vec::new();
        for info in self.params.base().iter().filter(|i| i.role != Role::Head) {
            let begins = |their: &ParamInfo| {
                info.role == Role::Position
                    && info.shape[1..] == their.shape[1..]
                    && info.shape[0] < their.shape[0]
            };
            match theirs.get(info.name.as_str()) {
                Some(their) if their.shape == info.shape || begins(their) => {
                    pairs.push((info.offset, their.offset, info.len));
                }
                Some(their) => bail!(
                    "{}: shape {:?} here, {:?} there",
                    info.name,
                    info.shape,
                    their.shape
                ),
                None => bail!("the other model has no {}", info.name),
            }
        }
        self.copy_ranges(other, pairs)
    }

    /// Copies by name the adapters of `other` on layers that both adapt: for an equal model with another head, all but the
    /// one on the head.
    ///
    /// # Errors
    /// Weights that are not in memory.
    pub fn copy_adapters(&mut self, other: &Model) -> Result<()> {
        let theirs = by_name(other.params.adapters());
        let pair = |info: &ParamInfo| {
            let their = theirs.get(info.name.as_str());
            let their = their.filter(|their| their.shape == info.shape)?;
            Some((info.offset, their.offset, info.len))
        };
        let pairs = self.params.adapters().iter().filter_map(pair).collect();
        self.copy_ranges(other, pairs)
    }

    /// Copies ranges of weights: destination offset, source offset, length.
    fn copy_ranges(&mut self, other: &Model, ranges: Vec<(usize, usize, usize)>) -> Result<()> {
        other.params.read_weights(|from| {
            self.params.write_weights(|to| {
                for (ours, theirs, len) in ranges {
                    to[ours..ours + len].copy_from_slice(&from[theirs..theirs + len]);
                }
            })
        })?
    }

    /// The same trunk with a zero score in place of the head: the base of a reward model's adapter.
    ///
    /// # Errors
    /// Quantized weights.
    pub fn scoring(&self) -> Result<Model> {
        self.params.require_present()?;
        let config = ModelConfig {
            head: HeadKind::Score,
            ..self.config.clone()
        };
        let mut model = Model::new(&config, self.shape.vocab_size, self.params.device())?;
        model.copy_trunk(self)?;
        Ok(model)
    }

    /// The parameters of a model of this config, in memory order, without creating it.
    ///
    /// # Errors
    /// The config's.
    pub fn parameters(config: &ModelConfig, vocab_size: usize) -> Result<Vec<ParamInfo>> {
        let shape = config.shape(vocab_size);
        check::shape(config, &shape, Backend::Fused)?;
        Ok(Layout::new(config, &shape).infos)
    }

    /// An inference-only model: its weights stay in the formats in which `read` returns them, one parameter at a time.
    /// Training it is an error.
    ///
    /// # Errors
    /// An invalid config, errors of `read`, and bytes that do not match the parameter.
    pub fn stored<E>(
        config: &ModelConfig,
        vocab_size: usize,
        read: impl FnMut(&ParamInfo) -> std::result::Result<StoredTensor, E>,
    ) -> std::result::Result<Model, E>
    where
        E: From<candle_core::Error>,
    {
        let shape = config.shape(vocab_size);
        check::shape(config, &shape, Backend::Fused)?;
        let layout = Layout::frozen(config, &shape);
        let params = Params::absent(layout.infos.clone())?;
        let stored = Stored::new(&layout, read)?;
        let config = (config, shape);
        Ok(Model::assemble(
            config,
            layout,
            params,
            Some(stored),
            Backend::Fused,
        ))
    }

    fn assemble(
        (config, shape): (&ModelConfig, ModelShape),
        layout: Layout,
        params: Params,
        stored: Option<Stored>,
        backend: Backend,
    ) -> Model {
        Model {
            config: config.clone(),
            shape,
            adapter: None,
            adapters_on: true,
            layout,
            params,
            stored,
            backend,
            arithmetic: ComputeDtype::F32,
            kv_precision: KvPrecision::default(),
            checkpointing: ActivationCheckpointing::default(),
            recorded: None,
            training: Pass::new(Track::Gradients),
            evaluation: Pass::new(Track::Off),
            tables: Tables::new(config, &shape),
            step_position: StepPosition::default(),
            loads: experts::Loads::default(),
            upstream: Upstream::default(),
            regularizers: Regularizers::default(),
            teacher: None,
        }
    }

    /// Takes rotations and context of `config`, one of the same model: its weights are then read at other positions.
    pub fn set_positions(&mut self, config: &ModelConfig) {
        // A learned table is one of the weights.
        if self.config.position.rope().is_none() || config.position.rope().is_none() {
            return;
        }
        self.config.position = config.position.clone();
        (self.config.seq_len, self.config.context_len) = (config.seq_len, config.context_len);
        self.shape.seq_len = config.seq_len;
        self.tables = Tables::new(&self.config, &self.shape);
    }

    /// Sets the regularization of training; returns the previous one. Only fused passes support it.
    pub fn set_regularizers(&mut self, regularizers: Regularizers) -> Regularizers {
        std::mem::replace(&mut self.regularizers, regularizers)
    }

    /// Draws initial weights: a pure function of the seed and the parameter's index, on any number of threads.
    ///
    /// # Errors
    /// Quantized weights.
    pub fn init(&mut self, seed: u64) -> Result<()> {
        self.init_from(seed, 0)
    }

    /// The same for parameters from number `first` on.
    fn init_from(&mut self, seed: u64, first: usize) -> Result<()> {
        let infos = self.params.infos().to_vec();
        let held = self.params.first_held();
        self.params.write_from(first, |weights| {
            for (index, info) in infos.iter().enumerate().skip(first) {
                let from = info.offset - held;
                let part = &mut weights[from..from + info.len];
                match info.init {
                    Init::Ones => part.fill(1.0),
                    Init::Zeros => part.fill(0.0),
                    Init::Uniform(bound) => {
                        let mut rng = Rng::new(seed, Stream::Init, 0, index as u32);
                        let bound = bound as f32;
                        part.fill_with(|| bound * (2.0 * rng.uniform() - 1.0));
                    }
                    Init::LogUniform(low, high) => {
                        let mut rng = Rng::new(seed, Stream::Init, 0, index as u32);
                        let mut drawn = || low + (high - low) * f64::from(rng.uniform());
                        part.fill_with(|| drawn().ln() as f32);
                    }
                    Init::Step(low, high) => {
                        let mut rng = Rng::new(seed, Stream::Init, 0, index as u32);
                        let span = (high / low).ln();
                        let mut drawn = || low * (span * f64::from(rng.uniform())).exp();
                        // The inverse of softplus: x + ln(1 − e^−x).
                        part.fill_with(|| {
                            let step = drawn();
                            (step + (-(-step).exp_m1()).ln()) as f32
                        });
                    }
                    Init::Normal(std) => {
                        threads::rows1(part, 1, NORMAL_COST, |first, values| {
                            let mut rng = Rng::new(seed, Stream::Init, 0, index as u32);
                            rng.skip_normals(first as u32);
                            values.fill_with(|| std as f32 * rng.normal());
                        });
                    }
                }
            }
        })?;
        match self
            .layout
            .adapters
            .iter()
            .any(AdapterSpans::has_magnitudes)
        {
            true => self.init_magnitudes(),
            false => Ok(()),
        }
    }

    /// The compute dtype of all matmuls from now on: training, evaluation and generation. The composite backend supports
    /// only f32.
    ///
    /// # Errors
    /// Another dtype than f32 with the composite backend.
    pub fn set_compute_dtype(&mut self, arithmetic: ComputeDtype) -> Result<()> {
        if self.backend == Backend::Composite && arithmetic != ComputeDtype::F32 {
            bail!("model: {arithmetic:?} matmuls need the fused CPU kernels; use f32 here")
        }
        self.arithmetic = arithmetic;
        Ok(())
    }

    pub fn arithmetic(&self) -> ComputeDtype {
        self.arithmetic
    }

    /// The dtype of KV caches from now on. The composite backend supports only f32.
    ///
    /// # Errors
    /// bf16 with the composite backend.
    pub fn set_kv_cache(&mut self, precision: KvPrecision) -> Result<()> {
        if self.backend == Backend::Composite && precision == KvPrecision::Bf16 {
            bail!("model: a KV cache in bf16 needs the fused CPU kernels; use f32 here")
        }
        self.kv_precision = precision;
        Ok(())
    }

    /// The dtype of keys and values in KV caches.
    pub fn kv_storage(&self) -> Storage {
        let is_quantized = self.stored.as_ref().is_some_and(Stored::is_quantized);
        match self.backend {
            Backend::Fused => self.kv_precision.resolve(self.arithmetic, is_quantized),
            Backend::Composite => Storage::F32,
        }
    }

    /// Which activations the next training forwards store. The composite backend stores all.
    pub fn set_checkpointing(&mut self, checkpointing: ActivationCheckpointing) {
        self.checkpointing = checkpointing;
        self.recorded = None;
    }

    pub fn checkpointing(&self) -> ActivationCheckpointing {
        self.checkpointing
    }

    /// Sets the observer of the next training passes; the composite backend ignores it.
    pub fn set_tap(&mut self, tap: Option<SharedTap>) {
        self.training.tap = tap;
    }

    /// Starts timing the kernels of training passes, from zero.
    pub fn profile(&mut self) {
        self.training.kernels.start();
    }

    /// Time of each kernel since [`Model::profile`]; `None` if it was not called.
    pub fn profiled(&self) -> Option<[(Part, Duration); Part::ALL.len()]> {
        self.training.kernels.spent()
    }

    /// Memory held by the training and the evaluation pass after their work so far; zero on the
    /// composite backend. [`super::footprint`] predicts it.
    pub fn footprints(&self) -> (Footprint, Footprint) {
        (self.training.footprint(), self.evaluation.footprint())
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The naming scheme of the parameters.
    pub fn naming(&self) -> Naming {
        Naming::of(&self.config)
    }

    pub fn device(&self) -> &Device {
        self.params.device()
    }

    pub fn n_params(&self) -> usize {
        self.params.len()
    }

    pub fn params(&self) -> &Params {
        &self.params
    }

    pub fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    pub(crate) fn step_position(&self) -> StepPosition {
        self.step_position
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes of weights read per decoded token.
    pub fn decode_bytes_per_token(&self) -> usize {
        if let Some(stored) = &self.stored {
            let mut spans = self.layout.spans();
            let looked_up = |span: &Span| {
                Some(*span) == self.layout.positions
                    || (*span == self.layout.tokens && *span != self.layout.head)
            };
            let idle = self.layout.idle(&self.config);
            spans.retain(|span| !looked_up(span) && !idle.contains(span));
            spans.sort_by_key(|span| span.offset);
            spans.dedup();
            return spans.iter().map(|span| stored.bytes(*span)).sum();
        }
        (self.n_params() - self.lookup_params() - self.idle_params()) * size_of::<f32>()
    }

    /// Number of parameters of experts that a token is not routed to.
    pub(crate) fn idle_params(&self) -> usize {
        self.layout.idle(&self.config).iter().map(Span::len).sum()
    }

    /// Number of parameters that are looked up and never multiplied: positions, and token embeddings unless tied to the head.
    pub(crate) fn lookup_params(&self) -> usize {
        let positions = self.layout.positions.map_or(0, |span| span.len());
        let tokens = if self.config.ties_head() {
            0
        } else {
            self.layout.tokens.len()
        };
        positions + tokens
    }
}
