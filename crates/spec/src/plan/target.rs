//! From a name to a [`Request`]: a preset, a spec file, a model on this disk, or a reference model.

use super::arch::Arch;
use super::models::{self, MODELS};
use super::reference::{model_request, reference_request};
use super::request::{
    Answers, AttentionKind, BaseFormat, Device, EngineExtras, Estimator, Logits, Lora, Method,
    Preflight, Ranks, Request, RowLengths, Rows, Said,
};
use super::scheme::{Precision, UpdateState};
use crate::base::finding::Finding;
use crate::data::{DataError, Dataset, Packing, Surroundings, Unit};
use crate::models::{ModelSource, SourceError};
use crate::nn::{self, compute_dtype_name, param_infos_of};
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
    #[error(
        "nothing is called `{word}`: no preset, no file, no model folder and no reference model"
    )]
    Unknown {
        word: String,
        /// Similar names.
        near: Vec<String>,
    },
    #[error("`{0}` is a model: -s applies to specs and presets only")]
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
    /// Desirable and undesirable answers, where answers are judged one by one.
    pub labels: Option<(u64, u64)>,
    /// Mean lengths of rows of one sequence each.
    pub rows: Option<Rows>,
    /// Bytes of memory for the data.
    pub bytes: u64,
}

impl DataSize {
    /// Of data that were read for a spec.
    pub fn of(spec: &RunSpec, data: &Dataset) -> DataSize {
        DataSize {
            vocab_size: data.tokenizer.vocab_size(),
            epoch_tokens: Some(data.epoch_tokens()),
            pass_tokens: Some(data.pass_tokens()),
            val_tokens: Some(data.val_loss_tokens()),
            labels: data.labels(),
            rows: rows(spec, data),
            bytes: data_bytes(spec, data.epoch_tokens()),
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

/// Mean lengths of padded rows over the steps of a run.
fn rows(spec: &RunSpec, data: &Dataset) -> Option<Rows> {
    if data.packing() != Packing::Padded {
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
    let packing = match unit {
        Unit::Text => Packing::Packed,
        _ => Packing::Padded,
    };
    if unit == Unit::Prompt || spec.data.packing.or(packing) != Packing::Padded {
        return RowLengths::Full;
    }
    data.rows.map_or(RowLengths::Assumed, RowLengths::Read)
}

/// The request for a name; `set` are `-s` overrides for specs. A preset or what lies at a path takes precedence over a
/// reference model.
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
    // Without a dot in its middle, for messages.
    let path: PathBuf = sources.project_dir.join(word).components().collect();
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

/// True if a word can only be a path: an owner and a name are written with a slash too.
fn is_path(word: &str) -> bool {
    word.starts_with(['.', '/', '~']) || word.ends_with('/') || word.matches('/').count() > 1
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
    let word = word.to_lowercase();
    let presets = spec::presets(sources).into_iter().map(|p| p.name);
    let models = MODELS.iter().map(|m| m.name.to_string());
    let mut scored: Vec<(usize, String)> = presets
        .chain(models)
        .map(|name| {
            let distance = strsim::osa_distance(&word, &name);
            let shares = name.contains(&word) || word.contains(name.as_str());
            (if shares { 0 } else { distance }, name)
        })
        .collect();
    scored.sort();
    scored.into_iter().take(4).map(|(_, name)| name).collect()
}

/// Reads a spec's data as far as its size matters. Missing data matter only if the vocabulary depends on
/// them.
pub fn measure(spec: &RunSpec) -> Result<DataSize, TargetError> {
    let said = spec.model.vocab_size.or(spec.data.tokenizer.vocab_size());
    // There may be more rows than are worth reading for a plan, unless it is to count passes over them.
    let needless = !spec.data.is_corpus(Path::new("")) && spec.train.epochs.is_none();
    if let (Some(vocab_size), true) = (said, needless) {
        return Ok(DataSize {
            vocab_size,
            ..DataSize::default()
        });
    }
    match spec.open_data(&Surroundings::default()) {
        Ok(data) => Ok(DataSize::of(spec, &data)),
        Err(_) if said.is_some() => Ok(DataSize {
            vocab_size: said.unwrap_or_default(),
            ..DataSize::default()
        }),
        Err(error) => Err(TargetError::Vocabulary(error)),
    }
}

/// Bytes per token during tokenization: its id and its characters; for a subword tokenizer also its piece, offsets and
/// masks, whose memory the allocator keeps.
const CHARACTER: f64 = 5.0;
const SUBWORD: f64 = 75.0;

/// Both splits.
fn data_bytes(spec: &RunSpec, epoch_tokens: u64) -> u64 {
    // Of rows that are counted the share is unknown, and small.
    let share = spec.data.val_share().unwrap_or(0.0);
    let all = epoch_tokens as f64 / (1.0 - share.clamp(0.0, 0.9));
    let each = match spec.data.tokenizer.entry().id {
        "char" => CHARACTER,
        _ => SUBWORD,
    };
    (each * all) as u64
}

/// The request of a run, from its `Started` event; `None` if the spec is not valid in this build.
pub fn of_run(head: &Head) -> Option<Request> {
    // JSON is YAML.
    let spec = RunSpec::from_yaml(&head.spec.to_string()).ok()?.in_steps();
    let data = DataSize {
        vocab_size: usize::try_from(head.vocab_size).ok()?,
        epoch_tokens: Some(head.epoch_tokens),
        bytes: data_bytes(&spec, head.epoch_tokens),
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
        Some("bf16") => request.precision = Precision::Fp32Bf16Products,
        _ => {}
    }
}

/// What the update rule of a spec says that it keeps.
fn update_state(spec: &RunSpec, vocab_size: usize) -> UpdateState {
    let infos = param_infos_of(&spec.model, vocab_size, spec.adapter.as_ref());
    let trained = infos.iter().filter(|info| info.trains());
    UpdateState::Own {
        word: spec.optimizer.entry().id,
        bytes: spec.update_bytes(&infos),
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
    let method = Method::by_word(spec.method.entry().id).unwrap_or(Method::Pretrain);
    let mut request = Request {
        name: spec.name.clone(),
        arch,
        estimator: Estimator::Engine,
        method,
        precision: products(train.precision),
        update: update_state(spec, data.vocab_size),
        lora: spec.adapter.as_ref().map(Lora::of),
        adapter: spec.adapter.clone(),
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
        tokens_said: Said::Stated,
        batch_ramp: train.batch_ramp.clone(),
        mfu: 0.7,
        mfu_said: Said::Assumed,
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
            packed_bytes: spec.packed_base().and_then(packed_bytes),
            ranks: ranks(spec),
            has_base: spec.train.from.is_some(),
            rows: RowLengths::Full,
        },
        settings: settings(spec, data, method),
        torch_refuses: spec.refused_by_torch(),
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
        machines: match (torch.nodes.len(), torch.is_on_several_machines()) {
            (0, true) => None,
            (n, _) => Some(n.max(1) as u64),
        },
        sharded: torch.shard_word() == "fsdp2",
        offloaded: torch.offload,
        gpus_allowed: torch.device(1) == "cuda",
        gpus_asked: torch.device(0) == "cuda",
        bf16: torch.format("cuda", spec.asked_format()) == "bf16",
        compiled: torch.compile,
        worth_compiling: torch.worth_compiling(),
    })
}

/// Bytes of a file's weights; `None` where they are f32 in any case.
fn packed_bytes(path: &Path) -> Option<u64> {
    ModelSource::open(path).ok()?.packed_bytes()
}

/// Answers that are written at once.
fn rollouts(spec: &RunSpec) -> u64 {
    if spec.method.on_policy().is_none() {
        return 0;
    }
    let (train, rollout) = (&spec.train, &spec.rollout);
    let step = train.micro_batch_size * train.grad_accum_steps * rollout.steps;
    let held_out = match spec.eval.every.is_never() {
        true => 0,
        false => train.micro_batch_size * rollout.eval_answers,
    };
    rollout.side_by_side.min(step.max(held_out)) as u64
}

fn answers(spec: &RunSpec, data: DataSize) -> Option<Answers> {
    spec.method.on_policy()?;
    Some(Answers {
        tokens: spec.model.seq_len as u64,
        has_reference: spec.method.needs().reference.is_some(),
        has_old_policy: spec.rollout.cycle() > 1 || spec.model.value_head,
        cold_start: spec.rollout.cold_start_steps > 0,
        length: spec.rollout_length(),
        // A row of a pass is one prompt.
        prompts: data
            .pass_tokens
            .map(|pass| pass / spec.model.seq_len.max(1) as u64),
    })
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
fn products(asked: nn::Precision) -> Precision {
    match asked.resolve().map(compute_dtype_name) {
        Ok("f32") => Precision::Fp32,
        _ => Precision::Fp32Bf16Products,
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
        request.assume();
    }
    request.extras.ranks = None;
    request.device = device;
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::request::Checkpointing;

    #[test]
    fn a_run_on_its_own_answers_is_told_in_prompts_and_not_advised_on_repeated_text() {
        let request = resolve("grpo-arithmetic", &[], &here()).unwrap();
        let answers = request.extras.answers.unwrap();
        // 8,000 prompts, about a tenth of them held out.
        assert_eq!(answers.prompts, Some(7_158));
        let length = answers.length.unwrap();
        assert_eq!(
            (length.prompts, length.group_size, length.steps),
            (16, 8, 550)
        );
        let plan = crate::plan::plan(&request);
        let ids: Vec<&str> = plan.advice.iter().map(|advice| &*advice.id).collect();
        assert!(!ids.contains(&"repeated_data"), "{ids:?}");
        let text = resolve("quickstart", &["max_steps=90000".into()], &here()).unwrap();
        let plan = crate::plan::plan(&text);
        assert!(
            plan.advice
                .iter()
                .any(|advice| advice.id == "repeated_data")
        );
    }

    #[test]
    fn an_evaluation_at_the_end_alone_holds_no_more_than_was_held_out() {
        let batch = |set: &[&str]| {
            let set: Vec<String> = set.iter().map(ToString::to_string).collect();
            resolve("quickstart", &set, &here())
                .unwrap()
                .extras
                .eval_batch
        };
        assert_eq!(batch(&[]), 12);
        assert_eq!(batch(&["eval.every=0"]), 12);
        // 1,115,394 characters, a thousandth of them held out: 1,116 tokens in windows of 128.
        let little = ["data.val_fraction=0.001", "seq_len=128", "eval.every=0"];
        assert_eq!(batch(&little), 9);
        assert_eq!(batch(&little[..2]), 12);
    }

    fn here() -> SpecSources {
        SpecSources {
            config_dir: None,
            project_dir: std::env::temp_dir().join("llmtui-no-such-folder"),
            ..SpecSources::default()
        }
    }

    #[test]
    fn presets_come_first_then_models_then_near_names() {
        let preset = resolve("quickstart", &[], &here()).unwrap();
        assert_eq!(
            (preset.arch.n_params(), preset.estimator),
            (804_096, Estimator::Engine)
        );
        assert_eq!(preset.tokens, 2000 * 12 * 64);
        let model = resolve("llama-2-7b", &[], &here()).unwrap();
        assert_eq!(
            (model.arch.n_params(), model.estimator),
            (6_738_415_616, Estimator::General)
        );
        match resolve("lama-2-7b", &[], &here()) {
            Err(TargetError::Unknown { near, .. }) => assert_eq!(near[0], "llama-2-7b"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_folder_is_planned_by_its_config_whatever_its_name_is() {
        let room = tempfile::tempdir().unwrap();
        let sources = SpecSources {
            project_dir: room.path().into(),
            ..here()
        };
        let config = serde_json::json!({
            "model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 32, "vocab_size": 100,
            "activation_function": "gelu_new",
        });
        std::fs::create_dir(room.path().join("gpt2")).unwrap();
        std::fs::write(room.path().join("gpt2/config.json"), config.to_string()).unwrap();
        let block = 12 * 16 * 16 + 13 * 16;
        for word in ["./gpt2", "gpt2", "gpt2/"] {
            let planned = resolve(word, &[], &sources).unwrap();
            assert_eq!(
                planned.arch.n_params(),
                100 * 16 + 32 * 16 + 2 * block + 2 * 16,
                "{word}"
            );
            assert_eq!((planned.name.as_str(), planned.seq_len), ("gpt2", 32));
        }
        // A folder without a model hides no reference model, unless it is named as a path.
        std::fs::create_dir(room.path().join("llama-2-7b")).unwrap();
        assert!(resolve("llama-2-7b", &[], &sources).is_ok());
        let told = |word| resolve(word, &[], &sources).unwrap_err().to_string();
        assert!(told("./llama-2-7b").contains("holds no config.json"));
        assert!(told("./mistral-7b").contains("does not exist"));
        assert!(told("nothing").contains("nothing is called `nothing`"));
        assert!(resolve("mistralai/Mistral-7B-v0.1", &[], &sources).is_ok());
    }

    /// Keys, values and logits of answers are planned, and a reference where the spec's own method needs one.
    #[test]
    fn answers_are_planned_as_the_spec_writes_them() {
        use crate::plan::{Part, plan};
        let ledger = |set: &[&str]| {
            let set: Vec<String> = set.iter().map(ToString::to_string).collect();
            plan(&resolve("grpo-sort", &set, &here()).unwrap()).memory
        };
        let plain = ledger(&[]);
        assert_eq!(plain.bytes(Part::Reference), 0);
        assert_eq!(plain.bytes(Part::Evaluation), 0);
        // 128 answers × 32 places × 2 layers × keys and values of 96 × 4 B, and what reads them.
        let cache = 128 * 32 * 2 * 2 * 96 * 4;
        let found = plain.bytes(Part::Rollouts);
        assert!(
            (cache..cache + (4 << 20)).contains(&found),
            "{found}, {cache}"
        );
        let half = ledger(&["rollout.side_by_side=64"]).bytes(Part::Rollouts);
        assert!(found - half >= cache / 2, "{found}, {half}");
        let compared = ["method.grpo.beta=0.1", "rollout.cold_start_steps=0"];
        let compared = ledger(&compared);
        let n = resolve("grpo-sort", &[], &here()).unwrap().arch.n_params();
        assert!(compared.bytes(Part::Reference) >= 4 * n);
        // Log-probabilities of the policy that answered: a pass without a gradient, and a loss that is not linear.
        let twice = ledger(&["rollout.epochs=2"]);
        assert!(twice.bytes(Part::Evaluation) > 0);
        // A critic is a second model with gradients, moments and passes of its own.
        let critic = ["method=ppo", "rollout.group_size=1"];
        assert!(ledger(&critic).bytes(Part::Critic) >= 16 * n);
        assert_eq!(plain.bytes(Part::Critic), 0);
        // On the policy's trunk it is a vector more, and a pass that says values.
        let shared = ledger(&[
            "method=ppo",
            "rollout.group_size=1",
            "method.ppo.critic=shared",
        ]);
        assert_eq!(shared.bytes(Part::Critic), 0);
        assert!(shared.bytes(Part::Evaluation) > 0);
        let linear = |word: &str| {
            let set = [word.to_string()];
            resolve("grpo-sort", &set, &here()).unwrap().is_linear()
        };
        assert!(linear("seed=1") && !linear("rollout.epochs=2"));
    }

    #[test]
    fn settings_change_specs_and_not_reference_models() {
        let set = ["micro_batch_size=3".to_string()];
        assert_eq!(resolve("quickstart", &set, &here()).unwrap().micro_batch, 3);
        assert!(matches!(
            resolve("gpt2", &set, &here()),
            Err(TargetError::NoSettings(_))
        ));
    }

    #[test]
    fn precision_and_checkpointing_are_planned_as_the_spec_says() {
        let with = |set: &[&str]| {
            let set: Vec<String> = set.iter().map(ToString::to_string).collect();
            resolve("quickstart", &set, &here()).unwrap()
        };
        let (f32, bf16) = (with(&["precision=f32"]), with(&["precision=bf16"]));
        assert_eq!(f32.precision, Precision::Fp32);
        // As asked, also where this machine would refuse it.
        assert_eq!(bf16.precision, Precision::Fp32Bf16Products);
        assert_eq!(bf16.precision.products(), "bf16");
        let gpu = |request| on_gpu(request, Device::limit("a GPU", None)).precision;
        assert_eq!(
            (gpu(f32), gpu(bf16), gpu(with(&[]))),
            (Precision::Fp32, Precision::Mixed, Precision::Mixed)
        );
        let every = with(&["train.activation_checkpointing={every_n: {n: 2}}"]);
        assert_eq!(every.checkpointing, Checkpointing::EveryN(2));
        let activations = |how: Request| {
            let memory = crate::plan::plan(&how).memory;
            memory.bytes(crate::plan::Part::Activations)
        };
        let full = activations(with(&["train.activation_checkpointing=full"]));
        let (every, off) = (activations(every), activations(with(&[])));
        assert!(full < every && every < off, "{full} {every} {off}");
    }

    #[test]
    fn moments_are_planned_as_the_update_rule_says_for_what_trains() {
        let with = |set: &[&str]| {
            let set: Vec<String> = set.iter().map(ToString::to_string).collect();
            let loaded = spec::load("quickstart", &set, &here()).unwrap().spec;
            let request = resolve("quickstart", &set, &here()).unwrap();
            let vocab_size = request.arch.vocab_size() as usize;
            let infos = param_infos_of(&loaded.model, vocab_size, loaded.adapter.as_ref());
            (request, loaded.optimizer.state_bytes(&infos))
        };
        let members = spec::schema::root().at("optimizer").unwrap().children();
        assert!(members.len() > 1);
        for (word, _) in members {
            for adapter in ["adapter=null", "adapter.lora.rank=4"] {
                let (request, bytes) = with(&[&format!("optimizer={word}"), adapter]);
                let memory = crate::plan::plan(&request).memory;
                let n = request.n_trainable();
                assert_eq!(memory.bytes(crate::plan::Part::Optimizer), bytes, "{word}");
                assert_eq!(memory.bytes(crate::plan::Part::Gradients), 4 * n, "{word}");
            }
        }
        // Four blocks with c_attn 128 → 384, c_proj 128 → 128, c_fc 128 → 512 and c_proj 512 → 128 at rank 4.
        let (request, _) = with(&["adapter.lora.rank=4"]);
        assert_eq!(request.n_trainable(), 4 * 4 * (512 + 256 + 640 + 640));
        assert_eq!(request.rank_words().unwrap(), "rank 4");
        let own = "adapter.lora.rank_pattern={c_attn: 1}";
        for engine in ["engine=candle", "engine=torch"] {
            let (request, _) = with(&["adapter.lora.rank=4", own, engine]);
            let counted = 4 * (512 + 4 * (256 + 640 + 640));
            assert_eq!(request.n_trainable(), counted, "{engine}");
            assert_eq!(request.rank_words().unwrap(), "ranks 1 to 4");
        }
    }

    #[test]
    fn checkpoints_and_their_disk_follow_the_tokens() {
        let words = ["max_steps=2", "checkpoint.every=1", "eval.every=1"].map(String::from);
        let spec = crate::spec::load("quickstart", &words, &SpecSources::default());
        let data = DataSize {
            vocab_size: 65,
            ..DataSize::default()
        };
        let mut request = of_spec(&spec.unwrap().spec, data);
        let two = crate::plan::plan(&request);
        assert_eq!(two.n_checkpoints(), 2);
        let tokens = request.tokens;
        request.set_tokens(100 * tokens);
        let many = crate::plan::plan(&request);
        assert!(many.n_checkpoints() > 2 && many.disk_bytes > two.disk_bytes);
        request.set_tokens(tokens);
        assert_eq!(crate::plan::plan(&request).n_checkpoints(), 2);
    }

    #[test]
    fn a_run_is_planned_from_what_it_told() {
        let spec = spec::load("quickstart", &[], &here()).unwrap().spec;
        let mut head = Head {
            name: spec.name.clone(),
            method: "pretrain".into(),
            spec: spec.to_value(),
            n_params: 0,
            vocab_size: 65,
            max_steps: 0,
            batch_tokens: 0,
            epoch_tokens: 1_003_853,
            resumed_from: None,
            precision: None,
            unigram_entropy: None,
        };
        let asked = resolve("quickstart", &[], &here()).unwrap();
        assert_eq!(of_run(&head), Some(asked));
        head.spec = serde_json::json!({"from": "the future"});
        assert!(of_run(&head).is_none());
    }
}
