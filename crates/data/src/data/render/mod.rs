//! From an example to the tokens that a model sees, with the loss mask. Turning turns into text is up to chat templates
//! ([`super::chat`]); sharing batches between documents is up to packing.
//!
//! There are four ways to find the assistant's spans, in this order: the template's own `generation` blocks; those of a
//! built-in template that renders the same text for the row; the marks of a format of messages, which name who writes; or the
//! growth of the text from turn to turn, which needs a template that never changes what it rendered before. A template that
//! does is rejected, not guessed at.

mod mask;
mod post_training;
mod silent;
pub(super) mod thoughts;
mod turns;
mod unwritten;
mod weighted;

pub use post_training::{PostTrainingExample, padding, scored_token};
pub use silent::answers_nothing;
pub(in crate::data) use turns::SpecialTokens;
pub use turns::decoded;
pub use unwritten::Unwritten;

use super::chat::tool_calls::Format;
use super::chat::{BUILTIN, GenerationPrompt, Template};
use super::formats::weight;
use super::source::CONTINUES;
use super::{
    Content, DataError, Document, Example, Message, Place, RowFault, Tokenizer, Turns, Unit,
};
use mask::{common_prefix, supervised_in};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ops::{AddAssign, Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which tokens of a document count in the loss.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TrainOn {
    /// All of a text, the completion of a prompt, the assistant's turns of a conversation.
    #[default]
    Auto,
    /// Every token.
    All,
    /// What follows the prompt; of a conversation, the assistant's last turn.
    Completion,
    /// The assistant's text in every turn, with its end token.
    Assistant,
}

/// Notices of rendering; counts grow as documents are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenderCounts {
    pub documents: u64,
    /// Documents without a supervised token.
    pub nothing_supervised: u64,
    /// Rows whose own text spells a special token, which the model then sees as that token, as with transformers.
    pub special_tokens_in_data: u64,
    /// Rows of text whose last prompt token changed because the completion follows it: the model is trained on a prompt that it
    /// will not meet like that.
    pub merged_boundaries: u64,
    /// The same of turns, where the template writes an answer otherwise than its generation prompt begins one.
    #[serde(default)]
    pub other_openings: u64,
    /// Rows with an empty answer: only its end token is supervised.
    #[serde(default)]
    pub empty_answers: u64,
    /// Rows that request supervision of turns of other roles.
    #[serde(default)]
    pub weights_of_others: u64,
    /// Prompts with answers of earlier rounds, which are read.
    #[serde(default)]
    pub earlier_answers: u64,
}

impl AddAssign for RenderCounts {
    fn add_assign(&mut self, more: RenderCounts) {
        for (sum, more) in [
            (&mut self.documents, more.documents),
            (&mut self.nothing_supervised, more.nothing_supervised),
            (
                &mut self.special_tokens_in_data,
                more.special_tokens_in_data,
            ),
            (&mut self.merged_boundaries, more.merged_boundaries),
            (&mut self.other_openings, more.other_openings),
            (&mut self.empty_answers, more.empty_answers),
            (&mut self.weights_of_others, more.weights_of_others),
            (&mut self.earlier_answers, more.earlier_answers),
        ] {
            *sum += more;
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    documents: AtomicU64,
    nothing_supervised: AtomicU64,
    special_tokens_in_data: AtomicU64,
    merged_boundaries: AtomicU64,
    other_openings: AtomicU64,
    empty_answers: AtomicU64,
    weights_of_others: AtomicU64,
    earlier_answers: AtomicU64,
}

/// Makes documents of examples; any number of threads may share one.
#[derive(Debug)]
pub struct Renderer {
    parts: Arc<Parts>,
    counters: Counters,
    /// How its user names a template.
    template_fix: &'static str,
}

/// A prompt, and its document with an answer.
struct Answered {
    /// The ids after which an answer is generated.
    alone: Vec<u32>,
    document: Document,
    /// Ids that both begin with.
    shared: usize,
    /// The text that the answer adds to that of the prompt; none where the template writes the prompt otherwise before an answer.
    added: Option<String>,
}

impl Answered {
    /// What follows the shared ids is supervised.
    fn new(alone: Vec<u32>, ids: Vec<u32>, added: Option<String>) -> Answered {
        let shared = common_prefix(&alone, &ids);
        let supervised = (0..ids.len()).map(|at| at >= shared.max(1)).collect();
        Answered {
            alone,
            document: Document { ids, supervised },
            shared,
            added,
        }
    }
}

/// What documents are made by.
#[derive(Debug)]
pub struct Parts {
    tokenizer: Arc<Tokenizer>,
    template: Option<Template>,
    /// A built-in template that prints what `template` prints, and knows who wrote it.
    twin: Option<Template>,
    train_on: TrainOn,
    special: turns::SpecialTokens,
    /// Of a template that writes messages.
    messages: Option<&'static Format>,
    /// The template writes an answer otherwise than its generation prompt begins one.
    opens_otherwise: bool,
}

impl Deref for Renderer {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Renderer {
    /// `template` is needed for rows of turns only.
    pub fn new(
        tokenizer: Arc<Tokenizer>,
        template: Option<Template>,
        train_on: TrainOn,
    ) -> Renderer {
        let twin = template.as_ref().filter(|t| !t.marks_generation());
        let parts = Parts {
            twin: twin.and_then(matching_builtin),
            special: turns::SpecialTokens::of(&tokenizer),
            opens_otherwise: template.as_ref().is_some_and(opens_otherwise),
            messages: template.as_ref().and_then(|t| messages(t, &tokenizer)),
            tokenizer,
            template,
            train_on,
        };
        Renderer {
            parts: Arc::new(parts),
            counters: Counters::default(),
            template_fix: "set data.template: chatml, or plain if the vocabulary has no turn markers",
        }
    }

    /// The same with counts of its own, which begin at zero: what is noticed in one row.
    pub fn counting_anew(&self) -> Renderer {
        Renderer {
            parts: self.parts.clone(),
            counters: Counters::default(),
            template_fix: self.template_fix,
        }
    }

    /// The advice for rows of turns without a template.
    #[must_use]
    pub fn with_template_fix(mut self, fix: &'static str) -> Renderer {
        self.template_fix = fix;
        self
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    pub fn template(&self) -> Option<&Template> {
        self.template.as_ref()
    }

    /// Notices so far.
    pub fn counts(&self) -> RenderCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RenderCounts {
            documents: read(&self.counters.documents),
            nothing_supervised: read(&self.counters.nothing_supervised),
            special_tokens_in_data: read(&self.counters.special_tokens_in_data),
            merged_boundaries: read(&self.counters.merged_boundaries),
            other_openings: read(&self.counters.other_openings),
            empty_answers: read(&self.counters.empty_answers),
            weights_of_others: read(&self.counters.weights_of_others),
            earlier_answers: read(&self.counters.earlier_answers),
        }
    }

    /// [`end_tokens`] of its tokenizer and template.
    pub fn end_tokens(&self) -> Vec<u32> {
        end_tokens(&self.tokenizer, self.template.as_ref())
    }

    /// One example as a document. Text and completions end with the token that ends a text, where the vocabulary has one;
    /// conversations end as the template ends them.
    ///
    /// # Errors
    /// A row that the template refuses or cannot be masked for, text outside the vocabulary, and rows of preferences or
    /// prompts without an answer, which [`Renderer::pair`] makes pairs of.
    pub fn document(&self, example: &Example, place: &Place) -> Result<Document, RowFault> {
        let tools = example.tools.as_ref();
        let document = match &example.content {
            Content::Text(text) => self.text(text, example.extra.contains_key(CONTINUES), place)?,
            Content::Chat(messages) => self.chat(messages, tools, place)?,
            Content::Completion { prompt, completion } => {
                self.completion((prompt, completion), tools, place, self.train_on)?
            }
            other @ (Content::Preference { .. }
            | Content::Labelled { .. }
            | Content::Prompt { .. }) => {
                return Err(other.unfit(Unit::Text, place));
            }
        };
        self.note(&document);
        self.note_silence(&example.content);
        Ok(document)
    }

    fn note_silence(&self, content: &Content) {
        if answers_nothing(content) {
            count(&self.counters.empty_answers);
        }
    }

    fn note(&self, document: &Document) {
        count(&self.counters.documents);
        if document.supervised_tokens() == 0 {
            count(&self.counters.nothing_supervised);
        }
    }

    /// A text, or a later piece of one, which does not begin again.
    fn text(&self, text: &str, continues: bool, place: &Place) -> Result<Document, RowFault> {
        self.notice_special_tokens(&[text]);
        let ids = match continues {
            true => self.tokenizer.encode(text).map_err(at(place))?,
            false => self.begun(text, place)?,
        };
        Ok(Document::all_supervised(self.ended(ids)))
    }

    /// The ids of a text that begins from nothing. Of conversations the template writes what begins them.
    fn begun(&self, text: &str, place: &Place) -> Result<Vec<u32>, RowFault> {
        self.tokenizer.encode_begun(text).map_err(at(place))
    }

    /// With the end-of-text token appended, once.
    fn ended(&self, mut ids: Vec<u32>) -> Vec<u32> {
        if let Some(eos) = self.tokenizer.eos()
            && ids.last() != Some(&eos)
        {
            ids.push(eos);
        }
        ids
    }

    fn chat(
        &self,
        messages: &[Message],
        tools: Option<&Value>,
        place: &Place,
    ) -> Result<Document, RowFault> {
        let messages = turns::decoded(messages);
        if messages.is_empty() {
            return Err(RowFault::new(
                place,
                "a conversation without turns",
                "drop the row",
            ));
        }
        self.notice_special_tokens(&turns::texts(&messages));
        let text = self.rendered(&messages, tools, GenerationPrompt::Without, place)?;
        if self.train_on == TrainOn::All {
            let ids = self.tokenizer.encode(&text).map_err(at(place))?;
            let document = Document::all_supervised(ids);
            return self.weighted(document, (&messages, tools, &text), place);
        }
        if weight::of_others(&messages) {
            count(&self.counters.weights_of_others);
        }
        let mut spans = self.assistant_spans(&messages, tools, &text, place)?;
        if self.train_on == TrainOn::Completion {
            spans.drain(..spans.len().saturating_sub(1));
        }
        let (ids, offsets) = self
            .tokenizer
            .encode_with_offsets(&text)
            .map_err(at(place))?;
        if self.opens_otherwise && !spans.is_empty() {
            count(&self.counters.other_openings);
        }
        let supervised = supervised_in(&offsets, &spans);
        let document = Document { ids, supervised };
        self.weighted(document, (&messages, tools, &text), place)
    }

    /// Prompt and completion as TRL joins them: what both share with the prompt alone is the prompt.
    fn completion(
        &self,
        turns: (&Turns, &Turns),
        tools: Option<&Value>,
        place: &Place,
        train_on: TrainOn,
    ) -> Result<Document, RowFault> {
        let answered = self.answered(turns, tools, place, train_on)?;
        if answered.shared < answered.alone.len() {
            count(match turns {
                (Turns::Text(_), Turns::Text(_)) => &self.counters.merged_boundaries,
                _ => &self.counters.other_openings,
            });
        }
        Ok(answered.document)
    }

    fn answered(
        &self,
        (prompt, completion): (&Turns, &Turns),
        tools: Option<&Value>,
        place: &Place,
        train_on: TrainOn,
    ) -> Result<Answered, RowFault> {
        let (Turns::Text(prompt), Turns::Text(completion)) = (prompt, completion) else {
            return self.answered_turns((prompt, completion), tools, place, train_on);
        };
        self.notice_special_tokens(&[prompt, completion]);
        let alone = self.begun(prompt, place)?;
        let both = self.begun(&format!("{prompt}{completion}"), place)?;
        let mut answered = Answered::new(alone, self.ended(both), Some(completion.clone()));
        if train_on == TrainOn::All {
            answered.document = Document::all_supervised(answered.document.ids);
        }
        Ok(answered)
    }

    fn answered_turns(
        &self,
        (prompt, completion): (&Turns, &Turns),
        tools: Option<&Value>,
        place: &Place,
        train_on: TrainOn,
    ) -> Result<Answered, RowFault> {
        let prompt = turns::as_turns(prompt, "user");
        let mut all = prompt.clone();
        all.extend(turns::as_turns(completion, "assistant"));
        let (prompt, all) = (turns::decoded(&prompt), turns::decoded(&all));
        self.notice_special_tokens(&turns::texts(&all));
        let asked = self.rendered(&prompt, tools, GenerationPrompt::With, place)?;
        let alone = self.tokenizer.encode(&asked).map_err(at(place))?;
        let text = self.rendered(&all, tools, GenerationPrompt::Without, place)?;
        let added = text.strip_prefix(&asked).map(str::to_string);
        let (ids, offsets) = self
            .tokenizer
            .encode_with_offsets(&text)
            .map_err(at(place))?;
        let mut answered = Answered::new(alone, ids, added);
        let mut document = std::mem::take(&mut answered.document);
        // Thoughts of the prompt that are left out before an answer would make the rest of the prompt part of it.
        if self.messages.is_some() && answered.shared < answered.alone.len() {
            let mut spans = self.assistant_spans(&all, tools, &text, place)?;
            let answers: usize = all[prompt.len()..].iter().map(spans_of).sum();
            spans.drain(..spans.len().saturating_sub(answers));
            document.supervised = supervised_in(&offsets, &spans);
        }
        if train_on == TrainOn::Assistant {
            let spans = self.assistant_spans(&all, tools, &text, place)?;
            let written = supervised_in(&offsets, &spans);
            let both = document.supervised.iter().zip(written);
            document.supervised = both.map(|(a, b)| *a && b).collect();
        }
        if train_on == TrainOn::All {
            document = Document::all_supervised(document.ids);
        } else if prompt.iter().any(|message| message.role == "assistant") {
            count(&self.counters.earlier_answers);
        }
        answered.document = self.weighted(document, (&all, tools, &text), place)?;
        Ok(answered)
    }

    fn rendered(
        &self,
        messages: &[Message],
        tools: Option<&Value>,
        prompt: GenerationPrompt,
        place: &Place,
    ) -> Result<String, RowFault> {
        let Some(template) = &self.template else {
            return Err(RowFault::new(
                place,
                "a conversation, but no chat template to render it",
                self.template_fix,
            ));
        };
        template.render(messages, tools, prompt).map_err(at(place))
    }

    /// The bytes of `text`, the rendering of `messages`, that the assistant wrote.
    fn assistant_spans(
        &self,
        messages: &[Message],
        tools: Option<&Value>,
        text: &str,
        place: &Place,
    ) -> Result<Vec<Range<usize>>, RowFault> {
        let own = self.template.iter().filter(|t| t.marks_generation());
        for template in own.chain(&self.twin) {
            let marked = template.render_marked(messages, tools, GenerationPrompt::Without);
            if let Ok(marked) = marked
                && marked.text == text
            {
                return Ok(marked.generated);
            }
        }
        let Some(template) = &self.template else {
            return Ok(Vec::new());
        };
        if let Some(spans) = self.messages.and_then(|format| format.written(text))
            && spans.len() == messages.iter().map(spans_of).sum::<usize>()
        {
            return Ok(spans);
        }
        mask::by_growth(template, messages, tools, text)
            .map_err(|what| RowFault::new(place, what, mask::UNSTABLE_FIX))
    }

    fn notice_special_tokens(&self, texts: &[&str]) {
        if texts.iter().any(|text| self.special.occur_in(text)) {
            count(&self.counters.special_tokens_in_data);
        }
    }
}

/// The ids that end an assistant turn: what the template puts after it, its declared end-of-turn token, and
/// the end-of-text token, if the vocabulary has them. One of them must be supervised for a model to learn when to stop.
pub fn end_tokens(tokenizer: &Tokenizer, template: Option<&Template>) -> Vec<u32> {
    let mut ends = template.map_or_else(Vec::new, |template| turn_ends(template, tokenizer));
    ends.extend(tokenizer.eos().filter(|eos| !ends.contains(eos)));
    ends
}

/// The tokens with which a template ends the assistant's turn: as it does, and as its author said. A template of a model whose
/// texts end otherwise than its turns says it wrong: its `eos_token` is that of texts.
pub fn turn_ends(template: &Template, tokenizer: &Tokenizer) -> Vec<u32> {
    if let Some(format) = messages(template, tokenizer) {
        let ends = format.turn_ends().iter();
        return ends.filter_map(|end| tokenizer.id(end)).collect();
    }
    let said = template.turn_end().and_then(|text| tokenizer.id(text));
    let mut ends: Vec<u32> = behind_an_answer(template, tokenizer)
        .into_iter()
        .chain(said)
        .collect();
    ends.dedup();
    ends
}

/// The format of a template's answers, if it is one of messages.
fn messages(template: &Template, tokenizer: &Tokenizer) -> Option<&'static Format> {
    Format::of(template, tokenizer).filter(|format| format.has_messages())
}

/// Turns that a template of messages writes of one: each call is one.
fn spans_of(message: &Message) -> usize {
    match message.role == "assistant" {
        true => unwritten::calls(message).map_or(1, Vec::len),
        false => 0,
    }
}

/// A placeholder answer for finding what the template puts after one.
const ANSWER: &str = "Quokka.";

/// The special token after an answer in a conversation that continues.
fn behind_an_answer(template: &Template, tokenizer: &Tokenizer) -> Option<u32> {
    let turns = [
        Message::new("user", "Which one?"),
        Message::new("assistant", ANSWER),
        Message::new("user", "Why?"),
    ];
    let text = template
        .render(&turns, None, GenerationPrompt::Without)
        .ok()?;
    let behind = &text[text.rfind(ANSWER)? + ANSWER.len()..];
    let first = *tokenizer.encode(behind.trim_start()).ok()?.first()?;
    let added = tokenizer.added_tokens();
    added.iter().any(|token| token.id == first).then_some(first)
}

/// Whether a finished answer begins otherwise than after the generation prompt.
fn opens_otherwise(template: &Template) -> bool {
    let turns = [
        Message::new("user", "Which one?"),
        Message::new("assistant", ANSWER),
    ];
    let asked = template.render(&turns[..1], None, GenerationPrompt::With);
    let answered = template.render(&turns, None, GenerationPrompt::Without);
    matches!((asked, answered), (Ok(asked), Ok(answered)) if !answered.starts_with(&asked))
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn at(place: &Place) -> impl Fn(DataError) -> RowFault {
    move |error| RowFault::of_error(place, &error)
}

/// The built-in template that prints a few probing conversations as `template` does.
fn matching_builtin(template: &Template) -> Option<Template> {
    let probe = [
        Message::new("user", " a "),
        Message::new("assistant", " b\n"),
        Message::new("user", "c"),
        Message::new("assistant", "d"),
    ];
    let theirs = template
        .render(&probe, None, GenerationPrompt::Without)
        .ok()?;
    BUILTIN.iter().find_map(|builtin| {
        let mut twin = Template::builtin(builtin.name).ok()?;
        for (name, value) in template.variables() {
            twin = twin.with_variable(name, value.clone());
        }
        let ours = twin.render(&probe, None, GenerationPrompt::Without).ok()?;
        (ours == theirs).then_some(twin)
    })
}

#[cfg(test)]
mod tests;
