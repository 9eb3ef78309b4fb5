//! Events that never arrived, or that this build cannot read.

use crate::base::finding::Finding;
use crate::base::human;
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "events",
        title: "events",
        summary: "Every event of the run arrived, and all are of known kinds.",
        source: "sequence numbers of the log",
    },
    needs: &[],
    judge,
};

fn judge(view: &View<'_>) -> Option<Finding> {
    let (missed, unknown) = (view.state.missed, view.state.unknown);
    let (text, cause, fix) = match (missed, unknown) {
        (0, 0) => return None,
        (0, n) => (
            format!("{} of a newer program", human::grouped(n)),
            "the run was written by a newer llmtui",
            "update llmtui here",
        ),
        (n, 0) => (
            format!("{} never arrived", human::grouped(n)),
            "the log has a gap, or the connection lost lines",
            "attach again; check the disk of the run",
        ),
        (missed, unknown) => (
            format!("{missed} never arrived, {unknown} of a newer program"),
            "the log has a gap, and a newer llmtui wrote it",
            "update llmtui here, and attach again",
        ),
    };
    Some(Finding::warn(text, cause, fix))
}
