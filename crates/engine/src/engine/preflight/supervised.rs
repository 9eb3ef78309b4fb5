//! Every document has supervised tokens. Rows whose whole answer is masked or truncated cost time without effect; if all are,
//! the loss is 0.0 and the run "succeeds". Of an empty answer only its end is supervised: the model learns to answer nothing.

use super::{Check, Finding, OWN_ANSWERS, Subject};
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
    if subject.answers_are_its_own() {
        return Ok(Finding::not_applicable(OWN_ANSWERS));
    }
    Ok(match &subject.data.learning {
        Some(learning) => judge(learning),
        None => Finding::pass("one text, every token supervised"),
    })
}

/// What is worse of the two: documents with nothing to learn, or answers that say nothing.
fn judge(learning: &TrainingCounts) -> Finding {
    let (masked, silent) = (judge_masks(learning), judge_answers(learning));
    match silent {
        Some(silent) if silent.status < masked.status => silent,
        _ => masked,
    }
}

/// Answers that are empty.
fn judge_answers(learning: &TrainingCounts) -> Option<Finding> {
    let &TrainingCounts {
        rows,
        empty_answers,
        ..
    } = learning;
    let share = empty_answers as f64 / rows.max(1) as f64;
    let evidence = format!(
        "{} of {} rows ({}) have an empty answer",
        grouped(empty_answers),
        grouped(rows),
        percent(share, 1)
    );
    let cause = "a field was lost or left empty: only the end of such an answer is supervised, and the model learns to answer nothing";
    let fix = "`llmtui data clean FILE --drop empty --out COPY.jsonl` drops them";
    match share {
        share if share > FAIL => Some(Finding::fail(evidence, cause, fix)),
        share if share > WARN => Some(Finding::warn(evidence, cause, fix)),
        _ => None,
    }
}

fn judge_masks(learning: &TrainingCounts) -> Finding {
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
    let longer = "a larger model.seq_len, or -s data.too_long=truncate_start, which keeps the ends of documents";
    let (cause, fix) = match learning.cut_off {
        0 => (
            "conversations without an answer, or empty ones".into(),
            "inspect them with `llmtui data inspect`",
        ),
        n if n == nothing_supervised => (
            "they are longer than a row, and truncation leaves nothing of their answers".into(),
            longer,
        ),
        n => (
            format!(
                "{} of them are longer than a row, and truncation leaves nothing of their answers; the others have no answer, or an empty one",
                grouped(n)
            ),
            longer,
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

    /// "ready to train" stood over data with nothing to answer, and the loss was blamed on the model.
    #[test]
    fn empty_answers_are_told_and_many_stop_the_run() {
        let judged = |empty_answers| {
            judge(&TrainingCounts {
                documents: 29,
                rows: 30,
                empty_answers,
                ..TrainingCounts::default()
            })
        };
        assert_eq!(judged(0).status, Status::Pass);
        assert_eq!(judged(1).status, Status::Warn);
        let half = judged(15);
        assert_eq!(half.status, Status::Fail);
        let told = half.evidence.to_string();
        assert!(
            told.contains("15 of 30 rows (50.0 %) have an empty answer"),
            "{told}"
        );
        assert!(half.fix.contains("data clean"), "{}", half.fix);
    }

    /// Rows with answers were said to have none.
    #[test]
    fn the_cause_is_the_row_length_where_answers_are_cut_off() {
        let judged = |cut_off| {
            judge(&TrainingCounts {
                documents: 57,
                nothing_supervised: 6,
                cut_off,
                too_long: 9,
                ..TrainingCounts::default()
            })
        };
        assert!(
            judged(0)
                .cause
                .starts_with("conversations without an answer")
        );
        let cut = judged(6);
        assert!(
            cut.cause.starts_with("they are longer than a row"),
            "{}",
            cut.cause
        );
        assert_eq!(cut.changes(), ["data.too_long=truncate_start"]);
        assert!(
            judged(2)
                .cause
                .starts_with("2 of them are longer than a row")
        );
    }
}
