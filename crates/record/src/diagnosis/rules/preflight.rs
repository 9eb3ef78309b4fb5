//! The checks before the first step, in one row.

use crate::base::finding::{Finding, Status};
use crate::base::registry::Entry;
use crate::diagnosis::Rule;
use crate::diagnosis::view::View;

pub const RULE: Rule = Rule {
    entry: Entry {
        id: "preflight",
        title: "preflight",
        summary: "Every check before the first step passed.",
        source: "`llmtui preflight`",
    },
    needs: &[],
    judge,
};

fn judge(view: &View<'_>) -> Option<Finding> {
    let checks = &view.state.checks;
    let bad = checks.iter().filter(|c| c.status <= Status::Warn);
    if let Some(check) = bad.min_by_key(|c| c.status) {
        let text = format!("{}: {}", check.title, check.evidence);
        return Some(Finding {
            evidence: text.into(),
            ..check.clone()
        });
    }
    let passed = checks.iter().filter(|c| c.status == Status::Pass).count();
    (passed > 0).then(|| Finding::pass(format!("{passed} checks passed")))
}
