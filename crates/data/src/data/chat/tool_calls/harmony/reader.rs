//! Reads an answer that arrives in pieces: which of it is thought, text, or a call.

use super::super::{Call, Part};
use super::{
    ASSISTANT, CHANNEL, CONSTRAIN, ENDS, Header, Kind, MESSAGE, START, TO, arguments, end_in,
    opening,
};

/// Longest header of a message, in bytes.
const MAX_HEADER: usize = 512;
/// What a header begins with, behind the role.
const OPENINGS: [&str; 4] = [CHANNEL, CONSTRAIN, MESSAGE, TO];
/// Between two messages of one kind.
const BREAK: &str = "\n\n";

/// Holds back what may be the beginning of a mark, headers, and calls until they are whole. What does not follow the format is text, as
/// it was written.
#[derive(Debug)]
pub struct Reader {
    /// Calls stay text otherwise.
    takes_calls: bool,
    place: Place,
    held: String,
    /// Bytes of the held content in which no mark begins.
    seen: usize,
    /// Nothing of this message is shown yet.
    is_new: bool,
    has_thought: bool,
    has_text: bool,
}

/// Where the answer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Before `<|message|>`.
    Header {
        has_role: bool,
    },
    Thought,
    Text,
    /// In the arguments of a call.
    Call {
        name: String,
        header: String,
    },
    /// Behind a message.
    Behind,
}

impl Reader {
    pub fn new(takes_calls: bool) -> Reader {
        Reader {
            takes_calls,
            place: Place::Header { has_role: false },
            held: String::new(),
            seen: 0,
            is_new: true,
            has_thought: false,
            has_text: false,
        }
    }

    /// Of an answer that goes on where its prompt ends.
    pub fn behind(prompt: &str, takes_calls: bool) -> Reader {
        let mut reader = Reader::new(takes_calls);
        let opening = opening(prompt);
        if !opening.is_empty() {
            reader.place = Place::Behind;
            reader.push(opening);
            (reader.has_thought, reader.has_text) = (false, false);
        }
        reader
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Takes a piece; returns what is certain by now.
    pub fn push(&mut self, piece: &str) -> Vec<Part> {
        self.held.push_str(piece);
        self.parts(false)
    }

    /// See [`super::super::AnswerReader::is_thinking`].
    pub fn is_thinking(&self) -> bool {
        !self.has_text && (self.has_thought || self.place == Place::Thought)
    }

    /// The rest, at the end of the answer.
    pub fn finish(mut self) -> Vec<Part> {
        self.parts(true)
    }

    fn parts(&mut self, is_end: bool) -> Vec<Part> {
        let mut parts = Vec::new();
        while self.step(is_end, &mut parts) {}
        parts
    }

    /// True where there is more to be read.
    fn step(&mut self, is_end: bool, parts: &mut Vec<Part>) -> bool {
        match self.place {
            Place::Header { has_role } => self.header(has_role, is_end, parts),
            Place::Thought | Place::Text => self.content(is_end, parts),
            Place::Call { .. } => self.call(is_end, parts),
            Place::Behind => self.behind_message(is_end),
        }
    }

    fn header(&mut self, has_role: bool, is_end: bool, parts: &mut Vec<Part>) -> bool {
        let held = self.held.as_str();
        let rest = match (has_role, held.strip_prefix(ASSISTANT)) {
            (false, _) => held,
            (true, Some(rest)) => rest,
            (true, None) if ASSISTANT.starts_with(held) && !is_end => return false,
            (true, None) if ASSISTANT.starts_with(held) => "",
            (true, None) => {
                // Somebody else's message.
                self.enter(Place::Text, 0);
                self.show(START.into(), parts);
                return true;
            }
        };
        let role = held.len() - rest.len();
        if rest.is_empty() {
            return false;
        }
        if !OPENINGS.iter().any(|opening| rest.starts_with(opening)) {
            if OPENINGS.iter().any(|opening| opening.starts_with(rest)) {
                match (is_end, has_role) {
                    (false, _) => return false,
                    // Behind a message it is a header that a limit cut.
                    (true, true) => {
                        self.held.clear();
                        return false;
                    }
                    (true, false) => {}
                }
            }
            return self.enter(Place::Text, role);
        }
        let message = rest.find(MESSAGE);
        let header = &rest[..message.unwrap_or(rest.len())];
        if end_in(header).is_some() || header.len() > MAX_HEADER {
            return self.enter(Place::Text, role);
        }
        if message.is_none() {
            match is_end {
                // One that a limit cut says nothing.
                true if has_role || header.contains(CHANNEL) => self.held.clear(),
                true => return self.enter(Place::Text, role),
                false => {}
            }
            return false;
        }
        let taken = role + header.len() + MESSAGE.len();
        let place = match Header::of(header).kind() {
            Kind::Thought => Place::Thought,
            Kind::Call(name) if self.takes_calls => Place::Call {
                name,
                header: header.into(),
            },
            Kind::Call(_) => return self.enter(Place::Text, role),
            Kind::Text => Place::Text,
        };
        self.enter(place, taken)
    }

    /// Begins what follows the first `taken` bytes of what is held.
    fn enter(&mut self, place: Place, taken: usize) -> bool {
        self.held.drain(..taken);
        self.place = place;
        (self.seen, self.is_new) = (0, true);
        true
    }

    /// Where the content ends, and the mark there.
    fn end(&mut self) -> Option<(usize, &'static str)> {
        let found = end_in(&self.held[self.seen..]).map(|(at, mark)| (self.seen + at, mark));
        if found.is_none() {
            self.seen = self.held.len() - self.begun();
        }
        found
    }

    /// Goes on behind the mark at `at`.
    fn leave(&mut self, at: usize, mark: &str) -> bool {
        self.enter(
            match mark {
                START => Place::Header { has_role: true },
                _ => Place::Behind,
            },
            at + mark.len(),
        )
    }

    fn content(&mut self, is_end: bool, parts: &mut Vec<Part>) -> bool {
        match self.end() {
            Some((at, mark)) => {
                let text = self.held[..at].to_string();
                self.show(text, parts);
                self.leave(at, mark)
            }
            None => {
                let keep = if is_end { 0 } else { self.begun() };
                let rest = self.held.split_off(self.held.len() - keep);
                let text = std::mem::replace(&mut self.held, rest);
                self.seen = 0;
                self.show(text, parts);
                false
            }
        }
    }

    fn call(&mut self, is_end: bool, parts: &mut Vec<Part>) -> bool {
        let (at, mark) = match self.end() {
            Some(found) => found,
            // The mark of a call ends the answer and is no part of its text.
            None if is_end => (self.held.len(), ""),
            None => return false,
        };
        let content = self.held[..at].to_string();
        let place = std::mem::replace(&mut self.place, Place::Text);
        if let Place::Call { name, header } = place {
            match arguments(&content) {
                Some(arguments) => parts.push(Part::Call(Call {
                    name,
                    arguments,
                    id: None,
                })),
                None => {
                    let closed = if mark == START { "" } else { mark };
                    self.show(format!("{header}{MESSAGE}{content}{closed}"), parts);
                }
            }
        }
        self.leave(at, mark)
    }

    fn behind_message(&mut self, is_end: bool) -> bool {
        let rest = self.held.trim_start();
        let space = self.held.len() - rest.len();
        if rest.is_empty() {
            return false;
        }
        if rest.starts_with(START) {
            return self.enter(Place::Header { has_role: true }, space + START.len());
        }
        if rest.starts_with(CHANNEL) {
            return self.enter(Place::Header { has_role: false }, space);
        }
        if let Some(mark) = ENDS.iter().find(|mark| rest.starts_with(**mark)) {
            return self.enter(Place::Behind, space + mark.len());
        }
        let mut marks = ENDS.iter().chain([&CHANNEL]);
        if !is_end && marks.any(|mark| mark.starts_with(rest)) {
            return false;
        }
        self.enter(Place::Text, 0)
    }

    /// Bytes at the end of the held text that may begin a mark.
    fn begun(&self) -> usize {
        let held = self.held.as_bytes();
        let longest = ENDS.iter().map(|mark| mark.len() - 1).max().unwrap_or(0);
        let is_begun = |n: &usize| {
            let end = &held[held.len() - n..];
            ENDS.iter().any(|mark| mark.as_bytes().starts_with(end))
        };
        let longest = longest.min(held.len());
        (1..=longest).rev().find(is_begun).unwrap_or(0)
    }

    fn show(&mut self, text: String, parts: &mut Vec<Part>) {
        if text.is_empty() {
            return;
        }
        let is_thought = self.place == Place::Thought;
        let before = match is_thought {
            true => &mut self.has_thought,
            false => &mut self.has_text,
        };
        let is_next = std::mem::replace(&mut self.is_new, false) && *before;
        *before = true;
        let text = match is_next {
            true => format!("{BREAK}{text}"),
            false => text,
        };
        parts.push(match is_thought {
            true => Part::Thought(text),
            false => Part::Text(text),
        });
    }
}
