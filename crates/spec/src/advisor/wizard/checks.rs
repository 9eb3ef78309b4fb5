//! The last screen before the start: preflight results as they arrive. The caller runs the checks.

use crate::base::finding::{Finding, Status};

/// One run of the checks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Checks {
    pub lines: Vec<Finding>,
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

    /// `3 checks so far …`, `8 checks, all passed`
    pub fn words(&self) -> String {
        let n = self.lines.len();
        match (&self.state, self.failed().count()) {
            (State::Broken(_), _) => "the checks could not run".into(),
            (State::Running, 0) => format!("{n} checks so far …"),
            (State::Running, bad) => format!("{n} checks so far, {bad} failed"),
            (State::Over, 0) => format!("{n} checks, none failed"),
            (State::Over, bad) => format!("{bad} of {n} checks failed"),
        }
    }
}
