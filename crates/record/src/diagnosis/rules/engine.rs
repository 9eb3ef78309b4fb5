//! The engine process failed: what it said last, or that it crashed without a word, which its log alone does not show; whoever
//! reads it has looked for the process.

use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;
use crate::wire::Outcome;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "engine",
        title: "engine",
        summary: "The run has ended without an error, or a process trains it.",
        source: "the run's lock",
    },
    needs: &[],
    judge,
};

fn judge(view: &View<'_>) -> Option<Finding> {
    let state = view.state;
    if state.orphaned {
        let text = format!(
            "the engine died at step {}: its log has no end and no process trains this run",
            human::grouped(state.step)
        );
        return Some(Finding::fail(
            Signal::of("step", state.step as f64, text),
            "it was killed (kill -9, out of memory), or the machine went down",
            "resume it: that goes on from the newest checkpoint, or begins again without one",
        ));
    }
    if let Some(refused) = &state.refused {
        let text = format!("its newest resume was refused: {}", refused.message);
        return Some(Finding::warn(
            Signal::of("step", refused.step as f64, text),
            cause(refused.outcome)?,
            "the run stands as it did before; to go on, correct what it names and resume again",
        ));
    }
    let finish = state.finished.as_ref()?;
    let text = format!(
        "the engine ended at step {}: {}",
        human::grouped(finish.step),
        finish.message
    );
    let fix = match state.checkpoints.is_empty() {
        true => "correct what it names, then train it again: it has no checkpoint",
        false => "correct what it names, then resume: that goes on from the newest checkpoint",
    };
    Some(Finding::fail(
        Signal::of("step", finish.step as f64, text),
        cause(finish.outcome)?,
        fix,
    ))
}

/// `None` of an end that nobody needs to mend.
fn cause(outcome: Outcome) -> Option<&'static str> {
    Some(match outcome {
        Outcome::Completed | Outcome::Stopped => return None,
        Outcome::Failed => "the training could not go on",
        Outcome::Starved => "the machine failed it: no memory, no threads, or no place to write to",
        Outcome::Refused => "a check before training failed",
        Outcome::Invalid => "its spec, its data or its checkpoints do not fit",
        Outcome::Crashed => "a bug in the engine",
    })
}
