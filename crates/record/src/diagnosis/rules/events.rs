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
        summary: "Every event of the run arrived, all are of known kinds, and no line of the log is damaged.",
        source: "sequence numbers of the log",
    },
    needs: &[],
    judge,
};

fn judge(view: &View<'_>) -> Option<Finding> {
    let (missed, unknown) = (view.state.missed, view.state.unknown);
    if view.state.damaged > 0 {
        return Some(damaged(view));
    }
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

/// Lines that are no events: they are what is missing from the sequence, too.
fn damaged(view: &View<'_>) -> Finding {
    let n = view.state.damaged;
    let lines = if n == 1 { "line" } else { "lines" };
    let text = format!("{} damaged {lines} of the log skipped", human::grouped(n));
    let fix = "check the disk; a copy of the log from before the damage restores them";
    match view.state.last_seq {
        0 => Finding::fail(
            format!("{text}, and there is no other"),
            "the log was overwritten or damaged: nothing of the run can be read from it",
            fix,
        ),
        _ => Finding::warn(
            text,
            "a part of the log was overwritten or damaged: what it held is in no number here",
            fix,
        ),
    }
}
