//! Every document has supervised tokens. Rows whose whole answer is masked or truncated cost time without effect; if all are,
//! the loss is 0.0 and the run "succeeds".

use super::{Check, Finding, Subject};
use crate::base::human::{grouped, percent};
use crate::data::TrainingCounts;
use crate::engine::EngineError;

pub const CHECK: Check = Check {
    id: "supervised",
    title: "Every document has supervised tokens",
    computes: false,
    run,
};

/// Shares of documents without a supervised token at which we warn and fail.
const WARN: f64 = 0.01;
const FAIL: f64 = 0.2;

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    Ok(match &subject.data.learning {
        Some(learning) => judge(learning),
        None => Finding::pass("one text, every token supervised"),
    })
}

fn judge(learning: &TrainingCounts) -> Finding {
    let &TrainingCounts {
        documents,
        nothing_supervised,
        ..
    } = learning;
    let share = nothing_supervised as f64 / documents.max(1) as f64;
    let evidence = match nothing_supervised {
        0 => format!(
            "all {} documents have supervised tokens",
            grouped(documents)
        ),
        _ => format!(
            "{} of {} documents ({}) have no supervised tokens and are dropped",
            grouped(nothing_supervised),
            grouped(documents),
            percent(share, 1)
        ),
    };
    let (cause, fix) = match learning.too_long {
        0 => (
            "conversations without an answer, or empty ones",
            "inspect them with `llmtui data inspect`",
        ),
        _ => (
            "their answers may be truncated, or rows have no answer",
            "a larger model.seq_len, or data.too_long: truncate_start",
        ),
    };
    if share > FAIL {
        Finding::fail(evidence, cause, fix)
    } else if share > WARN {
        Finding::warn(evidence, cause, fix)
    } else {
        Finding::pass(evidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;

    #[test]
    fn a_few_are_passed_over_and_many_stop_the_run() {
        let judged = |nothing_supervised| {
            judge(&TrainingCounts {
                documents: 1000,
                nothing_supervised,
                ..TrainingCounts::default()
            })
        };
        assert_eq!(judged(0).status, Status::Pass);
        assert_eq!(judged(50).status, Status::Warn);
        assert_eq!(judged(400).status, Status::Fail);
        assert!(
            judged(400)
                .evidence
                .to_string()
                .contains("400 of 1,000 documents (40.0 %)")
        );
    }
}
