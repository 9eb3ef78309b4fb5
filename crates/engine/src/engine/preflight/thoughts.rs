//! Thoughts of answers appear in the rendered text. A template that does not render them trains a model to answer at once.

use super::{Check, Finding, Subject};
use crate::base::human::{grouped, percent};
use crate::data::TrainingCounts;
use crate::data::chat::THOUGHTS_FIX;
use crate::engine::EngineError;

pub const CHECK: Check = Check {
    id: "thoughts",
    title: "The template renders thoughts",
    computes: false,
    run,
};

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    Ok(match &subject.data.learning {
        Some(learning) => judge(learning),
        None => Finding::not_applicable("one text: it has no thoughts"),
    })
}

fn judge(learning: &TrainingCounts) -> Finding {
    let &TrainingCounts {
        without_thoughts,
        rows,
        ..
    } = learning;
    if without_thoughts == 0 {
        return Finding::pass("no row has thoughts that are missing from its text");
    }
    let evidence = format!(
        "the thoughts of {} of {} rows ({}) are not rendered",
        grouped(without_thoughts),
        grouped(rows),
        percent(without_thoughts as f64 / rows.max(1) as f64, 1)
    );
    let cause = "the chat template drops the thoughts of the answers to learn: the model learns to answer without thinking";
    Finding::warn(evidence, cause, THOUGHTS_FIX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;

    #[test]
    fn dropped_thoughts_are_told_with_their_share() {
        let judged = |without_thoughts| {
            judge(&TrainingCounts {
                without_thoughts,
                rows: 1200,
                ..TrainingCounts::default()
            })
        };
        assert_eq!(judged(0).status, Status::Pass);
        let some = judged(30);
        assert_eq!(some.status, Status::Warn);
        let evidence = some.evidence.to_string();
        assert!(evidence.contains("30 of 1,200 rows (2.5 %)"), "{evidence}");
        assert!(some.fix.contains("data.template=qwen3"), "{}", some.fix);
    }
}
