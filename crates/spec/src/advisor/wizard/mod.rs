//! The questions from a goal to a spec, as a state machine without a UI: the workbench and `llmtui new` show the same
//! [`Question`]s and pass on the answers. Going back loses nothing; errors are shown at their row.

mod answers;
mod checks;
mod context;
mod derived;
mod draft;
mod estimate;
mod knobs;
mod made;
mod pass;
mod question;
mod recommended;
mod rollouts;
mod sizing;
mod steps;

pub use answers::{Answers, Begin, DataAnswer, RewardAnswer};
pub use checks::{Checks, State};
pub use context::{Context, InspectRequest, Inspection, Offer, Outcome, PresetInfo};
pub use estimate::n_params;
pub use knobs::{COMMON, Knob};
pub use question::{Input, Note, Question, Row};

use super::inspection::{self, ConfigFacts, DataFacts, ModelFacts};
use crate::base::finding::Finding;
use crate::base::text::one_line;
use crate::spec::Issue;
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// The questions in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    Goal,
    Data,
    Start,
    Method,
    Model,
    /// Of methods that train on the model's own completions.
    Reward,
    Settings,
    Plan,
    Finish,
    Check,
}

impl Step {
    pub const ALL: [Step; 10] = [
        Step::Goal,
        Step::Data,
        Step::Start,
        Step::Method,
        Step::Model,
        Step::Reward,
        Step::Settings,
        Step::Plan,
        Step::Finish,
        Step::Check,
    ];

    /// A short label for the column of answers.
    pub fn word(self) -> &'static str {
        self.ask().word()
    }
}

/// The state: answers, the current question, and what was found at paths.
#[derive(Debug, Clone)]
pub struct Wizard {
    context: Context,
    answers: Answers,
    /// Those that were accepted: what was typed and refused is not among them.
    accepted: Answers,
    /// Those of the last time, by goal.
    earlier: Answers,
    /// A question behind the goal was answered: the answers are no longer those of the last time.
    begun: bool,
    step: Step,
    cursor: [usize; Step::ALL.len()],
    corpus: Option<DataFacts>,
    data: Option<(String, Result<DataFacts, String>)>,
    model: Option<(String, Result<ModelFacts, String>)>,
    config: Option<(String, Result<ConfigFacts, String>)>,
    /// The data whose unreadable rows, or guessed columns, were reported: accepted once more, they are left out, or taken.
    leaves_out: Option<String>,
    checks: Checks,
    /// Counts what was found at paths: the draft depends on it.
    sightings: u64,
    /// The last draft and what it was made from.
    made: RefCell<Option<made::Latest>>,
    /// The row for which a path is looked at.
    looked_for: Option<(Step, usize)>,
    /// Why the last Enter was rejected.
    error: Option<String>,
}

impl Wizard {
    /// Starts at the first question; remembered answers are preselected.
    pub fn new(context: Context, answers: Answers) -> Wizard {
        let answers = context.offered(answers);
        let mut wizard = Wizard {
            context,
            accepted: answers.clone(),
            earlier: answers.clone(),
            begun: false,
            answers,
            step: Step::Goal,
            cursor: [0; Step::ALL.len()],
            corpus: inspection::corpus("tinyshakespeare"),
            data: None,
            model: None,
            config: None,
            leaves_out: None,
            checks: Checks::default(),
            sightings: 0,
            made: RefCell::new(None),
            looked_for: None,
            error: None,
        };
        wizard.place_cursor();
        wizard
    }

    pub fn step(&self) -> Step {
        self.step
    }

    /// The questions of these answers, in their order.
    pub fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        let asked = |step: &Step| step.ask().applies(self);
        Step::ALL.into_iter().filter(asked)
    }

    /// The place of a question among those that are asked, counted from 1.
    pub fn number(&self, step: Step) -> usize {
        self.steps().take_while(|other| *other <= step).count()
    }

    /// Where runs are that may be named in a model's place.
    pub fn runs_dir(&self) -> Option<&Path> {
        self.context.runs_dir.as_deref()
    }

    /// Where downloaded models are.
    pub fn hub_cache(&self) -> Option<&Path> {
        self.context.hub_cache.as_deref()
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

    /// Whether the error asks for consent: the same answer, given again, is accepted.
    pub fn asks_for_consent(&self) -> bool {
        let path = self.answers.data_path.trim();
        self.error.is_some() && self.step == Step::Data && self.leaves_out.as_deref() == Some(path)
    }

    pub fn selected(&self) -> usize {
        self.cursor[self.step as usize]
    }

    /// Selects a row of the question.
    pub fn select(&mut self, row: usize) {
        let last = self.last_row();
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
                let full = draft.resolve_wildcard(path)?;
                Some(crate::spec::shown(&draft.value(&full)) == text.trim())
            })
            .unwrap_or(false);
        if !text.trim().is_empty() && !same {
            self.answers
                .settings
                .insert(path.to_string(), text.to_string());
        }
    }

    /// Typed settings that are no values of their keys, and why.
    pub fn wrong_settings(&self) -> Vec<(String, Issue)> {
        self.draft().map_or_else(Vec::new, |(_, wrong)| wrong)
    }

    /// Answers the question with the selected row. What is refused changes no answer; its text stays, to be corrected.
    pub fn enter(&mut self) -> Outcome {
        self.error = None;
        let before = self.answers.clone();
        let outcome = self.step.ask().enter(self);
        match outcome {
            Outcome::Moved => {
                self.begun |= self.step > Step::Data;
                self.accept();
            }
            _ => self.answers = before,
        }
        let looks = matches!(outcome, Outcome::Look(_));
        self.looked_for = looks.then(|| (self.step, self.selected()));
        outcome
    }

    /// The answers are accepted: of the paths those at which something was found, whichever rows were chosen.
    fn accept(&mut self) {
        let kept = std::mem::replace(&mut self.accepted, self.answers.clone());
        let found = |path: &str, known: bool| known || path.trim().is_empty();
        let data = self.data_facts().is_some_and(Result::is_ok);
        let config = self.config_facts().is_some_and(Result::is_ok);
        let start = self.answers.start_path.trim();
        let known = self.model.as_ref().filter(|(known, _)| known == start);
        let model = known.is_some_and(|(_, facts)| facts.is_ok());
        if !found(&self.answers.data_path, data) {
            self.accepted.data_path = kept.data_path;
        }
        if !found(&self.answers.config_path, config) {
            self.accepted.config_path = kept.config_path;
        }
        if !found(start, model) {
            self.accepted.start_path = kept.start_path;
        }
    }

    fn advance(&mut self) -> Outcome {
        let next = self.steps().find(|step| *step > self.step);
        if let Some(next) = next {
            self.step = next;
            // A choice for another goal or other data is no choice: the advice decides.
            if self.step == Step::Method && self.answers.method_for != self.method_subject() {
                (self.answers.method, self.answers.adapter) = (None, None);
            }
            if self.step == Step::Start {
                self.offer_again();
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

    /// Another checkpoint is offered, or none, where the data are others than it was offered for: the next question would refuse it.
    fn offer_again(&mut self) {
        let path = self.answers.start_path.trim();
        if !path.is_empty() && self.context.offer(path).is_none() {
            return;
        }
        let known = self.chosen_data().map(|facts| facts.sample.clone());
        let letters = known
            .as_ref()
            .map_or(self.context.sample.as_str(), |sample| sample.letters());
        self.answers.start_path = self.context.offer_for(letters);
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
            (step, _) => self.steps().take_while(|other| *other < step).last(),
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
    pub fn go_to(&mut self, step: Step) {
        while self.step > step && self.back() == Outcome::Moved {}
    }

    /// Receives what was found at a path, and continues if it is usable and still what is answered with.
    pub fn on_inspected(&mut self, seen: Inspection) -> Outcome {
        self.sightings += 1;
        let shown = |path: &PathBuf| path.display().to_string();
        let asked = self.looked_for.take() == Some((self.step, self.selected()));
        let typed = match &seen {
            Inspection::Data(path, _) => shown(path) == self.answers.data_path.trim(),
            Inspection::Model(path, _) => shown(path) == self.answers.start_path.trim(),
            Inspection::Config(..) => true,
            Inspection::Run(path, _) => shown(path) == self.answers.start_path.trim(),
        };
        match seen {
            Inspection::Data(path, facts) => self.data = Some((shown(&path), facts)),
            Inspection::Model(path, facts) => self.model = Some((shown(&path), facts)),
            Inspection::Config(path, facts) => {
                self.error = facts.as_ref().err().cloned();
                self.config = Some((shown(&path), facts));
                // The report is shown before anything is imported.
                return Outcome::Stay;
            }
            // The question is the same, with the checkpoint in the place of the run's name.
            Inspection::Run(_, found) if asked && typed => match found {
                Ok(checkpoint) => {
                    self.answers.start_path = shown(&checkpoint);
                    return self.enter();
                }
                Err(why) => return self.refuse(why),
            },
            Inspection::Run(..) => return Outcome::Stay,
        }
        if let Some((_, Ok(model))) = &self.model {
            let data = self
                .data
                .iter_mut()
                .filter_map(|(_, data)| data.as_mut().ok());
            for data in data.chain(&mut self.corpus) {
                data.apply_model(model);
                if let Some(labelled) = &mut data.labelled {
                    labelled.apply_model(model);
                }
            }
        }
        match self.step {
            Step::Data | Step::Start if asked && typed => self.enter(),
            _ => Outcome::Stay,
        }
    }

    /// The checks so far.
    pub fn checks(&self) -> &Checks {
        &self.checks
    }

    /// A check completed, and the one of this title has begun.
    pub fn checked(&mut self, finding: Finding, next: Option<&str>) {
        self.checks.lines.push(finding);
        self.checks.next = next.map(one_line);
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

    /// The answers for the next time, as JSON: the accepted ones, and the settings that are right. A start model that was
    /// offered and not typed is not among them: by then another checkpoint is the newest.
    pub fn to_remember(&self) -> String {
        let mut answers = self.accepted.clone();
        answers.save_as.clone_from(&self.answers.save_as);
        answers.settings.clone_from(&self.answers.settings);
        for (path, _) in self.wrong_settings() {
            answers.settings.remove(&path);
        }
        if self.context.offer(&answers.start_path).is_some() {
            answers.start_path.clear();
        }
        answers.with_earlier(&self.earlier).to_json()
    }

    /// The rows alone: the rest of a question may be a whole plan.
    fn last_row(&self) -> usize {
        self.step.ask().rows(self).len().saturating_sub(1)
    }

    /// Moves the cursor to the answer given before.
    fn place_cursor(&mut self) {
        let at = self.step.ask().chosen(self);
        let last = self.last_row();
        let cursor = &mut self.cursor[self.step as usize];
        *cursor = at.unwrap_or(*cursor).min(last);
    }
}

#[cfg(test)]
mod tests;
