//! Reads an answer with thoughts that arrives in pieces.

use super::super::reader::CallReader;
use super::super::{Begins, Part};
use super::{CLOSE, OPEN};

/// Holds back what may be the beginning of a mark, and the space around thoughts, which is left out. Only what the answer begins with
/// is a thought: later marks are text.
#[derive(Debug)]
pub struct Reader {
    place: Place,
    held: String,
    /// Of what stands behind the thought.
    answer: CallReader,
}

/// Where the answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Before,
    /// In a thought of which nothing is written yet. Models repeat the mark that their prompt ends with.
    Begun,
    Thought,
    Behind,
    Answer,
}

impl Reader {
    pub fn new(begins: Begins, answer: CallReader) -> Reader {
        let place = match begins {
            Begins::Before => Place::Before,
            Begins::InThought => Place::Begun,
        };
        Reader {
            place,
            held: String::new(),
            answer,
        }
    }

    /// Takes a piece; returns what is certain by now.
    pub fn push(&mut self, piece: &str) -> Vec<Part> {
        self.held.push_str(piece);
        self.parts(false)
    }

    /// See [`super::super::AnswerReader::is_thinking`].
    pub fn is_thinking(&self) -> bool {
        matches!(self.place, Place::Begun | Place::Thought | Place::Behind)
    }

    /// The rest, at the end of the answer.
    pub fn finish(mut self) -> Vec<Part> {
        let mut parts = self.parts(true);
        parts.extend(self.answer.finish());
        parts
    }

    fn parts(&mut self, is_end: bool) -> Vec<Part> {
        let mut parts = Vec::new();
        while self.step(is_end, &mut parts) {}
        parts
    }

    /// True where there is more to be read.
    fn step(&mut self, is_end: bool, parts: &mut Vec<Part>) -> bool {
        match self.place {
            Place::Before => self.beginning(is_end, Place::Answer),
            Place::Begun => self.beginning(is_end, Place::Thought),
            Place::Thought => self.thought(is_end, parts),
            Place::Behind => {
                let space = self.held.len() - self.held.trim_start().len();
                self.held.drain(..space);
                !self.held.is_empty() && self.enter(Place::Answer, 0)
            }
            Place::Answer => {
                let text = std::mem::take(&mut self.held);
                parts.extend(self.answer.push(&text));
                false
            }
        }
    }

    /// Before a mark, or before what there is without one.
    fn beginning(&mut self, is_end: bool, otherwise: Place) -> bool {
        let rest = self.held.trim_start();
        let space = self.held.len() - rest.len();
        if rest.starts_with(OPEN) {
            return self.enter(Place::Begun, space + OPEN.len());
        }
        if OPEN.starts_with(rest) && !is_end {
            return false;
        }
        let is_thought = otherwise == Place::Thought;
        self.enter(otherwise, if is_thought { space } else { 0 })
    }

    /// Goes on behind the first `taken` bytes of what is held.
    fn enter(&mut self, place: Place, taken: usize) -> bool {
        self.held.drain(..taken);
        self.place = place;
        true
    }

    fn thought(&mut self, is_end: bool, parts: &mut Vec<Part>) -> bool {
        let end = self.held.find(CLOSE);
        let shown = match end {
            Some(at) => self.held[..at].trim_end().len(),
            None if is_end => self.held.len(),
            None => self.held[..self.held.len() - self.begun()].trim_end().len(),
        };
        if shown > 0 {
            parts.push(Part::Thought(self.held[..shown].into()));
        }
        match end {
            Some(at) => self.enter(Place::Behind, at + CLOSE.len()),
            None => {
                self.held.drain(..shown);
                false
            }
        }
    }

    /// Bytes at the end of the held text that may begin the mark.
    fn begun(&self) -> usize {
        let longest = self.held.len().min(CLOSE.len() - 1);
        let is_begun = |n: &usize| self.held.ends_with(&CLOSE[..*n]);
        (1..=longest).rev().find(is_begun).unwrap_or(0)
    }
}
