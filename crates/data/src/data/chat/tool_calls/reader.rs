//! The parts of an answer that arrives in pieces.

use super::{Block, Call, Format, Reading, Tools, harmony, think};

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// What the model thinks before it answers, where the format sets that apart.
    Thought(String),
    Text(String),
    Call(Call),
}

/// Reads an answer in its format.
#[derive(Debug)]
pub struct AnswerReader(Kind);

#[derive(Debug)]
enum Kind {
    Calls(CallReader),
    Messages(Box<harmony::Reader>),
    Thoughts(Box<think::Reader>),
}

impl AnswerReader {
    /// Of an answer to a question.
    pub fn new(format: &'static Format, tools: Tools) -> AnswerReader {
        AnswerReader(match (format.has_messages(), format.thinks) {
            (true, _) => Kind::Messages(Box::new(harmony::Reader::new(true))),
            (false, Some(begins)) => {
                let behind = CallReader::new(format, tools);
                Kind::Thoughts(Box::new(think::Reader::new(begins, behind)))
            }
            (false, None) => Kind::Calls(CallReader::new(format, tools)),
        })
    }

    /// Of an answer that goes on where `prompt` ends; without tools what would be a call of a format with thoughts stays text.
    pub fn behind(prompt: &str, format: &'static Format, tools: Option<Tools>) -> AnswerReader {
        match (format.has_messages(), tools) {
            (true, tools) => {
                let reader = harmony::Reader::behind(prompt, tools.is_some());
                AnswerReader(Kind::Messages(Box::new(reader)))
            }
            (false, tools) => {
                let format = match (&tools, format.thinks) {
                    (None, Some(begins)) => think::without_calls(begins),
                    _ => format,
                };
                AnswerReader::new(format, tools.unwrap_or_default())
            }
        }
    }

    /// Takes a piece; returns what is certain by now.
    pub fn push(&mut self, piece: &str) -> Vec<Part> {
        match &mut self.0 {
            Kind::Calls(reader) => reader.push(piece),
            Kind::Messages(reader) => reader.push(piece),
            Kind::Thoughts(reader) => reader.push(piece),
        }
    }

    /// Whether what came so far are thoughts, and nothing behind them.
    pub fn is_thinking(&self) -> bool {
        match &self.0 {
            Kind::Calls(_) => false,
            Kind::Messages(reader) => reader.is_thinking(),
            Kind::Thoughts(reader) => reader.is_thinking(),
        }
    }

    /// The rest, at the end of the text.
    pub fn finish(self) -> Vec<Part> {
        match self.0 {
            Kind::Calls(reader) => reader.finish(),
            Kind::Messages(reader) => reader.finish(),
            Kind::Thoughts(reader) => reader.finish(),
        }
    }
}

/// Finds calls in a text. Holds back what may be the beginning of a call. What turns out to be none is text, as it was written; the
/// space around calls is left out.
#[derive(Debug)]
pub(super) struct CallReader {
    format: &'static Format,
    tools: Tools,
    held: String,
    /// Whether text came since the beginning, or since the last call: no bare call can begin then.
    is_text: bool,
    has_calls: bool,
}

impl CallReader {
    pub(super) fn new(format: &'static Format, tools: Tools) -> CallReader {
        CallReader {
            format,
            tools,
            held: String::new(),
            is_text: false,
            has_calls: false,
        }
    }

    pub(super) fn push(&mut self, piece: &str) -> Vec<Part> {
        self.held.push_str(piece);
        self.parts(false)
    }

    pub(super) fn finish(mut self) -> Vec<Part> {
        let mut parts = self.parts(true);
        if !(self.has_calls && self.held.trim().is_empty()) {
            let rest = std::mem::take(&mut self.held);
            self.show(rest, &mut parts);
        }
        parts
    }

    fn parts(&mut self, is_end: bool) -> Vec<Part> {
        let mut parts = Vec::new();
        // Where the search for a mark begins: before it is text.
        let mut from = 0;
        while let Some(at) = self.next_mark(from) {
            let reading = Reading {
                tools: &self.tools,
                is_end,
            };
            let block = match (self.format.read)(&self.held[at..], reading) {
                Block::Open if is_end => Block::Text,
                block => block,
            };
            match block {
                Block::Calls(calls, len) => {
                    let before = self.held[..at].trim_end_matches(|c| self.is_space(c));
                    let before = before.to_string();
                    self.held.drain(..at + len);
                    self.show(before, &mut parts);
                    parts.extend(calls.into_iter().map(Part::Call));
                    (self.is_text, self.has_calls) = (false, true);
                    from = 0;
                }
                Block::Open => {
                    self.show_until(at, &mut parts);
                    return parts;
                }
                Block::Text => {
                    let first = self.held[at..].chars().next();
                    from = at + first.map_or(1, char::len_utf8);
                    self.is_text = true;
                }
            }
        }
        if !is_end {
            self.show_until(self.held.len() - self.begun(), &mut parts);
        }
        parts
    }

    /// The first place from `from` on where a call may begin.
    fn next_mark(&self, from: usize) -> Option<usize> {
        let rest = &self.held[from..];
        let marks = self.format.marks.iter();
        let marked = marks.filter_map(|mark| rest.find(mark)).min();
        let bare = self.format.bare.filter(|_| !self.is_text).and_then(|bare| {
            let text = rest.trim_start_matches(|c| self.is_space(c));
            text.starts_with(bare).then_some(rest.len() - text.len())
        });
        let at = marked.into_iter().chain(bare).min()?;
        Some(from + at)
    }

    /// Bytes at the end of the held text that may begin a call.
    fn begun(&self) -> usize {
        let held = &self.held;
        let longest = self.format.marks.iter().map(|mark| mark.len() - 1).max();
        let is_begun = |n: &usize| {
            let end = &held.as_bytes()[held.len() - n..];
            let mut marks = self.format.marks.iter();
            marks.any(|mark| mark.as_bytes().starts_with(end))
        };
        let longest = longest.unwrap_or(0).min(held.len());
        (1..=longest).rev().find(is_begun).unwrap_or(0)
    }

    /// Space between calls; Llama separates them with a semicolon.
    fn is_space(&self, c: char) -> bool {
        c.is_whitespace()
            || c == ';' && self.format.bare.is_some() && self.has_calls && !self.is_text
    }

    /// Shows the held text before `at`, but for the space at its end, which a call may follow.
    fn show_until(&mut self, at: usize, parts: &mut Vec<Part>) {
        let text = self.held[..at].trim_end_matches(|c| self.is_space(c)).len();
        let rest = self.held.split_off(text);
        let text = std::mem::replace(&mut self.held, rest);
        self.show(text, parts);
    }

    fn show(&mut self, text: String, parts: &mut Vec<Part>) {
        if text.is_empty() {
            return;
        }
        self.is_text |= text.contains(|c| !self.is_space(c));
        parts.push(Part::Text(text));
    }
}
