//! The question before a rescue is undone: why it came, what goes on and what is given up.

use super::topic;
use crate::run::state::Level;
use crate::ui::overlays::Question;
use crate::ui::request::Request;
use crate::ui::store::OpenRun;

pub const ABOUT: &str = "undo-rescue";

/// Opens the question, or says that there is nothing to undo.
pub fn ask(held: &OpenRun) -> Request {
    let state = &held.state;
    let rescue = state.rescued.as_ref();
    match rescue.and_then(|rescue| rescue.undo_words(state.step)) {
        Some(words) => {
            let answers = ["undo it", "keep the rescue"];
            let question = Question::new("undo the rescue", words, answers, topic(ABOUT));
            Request::Open(Box::new(question))
        }
        None => {
            let words = match rescue {
                None => "this run was not rescued",
                Some(rescue) if rescue.undone => "the latest rescue is already undone",
                Some(_) => "this rescue cannot be undone: the state before it was not kept",
            };
            Request::Toast(Level::Info, words.into())
        }
    }
}
