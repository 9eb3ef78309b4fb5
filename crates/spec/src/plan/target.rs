//! From a name to a [`Request`]: a preset, a spec file, a model on this disk, or a reference model.

use super::arch::Arch;
use super::data_bytes::both_splits;
use super::models::{self, MODELS};
use super::reference::{model_request, reference_request};
use super::request::{
    Answers, AttentionKind, BaseFormat, Device, EngineExtras, Estimator, Logits, Lora, Method,
    Preflight, Ranks, Request, RewardModels, RowLengths, Rows, TeacherModel, ValueSource,
};
use super::scheme::{Precision, UpdateState, rates_in_8_bits};
use crate::base::finding::Finding;
use crate::base::near::closest;
use crate::data::{DataEnv, DataError, Dataset, Packing, Unit};
use crate::models::{ModelSource, SourceError, hub_model};
use crate::nn::footprint::{self, ComputeDtype, Subject};
use crate::nn::{self, ModelConfig, compute_dtype_name, param_infos_of};
use crate::run::state::Head;
use crate::spec::{self, RunSpec, Sizes, SpecErrors, SpecSources};
use std::path::{Path, PathBuf};

/// Why a name cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error(transparent)]
    Spec(#[from] SpecErrors),
    #[error(transparent)]
    Model(#[from] SourceError),
    #[error("unknown target `{word}`: not a preset, file, model folder or reference model")]
    Unknown {
        word: String,
        /// Similar names.
        near: Vec<String>,
    },
    #[error("`{0}` is a model: -s only applies to specs and presets")]
    NoSettings(String),
    #[error("the vocabulary size depends on the data, and {0}")]
    Vocabulary(DataError),
}

impl TargetError {
    /// What to try.
    pub fn hint(&self) -> String {
        match self {
            TargetError::Spec(_) => String::new(),
            TargetError::Model(error) => error.hint().into(),
            TargetError::Unknown { near, .. } => near.join(", "),
            TargetError::NoSettings(_) => "use --batch, --seq-len, --tokens and the like".into(),
            TargetError::Vocabulary(_) => "set it: -s model.vocab_size=32000".into(),
        }
    }
}

/// Size of a spec's data.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DataSize {
    /// Vocabulary size of the tokenizer.
    pub vocab_size: usize,
    /// Tokens per epoch of the training split.
    pub epoch_tokens: Option<u64>,
    /// Tokens that steps read in a pass, padding and all sequences of an example included.
    pub pass_tokens: Option<u64>,
    /// Tokens of the validation split that its loss is over.
    pub val_tokens: Option<u64>,
    /// Prompts that are held out, and all of them, where the model answers prompts.
    pub val_prompts: Option<(u64, u64)>,
    /// The share of all tokens that is held out.
    pub held_out: Option<f64>,
    /// Desirable and undesirable answers, where answers are judged one by one.
    pub labels: Option<(u64, u64)>,
    /// How documents lie in rows; `None` where they were not read.
    pub packing: Option<Packing>,
    /// Mean lengths of rows of one sequence each.
    pub rows: Option<Rows>,
    /// The share of the places of packed rows that documents fill.
    pub filled: Option<f64>,
    /// Bytes of memory for the data.
    pub bytes: u64,
}

impl DataSize {
    /// Of data that were read for a spec.
    pub fn of(spec: &RunSpec, data: &Dataset) -> DataSize {
        let rows = rows(spec, data);
        let has = |packing| rows.filter(|_| data.packing() == packing);
        DataSize {
            vocab_size: data.tokenizer.vocab_size(),
            epoch_tokens: Some(data.epoch_tokens()),
            pass_tokens: Some(data.pass_tokens()),
            val_tokens: Some(data.val_loss_tokens()),
            val_prompts: data.val_prompts(),
            held_out: Some(data.held_out_share()),
            labels: data.labels(),
            packing: Some(data.packing()),
            rows: has(Packing::Padded),
            filled: has(Packing::Packed).map(|rows| rows.tokens / rows.places.max(1.0)),
            bytes: both_splits(spec, data.epoch_tokens(), data.tokenizer.vocab_size()),
        }
    }

    /// What was read of the first rows, at most so many of each source: where there may be more prompts, how many and how large all
    /// are is not known, only how long they are.
    fn unless_cut(self, most: u64) -> DataSize {
        // Some rows are dropped, such as prompts that are too long.
        let all = self.val_prompts.map_or(0, |(_, all)| all);
        if all < most / 10 * 9 {
            return self;
        }
        DataSize {
            vocab_size: self.vocab_size,
            packing: self.packing,
            rows: self.rows,
            filled: self.filled,
            ..DataSize::default()
        }
    }

    /// The spec with its epochs turned into steps, as nearly as its tokens tell; as it is where they are unknown.
    pub fn in_steps(&self, spec: &RunSpec) -> RunSpec {
        let sequences = spec.method.needs().unit.sequences() as u64;
        let step = (spec.train.micro_batch_size * spec.model.seq_len) as u64 * sequences;
        // A row of a pass is full where it is counted with padding, else as long as rows are.
        let share = self
            .rows
            .map_or(1.0, |rows| rows.tokens / spec.model.seq_len as f64);
        let pass = match (self.pass_tokens, self.epoch_tokens) {
            (Some(places), _) => places as f64,
            (None, Some(tokens)) => tokens as f64 / share.max(1e-9),
            (None, None) => return spec.clone(),
        };
        spec.clone().on_data(pass / step as f64)
    }
}

/// Mean lengths of rows over the steps of a run, where they end in padding.
fn rows(spec: &RunSpec, data: &Dataset) -> Option<Rows> {
    if !data.is_padded() {
        return None;
    }
    let batch = spec.train.micro_batch_size;
    let spec = spec.clone().on_data(data.micro_steps_per_epoch(batch));
    let micro_steps = spec.train.micro_steps(spec.train.max_steps).max(1);
    let (tokens, places) = data.read(spec.seed, micro_steps, batch);
    let sequences = micro_steps as f64 * (batch * spec.method.needs().unit.sequences()) as f64;
    Some(Rows {
        tokens: tokens / sequences,
        places: places / sequences,
    })
}

/// How long a spec's rows are, as far as it was read. Answers that are yet to be written are as long as they may be.
fn row_lengths(spec: &RunSpec, data: DataSize) -> RowLengths {
    let unit = spec.method.needs().unit;
    let usual = match (unit, Method::of(&spec.method)) {
        (Unit::Text, Method::Pretrain) => Packing::Stream,
        // Conversations, as nearly always.
        (Unit::Text, _) => Packing::Packed,
        _ => Packing::Padded,
    };
    let packing = data.packing.unwrap_or(spec.data.packing.or(usual));
    match packing {
        _ if unit == Unit::Prompt => data
            .rows
            .map_or(RowLengths::Full, |prompts| answered(prompts, spec)),
        Packing::Stream => RowLengths::Full,
        Packing::Packed => RowLengths::Packed {
            filled: data.filled,
        },
        Packing::Padded => data.rows.map_or(RowLengths::Assumed, RowLengths::Read),
    }
}

/// Prompts with answers that all have as many tokens as they may.
fn answered(prompts: Rows, spec: &RunSpec) -> RowLengths {
    let longest = spec.model.seq_len as f64;
    let tokens = prompts.tokens + spec.rollout.max_new_tokens as f64;
    let tokens = tokens.min(longest);
    let places = Rows::padded(tokens).min(longest);
    RowLengths::Read(Rows { tokens, places })
}

/// The request for a name; `set` are `-s` overrides for specs. A preset or what lies at a path takes precedence over a
/// reference model.
///
/// # Errors
/// No spec, model or reference model has that name, the spec has issues, or the model cannot be read.
pub fn resolve(word: &str, set: &[String], sources: &SpecSources) -> Result<Request, TargetError> {
    if is_spec(word, sources) {
        let spec = spec::load(word, set, sources)?.spec;
        let data = measure(&spec)?;
        return Ok(of_spec(&spec, data));
    }
    let no_settings = || match set.is_empty() {
        true => Ok(()),
        false => Err(TargetError::NoSettings(word.into())),
    };
    let path = path_of(word, sources);
    let absent = match ModelSource::open(&path) {
        Ok(source) => {
            no_settings()?;
            let arch = Arch::of(source.config(), 0);
            return Ok(model_request(&source.name(), arch));
        }
        Err(error @ SourceError::Absent(_)) => error,
        // A folder of another kind may share its name with a reference model.
        Err(SourceError::NoModel { .. }) if models::find(word).is_some() && !is_path(word) => {
            SourceError::Absent(path)
        }
        Err(error) => return Err(error.into()),
    };
    if is_path(word) {
        return Err(absent.into());
    }
    match models::find(word) {
        Some(model) => {
            no_settings()?;
            Ok(reference_request(model))
        }
        None => Err(TargetError::Unknown {
            word: word.into(),
            near: near(word, sources),
        }),
    }
}

/// Without a dot in its middle, for messages.
fn path_of(word: &str, sources: &SpecSources) -> PathBuf {
    sources.project_dir.join(word).components().collect()
}

/// The model that lies at `word`, where [`resolve`] takes it for one.
pub fn model_at(word: &str, sources: &SpecSources) -> Option<ModelSource> {
    let path = path_of(word, sources);
    let source = || ModelSource::open(&path).ok();
    (!is_spec(word, sources)).then(source).flatten()
}

/// A model by itself, pretrained by this program's engine: batch and tokens as in [`model_request`], the rest as in a spec. `None`
/// of a model that no spec could name so, such as a reward model.
pub fn on_own_engine(source: &ModelSource) -> Option<Request> {
    own_engine(&source.name(), source.config())
}

/// The same of a config by itself.
pub fn own_engine(name: &str, config: &ModelConfig) -> Option<Request> {
    let like = model_request(name, Arch::of(config, 0));
    let mut model = serde_json::to_value(config).ok()?;
    model["seq_len"] = like.seq_len.into();
    let spec = serde_json::json!({
        "model": model,
        "train": {"micro_batch_size": like.micro_batch, "activation_checkpointing": "full"},
    });
    // JSON is YAML.
    let spec = RunSpec::from_yaml(&spec.to_string()).ok()?;
    let size = DataSize {
        vocab_size: config.vocab_size?,
        ..DataSize::default()
    };
    let mut request = of_spec(&spec, size);
    request.name = like.name;
    (request.tokens, request.tokens_source) = (like.tokens, like.tokens_source);
    Some(request)
}

/// True if a word can only be a path: an owner and a name are written with a slash too, and a file of theirs with more.
fn is_path(word: &str) -> bool {
    let slashes = word.matches('/').count() > 1 && hub_model(word).is_none();
    word.starts_with(['.', '/', '~']) || word.ends_with('/') || slashes
}

/// True if a name is a preset or a spec file.
pub fn is_spec(word: &str, sources: &SpecSources) -> bool {
    let like_a_file = [".yaml", ".yml", ".json"]
        .iter()
        .any(|end| word.ends_with(end));
    let path = sources.project_dir.join(word);
    like_a_file
        || (path.is_file() && crate::models::kind(&path).is_err())
        || spec::presets(sources)
            .iter()
            .any(|preset| preset.name == word)
}

/// The most similar names; all families if there are none.
fn near(word: &str, sources: &SpecSources) -> Vec<String> {
    let presets = spec::presets(sources).into_iter().map(|p| p.name);
    let models = MODELS.iter().map(|m| m.name.to_string());
    let names = presets.chain(models);
    closest(4, word, names.map(|name| (name.clone(), name)))
}

/// Rows of each source by which a plan knows how long prompts are.
const SAMPLE: u64 = 10_000;

/// Reads a spec's data as far as its size matters. Missing data matter only if the vocabulary depends on
/// them.
///
/// # Errors
/// The data cannot be read, and only they say how large the vocabulary is.
pub fn measure(spec: &RunSpec) -> Result<DataSize, TargetError> {
    let said = spec.model.vocab_size.or(spec.data.tokenizer.vocab_size());
    // There may be more rows than are worth reading for a plan, unless it is to count passes over them. How long prompts are decides
    // how much shorter than the context the rows of answers are: a part of them says that.
    let counts = spec.train.epochs.is_some();
    let asks = counts || spec.method.on_policy().is_some();
    let needless = !spec.data.is_corpus(Path::new("")) && !asks;
    if let (Some(vocab_size), true) = (said, needless) {
        return Ok(DataSize {
            vocab_size,
            ..DataSize::default()
        });
    }
    let sampled = said.is_some() && !counts && !spec.data.is_corpus(Path::new(""));
    let opened = match sampled {
        true => spec.open_sample(SAMPLE),
        false => spec.open_data(&DataEnv::default()),
    };
    match opened {
        Ok(data) if sampled => Ok(DataSize::of(spec, &data).unless_cut(SAMPLE)),
        Ok(data) => Ok(DataSize::of(spec, &data)),
        Err(_) if said.is_some() => Ok(DataSize {
            vocab_size: said.unwrap_or_default(),
            ..DataSize::default()
        }),
        Err(error) => Err(TargetError::Vocabulary(error)),
    }
}

/// The request of a run, from its `Started` event; `None` if the spec is not valid in this build.
pub fn of_run(head: &Head) -> Option<Request> {
    // JSON is YAML.
    let spec = RunSpec::from_yaml(&head.spec.to_string()).ok()?.in_steps();
    let vocab_size = usize::try_from(head.vocab_size).ok()?;
    let data = DataSize {
        vocab_size,
        epoch_tokens: Some(head.epoch_tokens),
        bytes: both_splits(&spec, head.epoch_tokens, vocab_size),
        ..DataSize::default()
    };
    let mut request = of_spec(&spec, data);
    as_trained(&mut request, head);
    Some(request)
}

/// What `precision: auto` came to where the run trains, which need not be this machine.
pub fn as_trained(request: &mut Request, head: &Head) {
    match head.precision.as_deref() {
        Some("f32") => request.precision = Precision::Fp32,
        Some("bf16") => request.precision = Precision::Fp32Bf16Matmuls,
        _ => {}
    }
}

/// What the update rule of a spec says that it keeps.
fn update_state(spec: &RunSpec, vocab_size: usize) -> UpdateState {
    let infos = param_infos_of(&spec.model, vocab_size, spec.trained());
    let trained = infos.iter().filter(|info| info.trains());
    UpdateState::Own {
        word: spec.optimizer.entry().id,
        bytes: spec.update_bytes(&infos),
        saved: spec.saved_update_bytes(&infos),
        params: trained.map(|info| info.len as u64).sum(),
    }
}

/// The request of a spec on this program's engine.
pub fn of_spec(spec: &RunSpec, data: DataSize) -> Request {
    let spec = &data.in_steps(spec);
    let train = &spec.train;
    let arch = Arch::of(&spec.model, data.vocab_size);
    let (micro_batch, grad_accum) = (train.micro_batch_size as u64, train.grad_accum_steps as u64);
    let seq_len = spec.model.seq_len as u64;
    let method = Method::of(&spec.method);
    // A base that stays in its file's formats.
    let base = spec.packed_base().map(spec::base_of_hub);
    let base = base.and_then(Result::ok);
    let mut request = Request {
        name: spec.name.clone(),
        arch,
        estimator: Estimator::Engine,
        method,
        precision: matmul_precision(train.precision),
        update: update_state(spec, data.vocab_size),
        lora: spec.adapter.as_ref().map(Lora::of),
        adapter: spec.adapter.clone(),
        frozen: train.freeze.clone(),
        base: BaseFormat::Whole,
        reference: spec.method.needs().reference.unwrap_or_default(),
        checkpointing: train.activation_checkpointing.into(),
        logits: Logits::Whole,
        attention: AttentionKind::Flash,
        n_devices: 1,
        zero: 0,
        micro_batch,
        grad_accum,
        seq_len,
        rollouts: rollouts(spec),
        tokens: spec.run_tokens() * method.sequences(),
        tokens_source: ValueSource::Stated,
        batch_ramp: train.batch_ramp.clone(),
        mfu: 0.7,
        mfu_source: ValueSource::Assumed,
        device: Device::limit("this machine", None),
        extras: EngineExtras {
            data_bytes: data.bytes,
            eval_batch: eval_batch(spec, data.epoch_tokens),
            preflight: if spec.preflight.enabled {
                Preflight::On
            } else {
                Preflight::Off
            },
            asked: train.precision,
            saves: Some(spec.saves()),
            epoch_tokens: data.epoch_tokens,
            // Of a stream both are the same.
            pass_tokens: data.pass_tokens.filter(|n| Some(*n) != data.epoch_tokens),
            answers: answers(spec, data),
            rewards: reward_models(spec),
            teacher: teacher(spec),
            packed_bytes: base.as_ref().and_then(|base| base.packed_bytes),
            ranks: ranks(spec),
            has_base: spec.train.from.is_some(),
            has_average: spec.train.ema_decay.is_some(),
            moves_reference: spec.train.sync_ref_model,
            rows: RowLengths::Full,
        },
        settings: settings(spec, data, method),
        torch_refuses: spec.refused_by_torch(),
        rates_in_8_bits: rates_in_8_bits(spec),
    };
    request.set_rows(row_lengths(spec, data));
    request
}

/// What is said of a spec's settings; passes over the data are the plan's own matter, whose tokens can be changed.
fn settings(spec: &RunSpec, data: DataSize, method: Method) -> Vec<Finding> {
    let mut found = spec.review(Sizes {
        step_tokens: Some(spec.batch_tokens() * method.sequences()),
        pass_tokens: None,
        val_tokens: data.val_tokens,
        val_prompts: data.val_prompts,
        held_out: data.held_out,
        labels: data.labels,
        here: false,
        ..Sizes::default()
    });
    // Whether the rows are turns is not known here; whoever names a template means them to be.
    found.extend(crate::spec::named_marks(&spec.data));
    found
}

/// The ranks of a spec for PyTorch.
fn ranks(spec: &RunSpec) -> Option<Ranks> {
    let torch = spec.engine.torch()?;
    Some(Ranks {
        count: torch.ranks.map(|n| n as u64),
        rows: None,
        machines: match (torch.nodes.len(), torch.is_on_several_machines()) {
            (0, true) => None,
            (n, _) => Some(n.max(1) as u64),
        },
        elsewhere: torch.is_elsewhere(),
        sharded: torch.shard_word() == "fsdp2",
        offloaded: torch.offload,
        gpus_allowed: torch.device(1) == "cuda",
        gpus_asked: torch.device(0) == "cuda",
        bf16: torch.format("cuda", spec.asked_format()) == "bf16",
        compiled: torch.compile,
        worth_compiling: torch.worth_compiling(),
    })
}

/// Answers that are written at once.
fn rollouts(spec: &RunSpec) -> u64 {
    let (train, rollout) = (&spec.train, &spec.rollout);
    if spec.method.on_policy().is_none() {
        let writes = spec.method.own_share() > 0.0;
        // A packed row holds several conversations.
        return if writes {
            rollout.side_by_side as u64
        } else {
            0
        };
    }
    let step = train.micro_batch_size * train.grad_accum_steps * rollout.steps;
    let held_out = match spec.eval.every.is_never() {
        true => 0,
        false => train.micro_batch_size * rollout.eval_answers,
    };
    rollout.side_by_side.min(step.max(held_out)) as u64
}

fn answers(spec: &RunSpec, data: DataSize) -> Option<Answers> {
    let method = spec.method.on_policy()?;
    let reused = spec.rollout.cycle() > 1;
    let asks_policy = reused || spec.model.value_head || method.charges_kl();
    Some(Answers {
        tokens: spec.model.seq_len as u64,
        has_reference: spec.method.needs().reference.is_some(),
        has_old_policy: asks_policy,
        is_reused: reused,
        is_linear: !reused && method.fresh_is_linear(),
        cold_share: cold_share(spec),
        epochs: spec.rollout.epochs as u64,
        max_new_tokens: spec.rollout.max_new_tokens as u64,
        length: spec.rollout_length(),
        // A row of a pass is one prompt.
        prompts: data
            .pass_tokens
            .map(|pass| pass / spec.model.seq_len.max(1) as u64),
    })
}

/// The share of the steps that learn the data's own answers.
fn cold_share(spec: &RunSpec) -> f64 {
    let (cold, all) = (spec.rollout.cold_start_steps, spec.train.max_steps.max(1));
    cold.min(all) as f64 / all as f64
}

/// The models that score a spec's answers, by their descriptions; one that is not there takes nothing, and loading says so.
fn reward_models(spec: &RunSpec) -> RewardModels {
    let mut all = RewardModels::default();
    for reward in spec.rewards.iter().map(|weighted| &weighted.reward) {
        let source = reward.model().map(ModelSource::open);
        let Some(Ok(source)) = source else { continue };
        let (config, n) = (source.config(), source.n_params());
        let arch = Arch::of(config, 0);
        let of = Subject {
            config,
            shape: arch.shape(),
            trained: Default::default(),
            is_packed: false,
            arithmetic: ComputeDtype::F32,
        };
        let tokens = spec.model.seq_len.min(config.seq_len);
        let pass = footprint::evaluation(of, (reward.read_at_once(), tokens));
        all.params += n;
        all.tokens += arch.vocab_size();
        all.bytes += 4 * n + pass.total();
    }
    all
}

/// The teacher of a spec, by its description; one that is not there takes nothing, and loading says so.
fn teacher(spec: &RunSpec) -> TeacherModel {
    let Some(distill) = spec.method.distills() else {
        return TeacherModel::default();
    };
    let source = distill.teacher.as_deref().map(ModelSource::open);
    let Some(Ok(source)) = source else {
        return TeacherModel::default();
    };
    let (config, params) = (source.config(), source.n_params());
    let arch = Arch::of(config, 0);
    let packed = source.chain().0.packed_bytes();
    let of = Subject {
        config,
        shape: arch.shape(),
        trained: Default::default(),
        is_packed: packed.is_some(),
        arithmetic: match matmul_precision(spec.train.precision) {
            Precision::Fp32 => ComputeDtype::F32,
            _ => ComputeDtype::Bf16,
        },
    };
    let tokens = spec.model.seq_len.min(config.seq_len);
    let pass = footprint::evaluation(of, (spec.train.micro_batch_size, tokens));
    TeacherModel {
        params,
        outside: arch.kept_in_16_bit(),
        tokens: arch.vocab_size(),
        weight_bytes: packed.unwrap_or(4 * params),
        is_packed: packed.is_some(),
        pass_bytes: pass.total(),
        own_share: distill.on_policy,
    }
}

/// Sequences per evaluation batch. During training it is a full batch; the final one covers the held-out data, which
/// may be less.
fn eval_batch(spec: &RunSpec, epoch_tokens: Option<u64>) -> u64 {
    let full = spec.train.micro_batch_size as u64;
    let share = spec.data.val_fraction.clamp(0.0, 0.9);
    let at_the_end = spec.eval.every.is_never() && spec.data.val_path.is_none();
    match epoch_tokens {
        _ if at_the_end && spec.data.val_rows.is_some() => {
            full.min(spec.data.val_rows.unwrap_or(full))
        }
        Some(tokens) if at_the_end => {
            let held_out = tokens as f64 * share / (1.0 - share);
            full.min((held_out / spec.model.seq_len as f64).ceil() as u64)
        }
        _ => full,
    }
}

/// The matmul dtype on this machine. A spec that asks for more than the machine supports is planned as asked: the
/// run itself rejects it.
fn matmul_precision(asked: nn::Precision) -> Precision {
    match asked.resolve().map(compute_dtype_name) {
        Ok("f32") => Precision::Fp32,
        _ => Precision::Fp32Bf16Matmuls,
    }
}

/// The same model and batch in a typical GPU trainer: 16 bits with f32 master weights, or f32 if the spec says so.
pub fn on_gpu(mut request: Request, device: Device) -> Request {
    if request.estimator == Estimator::Engine {
        request.estimator = Estimator::General;
        request.precision = match request.extras.asked {
            nn::Precision::F32 => Precision::Fp32,
            nn::Precision::Auto | nn::Precision::Bf16 => Precision::Mixed,
        };
        request.logits = Logits::Whole;
        // A share of what this machine's processor was measured to do is none of a GPU's peak.
        if request.mfu_source != ValueSource::Stated {
            request.mfu_source = ValueSource::Assumed;
        }
        request.assume();
    }
    request.extras.ranks = None;
    request.device = device;
    request
}

/// Back from [`on_gpu`] to this program's own engine: by its formulas, on the device that `engine`, the request from before, names.
/// What was changed meanwhile of model, batch and method stays.
pub fn on_engine(mut request: Request, engine: &Request) -> Request {
    request.micro_batch = request.all_rows();
    request.estimator = engine.estimator;
    request.precision = engine.precision;
    request.logits = engine.logits;
    (request.mfu, request.mfu_source) = (engine.mfu, engine.mfu_source);
    (request.n_devices, request.zero) = (engine.n_devices, engine.zero);
    request.extras.ranks = engine.extras.ranks;
    request.device = engine.device.clone();
    request
}

#[cfg(test)]
mod companions;
#[cfg(test)]
mod tests;
