//! Validation sets beside the run's own (`eval.extra`): their curves show forgetting.

use super::emit::Port;
use super::eval::measure::{EvalScope, Evaluation, evaluate};
use super::roles::Models;
use super::{EngineError, EngineJob};
use crate::base::text::one_line;
use crate::data::formats::FormatChoice;
use crate::data::{DataConfig, DataEnv, DataError, Dataset, Request, Unit};
use crate::methods::{Method, MethodConfig, ReferenceChoice};
use crate::metrics::id;
use crate::spec::{ExtraSet, RunSpec};
use crate::wire::{ChartPlace, Direction, MetricInfo, Num, Values};

/// What each set of `eval.extra` comes to, as (name, tokens), read as a run would read it.
///
/// # Errors
/// As a run's start: rows that cannot be read, a method that has no loss on them.
pub fn extra_sets(
    spec: &RunSpec,
    data: &Dataset,
    surroundings: &DataEnv,
) -> Result<Vec<(String, u64)>, EngineError> {
    let sets = spec.eval.extra.iter();
    sets.map(|set| {
        let read = one(spec, set, data, surroundings)?;
        Ok((set.name.clone(), read.data.val_tokens()))
    })
    .collect()
}

/// One set, and how its loss is computed.
struct Extra {
    name: String,
    data: Dataset,
    /// Texts beside a method that learns from pairs or labelled answers: their loss is that of supervised fine-tuning.
    as_texts: bool,
}

fn one(
    spec: &RunSpec,
    set: &ExtraSet,
    data: &Dataset,
    surroundings: &DataEnv,
) -> Result<Extra, EngineError> {
    if spec.method.on_policy().is_some() {
        let what =
            "a method that trains on its own completions has no loss on rows; use eval.tasks";
        return Err(fault(&set.name, what));
    }
    let request = spec.data_request(surroundings);
    let unit = request.unit;
    let extra = |data, as_texts| Extra {
        name: set.name.clone(),
        data,
        as_texts,
    };
    let error = match Dataset::held_out(&spec.data, &set.source, data, request) {
        Ok(_) if spec.method.needs().reference == Some(ReferenceChoice::Precomputed) => {
            let what = "the reference was precomputed for the training data only; set reference=frozen or adapter_off";
            return Err(fault(&set.name, what));
        }
        Ok(read) => return Ok(extra(read, false)),
        Err(error) => error,
    };
    let answers = matches!(unit, Unit::Pair | Unit::Judged);
    if answers && matches!(error, DataError::Row(_)) {
        let texts = spec.data_request(surroundings);
        let texts = Request {
            unit: Unit::Text,
            ..texts
        };
        // The format that the spec names is that of its own rows.
        let config = DataConfig {
            format: FormatChoice::Auto,
            ..spec.data.clone()
        };
        if let Ok(mut read) = Dataset::held_out(&config, &set.source, data, texts) {
            read.notes.push(format!(
                "{}: read as training texts: their loss is the mean negative log-likelihood, not that of method {}",
                read.place,
                spec.method.entry().id
            ));
            return Ok(extra(read, true));
        }
    }
    Err(match error {
        error if error.is_environment_error() || matches!(error, DataError::Hub(_)) => error.into(),
        error => fault(&set.name, &format!("{error}; {}", error.hint())),
    })
}

fn fault(name: &str, what: &str) -> EngineError {
    EngineError::Setup(format!("eval.extra {}: {what}", one_line(name)))
}

/// The extra validation sets of a run, with their rows.
#[derive(Default)]
pub(super) struct Extras {
    sets: Vec<Extra>,
}

impl Extras {
    /// Reads and tokenizes the sets of the spec, as the run's own data are.
    ///
    /// # Errors
    /// Rows that cannot be read, a method that has no loss on them.
    pub fn read(
        job: &EngineJob,
        data: &Dataset,
        port: &mut Port<'_>,
        step: u64,
    ) -> Result<Extras, EngineError> {
        let mut sets = Vec::new();
        for set in &job.spec.eval.extra {
            let read = one(&job.spec, set, data, &DataEnv::from_env(&job.env))?;
            for note in &read.data.notes {
                port.note(step, format!("{}: {note}", one_line(&set.name)));
            }
            sets.push(read);
        }
        Ok(Extras { sets })
    }

    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    pub fn declarations(&self) -> Vec<MetricInfo> {
        let one = |set: &Extra| MetricInfo {
            id: id::of_extra_set(&set.name),
            title: format!("Loss on {}", one_line(&set.name)),
            unit: "nats".into(),
            direction: Direction::Lower,
            source: format!(
                "{} rows of {}, by {}",
                set.data.val_windows(),
                one_line(&set.data.place),
                match set.as_texts {
                    true => "their mean negative log-likelihood",
                    false => "the method's own loss",
                }
            ),
            label: one_line(&set.name),
            place: ChartPlace::default(),
            ..MetricInfo::default()
        };
        self.sets.iter().map(one).collect()
    }

    /// The loss on every set, read as far as the run's own; `Ok(None)` when `broken_off` said so in between.
    ///
    /// # Errors
    /// A batch that the model or the method refuses.
    pub fn measure(
        &self,
        spec: &RunSpec,
        models: &mut Models,
        extent: EvalScope,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Values>, EngineError> {
        let mut values = Values::new();
        let texts = MethodConfig::Sft(Default::default());
        for Extra {
            name,
            data,
            as_texts,
        } in &self.sets
        {
            let size = (spec.seed, spec.train.micro_batch_size);
            let method: &dyn Method = if *as_texts { &*texts } else { &*spec.method };
            let found = evaluate(method, models, data, size, extent, broken_off)?;
            let Some(Evaluation { loss, .. }) = found else {
                return Ok(None);
            };
            values.insert(id::of_extra_set(name), Num(loss));
        }
        Ok(Some(values))
    }
}
