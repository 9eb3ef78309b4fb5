//! Tokenizers: made from the training text, or read from a `tokenizer.json`.

mod bpe;
mod char;
mod file;

/// What a tokenizer's settings have to tell.
pub trait TokenizerKind {
    /// The vocabulary size asked for; `None` when the text or the file decides.
    fn vocab_size(&self) -> Option<usize>;
}

crate::registry! {
    /// How text becomes tokens.
    pub enum TokenizerConfig: dyn TokenizerKind { char: Char, bpe: Bpe, file: File }
}
