//! Rows without a supervised token: a batch of such rows has no loss.

use super::{Check, Kind, Severity};
use crate::data::Content;
use crate::data::inspect::row::Row;

pub const KIND: Kind = Kind {
    id: "nothing_supervised",
    title: "Rows without supervised tokens",
    severity: Severity::Problem,
    cleans: false,
    cause: "the row has no answer, or the mask hides it; a batch of only these gives 0 / 0",
    fix: "give the rows an answer, or set data.train_on: all",
    make: |_| Some(Box::new(NothingLearnt)),
};

struct NothingLearnt;

impl Check for NothingLearnt {
    fn row(&mut self, row: &Row) -> Option<String> {
        // A prompt alone is answered in training.
        if matches!(row.example.content, Content::Prompt { .. }) {
            return None;
        }
        let empty = row.seen.iter().find(|s| s.document.supervised_tokens() == 0)?;
        let n = empty.document.ids.len();
        Some(match empty.label {
            "" => format!("0 of {n} tokens"),
            label => format!("0 of {n} tokens of {label}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, testing};
    use crate::data::{Content, Turns};

    #[test]
    fn a_hidden_row_is_found_and_a_prompt_is_none() {
        let mut check = testing::make("nothing_supervised", Setup::default());
        let text = || Content::Text("a".into());
        let hidden = testing::seen(text(), &[1, 2, 3], &[]);
        assert_eq!(check.row(&hidden).unwrap(), "0 of 3 tokens");
        assert_eq!(check.row(&testing::seen(text(), &[1, 2], &[1])), None);
        let prompt = Content::Prompt {
            prompt: Turns::Text("q".into()),
            answer: None,
        };
        assert_eq!(check.row(&testing::seen(prompt, &[1, 2], &[])), None);
        assert_eq!(check.row(&testing::text("no tokenizer")), None);
    }
}
