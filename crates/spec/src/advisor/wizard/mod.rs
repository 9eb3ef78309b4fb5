//! The questions from a goal to a spec, as a state machine without a UI: the workbench and `llmtui new` show the same
//! [`Question`]s and pass on the answers. Going back loses nothing; errors are shown at their row.

mod answers;
mod checks;
mod context;
mod derived;
mod draft;
mod estimate;
mod knobs;
mod question;
mod steps;

pub use answers::{Answers, Begin, DataAnswer};
pub use checks::{Checks, State};
pub use context::{Context, Look, Outcome, PresetInfo, Seen};
pub use estimate::n_params;
pub use knobs::{COMMON, Knob};
pub use question::{Input, Note, Question, Row};

use super::look::{self, ConfigFacts, DataFacts, ModelFacts};
use crate::base::finding::Finding;
use std::path::{Path, PathBuf};

/// The questions in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    Goal,
    Data,
    Start,
    Method,
    Model,
    Settings,
    Plan,
    Finish,
    Check,
}

impl Step {
    pub const ALL: [Step; 9] = [
        Step::Goal,
        Step::Data,
        Step::Start,
        Step::Method,
        Step::Model,
        Step::Settings,
        Step::Plan,
        Step::Finish,
        Step::Check,
    ];

    /// A short label for the column of answers.
    pub fn word(self) -> &'static str {
        self.ask().word()
    }

    /// Counted from 1.
    pub fn number(self) -> usize {
        self as usize + 1
    }
}

/// The state: answers, the current question, and what was found at paths.
#[derive(Debug, Clone)]
pub struct Wizard {
    context: Context,
    answers: Answers,
    step: Step,
    cursor: [usize; Step::ALL.len()],
    corpus: Option<DataFacts>,
    data: Option<(String, Result<DataFacts, String>)>,
    model: Option<(String, Result<ModelFacts, String>)>,
    config: Option<(String, Result<ConfigFacts, String>)>,
    checks: Checks,
    /// Why the last Enter was rejected.
    error: Option<String>,
}

impl Wizard {
    /// Starts at the first question; remembered answers are preselected.
    pub fn new(context: Context, mut answers: Answers) -> Wizard {
        if answers.start_path.is_empty() {
            answers.start_path = context.newest_checkpoint.clone().unwrap_or_default();
        }
        let mut wizard = Wizard {
            context,
            answers,
            step: Step::Goal,
            cursor: [0; Step::ALL.len()],
            corpus: look::corpus("tinyshakespeare"),
            data: None,
            model: None,
            config: None,
            checks: Checks::default(),
            error: None,
        };
        wizard.place_cursor();
        wizard
    }

    pub fn step(&self) -> Step {
        self.step
    }

    /// What `~` means at the beginning of a path.
    pub fn home(&self) -> Option<&Path> {
        self.context.home.as_deref()
    }

    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    pub fn selected(&self) -> usize {
        self.cursor[self.step as usize]
    }

    /// Selects a row of the question.
    pub fn select(&mut self, row: usize) {
        let last = self.question().rows.len().saturating_sub(1);
        self.cursor[self.step as usize] = row.min(last);
        self.error = None;
    }

    /// Sets the text of the selected row's input.
    pub fn type_in(&mut self, text: &str) {
        self.error = None;
        self.step.ask().type_in(self, text);
    }

    /// A setting as typed; an empty text, or the default, does not count as the user's choice.
    pub fn set(&mut self, path: &str, text: &str) {
        self.answers.settings.remove(path);
        let same = self
            .draft()
            .and_then(|(draft, _)| {
                let full = draft.settle(path)?;
                Some(crate::spec::shown(&draft.value(&full)) == text.trim())
            })
            .unwrap_or(false);
        if !text.trim().is_empty() && !same {
            self.answers
                .settings
                .insert(path.to_string(), text.to_string());
        }
    }

    /// Answers the question with the selected row.
    pub fn enter(&mut self) -> Outcome {
        self.error = None;
        self.step.ask().enter(self)
    }

    fn advance(&mut self) -> Outcome {
        if let Some(next) = Step::ALL.get(self.step as usize + 1) {
            self.step = *next;
            // A choice for another goal or other data is no choice: the advice decides.
            if self.step == Step::Method && self.answers.method_for != self.method_subject() {
                (self.answers.method, self.answers.adapter) = (None, None);
            }
            if self.step == Step::Settings {
                let subject = self.subject();
                if self.answers.settings_for != subject {
                    self.answers.settings.clear();
                    self.answers.settings_for = subject;
                }
            }
            self.place_cursor();
        }
        Outcome::Moved
    }

    fn refuse(&mut self, why: impl Into<String>) -> Outcome {
        self.error = Some(why.into());
        Outcome::Stay
    }

    /// Back to the previous question; every answer is kept.
    pub fn back(&mut self) -> Outcome {
        self.error = None;
        let before = match (self.step, self.answers.begin) {
            // The questions in between were answered by the imported config.
            (Step::Settings, Begin::Config) => Some(Step::Goal),
            (step, _) => (step as usize).checked_sub(1).map(|i| Step::ALL[i]),
        };
        match before {
            Some(before) => {
                self.step = before;
                self.place_cursor();
                Outcome::Moved
            }
            None => Outcome::Close,
        }
    }

    /// Goes to a question answered before, or to the next one.
    pub fn go(&mut self, step: Step) {
        while self.step > step && self.back() == Outcome::Moved {}
    }

    /// Receives what was found at a path, and continues if it is usable.
    pub fn seen(&mut self, seen: Seen) -> Outcome {
        let shown = |path: &PathBuf| path.display().to_string();
        match seen {
            Seen::Data(path, facts) => self.data = Some((shown(&path), facts)),
            Seen::Model(path, facts) => self.model = Some((shown(&path), facts)),
            Seen::Config(path, facts) => {
                self.error = facts.as_ref().err().cloned();
                self.config = Some((shown(&path), facts));
                // The report is shown before anything is imported.
                return Outcome::Stay;
            }
        }
        if let (Some((_, Ok(data))), Some((_, Ok(model)))) = (&mut self.data, &self.model) {
            data.template = model.template;
        }
        match self.step {
            Step::Data | Step::Start => self.enter(),
            _ => Outcome::Stay,
        }
    }

    /// The checks so far.
    pub fn checks(&self) -> &Checks {
        &self.checks
    }

    /// A check completed.
    pub fn checked(&mut self, finding: Finding) {
        self.checks.lines.push(finding);
    }

    /// All completed, or why not.
    pub fn checks_over(&mut self, result: Result<(), String>) {
        self.checks.state = match result {
            Ok(()) => State::Over,
            Err(why) => State::Broken(why),
        };
        if self.step == Step::Check {
            self.error = self.checks.obstacle();
        }
    }

    /// The answers for the next time, as JSON. A start model that was offered and not typed is not among them: by then
    /// another checkpoint is the newest.
    pub fn to_remember(&self) -> String {
        let mut answers = self.answers.clone();
        if self.context.newest_checkpoint.as_ref() == Some(&answers.start_path) {
            answers.start_path.clear();
        }
        answers.to_json()
    }

    /// Moves the cursor to the answer given before.
    fn place_cursor(&mut self) {
        let at = self.step.ask().chosen(self);
        let last = self.question().rows.len().saturating_sub(1);
        let cursor = &mut self.cursor[self.step as usize];
        *cursor = at.unwrap_or(*cursor).min(last);
    }
}

#[cfg(test)]
mod tests;
