//! Answers whose end token is not supervised: a model trained on them never stops.

use super::{Check, Kind, Setup, Severity};
use crate::data::Content;
use crate::data::inspect::row::Row;

/// Supervised tokens that a template may put after the end of an answer, such as a line break.
const BEHIND: usize = 3;

pub const KIND: Kind = Kind {
    id: "eos_not_supervised",
    title: "Answers whose end is not supervised",
    severity: Severity::Problem,
    cleans: false,
    cause: "the template has no end token, or the mask hides it: the model will not learn when to stop",
    fix: "choose a template that ends each answer with the tokenizer's end token (data.template)",
    make: |setup: &mut Setup| {
        let ends = std::mem::take(&mut setup.ends);
        (!ends.is_empty()).then(|| Box::new(EosNotLearnt { ends }) as Box<dyn Check>)
    },
};

struct EosNotLearnt {
    ends: Vec<u32>,
}

impl Check for EosNotLearnt {
    fn row(&mut self, row: &Row) -> Option<String> {
        if matches!(row.example.content, Content::Text(_) | Content::Prompt { .. }) {
            return None;
        }
        let unended = row.seen.iter().find(|seen| {
            // Turns of others after the last answer do not count.
            let all = seen.document.ids.iter().zip(&seen.document.supervised).rev();
            let mut end = all.filter(|(_, supervised)| **supervised).peekable();
            end.peek().is_some() && !end.take(BEHIND).any(|(id, _)| self.ends.contains(id))
        })?;
        Some(match unended.label {
            "" => "the answer has no supervised end".into(),
            label => format!("{label} has no supervised end"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, testing};
    use crate::data::{Content, Message};

    #[test]
    fn an_end_counts_only_when_it_is_supervised() {
        let setup = || Setup {
            ends: vec![0],
            ..Setup::default()
        };
        let mut check = testing::make("eos_not_supervised", setup());
        let chat = || Content::Chat(vec![Message::new("assistant", "hi")]);
        assert_eq!(check.row(&testing::seen(chat(), &[5, 6, 0, 9], &[1, 2])), None);
        assert!(check.row(&testing::seen(chat(), &[5, 6, 0], &[1])).is_some());
        assert!(check.row(&testing::seen(chat(), &[5, 6, 7], &[1, 2])).is_some());
        // A user who speaks last says nothing of how answers end.
        let asked = [5, 6, 0, 9, 5, 5, 5, 0, 9];
        assert_eq!(check.row(&testing::seen(chat(), &asked, &[1, 2])), None);
        assert!(check.row(&testing::seen(chat(), &asked, &[1])).is_some());
        assert_eq!(
            check.row(&testing::seen(chat(), &[5, 6], &[])),
            None,
            "another kind's"
        );
        let text = Content::Text("a".into());
        assert_eq!(check.row(&testing::seen(text, &[5, 6], &[1])), None);
    }
}
