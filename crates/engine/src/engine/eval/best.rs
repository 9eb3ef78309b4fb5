//! Which evaluation is the best so far.

use crate::base::text::one_line;
use crate::engine::EngineError;
use crate::rewards::verifier;
use crate::spec::RunSpec;
use crate::wire::{Direction, MetricInfo, id};

/// The reading that decides which checkpoint is the best.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) struct BestBy {
    pub metric: String,
    pub direction: Direction,
}

impl BestBy {
    /// That of the method; the mean reward where no reward is a verifier.
    pub fn of_spec(spec: &RunSpec) -> BestBy {
        let criterion = spec.method.best();
        let metric = match criterion.metric {
            id::PASS_AT_1 if verifier(&spec.rewards).is_none() => id::EVAL_REWARD,
            metric => metric,
        };
        BestBy {
            metric: metric.into(),
            direction: criterion.direction,
        }
    }

    /// The metric of `eval.best_by`, which this run must declare and evaluate.
    ///
    /// # Errors
    /// It is not, or no direction of it is better.
    pub fn named(id: &str, declared: &[MetricInfo]) -> Result<BestBy, EngineError> {
        let evaluated = |info: &&MetricInfo| {
            let kind = info.id.split_once('/').map(|(kind, _)| kind);
            matches!(kind, Some("eval" | "val" | "extra")) && info.direction != Direction::Neutral
        };
        let known: Vec<&MetricInfo> = declared.iter().filter(evaluated).collect();
        let found = known.iter().find(|info| info.id == id);
        let found = found.ok_or_else(|| {
            let ids: Vec<String> = known.iter().map(|info| one_line(&info.id)).collect();
            EngineError::Setup(format!(
                "eval.best_by: evaluations of this run do not measure {}; valid: {}",
                one_line(id),
                ids.join(", ")
            ))
        })?;
        Ok(BestBy {
            metric: found.id.clone(),
            direction: found.direction,
        })
    }
}
