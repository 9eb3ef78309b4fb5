//! The newest warning of the engine.

use crate::base::finding::Finding;
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;
use crate::run::state::MarkKind;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "warnings",
        title: "last warning",
        summary: "The engine logged no warnings.",
        source: "the run's events",
    },
    needs: &[],
    judge,
};

fn judge(view: &View<'_>) -> Option<Finding> {
    let state = view.state;
    let warned = |m: &&crate::run::state::Mark| m.kind == MarkKind::Warning;
    let last = state.marks.iter().rev().find(warned)?;
    let more = match state.n_warnings {
        0 | 1 => String::new(),
        n => format!(" (of {n})"),
    };
    let at = format!("step {}", human::grouped(last.step));
    // A roll-back may have removed the newest one.
    let same = state
        .warned
        .as_ref()
        .filter(|(message, _)| *message == last.text);
    let fix = same
        .map(|(_, fix)| fix.as_str())
        .filter(|fix| !fix.is_empty());
    let fix = fix.unwrap_or("read the log of the run");
    Some(Finding::warn(format!("{}{more}", last.text), "", fix).at(at))
}
