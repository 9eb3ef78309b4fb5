//! The last screen before the start: preflight results as they arrive. The caller runs the checks.

use crate::base::finding::{Finding, Status};

/// One run of the checks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Checks {
    pub lines: Vec<Finding>,
    /// The title of the check that is being made, where that is known.
    pub next: Option<String>,
    pub state: State,
}

/// Its progress.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum State {
    #[default]
    Running,
    /// All completed.
    Over,
    /// They could not run; why.
    Broken(String),
}

impl Checks {
    pub fn failed(&self) -> impl Iterator<Item = &Finding> {
        self.lines.iter().filter(|line| line.status == Status::Fail)
    }

    /// Completed, and none failed.
    pub fn good(&self) -> bool {
        self.state == State::Over && self.failed().next().is_none()
    }

    /// What prevents the start, with what to do; `None` if nothing does.
    pub fn obstacle(&self) -> Option<String> {
        if let State::Broken(why) = &self.state {
            return Some(format!("the checks could not run: {why}"));
        }
        let failed: Vec<String> = self
            .failed()
            .map(|line| format!("{}: {}; {}", line.title, line.evidence, line.advice()))
            .collect();
        (!failed.is_empty()).then(|| failed.join(" · "))
    }

    /// `in spite of: No validation text in the training text`, once all completed and some failed.
    pub fn overridden_failures(&self) -> Option<String> {
        let failed: Vec<&str> = self.failed().map(|line| line.title.as_str()).collect();
        let all = self.state == State::Over && !failed.is_empty();
        all.then(|| format!("despite: {}", failed.join(", ")))
    }

    /// `3 checks so far; now: Can overfit one batch …`, `14 passed, 1 warning`, `2 of 15 checks failed`
    pub fn words(&self) -> String {
        let n = self.lines.len();
        let now = match &self.next {
            Some(title) => format!("; now: {title} …"),
            None => " …".into(),
        };
        match (&self.state, self.failed().count()) {
            (State::Broken(_), _) => "the checks could not run".into(),
            (State::Running, 0) => format!("{n} checks so far{now}"),
            (State::Running, bad) => format!("{n} checks so far, {bad} failed{now}"),
            (State::Over, 0) => self.tally(),
            (State::Over, bad) => format!("{bad} of {n} checks failed"),
        }
    }

    /// `14 passed, 1 warning, 2 skipped`: what does not apply has passed.
    fn tally(&self) -> String {
        let count = |status| self.lines.iter().filter(|l| l.status == status).count();
        let (warned, skipped) = (count(Status::Warn), count(Status::Unknown));
        let passed = self.lines.len() - warned - skipped;
        let mut words = vec![format!("{passed} passed")];
        match warned {
            0 => {}
            1 => words.push("1 warning".into()),
            n => words.push(format!("{n} warnings")),
        }
        if skipped > 0 {
            words.push(format!("{skipped} skipped"));
        }
        words.join(", ")
    }

    /// The worst first; equally bad ones in the order in which they were made.
    pub fn sorted(&self) -> Vec<&Finding> {
        let mut lines: Vec<&Finding> = self.lines.iter().collect();
        lines.sort_by_key(|line| line.status);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_counted_and_come_first() {
        let line = |finding: Finding, title| finding.named(title, title);
        let mut checks = Checks {
            lines: vec![
                line(Finding::pass("fine"), "a"),
                line(Finding::warn("9 updates in total", "few", "more"), "b"),
                line(Finding::pass("fine"), "c"),
            ],
            next: Some("d".into()),
            state: State::Running,
        };
        assert_eq!(checks.words(), "3 checks so far; now: d …");
        checks.state = State::Over;
        assert_eq!(checks.words(), "2 passed, 1 warning");
        let titles: Vec<&str> = checks.sorted().iter().map(|l| l.title.as_str()).collect();
        assert_eq!(titles, ["b", "a", "c"]);
        assert!(checks.good());
    }
}
