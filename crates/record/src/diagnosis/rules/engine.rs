//! The engine process crashed: its log alone does not show it, whoever reads it has looked for the process.

use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "engine",
        title: "engine",
        summary: "The run has ended, or a process trains it.",
        source: "the run's lock",
    },
    needs: &[],
    judge,
};

fn judge(view: &View<'_>) -> Option<Finding> {
    let state = view.state;
    let text = format!(
        "the engine died at step {}: its log has no end and no process trains this run",
        human::grouped(state.step)
    );
    let finding = Finding::fail(
        Signal::of("step", state.step as f64, text),
        "it was killed (kill -9, out of memory), or the machine went down",
        "resume it: that goes on from the newest checkpoint, or begins again without one",
    );
    state.orphaned.then_some(finding)
}
