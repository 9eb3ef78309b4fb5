//! Answers in the harmony format of gpt-oss: messages of channels. `<|channel|>analysis<|message|>…<|end|>` is a thought, the channels
//! `final` and `commentary` are text, and `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>` calls a tool.
//! Behind each `<|end|>` the model goes on with `<|start|>assistant`; `<|return|>` and `<|call|>` end its turn. The format is described
//! in github.com/openai/harmony, docs/format.md.

mod form;
mod reader;

pub(super) use form::answer;
pub(super) use reader::Reader;

use super::json::Json;
use super::{Block, Call, Format, Reading};
use std::ops::Range;

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const CONSTRAIN: &str = "<|constrain|>";
const MESSAGE: &str = "<|message|>";
pub(super) const END: &str = "<|end|>";
const CALL: &str = "<|call|>";
const RETURN: &str = "<|return|>";

const ASSISTANT: &str = "assistant";
const FINAL: &str = "final";
const ANALYSIS: &str = "analysis";
const COMMENTARY: &str = "commentary";
/// Before a recipient, in the part of the role or in that of the channel.
const TO: &str = " to=";
/// The namespace of a request's tools.
const FUNCTIONS: &str = "functions.";

/// Marks that no content has.
const MARKS: &[&str] = &[START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL, RETURN];
/// What a content ends with; a model may leave out the end of a message before the next one.
const ENDS: [&str; 4] = [END, CALL, RETURN, START];
/// The tokens that end a turn: `<|end|>` only ends a message.
const TURN_ENDS: &[&str] = &[RETURN, CALL];

pub(super) const FORMAT: Format = Format {
    word: "harmony",
    marks: &["<|start|>assistant", CHANNEL],
    bare: None,
    read,
    write: form::call,
    turn_ends: TURN_ENDS,
    thinks: None,
};

/// What stands before a message's content.
#[derive(Debug, Default, PartialEq, Eq)]
struct Header<'a> {
    channel: Option<&'a str>,
    recipient: Option<&'a str>,
}

/// What a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Thought,
    Text,
    /// A call of this function.
    Call(String),
}

impl<'a> Header<'a> {
    /// `text`: up to `<|message|>`.
    fn of(text: &'a str) -> Header<'a> {
        let word = |text: &'a str| {
            let end = text.find(|c: char| c.is_whitespace() || c == '<');
            &text[..end.unwrap_or(text.len())]
        };
        let behind = |mark: &str| {
            let (_, rest) = text.split_once(mark)?;
            Some(word(rest)).filter(|word| !word.is_empty())
        };
        Header {
            channel: behind(CHANNEL),
            recipient: behind(TO),
        }
    }

    fn kind(&self) -> Kind {
        match (self.recipient, self.channel) {
            // Nobody else listens to text.
            (Some("all" | "user" | ASSISTANT) | None, Some(ANALYSIS)) => Kind::Thought,
            (Some("all" | "user" | ASSISTANT) | None, _) => Kind::Text,
            (Some(to), _) => Kind::Call(to.strip_prefix(FUNCTIONS).unwrap_or(to).into()),
        }
    }
}

/// The first of the marks that end a content, and where it is.
fn end_in(text: &str) -> Option<(usize, &'static str)> {
    let found = ENDS
        .iter()
        .filter_map(|mark| Some((text.find(mark)?, *mark)));
    found.min()
}

/// A content as the arguments of a call.
fn arguments(content: &str) -> Option<String> {
    let content = content.trim();
    match Json::begins(content) {
        Json::Whole(value, len) if len == content.len() => value.arguments(),
        Json::Whole(..) | Json::Open | Json::Wrong => None,
    }
}

/// One whole message of a rendered conversation.
fn read(text: &str, reading: Reading) -> Block {
    let Some((header, content)) = text.split_once(MESSAGE) else {
        return match reading.is_end {
            true => Block::Text,
            false => Block::Open,
        };
    };
    let (end, mark) = match end_in(content) {
        Some(found) => found,
        None if reading.is_end => (content.len(), ""),
        None => return Block::Open,
    };
    let header = header.strip_prefix(START).unwrap_or(header);
    match (Header::of(header).kind(), arguments(&content[..end])) {
        (Kind::Call(name), Some(arguments)) if end_in(header).is_none() => {
            let id = None;
            let taken = text.len() - content.len() + end + mark.len();
            Block::Calls(
                vec![Call {
                    name,
                    arguments,
                    id,
                }],
                taken,
            )
        }
        _ => Block::Text,
    }
}

/// What the assistant has written of a rendered conversation, turn by turn: what stands behind the `<|start|>assistant` that asks for
/// it, up to the mark that ends its last message. That mark is left out where it is the `<|end|>` of a final message: the model
/// writes `<|return|>` there, which templates replace in earlier turns.
pub(super) fn written(text: &str) -> Vec<Range<usize>> {
    const BEGIN: &str = "<|start|>assistant";
    let mut spans: Vec<Range<usize>> = Vec::new();
    // Where a message of the same turn would begin.
    let mut goes_on_at = None;
    let mut from = 0;
    while let Some(at) = text[from..].find(BEGIN) {
        let (at, begin) = (from + at, from + at + BEGIN.len());
        let Some((end, mark)) = end_in(&text[begin..]) else {
            break;
        };
        let end = begin + end;
        let header = text[begin..end].split_once(MESSAGE);
        let header = header.map_or_else(Header::default, |(header, _)| Header::of(header));
        let is_final = header.channel == Some(FINAL);
        let behind = match mark {
            START => end,
            _ => end + mark.len(),
        };
        let written = match is_final && mark == END {
            true => end,
            false => behind,
        };
        match spans.last_mut() {
            Some(span) if goes_on_at == Some(at) => span.end = written,
            _ => spans.push(begin..written),
        }
        let goes_on = mark == END && !is_final;
        goes_on_at = goes_on.then_some(behind);
        from = behind;
    }
    spans
}

/// An assistant's turn that goes on: a text without marks is the beginning of its final message.
pub(super) fn begun(text: &str, thought: Option<&str>) -> String {
    if text.starts_with(CHANNEL) || text.starts_with(TO) {
        return text.into();
    }
    let thought = thought.filter(|thought| !thought.is_empty());
    let thought = thought
        .map(|thought| format!("{CHANNEL}{ANALYSIS}{MESSAGE}{thought}{END}{START}{ASSISTANT}"));
    format!(
        "{}{CHANNEL}{FINAL}{MESSAGE}{text}",
        thought.unwrap_or_default()
    )
}

/// The message that a prompt has begun.
pub(super) fn opening(prompt: &str) -> &str {
    &prompt[prompt.rfind(START).unwrap_or(prompt.len())..]
}

#[cfg(test)]
mod tests;
