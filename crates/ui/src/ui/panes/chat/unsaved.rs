//! Answers that are in no file: what would lose them asks first, and offers to save them.

use super::pane::{detach, topic};
use super::{ChatModel, ChatPane, Column};
use crate::ui::overlays::{Question, YES};
use crate::ui::panes::PaneContext;
use crate::ui::request::Request;
use std::path::PathBuf;

/// The question.
pub(super) const LOSS: &str = "loss";
const SAVE: &str = "save";

/// What loses answers.
#[derive(Debug)]
pub(super) enum Loss {
    Clear,
    DropModel,
    /// Another model in the place of the focused one.
    Replace(Box<ChatModel>),
    /// The models of these runs in the place of all.
    Runs(Vec<PathBuf>),
    Leave,
}

/// Where answers stand.
#[derive(Debug, Default)]
pub(super) struct Unsaved {
    /// How many came since the conversation was saved.
    n: usize,
    /// What waits for an answer.
    asked: Option<Loss>,
    /// What waits for the file.
    saving: Option<Loss>,
}

impl Unsaved {
    pub(super) fn answered(&mut self) {
        self.n += 1;
    }

    pub(super) fn any(&self) -> bool {
        self.n > 0
    }
}

impl ChatPane {
    /// Does what loses answers: at once where all are saved, else after a question.
    pub(super) fn lose(&mut self, loss: Loss, context: &mut PaneContext) -> Vec<Request> {
        match self.question(loss) {
            Ok(question) => vec![Request::Open(Box::new(question))],
            Err(loss) => self.go_through(loss, context),
        }
    }

    /// # Errors
    /// Nothing is lost.
    pub(super) fn question(&mut self, loss: Loss) -> Result<Question, Loss> {
        let has_answers = |column: &Column| column.n_answers() > 0;
        let concerned = match &loss {
            Loss::DropModel | Loss::Replace(_) => self.focused().is_some_and(has_answers),
            Loss::Clear | Loss::Runs(_) | Loss::Leave => self.columns.iter().any(has_answers),
        };
        if !self.unsaved.any() || !concerned {
            return Err(loss);
        }
        let (title, answers) = match &loss {
            Loss::Clear => (
                "clear the conversation",
                ["clear it without saving", "keep the conversation"],
            ),
            Loss::DropModel => (
                "remove the model",
                ["remove it without saving", "keep the model"],
            ),
            Loss::Replace(_) | Loss::Runs(_) => (
                "another model",
                ["replace it without saving", "keep the model"],
            ),
            Loss::Leave => ("leave", ["leave without saving", "stay"]),
        };
        let words = match self.unsaved.n {
            1 => "One answer of this chat is not saved.".into(),
            n => format!("{n} answers of this chat are not saved."),
        };
        self.unsaved.asked = Some(loss);
        Ok(Question::new(title, vec![words], answers, topic(LOSS)).or(SAVE, "save them first"))
    }

    /// The answer to the question.
    pub(super) fn on_discard_answer(&mut self, word: &str, context: &mut PaneContext) -> Vec<Request> {
        match (word, self.unsaved.asked.take()) {
            (YES, Some(loss)) => self.go_through(loss, context),
            (SAVE, loss) => {
                self.unsaved.saving = loss;
                vec![self.write()]
            }
            _ => Vec::new(),
        }
    }

    /// The conversation is in a file, or not: then nothing is lost for it.
    pub(super) fn file_written(&mut self, good: bool, context: &mut PaneContext) -> Vec<Request> {
        let waits = self.unsaved.saving.take();
        if !good {
            return Vec::new();
        }
        self.unsaved.n = 0;
        waits.map_or_else(Vec::new, |loss| self.go_through(loss, context))
    }

    fn go_through(&mut self, loss: Loss, context: &mut PaneContext) -> Vec<Request> {
        let requests = match loss {
            Loss::Clear => {
                self.clear();
                Vec::new()
            }
            Loss::DropModel => self.drop_focused().map(detach).into_iter().collect(),
            Loss::Replace(model) => self.start(*model, context),
            Loss::Runs(runs) => self.chat_side_by_side(&runs, context),
            Loss::Leave => {
                self.unsaved.n = 0;
                vec![Request::Leave]
            }
        };
        if self.columns.iter().all(|column| column.n_answers() == 0) {
            self.unsaved.n = 0;
        }
        requests
    }
}
