//! A pipeline planned as a whole: every spec is loaded and held against this machine before the first stage begins.

use crate::cli::exit::Failure;
use crate::cli::{Context, memory};
use crate::data::Surroundings;
use crate::nn::ModelConfig;
use crate::pipeline::{From, Pipeline, Train, Work};
use crate::plan::learn::Machine;
use crate::plan::plan as plan_of;
use crate::plan::target::{DataSize, of_spec};
use crate::spec::{self, RunSpec};
use std::collections::HashMap;

/// What a training stage needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    pub stage: String,
    pub method: String,
    pub n_params: u64,
    /// Steps and tokens; `None` for epochs over what an earlier stage's tokenizer will make of the data.
    pub length: Option<(u64, u64)>,
    /// Memory, bytes.
    pub bytes: u64,
    /// `None` where this machine's speed is unknown.
    pub seconds: Option<f64>,
}

/// Plans the training stages that are not skipped, in order.
///
/// # Errors
/// A spec that is wrong, data that cannot be read, a model that does not fit (unless `force`).
pub fn plan(
    pipeline: &Pipeline,
    skip: &[String],
    force: bool,
    cx: &Context,
) -> anyhow::Result<Vec<Planned>> {
    let machine = Machine::look(&cx.env);
    // A stage that starts from another one has its architecture and its vocabulary.
    let mut models: HashMap<String, (ModelConfig, usize)> = HashMap::new();
    let mut planned = Vec::new();
    for stage in &pipeline.stages {
        let Work::Train(train) = &stage.work else {
            continue;
        };
        let base = match &train.from {
            From::Stage(name) => models.get(name),
            From::Spec => None,
        };
        let spec = load(train, &stage.name, base.map(|(config, _)| config), cx)?;
        let size = match base {
            Some((_, vocab_size)) => DataSize {
                vocab_size: *vocab_size,
                ..DataSize::default()
            },
            None => {
                let data = spec
                    .open_data(&Surroundings::from_env(&cx.env))
                    .map_err(|e| Failure::yours(format!("stage {}: {e}", stage.name), e.hint()))?;
                DataSize {
                    vocab_size: data.tokenizer.vocab_size(),
                    epoch_tokens: Some(data.epoch_tokens()),
                    ..DataSize::default()
                }
            }
        };
        models.insert(stage.name.clone(), (spec.model.clone(), size.vocab_size));
        if skip.contains(&stage.name) {
            continue;
        }
        if !force {
            memory::check(&spec)?;
        }
        let spec = size.in_steps(&spec);
        let counted = spec.train.epochs.is_none() || size.epoch_tokens.is_some();
        let mut request = of_spec(&spec, size);
        machine.equip(&mut request);
        let plan = plan_of(&request);
        planned.push(Planned {
            stage: stage.name.clone(),
            method: spec.method.entry().id.into(),
            n_params: plan.params.total(),
            length: counted.then(|| (spec.train.max_steps, spec.run_tokens())),
            bytes: plan.p50_bytes(),
            seconds: (plan.work.hours.filter(|_| counted)).map(|hours| hours * 3600.0),
        });
    }
    Ok(planned)
}

/// A stage's spec; with the architecture of what it starts from, which is not there yet.
fn load(
    train: &Train,
    name: &str,
    base: Option<&ModelConfig>,
    cx: &Context,
) -> anyhow::Result<RunSpec> {
    let sources = cx.spec_sources();
    let mut words = base.map(architecture).unwrap_or_default();
    words.extend(train.words());
    let loaded = match train.spec.as_str() {
        Some(word) => {
            crate::cli::model_ref::pull_for_spec(word, &words, cx)?;
            spec::load(word, &words, &sources)
        }
        None => spec::load_text_with(
            &format!("{name}.yaml"),
            &spec::yaml::write(&train.spec),
            &words,
            &sources,
        ),
    };
    Ok(named(loaded, name)?.spec)
}

fn named(
    loaded: Result<spec::Loaded, spec::SpecErrors>,
    stage: &str,
) -> Result<spec::Loaded, Failure> {
    loaded.map_err(|e| Failure::yours(format!("stage {stage}: {e}"), ""))
}

/// What a stage takes over from the model that it starts from; its context and its head are its own.
fn architecture(config: &ModelConfig) -> Vec<String> {
    let value = serde_json::to_value(config).unwrap_or_default();
    let fields = value.as_object().into_iter().flatten();
    fields
        .filter(|(key, value)| !value.is_null() && !["seq_len", "head"].contains(&key.as_str()))
        .map(|(key, value)| format!("model.{key}={value}"))
        .collect()
}
