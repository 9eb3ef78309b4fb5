//! The engine process failed: its error message, or that it crashed without one, which the log alone does not show; the
//! caller has checked the process.

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
        summary: "The run ended without an error, or a process is training it.",
        source: "the run's lock",
    },
    needs: &[],
    judge,
};

fn judge(view: &View<'_>) -> Option<Finding> {
    let state = view.state;
    if state.orphaned {
        let text = format!(
            "crashed at step {}: its log has no end and no process is training this run",
            human::grouped(state.step)
        );
        return Some(Finding::fail(
            Signal::of("step", state.step as f64, text),
            "it was killed (kill -9, out of memory), or the machine crashed",
            "resume it: it continues from the latest checkpoint, or restarts if there is none",
        ));
    }
    if let Some(refused) = &state.refused {
        let text = format!("its last resume was refused: {}", refused.message);
        return Some(Finding::warn(
            Signal::of("step", refused.step as f64, text),
            cause(refused.outcome)?,
            "the run is unchanged; fix what the error names and resume again",
        ));
    }
    let finish = state.finished.as_ref()?;
    let text = format!(
        "ended at step {}: {}",
        human::grouped(finish.step),
        finish.message
    );
    let fix = match state.checkpoints.is_empty() {
        true => "fix what the error names, then train again: it has no checkpoint",
        false => "fix what the error names, then resume: it continues from the latest checkpoint",
    };
    Some(Finding::fail(
        Signal::of("step", finish.step as f64, text),
        cause(finish.outcome)?,
        fix,
    ))
}

/// `None` for an outcome that needs no action.
fn cause(outcome: Outcome) -> Option<&'static str> {
    Some(match outcome {
        Outcome::Completed | Outcome::Stopped => return None,
        Outcome::Failed => "training could not continue",
        Outcome::Starved => "a problem of the machine: no memory, no threads, or no place to write",
        Outcome::Refused => "a check before training failed",
        Outcome::Invalid => "its spec, its data or its checkpoints are invalid",
        Outcome::Crashed => "a bug in the engine",
    })
}
