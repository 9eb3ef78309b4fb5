//! What Enter does at each question: accept the answer and advance, or explain at the row why not.

use super::answers::{Begin, DataAnswer};
use super::checks::Checks;
use super::{Look, Outcome, Step, Wizard, ask};
use crate::advisor::choose::{self, DataKind, MethodId, Start, Verdict};
use crate::spec::Draft;

impl Wizard {
    pub(super) fn refuse(&mut self, why: impl Into<String>) -> Outcome {
        self.error = Some(why.into());
        Outcome::Stay
    }

    pub(super) fn advance(&mut self) -> Outcome {
        if let Some(next) = Step::ALL.get(self.step as usize + 1) {
            self.step = *next;
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

    pub(super) fn enter_goal(&mut self) -> Outcome {
        if let Some(goal) = choose::Goal::ALL.get(self.selected()) {
            self.answers.goal = Some(*goal);
            self.answers.begin = Begin::Questions;
            return self.advance();
        }
        let path = self.answers.config_path.trim().to_string();
        if path.is_empty() {
            return self.refuse("which file? Type the path of its YAML");
        }
        match &self.config {
            Some((known, Ok(_))) if *known == path => {
                self.answers.begin = Begin::Config;
                self.step = Step::Settings;
                self.place_cursor();
                Outcome::Moved
            }
            _ => Outcome::Look(Look::Config(path.into())),
        }
    }

    pub(super) fn enter_data(&mut self) -> Outcome {
        let answer = DataAnswer::ALL.get(self.selected()).copied();
        self.answers.data = answer;
        if answer != Some(DataAnswer::Path) {
            return self.advance();
        }
        let path = self.answers.data_path.trim().to_string();
        if path.is_empty() {
            return self
                .refuse("which file? Type the path of a text, of rows (JSONL, CSV, parquet …), or of a folder of .txt files");
        }
        match &self.data {
            Some((known, Ok(facts))) if *known == path && !facts.trainable => {
                let why = facts.note.clone();
                self.refuse(format!(
                    "{why}: choose other data, or describe them below for advice"
                ))
            }
            Some((known, Ok(_))) if *known == path => self.advance(),
            Some((known, Err(why))) if *known == path => {
                let why = why.clone();
                // If asked again, look again: the file may exist by now.
                self.data = None;
                self.refuse(why)
            }
            _ => Outcome::Look(Look::Data(path.into())),
        }
    }

    pub(super) fn enter_start(&mut self) -> Outcome {
        let starts = [Start::Scratch, Start::Base, Start::Instruct];
        let Some(start) = starts.get(self.selected()).copied() else {
            return Outcome::Stay;
        };
        self.answers.start = Some(start);
        let path = self.start_path(start).to_string();
        if start == Start::Scratch || path.is_empty() {
            return self.leave_start();
        }
        match &self.model {
            Some((known, Ok(_))) if *known == path => self.leave_start(),
            Some((known, Err(why))) if *known == path => {
                let why = format!("{why}; leave it empty for advice only");
                self.model = None;
                self.refuse(why)
            }
            _ => Outcome::Look(Look::Model(path.into())),
        }
    }

    /// What the next question could only refuse is refused here: real data that nothing learns from with this start.
    fn leave_start(&mut self) -> Outcome {
        let unfit = self
            .start_model()
            .map(|m| m.unfit.clone())
            .filter(|why| !why.is_empty());
        if let Some(why) = unfit {
            return self.refuse(format!("this build cannot train this model: {why}"));
        }
        let list = self.advice();
        // Pretraining is advised before preferences, on other data than these.
        let reads = |id| match self.chosen_data().map(|facts| facts.kind) {
            Some(DataKind::Text | DataKind::Demos) | None => true,
            Some(_) => id != MethodId::Pretrain,
        };
        let open = |a: &choose::Advice| {
            a.available
                && a.verdict != Verdict::Unfit
                && a.facts.trained_copies() > 0.0
                && reads(a.facts.id)
        };
        if let Some(facts) = self.chosen_data()
            && self.answers.data == Some(DataAnswer::Path)
            && !list.iter().any(open)
        {
            let kind = facts.kind.title();
            let why = match self.answers.start {
                Some(Start::Scratch) => "random weights cannot learn from them: name a model",
                _ => "no method of this build learns from them: go back to data",
            };
            return self.refuse(format!("the data is {kind}, and {why}"));
        }
        self.advance()
    }

    pub(super) fn enter_method(&mut self) -> Outcome {
        let list = self.advice();
        let Some(advice) = list.get(self.selected()) else {
            return Outcome::Stay;
        };
        if advice.facts.id == MethodId::NoTraining {
            return self
                .refuse("nothing to train: this needs a model and a good prompt, not a run");
        }
        let title = advice.title();
        if advice.verdict == Verdict::Unfit {
            let why = advice.why.last().map_or("", |(_, why)| why.as_str());
            return self.refuse(format!("{title} does not fit: {why}"));
        }
        if advice.available {
            self.answers.method = Some(advice.facts.id);
            self.answers.adapter = Some(advice.adapter);
            return self.advance();
        }
        let nearest = choose::nearest_available(&list);
        let words = match nearest {
            Some(near) if near.verdict != Verdict::Unfit => {
                format!(
                    "the closest one it trains is now selected: {}",
                    near.title()
                )
            }
            Some(near) => format!(
                "the closest one it trains is {}, which needs {}: go back to data and start",
                near.title(),
                near.facts.needs
            ),
            None => String::new(),
        };
        let usable = nearest.filter(|near| near.verdict != Verdict::Unfit);
        let same = |a: &choose::Advice, near: &choose::Advice| {
            (a.facts.id, a.adapter) == (near.facts.id, near.adapter)
        };
        let row = usable.and_then(|near| list.iter().position(|a| same(a, near)));
        if let Some(row) = row {
            self.cursor[Step::Method as usize] = row;
        }
        self.refuse(format!("this build does not train {title} yet; {words}"))
    }

    pub(super) fn enter_model(&mut self) -> Outcome {
        let name = self
            .fitting_presets()
            .get(self.selected())
            .map(|p| p.name.clone());
        match name {
            Some(name) => {
                self.answers.preset = Some(name);
                self.advance()
            }
            None => self.refuse("no preset trains this way yet"),
        }
    }

    pub(super) fn enter_settings(&mut self) -> Outcome {
        let Some((draft, wrong)) = self.draft() else {
            return self.refuse("choose a model first");
        };
        let faults: Vec<(String, String)> = wrong
            .into_iter()
            .chain(draft.issues().into_iter().map(|i| (i.path.clone(), i)))
            .map(|(path, issue)| (path, ask::issue_words(&issue)))
            .collect();
        let Some((path, words)) = faults.into_iter().next() else {
            return self.advance();
        };
        let knobs = self.knobs();
        let row = knobs
            .iter()
            .position(|k| k.path == path || draft.settle(k.path).as_deref() == Some(path.as_str()));
        if let Some(row) = row {
            self.cursor[Step::Settings as usize] = row;
        }
        self.refuse(format!("{path}: {words}"))
    }

    pub(super) fn enter_finish(&mut self) -> Outcome {
        let (Some(yaml), Some((draft, _))) = (self.yaml(), self.draft()) else {
            return self.refuse("choose a model first");
        };
        if let Some(why) = self.not_runnable() {
            return self.refuse(why);
        }
        match self.selected() {
            0 => {
                self.checks = Checks::default();
                self.advance();
                Outcome::Check {
                    name: run_name(&draft),
                    yaml,
                }
            }
            1 => {
                let path = self.save_path();
                Outcome::Save {
                    path: path.into(),
                    yaml,
                }
            }
            _ => Outcome::Edit,
        }
    }

    /// Starts if every check completed and none failed; after a failed one it leads to the settings, with the reason.
    pub(super) fn enter_check(&mut self) -> Outcome {
        if self.checks.good() {
            let (Some(yaml), Some((draft, _))) = (self.yaml(), self.draft()) else {
                return self.refuse("choose a model first");
            };
            return Outcome::Start {
                name: run_name(&draft),
                yaml,
            };
        }
        match self.checks.obstacle() {
            Some(why) => {
                self.go(Step::Settings);
                self.error = Some(why);
                Outcome::Moved
            }
            None => self.refuse("the checks are still running; they take a few seconds"),
        }
    }

    /// Why the answers cannot be trained on, though they get advice.
    pub(super) fn not_runnable(&self) -> Option<String> {
        if self.answers.begin == Begin::Config {
            return None;
        }
        if let Some(facts) = self.chosen_data().filter(|facts| !facts.trainable) {
            return Some(format!(
                "{}: go back to data and choose another",
                facts.note
            ));
        }
        if self.answers.data.is_some_and(|d| d.described().is_some()) {
            return Some("the data was only described: go back to data and choose a file".into());
        }
        let from = self.answers.start.is_some_and(|s| s != Start::Scratch);
        if from && self.start_model().is_none() {
            return Some(
                "no base model was given: go back to start and enter a folder or a .gguf file"
                    .into(),
            );
        }
        let unfit = self
            .start_model()
            .map(|m| &m.unfit)
            .filter(|why| from && !why.is_empty());
        if let Some(why) = unfit {
            return Some(format!("this build cannot train the base model: {why}"));
        }
        None
    }
}

fn run_name(draft: &Draft) -> String {
    draft.value("name").as_str().unwrap_or("run").to_string()
}
