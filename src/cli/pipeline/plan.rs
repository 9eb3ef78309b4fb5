//! A pipeline planned as a whole: every spec is loaded and checked against this machine before the first stage starts.

use super::{Request, check};
use crate::base::finding::{Finding, Status};
use crate::cli::exit::Failure;
use crate::cli::tokenizer;
use crate::cli::{Context, eval, memory};
use crate::data::source;
use crate::data::{DataEnv, DataError, Tokenizer};
use crate::hardware::{self, GpuSummary};
use crate::models::TO_COME;
use crate::nn::ModelConfig;
use crate::pipeline::{Pipeline, Places, Stage, StageModel, Train, Work};
use crate::plan::calibration::Machine;
use crate::plan::ranks::on_ranks;
use crate::plan::start;
use crate::plan::target::{DataSize, of_spec};
use crate::plan::{self, Estimator, plan as plan_of};
use crate::spec::{self, Issue, Origin, PendingModel, RunSpec};
use std::collections::HashMap;
use std::path::Path;

/// What a training stage needs.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Planned {
    pub stage: String,
    pub method: String,
    pub n_params: u64,
    /// Steps and tokens; `None` for epochs over data that were not read.
    pub length: Option<(u64, u64)>,
    /// Memory, bytes: of this machine, or of each GPU.
    pub bytes: u64,
    /// `None` where the speed is unknown.
    pub seconds: Option<f64>,
    /// The seconds are those of answers as long as they may be.
    pub at_most: bool,
    /// The GPUs that ranks of PyTorch compute on.
    pub gpus: Option<Gpus>,
    /// Its data lie at the hub: they were not read, and what it takes follows from its steps.
    pub unread: bool,
    /// What its settings are advised against, and what to set.
    pub advice: Vec<String>,
}

/// GPUs as a plan has them.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Gpus {
    /// Ranks and the other machines that they compute on.
    pub elsewhere: Option<String>,
    pub count: u64,
    pub name: String,
    /// Bytes of each, where known.
    pub memory: Option<u64>,
    /// Share of their peak that is assumed.
    pub mfu: f64,
    /// US dollars of the stage, and whose price that is.
    pub cost: Option<f64>,
    pub price: Option<String>,
}

/// Plans the training stages that are not skipped, in order, for this machine or the recorded one. Nothing is downloaded: of data at
/// the hub a stage's vocabulary and steps say what they come to. What is wrong with a stage, such as its spec, is added to
/// `faults`, as is a model that does not fit (unless forced); what rests on a stage that has one is not looked at. Stages in
/// `over` have their runs, or none, and are not planned; where what they were made from is gone, nothing is wrong with them.
///
/// # Errors
/// A PyTorch that is not there (unless nothing is to be started).
pub fn plan(
    pipeline: &Pipeline,
    places: &Places,
    args: &Request,
    over: &[String],
    faults: &mut check::Faults,
    cx: &Context,
) -> anyhow::Result<Vec<Planned>> {
    let mut planner = Planner {
        pipeline,
        places,
        skip: args.skip,
        over,
        force: args.options.force,
        dry_run: args.dry_run,
        cx,
        machine: Machine::load(&cx.env),
        gpus: None,
        models: HashMap::new(),
        tokenizers: HashMap::new(),
        adapts: HashMap::new(),
    };
    let mut planned = Vec::new();
    for (at, stage) in pipeline.stages.iter().enumerate() {
        let name = (at, stage.name.as_str());
        let is_over = over.contains(&stage.name);
        let found = match &stage.work {
            Work::Tokenizer(config) if is_over => {
                if check::learned(config).is_err() {
                    faults.spread(&stage.name);
                }
                continue;
            }
            Work::Eval(_) | Work::Export(_) | Work::Report(_) if is_over => continue,
            Work::Train(train)
                if faults.has(&stage.name)
                    || planner.rests_on_a_fault(at, train, faults)
                    || faults.waits_for_a_download(train, cx) =>
            {
                if !faults.has(&stage.name) && !is_over {
                    for (key, failure) in check::of_its_words(train, cx) {
                        faults.add(places, name, &key, of_stage(failure, &stage.name))?;
                    }
                }
                faults.spread(&stage.name);
                continue;
            }
            Work::Train(train) => planner.stage(at, train),
            // Which model it is may be the fault.
            _ if !faults.is_empty() => continue,
            _ => check::exports(pipeline, at, planner.skip, &planner.adapts, &planner.models)
                .map(|()| None)
                .map_err(anyhow::Error::from),
        };
        match found.map_err(anyhow::Error::downcast::<Failure>) {
            Ok(found) => planned.extend(found),
            Err(Ok(_)) if is_over => faults.spread(&stage.name),
            Err(Ok(failure)) => {
                faults.add(places, name, stage.work.word(), failure)?;
                if let Work::Train(train) = &stage.work {
                    planner.guess(at, train);
                }
            }
            Err(Err(error)) => return Err(error),
        }
    }
    Ok(planned)
}

/// A training stage as its spec and its data say it.
struct Training<'a> {
    stage: &'a str,
    spec: RunSpec,
    size: DataSize,
    /// Its data lie at the hub.
    unread: bool,
}

/// What is known while stages are planned one after the other.
struct Planner<'a> {
    pipeline: &'a Pipeline,
    places: &'a Places,
    skip: &'a [String],
    over: &'a [String],
    force: bool,
    dry_run: bool,
    cx: &'a Context,
    machine: Machine,
    /// Looking for GPUs loads their driver: only where a stage asks.
    gpus: Option<Vec<GpuSummary>>,
    /// A stage that starts from another one has its architecture and its vocabulary.
    models: HashMap<String, (ModelConfig, usize)>,
    /// And reads its data by its tokenizer, where that is known before it is trained.
    tokenizers: HashMap<String, Tokenizer>,
    /// Whether a stage trains adapters.
    adapts: HashMap<String, bool>,
}

impl<'a> Planner<'a> {
    /// A stage's plan; none where it is skipped.
    fn stage(&mut self, at: usize, train: &Train) -> anyhow::Result<Option<Planned>> {
        let training = self.read(at, train)?;
        self.remember(&training);
        let name = &self.pipeline.stages[at].name;
        match self.skip.contains(name) || self.over.contains(name) {
            true => Ok(None),
            false => self.weigh(&training).map(Some),
        }
    }

    /// The model of a stage in which something else is wrong, such as its learning rate: stages that start from it are looked at all
    /// the same.
    fn guess(&mut self, at: usize, train: &Train) {
        let known = self.models.contains_key(&self.pipeline.stages[at].name);
        let named = self.pipeline.training(at, &self.cx.spec_sources());
        let sound = check::without_training(named.as_ref().unwrap_or(train));
        let Some(sound) = sound.filter(|_| !known) else {
            return;
        };
        if let Ok(training) = self.read_as(at, &sound) {
            self.remember(&training);
        }
    }

    /// Whether a stage takes a model or a tokenizer of a stage in which something is wrong, and that is not known for it.
    fn rests_on_a_fault(&self, at: usize, train: &Train, faults: &check::Faults) -> bool {
        if faults.hide_nothing() {
            return false;
        }
        let sources = self.cx.spec_sources();
        let before = &self.pipeline.stages[..at];
        let learns = |stage: &&Stage| matches!(stage.work, Work::Tokenizer(_));
        let from = match &train.from {
            StageModel::Stage(name) => faults.has(name) && !self.models.contains_key(name),
            StageModel::Spec => before.iter().filter(learns).any(|s| faults.has(&s.name)),
        };
        let mut judges = self.pipeline.judges_of(at, &sources).into_iter();
        from || judges.any(|judge| faults.has(&judge.name))
    }

    /// Loads the spec of a stage and looks at its data.
    fn read(&mut self, at: usize, train: &Train) -> anyhow::Result<Training<'a>> {
        let named = self.pipeline.training(at, &self.cx.spec_sources());
        self.read_as(at, named.as_ref().unwrap_or(train))
    }

    /// The same of a stage whose words are as given.
    fn read_as(&mut self, at: usize, train: &Train) -> anyhow::Result<Training<'a>> {
        let pipeline = self.pipeline;
        let stage = &pipeline.stages[at].name;
        let judges = self.judges(at)?;
        let train = &not_yet(train, &judges);
        let base = match &train.from {
            StageModel::Stage(name) => self.models.get(name),
            StageModel::Spec => None,
        };
        let start = match (&train.from, base) {
            (StageModel::Stage(stage), Some((config, vocab_size))) => Some(PendingModel {
                stage,
                config,
                vocab_size: *vocab_size,
            }),
            _ => None,
        };
        let own = match &train.from {
            StageModel::Spec if takes_tokenizer(train, stage, self.cx)? => {
                vocabulary_before(pipeline, at, self.skip)?
            }
            StageModel::Spec | StageModel::Stage(_) => None,
        };
        let mut loaded = load(train, (at, stage), start, own, self.places, self.cx)?;
        if loaded.spec.engine.is_open() {
            let installed = spec::torch_is_installed(&self.cx.env);
            start::decide(&mut loaded, gpus(&mut self.gpus, self.cx)?, installed);
        }
        let spec = loaded.spec;
        let unread = is_remote(&spec);
        let read_by = match &train.from {
            StageModel::Stage(name) => self.tokenizers.get(name),
            StageModel::Spec => None,
        };
        let read_by = read_by.filter(|_| !unread && !self.skip.contains(stage));
        let (size, tokenizer) = match base {
            Some((_, vocab_size)) => size_by(&spec, stage, *vocab_size, read_by, self.cx)?,
            None => size_of(&spec, stage, own, unread, self.cx)?,
        };
        if let Some(tokenizer) = tokenizer {
            self.tokenizers.insert(stage.clone(), tokenizer);
        }
        if let (StageModel::Stage(name), Some((config, _))) = (&train.from, base) {
            generates_on(stage, &spec, name, config)?;
        }
        Ok(Training {
            stage,
            spec,
            size,
            unread,
        })
    }

    /// The stages whose models score what a stage generates.
    fn judges(&self, at: usize) -> Result<Vec<&'a Stage>, Failure> {
        let stage = &self.pipeline.stages[at].name;
        let judges = self.pipeline.judges_of(at, &self.cx.spec_sources());
        let generates = |judge: &&&Stage| {
            let model = self.models.get(&judge.name);
            model.is_some_and(|(config, _)| !config.is_reward_model())
        };
        if let Some(judge) = judges.iter().find(generates) {
            let what = format!(
                "stage {stage}: its reward model: stage {} trains a language model, which gives no scores",
                judge.name
            );
            let hint = "name a stage that trains a reward model (train: reward)";
            return Err(Failure::user_error(what, hint));
        }
        Ok(judges)
    }

    /// What later stages ask of it; of one that is left out, too.
    fn remember(&mut self, training: &Training) {
        let Training { spec, size, .. } = training;
        let stage = || training.stage.to_string();
        self.adapts.insert(stage(), spec.adapter.is_some());
        let model = (spec.model.clone(), size.vocab_size);
        self.models.insert(stage(), model);
    }

    /// The resources a stage needs on this machine or its GPUs, and whether they are available.
    fn weigh(&mut self, training: &Training) -> anyhow::Result<Planned> {
        let Training { stage, size, .. } = *training;
        let spec = size.in_steps(&training.spec);
        let counted = spec.train.epochs.is_none() || size.epoch_tokens.is_some();
        let mut request = of_spec(&spec, size);
        if request.extras.ranks.is_some() {
            request = on_ranks(request, gpus(&mut self.gpus, self.cx)?);
        }
        let on_gpus = request.estimator == Estimator::General;
        if !self.force {
            match on_gpus {
                true => self.fits_on_gpus(&request, stage)?,
                false => memory::check(&spec, &self.cx.env).map_err(|e| of_stage(e, stage))?,
            }
        }
        if !self.dry_run {
            memory::torch(&spec, &self.cx.env).map_err(|e| of_stage(e, stage))?;
        }
        self.machine.calibrate(&mut request);
        let plan = plan_of(&request);
        Ok(Planned {
            stage: stage.into(),
            method: spec.method.entry().id.into(),
            n_params: plan.params.total(),
            length: counted.then(|| (spec.train.max_steps, request.tokens)),
            bytes: plan.p50_bytes(),
            seconds: (plan.work.hours.filter(|_| counted)).map(|hours| hours * 3600.0),
            at_most: request.is_timed_at_most(),
            gpus: on_gpus.then(|| Gpus {
                elsewhere: elsewhere(&spec),
                count: request.n_devices,
                name: request.device.name.clone(),
                memory: request.device.memory,
                mfu: request.mfu,
                cost: plan.work.cost.filter(|_| counted),
                price: request.device.price_source.map(|price| price.words()),
            }),
            unread: training.unread,
            advice: plan.advice.iter().filter_map(advice).collect(),
        })
    }

    fn fits_on_gpus(&self, request: &plan::Request, stage: &str) -> Result<(), Failure> {
        start::fits(request).map_err(|e| of_stage(e.into(), stage))?;
        if self.dry_run {
            return Ok(());
        }
        let there = self.gpus.as_ref().map_or(0, Vec::len);
        start::check_gpu_count(request, there).map_err(|e| of_stage(e.into(), stage))
    }
}

/// `optimizer.adamw.lr: 1e-2 is high …; -s lr=1e-3`, of what is advised against.
fn advice(found: &Finding) -> Option<String> {
    let place = match found.place.is_empty() {
        true => String::new(),
        false => format!("{}: ", found.place),
    };
    let fix = match found.advice() {
        fix if fix.is_empty() => fix,
        fix => format!("; {fix}"),
    };
    (found.status == Status::Warn).then(|| format!("{place}{}{fix}", found.evidence))
}

/// A model that gives scores generates nothing, whatever it is trained to.
fn generates_on(
    stage: &str,
    spec: &RunSpec,
    from: &str,
    model: &ModelConfig,
) -> Result<(), Failure> {
    if !model.is_reward_model() || spec.model.is_reward_model() {
        return Ok(());
    }
    let what =
        format!("stage {stage}: it starts from {from}, a reward model, which cannot generate");
    let hint = "set `from` to a stage that trains a language model, or to scratch; without `from` it is the latest one";
    Err(Failure::user_error(what, hint))
}

/// What a plan knows of a stage whose data were not read.
fn of_vocabulary(vocab_size: usize) -> DataSize {
    DataSize {
        vocab_size,
        ..DataSize::default()
    }
}

/// The size of a stage's data, and its tokenizer where that is known already; `own`: the vocabulary of a tokenizer that is still
/// to be trained.
fn size_of(
    spec: &RunSpec,
    stage: &str,
    own: Option<usize>,
    unread: bool,
    cx: &Context,
) -> Result<(DataSize, Option<Tokenizer>), Failure> {
    if unread {
        let vocab_size = own.map_or_else(|| vocabulary_of_spec(spec, stage), Ok)?;
        return Ok((of_vocabulary(vocab_size), None));
    }
    let data = spec.open_data(&DataEnv::from_env(&cx.env));
    let data = data.map_err(|e| of_stage_data(&e, stage))?;
    Ok(match own {
        // That tokenizer comes to other passes, which are known once it is there.
        Some(vocab_size) => (of_vocabulary(vocab_size), None),
        None => (DataSize::of(spec, &data), Some(data.tokenizer)),
    })
}

/// The same of a stage that starts from another one, whose tokenizer it reads its data by.
fn size_by(
    spec: &RunSpec,
    stage: &str,
    vocab_size: usize,
    tokenizer: Option<&Tokenizer>,
    cx: &Context,
) -> Result<(DataSize, Option<Tokenizer>), Failure> {
    let Some(tokenizer) = tokenizer else {
        return Ok((of_vocabulary(vocab_size), None));
    };
    let data = spec.open_data_by(tokenizer, &DataEnv::from_env(&cx.env));
    let data = data.map_err(|e| of_stage_data(&e, stage))?;
    let size = DataSize {
        vocab_size,
        ..DataSize::of(spec, &data)
    };
    Ok((size, Some(data.tokenizer)))
}

fn of_stage_data(error: &DataError, stage: &str) -> Failure {
    of_stage(Failure::data(error), stage)
}

/// The stage with a folder that is there in the place of each reward model that is still to be trained: a spec is refused
/// where its folders are not, and a plan reads none of them.
fn not_yet(train: &Train, judges: &[&Stage]) -> Train {
    let mut there = |word: &str| {
        let to_come = judges.iter().any(|judge| judge.name == word);
        Ok::<_, std::convert::Infallible>(to_come.then(|| TO_COME.to_string()))
    };
    let Ok(train) = train.with_judges(&mut there);
    train
}

fn of_stage(failure: Failure, stage: &str) -> Failure {
    Failure {
        what: format!("stage {stage}: {}", failure.what),
        ..failure
    }
}

/// The ranks of a spec that computes on other machines, whose GPUs this one does not see.
fn elsewhere(spec: &RunSpec) -> Option<String> {
    let torch = spec.engine.torch()?;
    torch.is_on_several_machines().then(|| torch.placed())
}

/// Whether data would have to come from the hub.
pub fn is_remote(spec: &RunSpec) -> bool {
    spec.data
        .all_sources()
        .iter()
        .any(|source| match &source.origin {
            source::Origin::Hub(_) => true,
            source::Origin::Named(name) => !Path::new(name).exists(),
            source::Origin::Path(_) | source::Origin::Synthetic(_) => false,
        })
}

/// The vocabulary of a spec whose data are not read.
fn vocabulary_of_spec(spec: &RunSpec, stage: &str) -> Result<usize, Failure> {
    let said = spec.model.vocab_size.or(spec.data.tokenizer.vocab_size());
    said.ok_or_else(|| {
        let what = format!(
            "stage {stage}: its vocabulary depends on data at the hub, which a plan does not download"
        );
        Failure::user_error(what, format!("-s {stage}.model.vocab_size=65536"))
    })
}

/// The GPUs of the machine that the plan is for, looked for once.
fn gpus<'a>(
    found: &'a mut Option<Vec<GpuSummary>>,
    cx: &Context,
) -> anyhow::Result<&'a [GpuSummary]> {
    Ok(match found {
        Some(gpus) => gpus,
        None => found.insert(hardware::summary(cx.hardware.as_deref(), &cx.env)?.gpus),
    })
}

/// Whether a stage without another one's model reads its text by the tokenizer of a stage in front of it: not where `set` names a
/// tokenizer, nor where a model of its own, which it starts from, has one. What is wrong with its spec is said elsewhere.
///
/// # Errors
/// Its model cannot be downloaded.
pub fn takes_tokenizer(train: &Train, stage: &str, cx: &Context) -> anyhow::Result<bool> {
    if spec::says(&train.set, "data.tokenizer") {
        return Ok(false);
    }
    let (words, sources) = (train.words(), cx.spec_sources());
    let loaded = match train.spec.as_str() {
        Some(word) => {
            crate::cli::model_ref::pull_for_spec(word, &words, cx)?;
            spec::load(word, &words, &sources)
        }
        None => {
            let text = spec::yaml::write(&train.spec);
            spec::load_text_with(&format!("{stage}.yaml"), &text, &words, &sources)
        }
    };
    Ok(loaded.map_or(true, |loaded| loaded.spec.train.from.is_none()))
}

/// How many tokens the tokenizer has that a stage from scratch takes: the newest of those in front of it.
fn vocabulary_before(
    pipeline: &Pipeline,
    at: usize,
    skip: &[String],
) -> Result<Option<usize>, Failure> {
    let mut before = pipeline.stages[..at].iter().rev();
    let found = before.find_map(|stage| match &stage.work {
        Work::Tokenizer(config) if !skip.contains(&stage.name) => Some((stage, config)),
        _ => None,
    });
    let Some((stage, config)) = found else {
        return Ok(None);
    };
    let planned = tokenizer::Planned::of(config).map_err(|(_, failure)| failure);
    let size = planned.and_then(|planned| planned.vocab_size());
    size.map(Some).map_err(|e| of_stage(e, &stage.name))
}

/// A stage's spec; with the architecture of what it starts from, or the tokenizer of a stage, neither of which is there yet.
fn load(
    train: &Train,
    (at, name): (usize, &str),
    start: Option<PendingModel<'_>>,
    vocab_size: Option<usize>,
    places: &Places,
    cx: &Context,
) -> anyhow::Result<spec::Loaded> {
    let sources = cx.spec_sources();
    let mut words = train.words();
    if vocab_size.is_some() {
        // In the place of the tokenizer to come: one that reads any text and learns nothing.
        words.push("data.tokenizer=char".into());
    }
    if let Some(word) = train.spec.as_str() {
        crate::cli::model_ref::pull_for_spec(word, &words, cx)?;
    }
    let load = |words: &[String]| {
        let loaded = match train.spec.as_str() {
            Some(word) => spec::load_on(word, words, start, &sources),
            None => spec::load_text_on(
                &format!("{name}.yaml"),
                &spec::yaml::write(&train.spec),
                words,
                start,
                &sources,
            ),
        };
        let in_place = train.spec.is_object();
        let written = |issue: &Issue| written(issue, in_place, (at, name), places);
        loaded.map_err(|e| Failure::user_error(format!("stage {name}: {}", e.placed(&written)), ""))
    };
    let mut loaded = load(&words)?;
    if let (Some(vocab_size), None) = (vocab_size, loaded.spec.model.vocab_size) {
        words.push(format!("model.vocab_size={vocab_size}"));
        loaded = load(&words)?;
    }
    eval::known(&loaded.spec.eval.tasks, cx).map_err(|e| of_stage(e, name))?;
    Ok(loaded)
}

/// Where the pipeline says what a stage's spec takes from it: a spec in place has no file of its own, and `set` none of `-s`.
fn written(
    issue: &Issue,
    in_place: bool,
    (at, name): (usize, &str),
    places: &Places,
) -> Option<Origin> {
    let key = match &issue.origin {
        Origin::File { name: file, .. } if in_place && *file == format!("{name}.yaml") => {
            format!("train.{}", issue.path)
        }
        Origin::Set(word) => {
            let key = word.split_once('=').map_or(word.as_str(), |(key, _)| key);
            format!("set.{}", key.trim())
        }
        _ => return None,
    };
    Some(match places.word(name, &key) {
        Some(word) => Origin::Set(word.into()),
        None => Origin::File {
            name: places.label().into(),
            line: places.line(at, &key),
        },
    })
}
