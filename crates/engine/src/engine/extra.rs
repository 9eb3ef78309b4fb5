//! Validation sets beside the run's own (`eval.extra`): what a model loses of what it knew shows in their curves.

use super::emit::Port;
use super::eval::measure::{Evaluation, Extent, evaluate};
use super::roles::Models;
use super::{EngineError, EngineJob};
use crate::base::text::one_line;
use crate::data::{DataError, Dataset, Surroundings};
use crate::methods::ReferenceChoice;
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
    surroundings: &Surroundings,
) -> Result<Vec<(String, u64)>, EngineError> {
    let sets = spec.eval.extra.iter();
    sets.map(|set| {
        let read = one(spec, set, data, surroundings)?;
        Ok((set.name.clone(), read.val_tokens()))
    })
    .collect()
}

fn one(
    spec: &RunSpec,
    set: &ExtraSet,
    data: &Dataset,
    surroundings: &Surroundings,
) -> Result<Dataset, EngineError> {
    if spec.method.on_policy().is_some() {
        let what = "a method that learns from its own answers has no loss on rows; use eval.tasks";
        return Err(fault(&set.name, what));
    }
    if spec.method.needs().reference == Some(ReferenceChoice::Precomputed) {
        let what = "the reference was computed for the training data alone; set reference=frozen or adapter_off";
        return Err(fault(&set.name, what));
    }
    let request = spec.data_request(surroundings);
    Dataset::held_out(&spec.data, &set.source, data, request).map_err(|error| match error {
        error if error.is_of_the_machine() || matches!(error, DataError::Hub(_)) => error.into(),
        error => fault(&set.name, &format!("{error}; {}", error.hint())),
    })
}

fn fault(name: &str, what: &str) -> EngineError {
    EngineError::Setup(format!("eval.extra {}: {what}", one_line(name)))
}

/// The extra validation sets of a run, with their rows.
#[derive(Default)]
pub(super) struct Extras {
    sets: Vec<(String, Dataset)>,
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
            let read = one(&job.spec, set, data, &Surroundings::from_env(&job.env))?;
            for note in &read.notes {
                port.note(step, format!("{}: {note}", one_line(&set.name)));
            }
            sets.push((set.name.clone(), read));
        }
        Ok(Extras { sets })
    }

    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    pub fn declarations(&self) -> Vec<MetricInfo> {
        let one = |(name, data): &(String, Dataset)| MetricInfo {
            id: id::of_extra_set(name),
            title: format!("Loss on {}", one_line(name)),
            unit: "nats".into(),
            direction: Direction::Lower,
            source: format!(
                "{} rows of {}, by the method's own loss",
                data.val_windows(),
                one_line(&data.place)
            ),
            label: one_line(name),
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
        extent: Extent,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Values>, EngineError> {
        let mut values = Values::new();
        for (name, data) in &self.sets {
            let size = (spec.seed, spec.train.micro_batch_size);
            let found = evaluate(&*spec.method, models, data, size, extent, broken_off)?;
            let Some(Evaluation { loss, .. }) = found else {
                return Ok(None);
            };
            values.insert(id::of_extra_set(name), Num(loss));
        }
        Ok(Some(values))
    }
}
