//! Rows through a real tokenizer: rendered and tokenized as in training.

use super::view::{RenderedDocument, View};
use crate::base::human::grouped;
use crate::data::chat::Template;
use crate::data::render::{PostTrainingExample, Renderer, TrainOn};
use crate::data::tokenizer::TokenizerConfig;
use crate::data::{
    Content, DataError, Document, Example, Place, RowFault, TextStream, Tokenizer, Unit,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Entries of the vocabulary that is trained on the data where no tokenizer is named.
const LEARNT_VOCAB: usize = 4096;

/// A tokenizer with what renders rows for it.
pub struct Reader {
    name: String,
    renderer: Renderer,
    specials: Vec<u32>,
}

impl Reader {
    pub fn new(
        name: &str,
        tokenizer: Tokenizer,
        template: Option<Template>,
        train_on: TrainOn,
    ) -> Reader {
        let tokenizer = Arc::new(tokenizer);
        let specials = specials_of(&tokenizer);
        Reader {
            name: name.to_string(),
            renderer: Renderer::new(tokenizer, template, train_on),
            specials,
        }
    }

    /// A reader with a tokenizer that was trained on the data, with the template's marks as tokens of their own. `turns`: some rows
    /// have what a template writes.
    ///
    /// # Errors
    /// As reading a tokenizer.
    pub fn of_trained(
        tokenizer: &Tokenizer,
        template: Template,
        turns: bool,
    ) -> Result<Reader, DataError> {
        let tokenizer = with_specials(tokenizer, &marks(&template))?;
        let name = format!(
            "byte-level BPE of {} trained on these data, {}",
            grouped(tokenizer.vocab_size() as u64),
            template_words(&template, turns)
        );
        Ok(Reader::new(&name, tokenizer, Some(template), TrainOn::Auto))
    }
}

/// How rows are written: a template writes turns, not texts.
pub(super) fn template_words(template: &Template, turns: bool) -> String {
    match turns {
        true => format!("template {}", template.name()),
        false => "no template: the rows are texts".into(),
    }
}

/// A byte-level BPE trained on `text`.
///
/// # Errors
/// As the tokenizer's training.
pub(super) fn supervised(text: &str) -> Result<Tokenizer, DataError> {
    let mut config = TokenizerConfig::Bpe(Default::default());
    if let TokenizerConfig::Bpe(bpe) = &mut config {
        bpe.vocab_size = LEARNT_VOCAB;
    }
    config.build(text, text)
}

/// `<|im_start|>` and its like in the text of a template.
fn marks(template: &Template) -> Vec<String> {
    let source = template.source();
    let mut marks: Vec<String> = ["bos_token", "eos_token"]
        .iter()
        .filter_map(|name| template.token(name))
        .chain(template.turn_end())
        .map(String::from)
        .collect();
    // Other tags of templates are plain text to most tokenizers.
    for (at, _) in source.match_indices("<|") {
        let rest = &source[at..];
        let Some(end) = rest.find("|>").filter(|end| *end < 40) else {
            continue;
        };
        let mark = &rest[..end + 2];
        let plain = |c: char| c.is_ascii_alphanumeric() || "<>|_-".contains(c);
        if mark.len() > 4 && mark.chars().all(plain) {
            marks.push(mark.to_string());
        }
    }
    if marks.iter().any(|mark| mark == "<end_of_turn>") {
        marks.push("<start_of_turn>".into());
    }
    marks.sort();
    marks.dedup();
    marks
}

/// The tokenizer with further added tokens.
fn with_specials(tokenizer: &Tokenizer, marks: &[String]) -> Result<Tokenizer, DataError> {
    let fault = |what: String| DataError::Tokenizer {
        place: "the tokenizer trained on the data".into(),
        what,
    };
    let mut file: Value =
        serde_json::from_str(tokenizer.to_json()).map_err(|e| fault(e.to_string()))?;
    let mut next = tokenizer.vocab_size();
    if let Some(added) = file.get_mut("added_tokens").and_then(Value::as_array_mut) {
        for mark in marks {
            if added.iter().any(|token| token["content"] == json!(mark)) {
                continue;
            }
            added.push(json!({
                "id": next, "content": mark, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true,
            }));
            next += 1;
        }
    }
    Tokenizer::from_json(&file.to_string())
}

/// Tokens that the tokenizer calls special.
fn specials_of(tokenizer: &Tokenizer) -> Vec<u32> {
    let added = tokenizer.added_tokens().into_iter();
    added
        .filter(|token| token.special)
        .map(|token| token.id)
        .collect()
}

impl View for Reader {
    fn name(&self) -> &str {
        &self.name
    }

    fn render(&self, example: &Example, place: &Place) -> Result<Vec<RenderedDocument>, RowFault> {
        let seen = |label, document| RenderedDocument { label, document };
        Ok(match &example.content {
            Content::Text(_) | Content::Chat(_) | Content::Completion { .. } => {
                vec![seen("", self.renderer.document(example, place)?)]
            }
            _ => match self.renderer.post_training(example, place, Unit::Text)? {
                PostTrainingExample::Preference { chosen, rejected } => {
                    vec![seen("chosen", chosen), seen("rejected", rejected)]
                }
                PostTrainingExample::Labelled { answer, desirable } => {
                    let label = if desirable {
                        "desirable"
                    } else {
                        "undesirable"
                    };
                    vec![seen(label, answer)]
                }
                PostTrainingExample::Prompt { prompt, .. } => {
                    let supervised = vec![false; prompt.len()];
                    vec![seen(
                        "",
                        Document {
                            ids: prompt,
                            supervised,
                        },
                    )]
                }
            },
        })
    }

    fn pieces(&self, ids: &[u32]) -> Vec<String> {
        let tokenizer = self.renderer.tokenizer();
        let mut stream = TextStream::default();
        let mut pieces: Vec<String> = ids.iter().map(|id| stream.push(tokenizer, *id)).collect();
        if let Some(last) = pieces.last_mut() {
            last.push_str(&stream.finish(tokenizer));
        }
        pieces
    }

    fn vocab_size(&self) -> usize {
        self.renderer.tokenizer().vocab_size()
    }

    fn ends(&self) -> Vec<u32> {
        self.renderer.end_tokens()
    }

    fn specials(&self) -> Vec<u32> {
        self.specials.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Message, Turns};

    fn place() -> Place {
        Place {
            file: "a.jsonl".into(),
            row: 1,
        }
    }

    fn reader() -> Reader {
        let text = "user assistant hello how are you, I am fine. ".repeat(20);
        Reader::of_trained(
            &supervised(&text).unwrap(),
            Template::builtin("chatml").unwrap(),
            true,
        )
        .unwrap()
    }

    #[test]
    fn a_conversation_is_cut_with_its_marks_whole_and_its_end_supervised() {
        let reader = reader();
        let example = Example::new(Content::Chat(vec![
            Message::new("user", "hello"),
            Message::new("assistant", "I am fine."),
        ]));
        let seen = reader.render(&example, &place()).unwrap();
        let document = &seen[0].document;
        let pieces = reader.pieces(&document.ids);
        assert_eq!(pieces.iter().filter(|p| *p == "<|im_end|>").count(), 2);
        let supervised: String = pieces
            .iter()
            .zip(&document.supervised)
            .filter(|(_, supervised)| **supervised)
            .map(|(piece, _)| piece.as_str())
            .collect();
        assert!(
            supervised.starts_with("I am fine.<|im_end|>"),
            "{supervised}"
        );
        let specials = reader.specials();
        assert!(reader.ends().iter().all(|end| specials.contains(end)));
    }

    #[test]
    fn pairs_have_two_sides_and_prompts_nothing_supervised() {
        let reader = reader();
        let text = |text: &str| Turns::Text(text.into());
        let pair = Example::new(Content::Preference {
            prompt: text("hello"),
            chosen: text("I am fine."),
            rejected: text("how?"),
        });
        let labels: Vec<&str> = reader
            .render(&pair, &place())
            .unwrap()
            .iter()
            .map(|seen| seen.label)
            .collect();
        assert_eq!(labels, ["chosen", "rejected"]);
        let prompt = Example::new(Content::Prompt {
            prompt: text("how are you"),
            answer: None,
        });
        let seen = reader.render(&prompt, &place()).unwrap();
        assert_eq!(seen[0].document.supervised_tokens(), 0);
    }

    #[test]
    fn letters_of_several_bytes_stand_with_their_last_token() {
        let reader = reader();
        let ids = reader.renderer.tokenizer().encode("日 x").unwrap();
        let pieces = reader.pieces(&ids);
        assert_eq!(pieces.len(), ids.len());
        assert_eq!(pieces.concat(), "日 x");
    }
}
