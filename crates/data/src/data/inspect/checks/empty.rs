//! Rows without text, and answers without text.

use super::{Check, Kind, Severity};
use crate::data::Content;
use crate::data::inspect::row::{Row, parts};

pub const KIND: Kind = Kind {
    id: "empty",
    title: "Empty rows and answers",
    severity: Severity::Warning,
    cleans: true,
    cause: "a field was lost or left empty: the model learns to answer nothing",
    fix: "llmtui data clean IN --drop empty --out OUT",
    make: |_| Some(Box::new(Empty)),
};

struct Empty;

impl Check for Empty {
    fn row(&mut self, row: &Row) -> Option<String> {
        let parts = parts(&row.example);
        if parts.iter().all(|part| part.text.trim().is_empty()) {
            return Some("no text at all".into());
        }
        if matches!(row.example.content, Content::Text(_)) {
            return None;
        }
        let blank = parts.iter().find(|p| p.answer && p.text.trim().is_empty());
        if let Some(part) = blank {
            return Some(format!("the turn of {} is empty", part.role));
        }
        let prompts = || parts.iter().filter(|p| !p.answer && p.role != "system");
        let asked = prompts().any(|part| !part.text.trim().is_empty());
        (prompts().count() > 0 && !asked).then(|| "the prompt is empty".into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, testing};
    use testing::{chat, make, pair, text};

    #[test]
    fn nothing_said_nothing_asked_and_nothing_answered_are_told_apart() {
        let mut check = make("empty", Setup::default());
        assert_eq!(check.row(&text(" \n")).unwrap(), "no text at all");
        assert_eq!(check.row(&text("a")), None);
        let silent = chat(&[("user", "hi"), ("assistant", " ")]);
        assert_eq!(
            check.row(&silent).unwrap(),
            "the turn of assistant is empty"
        );
        let unasked = chat(&[("user", ""), ("assistant", "hello")]);
        assert_eq!(check.row(&unasked).unwrap(), "the prompt is empty");
        assert_eq!(
            check.row(&pair("a", "")).unwrap(),
            "the turn of rejected is empty"
        );
        let system_alone = chat(&[("system", ""), ("user", "a"), ("assistant", "b")]);
        assert_eq!(check.row(&system_alone), None);
    }
}
