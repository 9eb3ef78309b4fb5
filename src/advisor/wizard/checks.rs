//! The last screen before the start: preflight results as they arrive. The caller runs the checks.

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Passed,
    Warned,
    Failed,
    Skipped,
}

impl Mark {
    /// The label of its line.
    pub fn word(self) -> &'static str {
        match self {
            Mark::Passed => "passed",
            Mark::Warned => "warning",
            Mark::Failed => "failed",
            Mark::Skipped => "skipped",
        }
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckLine {
    pub title: String,
    pub mark: Mark,
    /// What was measured.
    pub evidence: String,
    /// Likely cause and what to do; empty if it passed.
    pub hint: String,
}

/// One run of the checks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checks {
    pub lines: Vec<CheckLine>,
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
    pub fn failed(&self) -> impl Iterator<Item = &CheckLine> {
        self.lines.iter().filter(|line| line.mark == Mark::Failed)
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
            .map(|line| format!("{}: {}; {}", line.title, line.evidence, line.hint))
            .collect();
        (!failed.is_empty()).then(|| failed.join(" · "))
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
