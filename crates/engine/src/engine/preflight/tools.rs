//! Tools and tool calls appear in the rendered text. With a template that does not render them, a call becomes an empty assistant
//! turn, which the model learns to produce, and the tool result follows without a call.

use super::{Check, Finding, Subject};
use crate::base::human::{grouped, percent};
use crate::data::TrainingCounts;
use crate::data::chat::TOOLS_FIX;
use crate::engine::EngineError;

pub const CHECK: Check = Check {
    id: "tools",
    title: "The template renders tools and calls",
    computes: false,
    run,
};

/// Share of the answers that come out empty at which we fail.
const FAIL: f64 = 0.5;

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    Ok(match &subject.data.learning {
        Some(learning) => judge(learning),
        None => Finding::not_applicable("one text: it has no tools"),
    })
}

fn judge(learning: &TrainingCounts) -> Finding {
    let &TrainingCounts {
        without_tools,
        answers,
        empty_calls,
        ..
    } = learning;
    if without_tools == 0 {
        return Finding::pass("no row has tools that are missing from its text");
    }
    let rows = format!(
        "the tools of {} rows are not rendered",
        grouped(without_tools)
    );
    if empty_calls == 0 {
        let cause =
            "the chat template does not render tools: the model does not see which it may call";
        return Finding::warn(rows, cause, TOOLS_FIX);
    }
    let share = empty_calls as f64 / answers.max(1) as f64;
    let evidence = format!(
        "{rows}; {} of {} answers ({}) are only a tool call and come out empty",
        grouped(empty_calls),
        grouped(answers),
        percent(share, 1)
    );
    let cause = "the chat template does not render tool calls: the model learns to answer nothing where a call is needed";
    match share >= FAIL {
        true => Finding::fail(evidence, cause, TOOLS_FIX),
        false => Finding::warn(evidence, cause, TOOLS_FIX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;

    #[test]
    fn some_empty_calls_are_told_and_half_of_the_answers_stop_the_run() {
        let judged = |without_tools, empty_calls| {
            judge(&TrainingCounts {
                without_tools,
                empty_calls,
                answers: 1200,
                ..TrainingCounts::default()
            })
        };
        assert_eq!(judged(0, 0).status, Status::Pass);
        assert_eq!(judged(5, 0).status, Status::Warn);
        let some = judged(5, 30);
        assert_eq!(some.status, Status::Warn);
        let evidence = some.evidence.to_string();
        assert!(
            evidence.contains("30 of 1,200 answers (2.5 %)"),
            "{evidence}"
        );
        assert!(some.fix.contains("data.template=qwen"), "{}", some.fix);
        assert_eq!(judged(500, 600).status, Status::Fail);
    }
}
