//! Rows with more than one document, or a prompt without an answer: for preference methods and reinforcement learning.

use super::{Answered, Renderer, TrainOn, turns};
use crate::data::chat::GenerationPrompt;
use crate::data::tokenizer::Tokenizer;
use crate::data::{Content, Document, Example, MARGIN, Place, RowFault, Turns, Unit};
use serde_json::Value;

/// A row for methods that are not trained on plain texts. In every document prompt and answer stand together, and
/// the answer's tokens are the supervised ones.
#[derive(Debug, Clone, PartialEq)]
pub enum PostTrainingExample {
    /// Two answers to one prompt.
    Preference {
        chosen: Document,
        rejected: Document,
    },
    /// An answer that was judged alone.
    Labelled { answer: Document, desirable: bool },
    /// A prompt up to where the answer begins; `answer` is the reference for verifiable rewards.
    Prompt {
        prompt: Vec<u32>,
        answer: Option<String>,
    },
}

impl Renderer {
    /// The chosen and the rejected side of a preference.
    ///
    /// # Errors
    /// As [`Renderer::post_training`]; and rows of any other kind.
    pub fn pair(&self, example: &Example, place: &Place) -> Result<[Document; 2], RowFault> {
        match self.post_training(example, place, Unit::Pair)? {
            PostTrainingExample::Preference { chosen, rejected } => Ok([chosen, rejected]),
            _ => Err(example.content.unfit(Unit::Pair, place)),
        }
    }

    /// Both sides of a preference to be scored, then the margin: the bits of an f32, the upper half in the first id. Each side
    /// has its last token twice, so that the token itself is an input, and one place counts: the one that scores it.
    ///
    /// # Errors
    /// As [`Renderer::pair`]; a margin that is not a number.
    pub fn ranked(&self, example: &Example, place: &Place) -> Result<[Document; 3], RowFault> {
        let margin = match example.extra.get(MARGIN) {
            None | Some(Value::Null) => Some(0.0),
            Some(value) => value.as_f64().filter(|margin| margin.is_finite()),
        };
        let Some(margin) = margin else {
            return Err(RowFault::new(
                place,
                "the margin is not a number",
                "write a number (0 for none), or remove the column",
            ));
        };
        let [chosen, rejected] = self.pair(example, place)?;
        let pad = padding(&self.tokenizer);
        let bits = (margin as f32).to_bits();
        let margin = Document {
            ids: vec![bits >> 16, bits & 0xffff],
            supervised: vec![false; 2],
        };
        Ok([
            to_score(chosen.ids, pad),
            to_score(rejected.ids, pad),
            margin,
        ])
    }

    /// A prompt with its reference answer, which is supervised and ends as answers end; then its reference: the
    /// bytes of a JSON object that holds `answer` and the row's other columns, one for each id. A completion is a prompt
    /// whose answer is known. The prompt is the one after which answers are generated, whether or not an answer is known.
    ///
    /// # Errors
    /// As [`Renderer::document`]; and rows that are neither.
    pub fn prompt_and_reference(
        &self,
        example: &Example,
        place: &Place,
    ) -> Result<[Document; 2], RowFault> {
        let (prompt, answer) = match &example.content {
            Content::Prompt { prompt, answer } => (prompt, answer.clone()),
            Content::Completion { prompt, completion } => (prompt, Some(last_text(completion))),
            other => return Err(other.unfit(Unit::Prompt, place)),
        };
        let tools = example.tools.as_ref();
        let document = match &answer {
            Some(answer) => {
                // Without a token that ends texts, answers end with their line.
                let end = if self.tokenizer.eos().is_some() {
                    ""
                } else {
                    "\n"
                };
                let answer = Turns::Text(format!("{}{end}", answer.trim()));
                let turns = (prompt, &answer);
                let answered = self.answered(turns, tools, place, TrainOn::Completion)?;
                let document = self.with_reference(answered, place)?;
                self.note(&document);
                document
            }
            None => {
                let ids = self.prompt(prompt, tools, place)?;
                let supervised = vec![false; ids.len()];
                Document { ids, supervised }
            }
        };
        let mut reference = example.extra.clone();
        reference.remove(crate::data::source::CONTINUES);
        if let Some(answer) = answer {
            reference.insert("answer".into(), answer.trim().into());
        }
        let reference = Value::Object(reference).to_string();
        let ids: Vec<u32> = reference.bytes().map(u32::from).collect();
        let supervised = vec![false; ids.len()];
        Ok([document, Document { ids, supervised }])
    }

    /// A judged answer, then its label: one id, 1 where it is desirable.
    ///
    /// # Errors
    /// As [`Renderer::post_training`]; and rows of any other kind.
    pub fn judged(&self, example: &Example, place: &Place) -> Result<[Document; 2], RowFault> {
        match self.post_training(example, place, Unit::Judged)? {
            PostTrainingExample::Labelled { answer, desirable } => {
                let label = Document {
                    ids: vec![desirable.into()],
                    supervised: vec![false],
                };
                Ok([answer, label])
            }
            _ => Err(example.content.unfit(Unit::Judged, place)),
        }
    }

    /// One example as [`PostTrainingExample`]; `data.train_on` has no say here. `wanted` is what the method learns from, for the
    /// error.
    ///
    /// # Errors
    /// As [`Renderer::document`]; and rows that are a single text.
    pub fn post_training(
        &self,
        example: &Example,
        place: &Place,
        wanted: Unit,
    ) -> Result<PostTrainingExample, RowFault> {
        let tools = example.tools.as_ref();
        let answer = |prompt, completion| {
            let turns = (prompt, completion);
            let document = self.completion(turns, tools, place, TrainOn::Completion)?;
            self.note(&document);
            Ok(document)
        };
        self.note_silence(&example.content);
        match &example.content {
            Content::Preference {
                prompt,
                chosen,
                rejected,
            } => Ok(PostTrainingExample::Preference {
                chosen: answer(prompt, chosen)?,
                rejected: answer(prompt, rejected)?,
            }),
            Content::Labelled {
                prompt,
                completion,
                desirable,
            } => Ok(PostTrainingExample::Labelled {
                answer: answer(prompt, completion)?,
                desirable: *desirable,
            }),
            Content::Prompt { prompt, answer } => Ok(PostTrainingExample::Prompt {
                prompt: self.prompt(prompt, tools, place)?,
                answer: answer.clone(),
            }),
            text @ (Content::Text(_) | Content::Chat(_) | Content::Completion { .. }) => {
                Err(text.unfit(wanted, place))
            }
        }
    }

    /// The ids after which the answer begins. Plain text gets no token that ends it.
    ///
    /// # Errors
    /// As [`Renderer::document`].
    pub fn prompt(
        &self,
        prompt: &Turns,
        tools: Option<&Value>,
        place: &Place,
    ) -> Result<Vec<u32>, RowFault> {
        match prompt {
            Turns::Text(text) => self.begun(text, place),
            Turns::Messages(messages) => {
                let messages = turns::decoded(messages);
                let text = self.rendered(&messages, tools, GenerationPrompt::With, place)?;
                self.tokenizer.encode(&text).map_err(super::at(place))
            }
        }
    }

    /// The prompt as it is generated from, then its answer. Where the first token of the answer would merge with the last of the
    /// prompt, the answer is encoded alone. A template may end its generation prompt with what it writes before no finished
    /// answer, as DeepSeek-R1's does with `<think>`: the answer is then what follows the shared ids.
    ///
    /// # Errors
    /// Text outside the vocabulary.
    fn with_reference(&self, answered: Answered, place: &Place) -> Result<Document, RowFault> {
        let Answered {
            alone,
            document,
            shared,
            added,
        } = answered;
        if shared == alone.len() {
            return Ok(document);
        }
        let asked = alone.len();
        let mut ids = alone;
        match added {
            Some(answer) => {
                ids.extend(self.tokenizer.encode(&answer).map_err(super::at(place))?);
                // Of a plain text the end is a token without a text; a template writes its own.
                if document.ids.last().copied() == self.tokenizer.eos() {
                    ids = self.ended(ids);
                }
            }
            None => ids.extend(&document.ids[shared..]),
        }
        let supervised = (0..ids.len()).map(|at| at >= asked).collect();
        Ok(Document { ids, supervised })
    }
}

/// The token that pads rows for a reward model: the tokenizer's, else the one that ends texts, as TRL chooses it, and rows are
/// scored at the token before it. Without either, a special token that is named so.
pub fn padding(tokenizer: &Tokenizer) -> Option<u32> {
    let named = tokenizer.pad().or(tokenizer.eos());
    named.or_else(|| {
        let special = tokenizer.added_tokens().into_iter();
        let mut pads = special.filter(|t| t.special && t.content.to_lowercase().contains("pad"));
        pads.next().map(|token| token.id)
    })
}

/// The token that a text is scored at, counted from 0: the last that is not padding, as transformers finds it.
pub fn scored_token(ids: &[u32], pad: Option<u32>) -> usize {
    let last = ids.iter().rposition(|id| Some(*id) != pad);
    last.unwrap_or(ids.len().saturating_sub(1))
}

/// A text with its last token once more after it; the target after the scored token counts.
fn to_score(mut ids: Vec<u32>, pad: Option<u32>) -> Document {
    let at = scored_token(&ids, pad);
    ids.extend(ids.last().copied());
    let mut supervised = vec![false; ids.len()];
    if let Some(counts) = supervised.get_mut(at + 1) {
        *counts = true;
    }
    Document { ids, supervised }
}

fn last_text(turns: &Turns) -> String {
    match turns {
        Turns::Text(text) => text.clone(),
        Turns::Messages(messages) => messages
            .last()
            .map(|m| m.content.clone())
            .unwrap_or_default(),
    }
}
