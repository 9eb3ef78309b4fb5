//! Tests of causes: what a rule only suspects from curves is tested on the run's own data and weights, in seconds to a
//! minute. One file per test, one word in [`CAUSES`]. The run is only read; a copy is trained.

mod duplicates;
mod labels;
mod learning_rate;
mod moved;
mod order;
mod template;

use super::EngineError;
use super::checkpoint;
use super::revisit::Revisit;
use crate::base::clock::Clock;
use crate::base::finding::Finding;
use crate::data::Dataset;
use crate::run::{CheckpointEntry, RunDir};
use crate::spec::RunSpec;
use std::time::Duration;

/// The inputs of the tests.
pub struct Subject<'a> {
    pub run: &'a RunDir,
    pub spec: &'a RunSpec,
    pub data: &'a Dataset,
    /// Its past batches.
    pub revisit: Revisit<'a>,
    /// Of what it has trained, in order.
    pub checkpoints: Vec<CheckpointEntry>,
    /// Steps that it has made, as far as its checkpoints tell; at least 1.
    pub steps: u64,
    pub clock: &'a dyn Clock,
    /// Time that the training of copies may take.
    pub budget: Duration,
}

/// One test.
#[derive(Debug, Clone, Copy)]
pub struct Cause {
    pub id: &'static str,
    pub title: &'static str,
    /// An error means that the test could not be made.
    pub run: fn(&Subject<'_>) -> Result<Finding, EngineError>,
}

/// Every test, in the order in which they run: the data, then the weights.
pub const CAUSES: &[Cause] = &[
    labels::CAUSE,
    template::CAUSE,
    order::CAUSE,
    duplicates::CAUSE,
    moved::CAUSE,
    learning_rate::CAUSE,
];

/// Time for the training of copies.
pub const BUDGET: Duration = Duration::from_secs(60);

/// Makes every test of a run; `on_begin` hears of each before it is made.
///
/// # Errors
/// The run's checkpoints or data cannot be read, or are no longer its own.
pub fn test_all(
    (run, spec, data): (&RunDir, &RunSpec, &Dataset),
    clock: &dyn Clock,
    budget: Duration,
    on_begin: &mut dyn FnMut(&Cause),
) -> Result<Vec<Finding>, EngineError> {
    let checkpoints = run.checkpoints();
    let steps = checkpoints.last().map_or(1, |newest| newest.step.max(1));
    let subject = Subject {
        run,
        spec,
        data,
        revisit: Revisit::of_run(run, spec, data)?,
        checkpoints,
        steps,
        clock,
        budget,
    };
    let tested = CAUSES.iter().map(|cause| {
        on_begin(cause);
        let found = (cause.run)(&subject).unwrap_or_else(|error| {
            Finding::unknown(
                format!("the test could not be run: {error}"),
                "see the message",
            )
        });
        found.named(cause.id, cause.title)
    });
    Ok(tested.collect())
}

impl Subject<'_> {
    /// The newest checkpoint, verified.
    fn newest(&self) -> Result<Option<&CheckpointEntry>, EngineError> {
        let newest = self.checkpoints.last();
        if let Some(newest) = newest {
            checkpoint::Manifest::verify(&newest.path)
                .map_err(checkpoint::CheckpointError::from)?;
        }
        Ok(newest)
    }

    /// Up to `most` steps spread evenly over those that the run has made.
    fn spread(&self, most: u64) -> impl Iterator<Item = u64> {
        let (n, all) = (self.steps.min(most), self.steps);
        (0..n).map(move |i| 1 + i * all / n)
    }
}
