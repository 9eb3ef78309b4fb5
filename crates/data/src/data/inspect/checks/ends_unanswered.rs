//! Conversations whose last turn is not the assistant's: everything after the last answer is never supervised.

use super::{Check, Kind, Severity};
use crate::data::Content;
use crate::data::inspect::row::Row;

pub const KIND: Kind = Kind {
    id: "ends_unanswered",
    title: "Conversations that end without an answer",
    severity: Severity::Note,
    cleans: false,
    cause: "the last turn is a question or a tool result: nothing after the last answer is trained on",
    fix: "remove such turns if the answers were lost; if the question is the task, use a method that trains on prompts",
    make: |_| Some(Box::new(EndsUnanswered)),
};

struct EndsUnanswered;

impl Check for EndsUnanswered {
    fn row(&mut self, row: &Row) -> Option<String> {
        let Content::Chat(messages) = &row.example.content else {
            return None;
        };
        // Without any answer it is another kind's.
        let answered = messages.iter().any(|message| message.role == "assistant");
        let last = messages.last().filter(|last| last.role != "assistant")?;
        answered.then(|| format!("the last turn is of {}", last.role))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, testing};

    #[test]
    fn a_user_who_speaks_last_is_told_and_a_row_without_answers_is_not() {
        let mut check = testing::make("ends_unanswered", Setup::default());
        let mut of = |turns: &[(&str, &str)]| check.row(&testing::chat(turns));
        assert_eq!(of(&[("user", "a"), ("assistant", "b")]), None);
        let found = of(&[("user", "a"), ("assistant", "b"), ("user", "c")]);
        assert_eq!(found.unwrap(), "the last turn is of user");
        assert_eq!(of(&[("user", "a")]), None);
    }
}
