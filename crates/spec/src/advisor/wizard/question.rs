//! A question as rows to show, and what each of the [`steps`] defines about its own.

use super::answers::Begin;
use super::{Outcome, Step, Wizard, steps};

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
    /// The part of a long list that it is in: a heading stands where it differs from that of the row before.
    pub group: Option<&'static str>,
}

impl Row {
    pub(super) fn choice(title: impl Into<String>, detail: impl Into<String>) -> Row {
        Row {
            title: title.into(),
            detail: detail.into(),
            input: None,
            open: true,
            fault: None,
            group: None,
        }
    }

    pub(super) fn input(title: impl Into<String>, text: &str, placeholder: &str) -> Row {
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

pub(super) fn note(label: &'static str, text: impl Into<String>) -> Note {
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

/// Paragraphs about the selected row, and plain lines under them.
pub(super) type Explanation = (Vec<Note>, Vec<String>);

/// What one step asks, and what Enter does there.
pub(super) trait Ask {
    /// A short label for the column of answers.
    fn word(&self) -> &'static str;

    fn title(&self) -> &'static str;

    /// Whether it is asked at all with these answers.
    fn applies(&self, _: &Wizard) -> bool {
        true
    }

    fn rows(&self, _: &Wizard) -> Vec<Row> {
        Vec::new()
    }

    /// The explanation of the selected row. `rows` are those of [`Ask::rows`].
    fn explain(&self, wizard: &Wizard, rows: &[Row]) -> Explanation;

    /// The answer given, for the column beside the question.
    fn answer(&self, _: &Wizard) -> Option<String> {
        None
    }

    /// The row of the answer given before, or else of the one to propose.
    fn chosen(&self, _: &Wizard) -> Option<usize> {
        None
    }

    /// Takes the text of the selected row's input.
    fn type_in(&self, _: &mut Wizard, _: &str) {}

    /// Accepts the selected row and advances, or explains why not.
    fn enter(&self, wizard: &mut Wizard) -> Outcome;
}

impl Step {
    pub(super) fn ask(self) -> &'static dyn Ask {
        match self {
            Step::Goal => &steps::Goal,
            Step::Data => &steps::Data,
            Step::Start => &steps::Start,
            Step::Method => &steps::Method,
            Step::Model => &steps::Model,
            Step::Reward => &steps::Reward,
            Step::Settings => &steps::Settings,
            Step::Plan => &steps::Plan,
            Step::Finish => &steps::Finish,
            Step::Check => &steps::Check,
        }
    }
}

impl Wizard {
    /// Builds the current question.
    pub fn question(&self) -> Question {
        let ask = self.step.ask();
        let rows = ask.rows(self);
        let (notes, text) = ask.explain(self, &rows);
        Question {
            step: self.step,
            title: ask.title(),
            rows,
            notes,
            text,
        }
    }

    /// The answers so far, one per step, for the column beside the question; `None` if not answered.
    pub fn summary(&self) -> Vec<(Step, Option<String>)> {
        let imported = self.answers.begin == Begin::Config;
        let answer = |step: Step| match step {
            Step::Goal if imported => Some("import a config".into()),
            Step::Data | Step::Start | Step::Method | Step::Model | Step::Reward if imported => {
                Some("from the config".into())
            }
            step => step.ask().answer(self),
        };
        let shown = |step: Step| (step, (step < self.step).then(|| answer(step)).flatten());
        self.steps().map(shown).collect()
    }
}
