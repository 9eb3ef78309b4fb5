//! Each question as rows to show: titles, details, inputs, and the explanation of the selected row.

use super::answers::{Begin, DataAnswer};
use super::checks::State;
use super::plan;
use super::{Step, Wizard};
use crate::advisor::choose::{Advice, Goal, Start, Verdict};
use crate::advisor::look::ModelFacts;
use crate::base::finding::Status;
use crate::base::human;
use crate::base::text::one_line;
use crate::spec::import::Fate;
use crate::spec::{Issue, shown};

/// A text input of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    pub text: String,
    /// Placeholder while the text is empty.
    pub placeholder: String,
    /// The text was entered by the user; otherwise it is the default.
    pub own: bool,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub title: String,
    pub detail: String,
    pub input: Option<Input>,
    /// Available here; the others are shown with their reason.
    pub open: bool,
    /// What is wrong with the input.
    pub fault: Option<String>,
}

impl Row {
    fn choice(title: impl Into<String>, detail: impl Into<String>) -> Row {
        Row {
            title: title.into(),
            detail: detail.into(),
            input: None,
            open: true,
            fault: None,
        }
    }

    fn input(title: impl Into<String>, text: &str, placeholder: &str) -> Row {
        Row {
            input: Some(Input {
                text: text.into(),
                placeholder: placeholder.into(),
                own: !text.is_empty(),
            }),
            ..Row::choice(title, "")
        }
    }
}

/// A paragraph about the selected row: a label (`Why`, `Range`, `Risks`) and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub label: &'static str,
    pub text: String,
}

fn note(label: &'static str, text: impl Into<String>) -> Note {
    Note {
        label,
        text: text.into(),
    }
}

/// The current question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub step: Step,
    pub title: &'static str,
    pub rows: Vec<Row>,
    pub notes: Vec<Note>,
    /// Plain lines under the notes: a preview, a file.
    pub text: Vec<String>,
}

/// A short name for the column of labels.
fn fate_label(fate: Fate) -> &'static str {
    match fate {
        Fate::Mapped => "same",
        Fate::Differs => "differs",
        Fate::NoEqual => "no equal",
        Fate::Needless => "not needed",
        Fate::Unknown => "unknown",
    }
}

pub(super) fn issue_words(issue: &Issue) -> String {
    match issue.hint.as_str() {
        "" => issue.what.clone(),
        hint => format!("{}; {hint}", issue.what),
    }
}

/// `llama · 135M parameters`
fn found(facts: &ModelFacts) -> String {
    let size = facts.n_params.map_or("unknown size".into(), |n| {
        format!("{} parameters", human::short(n as f64))
    });
    format!("{} · {size}", facts.family)
}

impl Wizard {
    /// Builds the current question.
    pub fn question(&self) -> Question {
        let (title, rows) = match self.step {
            Step::Goal => ("What should the model do?", self.goal_rows()),
            Step::Data => ("What should it learn from?", self.data_rows()),
            Step::Start => ("What should it start from?", self.start_rows()),
            Step::Method => ("How should it learn?", self.method_rows()),
            Step::Model => ("Which size and recipe?", self.model_rows()),
            Step::Settings => ("Settings that matter here", self.setting_rows()),
            Step::Plan => ("What it will cost", Vec::new()),
            Step::Finish => ("Ready", self.finish_rows()),
            Step::Check => ("Checks before the first step", self.check_rows()),
        };
        let (notes, text) = self.about(&rows);
        Question {
            step: self.step,
            title,
            rows,
            notes,
            text,
        }
    }

    /// The answers so far, one per step, for the column beside the question; `None` if not answered.
    pub fn summary(&self) -> Vec<(Step, Option<String>)> {
        let a = &self.answers;
        let taken_over = a.begin == Begin::Config;
        let answer = |step: Step| match step {
            Step::Goal if taken_over => Some("import a config".into()),
            Step::Data | Step::Start | Step::Method | Step::Model if taken_over => {
                Some("from the config".into())
            }
            Step::Goal => a.goal.map(|g| g.title().to_string()),
            Step::Data => a.data.map(|d| self.data_word(d)),
            Step::Start => a.start.map(|s| self.start_word(s)),
            Step::Method => self.chosen_advice().map(|advice| advice.title()),
            Step::Model => a.preset.clone(),
            Step::Settings => Some(match a.settings.len() {
                0 => "as recommended".into(),
                1 => "1 of your own".into(),
                n => format!("{n} of your own"),
            }),
            Step::Plan | Step::Finish | Step::Check => None,
        };
        let shown = |step: Step| match step < self.step {
            true => answer(step),
            false => None,
        };
        Step::ALL
            .into_iter()
            .map(|step| (step, shown(step)))
            .collect()
    }

    fn data_word(&self, data: DataAnswer) -> String {
        match data {
            DataAnswer::Corpus => "Tiny Shakespeare".into(),
            DataAnswer::Path => {
                let path = std::path::Path::new(self.answers.data_path.trim());
                let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
                let size = self.chosen_data().map(|f| match f.rows {
                    Some(rows) => format!(" · {} rows", human::grouped(rows)),
                    None => format!(" · {}", human::bytes(f.bytes)),
                });
                name.unwrap_or_default() + &size.unwrap_or_default()
            }
            DataAnswer::Demos => "answers, not available yet".into(),
            DataAnswer::Pairs => "pairs, not available yet".into(),
            DataAnswer::Thumbs => "ratings, not available yet".into(),
            DataAnswer::Checked => "prompts and a checker".into(),
            DataAnswer::Judged => "prompts and a judge".into(),
        }
    }

    fn start_word(&self, start: Start) -> String {
        let size = self.start_model().and_then(|m| m.n_params);
        let size = size.map_or(String::new(), |n| format!(", {}", human::short(n as f64)));
        match start {
            Start::Scratch => "from nothing".into(),
            Start::Base => format!("a base model{size}"),
            Start::Instruct => format!("an instruct model{size}"),
        }
    }

    fn goal_rows(&self) -> Vec<Row> {
        let goals = Goal::ALL.iter().map(|g| Row::choice(g.title(), g.about()));
        let config = Row::input(
            "import an existing config",
            &self.answers.config_path,
            "its path: LLaMA-Factory, Axolotl or TRL",
        );
        goals.chain([config]).collect()
    }

    fn data_rows(&self) -> Vec<Row> {
        let corpus = self
            .corpus
            .as_ref()
            .map(|f| f.summary())
            .unwrap_or_default();
        let later = "I have none yet: advice only";
        DataAnswer::ALL
            .iter()
            .map(|answer| match answer {
                DataAnswer::Corpus => Row::choice("Tiny Shakespeare, built in", corpus.clone()),
                DataAnswer::Path => Row::input(
                    "my own file or folder",
                    &self.answers.data_path,
                    "type its path",
                ),
                DataAnswer::Demos => Row::choice("prompts with good answers", later),
                DataAnswer::Pairs => Row::choice("chosen and rejected answers", later),
                DataAnswer::Thumbs => Row::choice("answers rated up or down", later),
                DataAnswer::Checked => {
                    Row::choice("prompts, and a program that verifies answers", later)
                }
                DataAnswer::Judged => Row::choice("prompts, and a reward model", later),
            })
            .collect()
    }

    fn start_rows(&self) -> Vec<Row> {
        let hint = "path of a model folder or .gguf file; empty: advice only";
        let row = |title, start| {
            let path = self.start_path(start);
            let known = self.model.as_ref().filter(|(known, _)| known == path);
            let facts = known.and_then(|(_, facts)| facts.as_ref().ok());
            let mut row = Row::input(title, path, hint);
            row.detail = facts.map_or(String::new(), found);
            row
        };
        vec![
            Row::choice(
                "nothing: random weights",
                "everything from zero; small models only",
            ),
            row("a base model", Start::Base),
            row("an instruct model", Start::Instruct),
        ]
    }

    fn method_rows(&self) -> Vec<Row> {
        let row = |advice: Advice| {
            let why = advice.why.first().map_or("", |(_, why)| why.as_str());
            let suits = advice.verdict != Verdict::Unfit;
            let detail = match (suits, advice.fit.need(), advice.available) {
                (false, ..) => why.to_string(),
                (true, _, false) if advice.facts.trained_copies() > 0.0 => {
                    format!("not in this build yet · {why}")
                }
                (true, Some(need), _) => format!("states {} · {why}", human::bytes(need)),
                (true, ..) => why.to_string(),
            };
            Row {
                open: suits && advice.available,
                ..Row::choice(advice.title(), detail)
            }
        };
        self.advice().into_iter().map(row).collect()
    }

    fn model_rows(&self) -> Vec<Row> {
        let data = self.chosen_data();
        self.fitting_presets()
            .into_iter()
            .map(|preset| {
                let draft = self.recipe(preset);
                let size = match self.start_model() {
                    Some(_) => "the start model, by this recipe".into(),
                    None => plan::n_params(&draft, data).map_or(String::new(), |n| {
                        format!("{} parameters", human::short(n as f64))
                    }),
                };
                let steps = draft.value("train.max_steps").as_u64().unwrap_or(0);
                let row = format!("{size} · {} steps", human::grouped(steps));
                Row::choice(&preset.name, row)
            })
            .collect()
    }

    fn setting_rows(&self) -> Vec<Row> {
        let Some((draft, wrong)) = self.draft() else {
            return Vec::new();
        };
        let issues = draft.issues();
        self.knobs()
            .into_iter()
            .map(|knob| {
                let full = draft.settle(knob.path).unwrap_or_default();
                let typed = self.answers.settings.get(knob.path);
                let text = typed.cloned().unwrap_or_else(|| shown(&draft.value(&full)));
                let own_fault = wrong
                    .iter()
                    .find(|(path, _)| path == knob.path)
                    .map(|(_, i)| i);
                let fault = own_fault.or_else(|| issues.iter().find(|i| i.path == full));
                let changed = draft.value(&full) != draft.parent_value(&full);
                let word = knob.word();
                let mut row = Row::input(word, &text, "the preset's");
                if let Some(input) = &mut row.input {
                    input.own = typed.is_some();
                }
                row.detail = match (typed.is_some(), changed) {
                    (true, _) => "yours".into(),
                    (false, true) if self.answers.begin == Begin::Config => {
                        "from the config".into()
                    }
                    (false, true) => "from your data".into(),
                    _ => String::new(),
                };
                row.fault = fault.map(issue_words);
                row
            })
            .collect()
    }

    fn finish_rows(&self) -> Vec<Row> {
        let blocked = self.not_runnable();
        let start = match &blocked {
            None => "preflight checks it first, and shows what it finds".to_string(),
            Some(why) => why.clone(),
        };
        let mut rows = vec![
            Row::choice("start training now", start),
            Row::input("save it as", &self.answers.save_as, &self.save_path()),
            Row::choice("edit every value", "the editor: search, undo, the YAML"),
        ];
        for row in &mut rows {
            row.open = blocked.is_none();
        }
        rows
    }

    fn check_rows(&self) -> Vec<Row> {
        let checks = self.checks();
        let title = match checks.obstacle() {
            Some(_) => "back to the settings",
            None => "start training now",
        };
        vec![Row {
            open: checks.state != State::Running,
            ..Row::choice(title, checks.words())
        }]
    }

    /// One line per check: its mark and its evidence.
    fn check_notes(&self) -> Vec<Note> {
        let lines = &self.checks().lines;
        if lines.is_empty() {
            let words = "A copy of the model is being tested; the first results come in a moment.";
            return vec![note("At work", words)];
        }
        lines
            .iter()
            .map(|line| {
                let advice = match line.advice() {
                    advice if advice.is_empty() => advice,
                    advice => format!("; {advice}"),
                };
                let text = format!("{}: {}{advice}", line.title, line.evidence);
                let label = match line.status {
                    Status::Fail => "failed",
                    Status::Warn => "warning",
                    Status::Unknown => "skipped",
                    Status::Pass | Status::NotApplicable => "passed",
                };
                note(label, text)
            })
            .collect()
    }

    /// The explanation of the selected row, and lines under it.
    fn about(&self, rows: &[Row]) -> (Vec<Note>, Vec<String>) {
        let selected = self.selected();
        match self.step {
            Step::Goal => self.goal_notes(),
            Step::Check => (self.check_notes(), Vec::new()),
            Step::Data => self.data_notes(),
            Step::Start => (self.start_notes(), Vec::new()),
            Step::Method => (self.method_notes(selected), Vec::new()),
            Step::Model => (self.model_notes(), Vec::new()),
            Step::Settings => (self.setting_notes(rows), Vec::new()),
            Step::Plan => self.plan_notes(),
            Step::Finish => {
                let yaml = self.yaml().unwrap_or_default();
                (Vec::new(), yaml.lines().map(String::from).collect())
            }
        }
    }

    fn goal_notes(&self) -> (Vec<Note>, Vec<String>) {
        let Some(goal) = Goal::ALL.get(self.selected()) else {
            return self.config_notes();
        };
        let words = match goal {
            Goal::NewModel => {
                "Pretraining on plain text. On a CPU: a one-million-parameter model in a minute or two that imitates its text."
            }
            Goal::Instructions => {
                "Supervised fine-tuning (SFT) on good answers, starting from a pretrained model."
            }
            Goal::Knowledge => {
                "Continued pretraining for large amounts of text; for little or changing text, retrieval is more reliable."
            }
            Goal::Style => {
                "Preferences: DPO on pairs, KTO on thumbs. From a model that already answers."
            }
            Goal::Reasoning => {
                "Reinforcement learning with verifiable answers (GRPO, RLOO), after an SFT cold start."
            }
            Goal::Classify => {
                "Fine-tuning on labelled examples; a few hundred good ones are enough."
            }
            Goal::Compress => "Fine-tuning a small model on a large one's answers.",
        };
        (vec![note("This means", words)], Vec::new())
    }

    /// What became of the keys of another tool's config, once it was read.
    fn config_notes(&self) -> (Vec<Note>, Vec<String>) {
        let Some(Ok(facts)) = self.config_facts() else {
            let words = "Converts a LLaMA-Factory, Axolotl or TRL config to a spec as far as possible. You first see what became of each key; nothing is dropped silently.";
            return (vec![note("This means", words)], Vec::new());
        };
        let found = format!("{}: {}", facts.tool, facts.summary());
        let mut notes = vec![note("Found", found), note("Next", "enter imports it")];
        for fate in Fate::ALL {
            for line in facts.lines.iter().filter(|l| l.fate == fate) {
                let words: Vec<String> = [&line.theirs, &line.ours, &line.words]
                    .into_iter()
                    .filter(|w| !w.is_empty())
                    .map(|w| one_line(w))
                    .collect();
                notes.push(note(fate_label(fate), words.join(" · ")));
            }
        }
        (notes, Vec::new())
    }

    fn data_notes(&self) -> (Vec<Note>, Vec<String>) {
        let answer = DataAnswer::ALL.get(self.selected()).copied();
        let facts = match answer {
            Some(DataAnswer::Corpus) => self.corpus.as_ref(),
            Some(DataAnswer::Path) => self.data_facts().and_then(|f| f.as_ref().ok()),
            _ => None,
        };
        let Some(facts) = facts else {
            let words = match answer {
                Some(DataAnswer::Path) => {
                    "A UTF-8 text, a folder of .txt files, or rows (.jsonl, .json, .csv, .tsv, .parquet, compressed or not): texts, answers, preferences, labelled answers and prompts with references are trained on."
                }
                _ => {
                    "A description cannot be trained on: you get advice on which method would suit and what it needs."
                }
            };
            return (vec![note("Read", words)], Vec::new());
        };
        let mut notes = vec![note("Found", facts.summary())];
        if !facts.note.is_empty() {
            notes.push(note("Careful", facts.note.clone()));
        }
        notes.push(note("It begins", ""));
        (notes, facts.preview.clone())
    }

    fn start_notes(&self) -> Vec<Note> {
        let mut notes = vec![note(
            "Runs here",
            "From scratch, from a checkpoint, from a Hugging Face model folder of ten families, or from a .gguf file (docs/models.md); `llmtui model pull ID` downloads one from the hub.",
        )];
        if self.selected() > 0
            && let Some((known, Ok(facts))) = &self.model
            && known == self.answers.start_path.trim()
        {
            notes.insert(0, note("Found", found(facts)));
        } else if self.selected() > 0
            && let Some(newest) = &self.context.newest_checkpoint
        {
            notes.push(note("Newest", newest.clone()));
        }
        notes
    }

    fn method_notes(&self, selected: usize) -> Vec<Note> {
        let list = self.advice();
        let Some(advice) = list.get(selected) else {
            return Vec::new();
        };
        let facts = advice.facts;
        let why: Vec<&str> = advice.why.iter().map(|(_, why)| why.as_str()).collect();
        let mut notes = vec![note("Why", why.join("; "))];
        notes.push(note(
            "Needs",
            format!("{} ({})", facts.needs, facts.typical),
        ));
        notes.push(note("Cost", facts.cost));
        if !facts.cheaper.is_empty() {
            notes.push(note("Cheaper", facts.cheaper));
        }
        notes.push(note("Risks", facts.risks.join("; ")));
        notes.push(note("Watch", facts.watch));
        if !facts.lr.is_empty() {
            notes.push(note("Usual lr", facts.lr));
        }
        notes.push(note("Source", facts.source));
        notes
    }

    fn model_notes(&self) -> Vec<Note> {
        let presets = self.fitting_presets();
        let Some(preset) = presets.get(self.selected()) else {
            return Vec::new();
        };
        let mut notes = vec![note("About", preset.about.clone())];
        let data = self.chosen_data();
        let draft = self.recipe(preset);
        if let Ok(spec) = draft.spec() {
            let lines = plan::lines(&spec, data, &self.context.machine);
            let wanted = ["Model", "Steps", "Data", "Memory", "Time"];
            let chosen = lines
                .into_iter()
                .filter(|(label, _)| wanted.contains(label));
            notes.extend(chosen.map(|(label, text)| note(label, text)));
        }
        let n = plan::n_params(&draft, data).unwrap_or(1).max(1);
        if let Some(chars) = data.and_then(|d| d.chars)
            && self.start_model().is_none()
        {
            let each = chars as f64 / n as f64;
            notes.push(note(
                "Your data",
                format!("{each:.2} characters per parameter; 20 tokens per parameter are compute-optimal (Hoffmann et al. 2022), and below 1 the model soon memorizes the text"),
            ));
        }
        notes
    }

    fn setting_notes(&self, rows: &[Row]) -> Vec<Note> {
        let knobs = self.knobs();
        let (Some(knob), Some((draft, _))) = (knobs.get(self.selected()), self.draft()) else {
            return Vec::new();
        };
        let full = draft.settle(knob.path).unwrap_or_default();
        let node = crate::spec::schema::root().at(&full);
        let mut notes = Vec::new();
        if let Some(fault) = rows.get(self.selected()).and_then(|r| r.fault.clone()) {
            notes.push(note("Wrong", fault));
        }
        if let Some(node) = node {
            notes.push(note("Means", node.doc.clone()));
            notes.push(note("Takes", node.expected()));
        }
        notes.push(note("Typical", knob.typical));
        notes.push(note("Effect", knob.why));
        let parent = shown(&draft.parent_value(&full));
        notes.push(note(
            "Default",
            match draft.target() {
                "" => format!("{parent} (the program's)"),
                preset => format!("{parent} (preset {preset})"),
            },
        ));
        let changes = draft.changes();
        if let Some(change) = changes.iter().find(|c| c.path == full && !c.why.is_empty()) {
            notes.push(note("Here", change.why.clone()));
        }
        notes
    }

    fn plan_notes(&self) -> (Vec<Note>, Vec<String>) {
        let Some((draft, _)) = self.draft() else {
            return (Vec::new(), Vec::new());
        };
        let Ok(spec) = draft.spec() else {
            return (Vec::new(), Vec::new());
        };
        let (data, machine) = (self.chosen_data(), &self.context.machine);
        let mut notes: Vec<Note> = plan::lines(&spec, data, machine)
            .into_iter()
            .map(|(label, text)| note(label, text))
            .collect();
        let advice = plan::advice(&spec, data, machine);
        let none = advice.is_empty().then(|| "nothing stands out".to_string());
        notes.extend(
            advice
                .into_iter()
                .chain(none)
                .map(|text| note("Advice", text)),
        );
        (notes, Vec::new())
    }
}
