//! The row on the screen, cut into tokens once.

use crate::data::inspect::{KeptRow, View, parts};
use crate::data::{Content, Example};

/// Characters of plain text that are cut into tokens for the screen; paragraphs may be very long.
const MAX_CHARS: usize = 40_000;
/// Tokens that are shown of one side.
const MAX_TOKENS: usize = 12_000;

/// A token on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub supervised: bool,
    pub special: bool,
}

/// One document of the row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Side {
    /// Empty, or `chosen`, `rejected`.
    pub label: &'static str,
    pub tokens: Vec<Token>,
    /// Tokens of it, those that are supervised, and those that are not shown.
    pub n: usize,
    pub supervised: usize,
    pub left_out: usize,
}

/// The row in all the ways in which it can be shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sample {
    /// Empty without a tokenizer, or where the template refuses the row.
    pub sides: Vec<Side>,
    /// Role and text of each part.
    pub parts: Vec<(String, String)>,
    /// Plain text was cut before it was cut into tokens.
    pub cut: bool,
}

impl Sample {
    pub fn of(row: &KeptRow, view: Option<&dyn View>) -> Sample {
        let Some(example) = &row.example else {
            return Sample::default();
        };
        let (example, cut) = shorten(example);
        let parts = parts(&example)
            .iter()
            .map(|part| (part.role.to_string(), part.text.to_string()))
            .collect();
        let sides = match view.map(|view| (view, view.render(&example, &row.place))) {
            Some((view, Ok(seen))) => seen.into_iter().map(|seen| side(seen, view)).collect(),
            _ => Vec::new(),
        };
        Sample { sides, parts, cut }
    }
}

fn side(seen: crate::data::inspect::RenderedDocument, view: &dyn View) -> Side {
    let (n, supervised) = (seen.document.ids.len(), seen.document.supervised_tokens());
    let ids = &seen.document.ids[..n.min(MAX_TOKENS)];
    let specials = view.specials();
    let tokens = view
        .pieces(ids)
        .into_iter()
        .zip(ids.iter().zip(&seen.document.supervised))
        .map(|(text, (id, supervised))| Token {
            text,
            supervised: *supervised,
            special: specials.contains(id),
        })
        .collect();
    Side {
        label: seen.label,
        tokens,
        n,
        supervised,
        left_out: n - ids.len(),
    }
}

/// A paragraph of a megabyte would hold the screen up.
fn shorten(example: &Example) -> (Example, bool) {
    match &example.content {
        Content::Text(text) if text.len() > MAX_CHARS => {
            let end = text
                .char_indices()
                .nth(MAX_CHARS)
                .map_or(text.len(), |(i, _)| i);
            let cut = end < text.len();
            (Example::new(Content::Text(text[..end].to_string())), cut)
        }
        _ => (example.clone(), false),
    }
}

/// Whether a row contains a text given in small letters.
pub fn contains(row: &KeptRow, text: &str) -> bool {
    text.is_empty()
        || row.example.as_ref().is_some_and(|example| {
            let mut parts = parts(example).into_iter();
            parts.any(|part| part.text.to_lowercase().contains(text))
        })
        || row
            .faults
            .iter()
            .any(|(_, what)| what.to_lowercase().contains(text))
}
