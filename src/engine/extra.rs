//! Validation sets beside the run's own (`eval.extra`): what a model loses of what it knew shows in their curves.

use super::emit::Port;
use super::eval::{Evaluation, Extent, evaluate};
use super::roles::{Models, Reference};
use super::{EngineError, EngineJob};
use crate::base::text::one_line;
use crate::data::{DataError, Dataset, Surroundings};
use crate::metrics::id;
use crate::spec::RunSpec;
use crate::wire::{ChartPlace, Direction, MetricInfo, Num, Values};

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
        reference: &Reference,
        port: &mut Port<'_>,
        step: u64,
    ) -> Result<Extras, EngineError> {
        let (spec, mut sets) = (&job.spec, Vec::new());
        let fault = |name: &str, what: &str| {
            EngineError::Setup(format!("eval.extra {}: {what}", one_line(name)))
        };
        for set in &spec.eval.extra {
            if spec.method.on_policy().is_some() {
                let what =
                    "a method that learns from its own answers has no loss on rows; use eval.tasks";
                return Err(fault(&set.name, what));
            }
            if matches!(reference, Reference::Precomputed(_)) {
                let what = "the reference was computed for the training data alone; set reference=frozen or adapter_off";
                return Err(fault(&set.name, what));
            }
            let request = spec.data_request(&Surroundings::from_env(&job.env));
            let read = Dataset::held_out(&spec.data, &set.source, data, request);
            let read = read.map_err(|error| match error {
                DataError::Hub(error) => EngineError::Data(DataError::Hub(error)),
                error => fault(&set.name, &format!("{error}; {}", error.hint())),
            })?;
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
