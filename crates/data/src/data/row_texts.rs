//! The text of a source, row by row, as a model that is trained on it will read it: what a tokenizer is learned from where no run
//! learns it. Nothing is held in memory but a few rows.

use super::chat::Template;
use super::examples::{Examples, OnBadRow, examples};
use super::formats::FormatChoice;
use super::source::{ReadContext, SourceConfig};
use super::tokenizer::{ChatMarkers, TokenizerConfig};
use super::vocabulary::{TEMPLATE, has_turns, try_plain};
use super::{DataError, Example, Place, RowFault};
use crate::base::child::Child;
use std::collections::VecDeque;

/// Rows that show whether there are conversations among them.
const LOOKED_AT: usize = 64;

/// Iterates over the texts of a source's rows. After a row that cannot be read, or that the template refuses, and is not skipped nothing
/// more comes.
pub struct RowTexts {
    examples: Examples,
    /// Those that were looked at.
    first: VecDeque<Result<(Place, Example), RowFault>>,
    template: Option<Template>,
    markers: ChatMarkers,
    turns: bool,
    ended: bool,
}

impl RowTexts {
    /// Opens a source, whose rows are read in its own format or in the one that they show. Conversations become text by the
    /// built-in template of `markers`, or by ChatML where they name none.
    ///
    /// # Errors
    /// The source cannot be opened, has no rows, or its format cannot be detected.
    pub fn open(
        source: &SourceConfig,
        markers: ChatMarkers,
        on_bad_row: OnBadRow,
        read: &ReadContext,
    ) -> Result<RowTexts, DataError> {
        let bare = TokenizerConfig::Char(Default::default()).build("-", "-")?;
        let template = markers.template().unwrap_or(TEMPLATE);
        let template = Template::choose(template, &bare, &Child::of_this_program())?;
        let mut examples = examples(source, FormatChoice::Auto, on_bad_row, read)?;
        let first: VecDeque<_> = examples.by_ref().take(LOOKED_AT).collect();
        let mut seen = first.iter().flatten();
        Ok(RowTexts {
            turns: seen.any(|(_, example)| has_turns(&example.content)),
            markers: match &template {
                Some(template) => ChatMarkers::of_template(template.name()),
                None => ChatMarkers::None,
            },
            examples,
            first,
            template,
            ended: false,
        })
    }

    /// The marks of conversations, where the first rows have any: each is to be a token of its own.
    pub fn markers(&self) -> ChatMarkers {
        match self.turns {
            true => self.markers,
            false => ChatMarkers::None,
        }
    }

    /// The rows underneath: files, bytes read, rows that were skipped.
    pub fn examples(&self) -> &Examples {
        &self.examples
    }

    /// What stands between two texts: nothing between pieces of one file.
    pub fn separator(&self) -> &'static str {
        match self.examples.rows().kind() {
            "text" => "",
            _ => "\n",
        }
    }
}

impl Iterator for RowTexts {
    type Item = Result<String, RowFault>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let row = self.first.pop_front().or_else(|| self.examples.next())?;
            // Faults of reading come only where they are not skipped.
            let (place, example) = match row {
                Ok(row) => row,
                Err(fault) => {
                    self.ended = true;
                    return Some(Err(fault));
                }
            };
            match try_plain(&example, self.template.as_ref()) {
                Ok(text) => return Some(Ok(text)),
                Err(error) => {
                    let fault = RowFault::of_error(&place, &error);
                    if !self.examples.passes_over(&fault) {
                        self.ended = true;
                        return Some(Err(fault));
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(name: &str, rows: &str, markers: ChatMarkers) -> (Vec<String>, ChatMarkers) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, rows).unwrap();
        let source = SourceConfig::path(path.display().to_string());
        let read = ReadContext::default();
        let found = RowTexts::open(&source, markers, OnBadRow::Error, &read).unwrap();
        let markers = found.markers();
        (found.map(Result::unwrap).collect(), markers)
    }

    #[test]
    fn every_kind_of_row_is_the_text_that_a_model_reads() {
        let auto = |name: &str, rows: &str| texts(name, rows, ChatMarkers::Auto).0;
        assert_eq!(
            auto("a.jsonl", "{\"text\":\"one\"}\n{\"text\":\"two\"}\n"),
            ["one", "two"]
        );
        let pair = "{\"prompt\":\"1+1=\",\"completion\":\"2\"}\n";
        assert_eq!(auto("a.jsonl", pair), ["1+1=2"]);
        assert_eq!(auto("a.csv", "prompt,completion\n1+1=,2\n"), ["1+1=2"]);
        assert_eq!(auto("a.json", "[{\"text\":\"one\"}]"), ["one"]);
        let preference = "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}\n";
        assert_eq!(auto("a.jsonl", preference), ["ab\nac"]);
    }

    #[test]
    fn conversations_have_the_marks_that_were_asked_for() {
        let chat =
            r#"{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]}"#;
        let (chatml, markers) = texts("a.jsonl", chat, ChatMarkers::Auto);
        assert_eq!(markers, ChatMarkers::Chatml);
        assert!(
            chatml[0].contains("<|im_start|>user\nhi<|im_end|>"),
            "{chatml:?}"
        );
        let (gemma, markers) = texts("a.jsonl", chat, ChatMarkers::Gemma);
        assert_eq!(markers, ChatMarkers::Gemma);
        assert!(gemma[0].contains("<start_of_turn>"), "{gemma:?}");
        let (_, markers) = texts("a.jsonl", "{\"text\":\"hi\"}", ChatMarkers::Auto);
        assert_eq!(markers, ChatMarkers::None);
    }

    /// It learned nothing from them, and said nothing.
    #[test]
    fn a_conversation_that_the_template_refuses_is_placed_or_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let rows = [
            r#"{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]}"#,
            r#"{"messages":[{"role":"system","content":"be"},{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]}"#,
            r#"{"messages":[{"role":"user","content":"ha"},{"role":"assistant","content":"he"}]}"#,
        ];
        std::fs::write(&path, rows.join("\n")).unwrap();
        let source = SourceConfig::path(path.display().to_string());
        let open = |on_bad_row| {
            let read = ReadContext::default();
            RowTexts::open(&source, ChatMarkers::Gemma, on_bad_row, &read).unwrap()
        };
        let mut found = open(OnBadRow::Error);
        assert!(found.next().unwrap().is_ok());
        let fault = found.next().unwrap().unwrap_err();
        assert!(fault.place.to_string().ends_with("a.jsonl:2"), "{fault:?}");
        assert!(fault.what.contains("no system role"), "{fault:?}");
        assert!(found.next().is_none(), "nothing comes behind it");
        let mut found = open(OnBadRow::Skip);
        let texts: Vec<String> = found.by_ref().map(Result::unwrap).collect();
        assert!(texts.len() == 2 && texts[1].contains("ha"), "{texts:?}");
        assert_eq!(found.examples().skipped().count, 1);
    }
}
