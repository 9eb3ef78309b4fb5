//! The last screen before the start: the checks of preflight, as they come in. Who runs them is the caller's business.

use crate::base::finding::{Finding, Status};

/// The round of checks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Checks {
    pub lines: Vec<Finding>,
    pub state: State,
}

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum State {
    #[default]
    Running,
    /// All were made.
    Over,
    /// They could not be made; why.
    Broken(String),
}

impl Checks {
    pub fn failed(&self) -> impl Iterator<Item = &Finding> {
        self.lines.iter().filter(|line| line.status == Status::Fail)
    }

    /// Made, and none failed.
    pub fn good(&self) -> bool {
        self.state == State::Over && self.failed().next().is_none()
    }

    /// What stands in the way of the start, with what to do; `None` while nothing does.
    pub fn obstacle(&self) -> Option<String> {
        if let State::Broken(why) = &self.state {
            return Some(format!("the checks could not be made: {why}"));
        }
        let failed: Vec<String> = self
            .failed()
            .map(|line| format!("{}: {}; {}", line.title, line.evidence, line.advice()))
            .collect();
        (!failed.is_empty()).then(|| failed.join(" · "))
    }

    /// `3 checks so far …`, `8 checks, all passed`
    pub fn words(&self) -> String {
        let n = self.lines.len();
        match (&self.state, self.failed().count()) {
            (State::Broken(_), _) => "the checks could not be made".into(),
            (State::Running, 0) => format!("{n} checks so far …"),
            (State::Running, bad) => format!("{n} checks so far, {bad} failed"),
            (State::Over, 0) => format!("{n} checks, none failed"),
            (State::Over, bad) => format!("{bad} of {n} checks failed"),
        }
    }
}
