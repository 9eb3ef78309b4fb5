//! A row as a model sees it: rendered, cut into tokens, some of them supervised.

use crate::data::{Document, Example, Place, RowFault};

/// One document of a row. A pair has two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedDocument {
    /// Empty, or which side: `chosen`, `rejected`.
    pub label: &'static str,
    pub document: Document,
}

/// A model's way of reading: a tokenizer and a template.
pub trait View: Send + Sync {
    /// What it is made of, for display: `tokenizer.json of Qwen2.5-0.5B, template chatml`.
    fn name(&self) -> &str;

    /// Renders and tokenizes a row.
    ///
    /// # Errors
    /// The template refuses the row.
    fn render(&self, example: &Example, place: &Place) -> Result<Vec<RenderedDocument>, RowFault>;

    /// The text of each token; a character spread over several tokens belongs to the last of them.
    fn pieces(&self, ids: &[u32]) -> Vec<String>;

    /// Ids lie in 0..vocab_size.
    fn vocab_size(&self) -> usize;

    /// Tokens of which one ends an answer or a text.
    fn ends(&self) -> Vec<u32>;

    /// Tokens without text of their own: roles, ends, padding.
    fn specials(&self) -> Vec<u32>;
}
