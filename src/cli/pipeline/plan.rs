//! A pipeline planned as a whole: every spec is loaded and held against this machine before the first stage begins.

use super::check;
use crate::cli::exit::Failure;
use crate::cli::tokenizer;
use crate::cli::{Context, eval, memory};
use crate::data::source::Origin;
use crate::data::{DataError, Surroundings, Tokenizer};
use crate::hardware::{self, GpuSummary};
use crate::models::TO_COME;
use crate::nn::ModelConfig;
use crate::pipeline::{From, Pipeline, Stage, Train, Work};
use crate::plan::learn::Machine;
use crate::plan::ranks::on_ranks;
use crate::plan::start;
use crate::plan::target::{DataSize, of_spec};
use crate::plan::{Estimator, plan as plan_of};
use crate::spec::{self, RunSpec, ToCome};
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
/// the hub a stage's vocabulary and steps say what they come to.
///
/// # Errors
/// A spec that is wrong, data that cannot be read, a model that does not fit (unless `force`), GPUs or a PyTorch that are not there
/// (unless nothing is to be started).
pub fn plan(
    pipeline: &Pipeline,
    skip: &[String],
    force: bool,
    dry_run: bool,
    cx: &Context,
) -> anyhow::Result<Vec<Planned>> {
    let machine = Machine::look(&cx.env);
    // Looking for GPUs loads their driver: only where a stage asks.
    let mut found: Option<Vec<GpuSummary>> = None;
    // A stage that starts from another one has its architecture and its vocabulary.
    let mut models: HashMap<String, (ModelConfig, usize)> = HashMap::new();
    // And reads its data by its tokenizer, where that is known before it is trained.
    let mut tokenizers: HashMap<String, Tokenizer> = HashMap::new();
    let mut planned = Vec::new();
    let mut adapts: HashMap<String, bool> = HashMap::new();
    for (at, stage) in pipeline.stages.iter().enumerate() {
        let Work::Train(train) = &stage.work else {
            check::adapter(pipeline, at, skip, &adapts)?;
            continue;
        };
        let base = match &train.from {
            From::Stage(name) => models.get(name),
            From::Spec => None,
        };
        let sources = cx.spec_sources();
        let judges = pipeline.judges_of(at, &sources);
        for judge in &judges {
            let writes = |(config, _): &(ModelConfig, usize)| !config.is_reward_model();
            if models.get(&judge.name).is_some_and(writes) {
                let what = format!(
                    "stage {}: its reward model: stage {} trains a model that writes, which has no score",
                    stage.name, judge.name
                );
                let hint = "name a stage of method reward: train: reward";
                return Err(Failure::yours(what, hint).into());
            }
        }
        let named = pipeline.training(at, &sources);
        let train = &not_yet(named.as_ref().unwrap_or(train), &judges);
        let start = match (&train.from, base) {
            (From::Stage(stage), Some((config, vocab_size))) => Some(ToCome {
                stage,
                config,
                vocab_size: *vocab_size,
            }),
            _ => None,
        };
        let own = match &train.from {
            From::Spec => vocabulary_before(pipeline, at, skip)?,
            From::Stage(_) => None,
        };
        let mut loaded = load(train, &stage.name, start, own, cx)?;
        if loaded.spec.engine.is_open() {
            let installed = spec::torch_is_installed(&cx.env);
            start::decide(&mut loaded, gpus(&mut found, cx)?, installed);
        }
        let spec = loaded.spec;
        let unread = is_remote(&spec);
        let read_by = match &train.from {
            From::Stage(name) => tokenizers.get(name),
            From::Spec => None,
        };
        let of_stage_data = |e: &DataError| {
            let failure = Failure::data(e);
            of_stage(failure, &stage.name)
        };
        let surroundings = Surroundings::from_env(&cx.env);
        let size = match base {
            Some((_, vocab_size)) => {
                match read_by.filter(|_| !unread && !skip.contains(&stage.name)) {
                    Some(tokenizer) => {
                        let data = spec.open_data_by(tokenizer, &surroundings);
                        let data = data.map_err(|e| of_stage_data(&e))?;
                        tokenizers.insert(stage.name.clone(), data.tokenizer.clone());
                        DataSize {
                            vocab_size: *vocab_size,
                            ..DataSize::of(&spec, &data)
                        }
                    }
                    None => DataSize {
                        vocab_size: *vocab_size,
                        ..DataSize::default()
                    },
                }
            }
            None if unread => DataSize {
                vocab_size: match own {
                    Some(vocab_size) => vocab_size,
                    None => said_vocabulary(&spec, &stage.name)?,
                },
                ..DataSize::default()
            },
            None => {
                let data = spec.open_data(&surroundings);
                let data = data.map_err(|e| of_stage_data(&e))?;
                if own.is_none() {
                    tokenizers.insert(stage.name.clone(), data.tokenizer.clone());
                }
                match own {
                    // That tokenizer comes to other passes, which are known once it is there.
                    Some(vocab_size) => DataSize {
                        vocab_size,
                        ..DataSize::default()
                    },
                    None => DataSize::of(&spec, &data),
                }
            }
        };
        if let (From::Stage(name), Some((config, _))) = (&train.from, base)
            && config.is_reward_model()
            && !spec.model.is_reward_model()
        {
            let what = format!(
                "stage {}: it starts from {name}, a reward model, which writes nothing",
                stage.name
            );
            let hint = "from: a stage that trains a model to write, or scratch; without `from` it is the newest one";
            return Err(Failure::yours(what, hint).into());
        }
        adapts.insert(stage.name.clone(), spec.adapter.is_some());
        models.insert(stage.name.clone(), (spec.model.clone(), size.vocab_size));
        if skip.contains(&stage.name) {
            continue;
        }
        let spec = size.in_steps(&spec);
        let counted = spec.train.epochs.is_none() || size.epoch_tokens.is_some();
        let mut request = of_spec(&spec, size);
        if request.extras.ranks.is_some() {
            request = on_ranks(request, gpus(&mut found, cx)?);
        }
        let on_gpus = request.estimator == Estimator::General;
        if on_gpus && !force {
            start::fits(&request).map_err(|e| of_stage(e.into(), &stage.name))?;
            if !dry_run {
                let there = found.as_ref().map_or(0, Vec::len);
                start::enough(&request, there).map_err(|e| of_stage(e.into(), &stage.name))?;
            }
        } else if !on_gpus && !force {
            memory::check(&spec, &cx.env)?;
        }
        if !dry_run {
            memory::torch(&spec, &cx.env).map_err(|e| of_stage(e, &stage.name))?;
        }
        machine.equip(&mut request);
        let plan = plan_of(&request);
        planned.push(Planned {
            stage: stage.name.clone(),
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
            unread,
        });
    }
    Ok(planned)
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
fn is_remote(spec: &RunSpec) -> bool {
    spec.data
        .all_sources()
        .iter()
        .any(|source| match &source.origin {
            Origin::Hub(_) => true,
            Origin::Named(name) => !Path::new(name).exists(),
            Origin::Path(_) | Origin::Synthetic(_) => false,
        })
}

/// The vocabulary of a spec whose data are not read.
fn said_vocabulary(spec: &RunSpec, stage: &str) -> Result<usize, Failure> {
    let said = spec.model.vocab_size.or(spec.data.tokenizer.vocab_size());
    said.ok_or_else(|| {
        let what = format!(
            "stage {stage}: its vocabulary depends on data at the hub, which a plan does not download"
        );
        Failure::yours(what, format!("-s {stage}.model.vocab_size=65536"))
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
    name: &str,
    start: Option<ToCome<'_>>,
    vocab_size: Option<usize>,
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
        named(loaded, name)
    };
    let mut loaded = load(&words)?;
    if let (Some(vocab_size), None) = (vocab_size, loaded.spec.model.vocab_size) {
        words.push(format!("model.vocab_size={vocab_size}"));
        loaded = load(&words)?;
    }
    eval::known(&loaded.spec.eval.tasks, cx).map_err(|e| of_stage(e, name))?;
    Ok(loaded)
}

fn named(
    loaded: Result<spec::Loaded, spec::SpecErrors>,
    stage: &str,
) -> Result<spec::Loaded, Failure> {
    loaded.map_err(|e| Failure::yours(format!("stage {stage}: {e}"), ""))
}
