//! The questions from a goal to a spec, as a state machine without a UI: the workbench and `llmtui new` show the same
//! [`Question`]s and pass on the answers. Going back loses nothing; errors are shown at their row.

mod answers;
mod ask;
mod checks;
mod draft;
mod enter;
mod knobs;
mod plan;

pub use answers::{Answers, Begin, DataAnswer};
pub use ask::{Input, Note, Question, Row};
pub use checks::{Checks, State};
pub use knobs::{COMMON, Knob};
pub use plan::n_params;

use super::choose::{self, Advice, DataKind, Inputs, Reward, Start, Verdict};
use super::look::{self, ConfigFacts, DataFacts, Machine, ModelFacts};
use crate::base::finding::Finding;
use crate::spec::{Draft, PresetGroup, SpecSources};
use serde_json::Value;
use std::path::PathBuf;

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
        match self {
            Step::Goal => "goal",
            Step::Data => "data",
            Step::Start => "start",
            Step::Method => "method",
            Step::Model => "model",
            Step::Settings => "settings",
            Step::Plan => "plan",
            Step::Finish => "go",
            Step::Check => "check",
        }
    }

    /// Counted from 1.
    pub fn number(self) -> usize {
        self as usize + 1
    }
}

/// A preset that a spec may extend.
#[derive(Debug, Clone)]
pub struct PresetInfo {
    pub name: String,
    pub about: String,
    pub group: PresetGroup,
    pub draft: Draft,
}

/// What the wizard knows before the first question.
#[derive(Debug, Clone)]
pub struct Context {
    pub presets: Vec<PresetInfo>,
    pub machine: Machine,
    /// The newest checkpoint, offered as the base model.
    pub newest_checkpoint: Option<String>,
    /// It has a chat template: it may be an instruct model.
    pub newest_chats: bool,
}

impl Context {
    /// Reads the presets. Presets that fail to load are left out: the list of presets reports
    /// them.
    pub fn gather(
        sources: &SpecSources,
        newest_checkpoint: Option<String>,
        machine: Machine,
    ) -> Context {
        let presets = crate::spec::presets(sources)
            .into_iter()
            .filter_map(|preset| {
                let draft = Draft::open(&preset.name, sources).ok()?;
                Some(PresetInfo {
                    name: preset.name,
                    about: crate::base::text::one_line(&preset.about),
                    group: preset.group,
                    draft,
                })
            })
            .collect();
        let chats =
            |folder: &String| crate::models::has_chat_template(std::path::Path::new(folder));
        Context {
            presets,
            machine,
            newest_chats: newest_checkpoint.as_ref().is_some_and(chats),
            newest_checkpoint,
        }
    }
}

/// A path the caller should inspect before the wizard continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    Data(PathBuf),
    Model(PathBuf),
    /// Another tool's config.
    Config(PathBuf),
}

/// What was found there.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    Data(PathBuf, Result<DataFacts, String>),
    Model(PathBuf, Result<ModelFacts, String>),
    Config(PathBuf, Result<ConfigFacts, String>),
}

impl Look {
    /// Inspects it. Reads files.
    pub fn now(self) -> Seen {
        match self {
            Look::Data(path) => {
                let facts = look::data(&path);
                Seen::Data(path, facts)
            }
            Look::Model(path) => {
                let facts = look::model(&path);
                Seen::Model(path, facts)
            }
            Look::Config(path) => {
                let facts = look::config(&path);
                Seen::Config(path, facts)
            }
        }
    }
}

/// The result of Enter.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The question stays; its error says why.
    Stay,
    Moved,
    /// Its result goes to [`Wizard::seen`].
    Look(Look),
    /// Run the checks of this spec, and report them with [`Wizard::checked`] and [`Wizard::checks_over`].
    Check {
        name: String,
        yaml: String,
    },
    /// Train this now.
    Start {
        name: String,
        yaml: String,
    },
    Save {
        path: PathBuf,
        yaml: String,
    },
    /// Open all values in the editor.
    Edit,
    /// Back from the first question.
    Close,
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
        match self.step {
            Step::Goal => self.answers.config_path = text.to_string(),
            Step::Data => self.answers.data_path = text.to_string(),
            Step::Start => self.answers.start_path = text.to_string(),
            Step::Finish => self.answers.save_as = text.to_string(),
            Step::Settings => {
                let knob = self
                    .knobs()
                    .get(self.selected())
                    .map(|k| k.path.to_string());
                if let Some(path) = knob {
                    self.set(&path, text);
                }
            }
            _ => {}
        }
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
        match self.step {
            Step::Goal => self.enter_goal(),
            Step::Data => self.enter_data(),
            Step::Start => self.enter_start(),
            Step::Method => self.enter_method(),
            Step::Model => self.enter_model(),
            Step::Settings => self.enter_settings(),
            Step::Plan => self.advance(),
            Step::Finish => self.enter_finish(),
            Step::Check => self.enter_check(),
        }
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

    /// Where the spec is saved by default.
    pub fn save_path(&self) -> String {
        match self.answers.save_as.trim() {
            "" => {
                let name = self.draft().map(|(d, _)| d.value("name"));
                let name = name
                    .as_ref()
                    .and_then(|n| n.as_str())
                    .unwrap_or("run")
                    .to_string();
                format!("{name}.yaml")
            }
            path => path.to_string(),
        }
    }

    /// What was found at the current data path.
    fn data_facts(&self) -> Option<&Result<DataFacts, String>> {
        let path = self.answers.data_path.trim();
        self.data
            .as_ref()
            .filter(|(known, _)| known == path)
            .map(|(_, facts)| facts)
    }

    /// What was found in the current config of another tool.
    fn config_facts(&self) -> Option<&Result<ConfigFacts, String>> {
        let path = self.answers.config_path.trim();
        let (known, facts) = self.config.as_ref()?;
        (known == path).then_some(facts)
    }

    /// The facts of the chosen data, if any.
    fn chosen_data(&self) -> Option<&DataFacts> {
        if self.answers.begin == Begin::Config {
            return None;
        }
        match self.answers.data? {
            DataAnswer::Corpus => self.corpus.as_ref(),
            DataAnswer::Path => self.data_facts()?.as_ref().ok(),
            _ => None,
        }
    }

    /// The base model, if one was given and found.
    fn start_model(&self) -> Option<&ModelFacts> {
        if self.answers.begin == Begin::Config {
            return None;
        }
        if matches!(self.answers.start, None | Some(Start::Scratch)) {
            return None;
        }
        let path = self.start_path(self.answers.start?);
        let (known, facts) = self.model.as_ref()?;
        facts.as_ref().ok().filter(|_| known == path)
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

    /// The path for a kind of start. The newest checkpoint, which nobody typed, is no instruct model unless it chats.
    fn start_path(&self, start: Start) -> &str {
        let path = self.answers.start_path.trim();
        let offered = self.context.newest_checkpoint.as_deref() == Some(path);
        match start == Start::Instruct && offered && !self.context.newest_chats {
            true => "",
            false => path,
        }
    }

    fn inputs(&self) -> Inputs {
        let described = self.answers.data.and_then(DataAnswer::described);
        let facts = self.chosen_data();
        let (data, reward) = described.unwrap_or_else(|| {
            let kind = facts.map_or(DataKind::Text, |f| f.kind);
            let checkable = facts.is_some_and(|f| f.checkable)
                && self.answers.goal == Some(choose::Goal::Reasoning);
            (
                kind,
                if checkable {
                    Reward::Checker
                } else {
                    Reward::None
                },
            )
        });
        let model = self.start_model().and_then(|m| m.n_params);
        // A model of which only the description is given is about as large as what this machine trains.
        let preset = || self.preset().and_then(|p| plan::n_params(&p.draft, facts));
        Inputs {
            goal: self.answers.goal.unwrap_or(choose::Goal::NewModel),
            data,
            rows: facts.and_then(|f| f.rows),
            tokens: facts.and_then(|f| f.chars),
            start: self.answers.start.unwrap_or(Start::Scratch),
            reward,
            n_params: model.or_else(preset).unwrap_or(1_000_000),
            memory: self.context.machine.memory,
            gpu_memory: self.context.machine.gpu_memory(),
        }
    }

    /// Every method, best first.
    pub fn advice(&self) -> Vec<Advice> {
        choose::advise(&self.inputs())
    }

    /// The advice on the chosen method.
    pub fn chosen_advice(&self) -> Option<Advice> {
        let id = self.answers.method?;
        let mut list = self.advice();
        list.retain(|a| a.facts.id == id);
        let form = |a: &Advice| Some(a.adapter) == self.answers.adapter;
        let at = list.iter().position(form).unwrap_or(0);
        list.into_iter().nth(at)
    }

    /// What settings are typed for.
    fn subject(&self) -> String {
        let a = &self.answers;
        let data = match a.data {
            Some(DataAnswer::Path) => a.data_path.trim(),
            _ => "",
        };
        let start = a.start.map_or("", |start| match start {
            Start::Scratch => "",
            start => self.start_path(start),
        });
        let preset = a.preset.as_deref().unwrap_or_default();
        format!("{data}|{start}|{:?}|{:?}|{preset}", a.method, a.adapter)
    }

    /// Recipes. With a model to start from and rows of the user's, the templates of the chosen method: those with its form
    /// of adapter, where there are any. Otherwise presets that train by the method, or all if there are none; those with
    /// data of their own are not recipes for other data.
    fn fitting_presets(&self) -> Vec<&PresetInfo> {
        let method = self.answers.method;
        let facts = method.and_then(|id| choose::FACTS.iter().find(|f| f.id == id));
        let word = facts.map_or("pretrain", |f| f.spec_word);
        if self.start_model().is_some() && self.answers.data == Some(DataAnswer::Path) {
            let templates = self.context.presets.iter().filter(|preset| {
                preset.group == PresetGroup::Template && preset.draft.value("method") == word
            });
            let mut templates: Vec<&PresetInfo> = templates.collect();
            let alike = |p: &PresetInfo| p.draft.value("adapter").is_null() != self.adapts();
            if templates.iter().any(|p| alike(p)) {
                templates.retain(|p| alike(p));
            }
            if !templates.is_empty() {
                return templates;
            }
        }
        let nothing = |value: Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        let open = |p: &&PresetInfo| {
            let own = ["data.path", "data.sources", "data.synthetic"];
            own.iter().all(|key| nothing(p.draft.value(key)))
        };
        let mut presets: Vec<&PresetInfo> = self.context.presets.iter().filter(open).collect();
        if presets.iter().any(|p| p.draft.value("method") == word) {
            presets.retain(|p| p.draft.value("method") == word);
        }
        presets
    }

    /// Whether matrices beside frozen weights are to be trained.
    fn adapts(&self) -> bool {
        let form = self.chosen_advice().map(|advice| advice.adapter);
        matches!(form, Some(choose::Adapter::Lora | choose::Adapter::QLora))
    }

    /// The chosen preset, or the first one that fits.
    fn preset(&self) -> Option<&PresetInfo> {
        let presets = self.fitting_presets();
        let chosen = self.answers.preset.as_deref();
        presets
            .iter()
            .find(|p| Some(p.name.as_str()) == chosen)
            .or(presets.first())
            .copied()
    }

    /// The settings to ask: the architecture only if it is not given.
    fn knobs(&self) -> Vec<&'static Knob> {
        let given = self.start_model().is_some();
        let draft = self.draft().map(|(draft, _)| draft);
        COMMON
            .iter()
            .filter(|k| !(k.shape && given))
            .filter(|k| draft.as_ref().is_some_and(|d| d.settle(k.path).is_some()))
            .collect()
    }

    /// Moves the cursor to the answer given before.
    fn place_cursor(&mut self) {
        let at = match self.step {
            Step::Goal => {
                let goal = self.answers.goal;
                match self.answers.begin {
                    Begin::Config => Some(choose::Goal::ALL.len()),
                    Begin::Questions => choose::Goal::ALL.iter().position(|g| Some(*g) == goal),
                }
            }
            Step::Data => {
                let data = self.answers.data;
                DataAnswer::ALL.iter().position(|d| Some(*d) == data)
            }
            Step::Start => self.answers.start.map(|start| start as usize),
            Step::Method => self.method_cursor(),
            Step::Model => {
                let name = self.answers.preset.as_deref();
                self.fitting_presets()
                    .iter()
                    .position(|p| Some(p.name.as_str()) == name)
            }
            Step::Settings | Step::Plan | Step::Finish | Step::Check => None,
        };
        if let Some(at) = at {
            self.cursor[self.step as usize] = at;
        }
        let last = self.question().rows.len().saturating_sub(1);
        let here = &mut self.cursor[self.step as usize];
        *here = (*here).min(last);
    }

    /// The chosen method while it still suits; else the best trainable one, else the best one.
    fn method_cursor(&self) -> Option<usize> {
        let list = self.advice();
        let suits = |a: &Advice| a.available && a.verdict != Verdict::Unfit;
        let answers = &self.answers;
        let same = |a: &Advice| answers.adapter.is_none_or(|form| form == a.adapter);
        let chosen = |a: &Advice| Some(a.facts.id) == answers.method && same(a) && suits(a);
        list.iter()
            .position(chosen)
            .or_else(|| list.first().filter(|a| !a.available).map(|_| 0))
            .or_else(|| list.iter().position(suits))
    }
}

#[cfg(test)]
mod tests;
