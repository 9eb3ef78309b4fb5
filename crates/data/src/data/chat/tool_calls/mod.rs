//! What an answer's text consists of: tool calls, in the formats in which chat templates write them, one file each, and thoughts, in
//! the format of messages or between `<think>` and `</think>`. How calls of a conversation's history are given to a template is in [`super::calls`].

mod file;
mod grammar;
mod harmony;
mod hermes;
mod json;
mod lfm;
mod llama;
mod mistral;
mod python;
mod reader;
mod said;
mod shown;
mod think;
mod tools;
mod xml;

pub use file::{TOOL_FILE, check_tool, read_tools};
pub use grammar::{Body, Callable, Function, Grammar};
pub use reader::{AnswerReader, Part};
pub use said::{Answers, Said, WholeAnswer, Writing};
pub use shown::{ReadAnswer, ShownLine, read_all};
pub use tools::Tools;

use super::{GenerationPrompt, Template, calls};
use crate::data::Tokenizer;
use std::ops::Range;

/// Every format. Where two can read the same text, the earlier one is taken.
pub const FORMATS: &[&Format] = &[
    &harmony::FORMAT,
    &hermes::FORMAT,
    &xml::FORMAT,
    &mistral::FORMAT,
    &lfm::FORMAT,
    &llama::FORMAT,
];

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The function's name.
    pub name: String,
    /// The arguments: the text of a JSON object.
    pub arguments: String,
    /// The call's id, where the model writes one.
    pub id: Option<String>,
}

/// How models of some templates write their calls.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Its name on the wire.
    pub word: &'static str,
    /// Texts that a call begins with.
    marks: &'static [&'static str],
    /// What a call without a mark begins with. It counts only where no text is before it.
    bare: Option<&'static str>,
    /// Reads what begins with a mark, or bare.
    read: fn(&str, Reading) -> Block,
    /// Calls as it writes them, behind the mark of the first one.
    ///
    /// # Errors
    /// A sentence: it cannot hold a tool's schema.
    write: fn(&Callable) -> Result<Grammar, String>,
    /// Where all of an answer stands in messages, the marks of which end its turn: what templates put behind earlier answers may
    /// only end a message. Empty for formats of calls in a text.
    turn_ends: &'static [&'static str],
    /// Where a text with thoughts between `<think>` and `</think>` begins; none: such marks are text.
    thinks: Option<Begins>,
}

/// Where an answer with thoughts goes on behind its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// Before a thought, or before the text.
    Before,
    /// The prompt has begun the thought.
    InThought,
}

/// What else a format may look at.
#[derive(Debug, Clone, Copy)]
struct Reading<'a> {
    tools: &'a Tools,
    /// No more text follows.
    is_end: bool,
}

/// What a text that begins as a call turns out to be.
#[derive(Debug, PartialEq, Eq)]
enum Block {
    /// More text decides.
    Open,
    /// Calls, and how many bytes they take.
    Calls(Vec<Call>, usize),
    /// No call.
    Text,
}

impl Format {
    /// The format of that name.
    pub fn named(word: &str) -> Option<&'static Format> {
        let found = FORMATS.iter().find(|format| format.word == word);
        found.copied().or_else(|| think::named(word))
    }

    /// The format of a model: the one that its template writes the calls of earlier turns in, or else the one whose mark is in its
    /// vocabulary; with thoughts where the template or the vocabulary has their marks. `None`: an answer's text stays text.
    pub fn of(template: &Template, tokenizer: &Tokenizer) -> Option<&'static Format> {
        let calls = Format::of_calls(template, tokenizer);
        let is_whole = calls.is_some_and(Format::has_messages);
        match !is_whole && think::knows(template, tokenizer) {
            true => Some(think::with(calls)),
            false => calls,
        }
    }

    fn of_calls(template: &Template, tokenizer: &Tokenizer) -> Option<&'static Format> {
        let known = |format: &&&Format| {
            let mut marks = format.marks.iter();
            marks.any(|mark| tokenizer.id(mark).is_some())
        };
        let written = Format::written_by(template);
        written.or_else(|| FORMATS.iter().find(known).copied())
    }

    /// Whether all of an answer stands in messages, of which some are thoughts.
    pub fn has_messages(&self) -> bool {
        !self.turn_ends.is_empty()
    }

    /// Whether some of an answer is set apart as thoughts.
    pub fn has_thoughts(&self) -> bool {
        self.has_messages() || self.thinks.is_some()
    }

    /// The format of an answer that goes on where this prompt ends, behind what is begun of it: a prompt may begin a thought, or end
    /// it. `None`: an answer's text stays text.
    pub fn behind(&'static self, prompt: &str, begun: &str) -> Option<&'static Format> {
        match self.thinks {
            Some(_) => think::behind(self, prompt, begun),
            None => Some(self),
        }
    }

    /// The marks that end a turn, of a format of messages.
    pub fn turn_ends(&self) -> &'static [&'static str] {
        self.turn_ends
    }

    /// The mark that ends a message and not the turn.
    pub fn message_end(&self) -> Option<&'static str> {
        self.has_messages().then_some(harmony::END)
    }

    /// What the assistant has written of a rendered conversation, a span for each turn; none of a format that does not say it.
    pub fn written(&self, rendered: &str) -> Option<Vec<Range<usize>>> {
        self.has_messages().then(|| harmony::written(rendered))
    }

    /// An assistant's turn that is to go on behind `prompt`, as the model has begun it.
    pub fn begun(&self, text: &str, thought: Option<&str>, prompt: &str) -> String {
        match (self.has_messages(), self.thinks, thought) {
            (true, ..) => harmony::begun(text, thought),
            (false, Some(_), Some(thought)) => think::begun(text, thought, prompt),
            (false, ..) => text.into(),
        }
    }

    /// The part of a prompt that says where its answer goes on.
    pub fn opening<'a>(&self, prompt: &'a str) -> &'a str {
        match self.has_messages() {
            true => harmony::opening(prompt),
            false => "",
        }
    }

    /// Answers that have this body or call, and go on where `prompt` ends.
    ///
    /// # Errors
    /// A sentence: the format cannot hold a tool's schema.
    pub fn answer(
        &self,
        body: Body,
        callable: Option<&Callable>,
        prompt: &str,
    ) -> Result<Grammar, String> {
        if self.has_messages() {
            return harmony::answer(body, callable, prompt);
        }
        let answer = self.said(body, callable)?;
        Ok(match self.thinks {
            None => answer,
            Some(Begins::InThought) => think::thought_and(answer),
            Some(Begins::Before) => {
                let next = match (body, callable) {
                    (Body::Text, Some(callable)) => {
                        self.without_thought(callable, answer.clone())?
                    }
                    _ => answer.clone(),
                };
                Grammar::One(vec![think::begun_thought_and(answer), next])
            }
        })
    }

    /// What an answer says behind its thoughts.
    fn said(&self, body: Body, callable: Option<&Callable>) -> Result<Grammar, String> {
        match (body, callable) {
            (Body::None | Body::Text, None) => Ok(Grammar::Without(self.marks)),
            (Body::Json(schema), None) => Ok(Grammar::Json(schema.clone())),
            (Body::None, Some(callable)) => self.calls(callable),
            (Body::Text, Some(callable)) => self.text_and_calls(callable),
            (Body::Json(schema), Some(callable)) => Ok(Grammar::One(vec![
                Grammar::Json(schema.clone()),
                self.calls(callable)?,
            ])),
        }
    }

    /// An answer that calls.
    fn calls(&self, callable: &Callable) -> Result<Grammar, String> {
        let calls = (self.write)(callable)?;
        Ok(match (self.bare, self.marks) {
            (None, [mark, ..]) => Grammar::All(vec![Grammar::Mark(mark), calls]),
            _ => calls,
        })
    }

    /// An answer that may call: any text, with calls behind it.
    fn text_and_calls(&self, callable: &Callable) -> Result<Grammar, String> {
        let calls = (self.write)(callable)?;
        let text = Grammar::Without(self.marks);
        Ok(match (self.bare, self.marks) {
            (None, [mark, ..]) => {
                let first = Grammar::Until {
                    end: (*mark).into(),
                    without: self.marks,
                    least: 0,
                    most: None,
                };
                Grammar::One(vec![text, Grammar::All(vec![first, calls])])
            }
            // Text does not begin as a call does.
            _ => {
                let other = Grammar::All(vec![Grammar::Pattern(r"[^{\s]"), Grammar::maybe(text)]);
                Grammar::One(vec![calls, other])
            }
        })
    }

    /// An answer that may call and thinks nothing: what would begin as a thought does is none of its texts.
    fn without_thought(&self, callable: &Callable, answer: Grammar) -> Result<Grammar, String> {
        let first = match self.bare {
            None => r"[^<]",
            Some(_) => r"[^<{\s]",
        };
        let text = Grammar::All(vec![Grammar::Pattern(first), Grammar::maybe(answer)]);
        Ok(Grammar::One(vec![self.calls(callable)?, text]))
    }

    /// The one in which a template writes a call of an earlier turn.
    fn written_by(template: &Template) -> Option<&'static Format> {
        let rendered = template
            .render(&calls::example(), None, GenerationPrompt::Without)
            .ok()?;
        let reads = |format: &&&Format| format.finds_example(&rendered);
        FORMATS.iter().find(reads).copied()
    }

    fn finds_example(&self, rendered: &str) -> bool {
        let marked = self.marks.iter().flat_map(|mark| {
            let places = rendered.match_indices(mark);
            places.map(|(at, _)| at)
        });
        let bare = self.bare.and_then(|bare| {
            let name = rendered.rfind(calls::NAME)?;
            rendered[..name].rfind(bare)
        });
        marked.chain(bare).any(|at| {
            let tools = Tools::of_names(&[calls::NAME]);
            let reading = Reading {
                tools: &tools,
                is_end: false,
            };
            match (self.read)(&rendered[at..], reading) {
                Block::Calls(found, _) => found.iter().any(|call| {
                    call.name == calls::NAME && call.arguments.contains(calls::ARGUMENT)
                }),
                Block::Open | Block::Text => false,
            }
        })
    }
}

/// Why calls of a model cannot be held to a schema.
pub fn unknown_calls() -> String {
    let known: Vec<&str> = FORMATS.iter().map(|format| format.word).collect();
    format!(
        "this model calls tools in a format that is not known, so its calls cannot be required or kept to a schema; the known ones are {}",
        known.join(", ")
    )
}

#[cfg(test)]
mod tests;
