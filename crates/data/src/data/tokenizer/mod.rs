//! Tokenizers: trained on the training text, or read from files of several kinds.

mod bpe;
mod bytes;
mod char;
pub mod check;
mod codec;
mod decoders;
mod extension;
mod file;
mod import;
mod library;
mod marks;
mod patterns;
mod pipeline;
mod scan;
mod stops;
mod stream;
mod to_gguf;
mod training;
mod unigram;
mod validate;
mod wordpiece;
mod words;

pub use bytes::TokenBytes;
pub use codec::{AddedToken, Tokenizer};
pub use import::{has_tokenizer, load};
pub use marks::{CONFIG, GENERIC_CLASS, Marks};
pub use patterns::{Split, is_qwen2};
pub use stops::{Stops, stop_at};
pub use stream::TextStream;
pub use to_gguf::GgufTokenizer;
pub use training::ChatMarkers;
pub(super) use validate::PARSER;

use super::DataError;

/// Texts to learn from.
pub type Texts<'a> = dyn Iterator<Item = String> + Send + 'a;

/// What every kind of tokenizer provides.
pub trait TokenizerKind {
    /// The vocabulary size asked for; `None` when the text or the file decides.
    fn vocab_size(&self) -> Option<usize>;

    /// Makes the tokenizer. `train_text` is what it may learn from; `whole_text` also has the held-out part.
    ///
    /// # Errors
    /// A file that cannot be read or is not a tokenizer.
    fn build(&self, train_text: &str, _whole_text: &str) -> Result<Tokenizer, DataError> {
        self.learn(&mut training::in_pieces(train_text))
    }

    /// Learns from texts as they come: files larger than memory.
    ///
    /// # Errors
    /// Too little text for what was asked; a kind that learns nothing.
    fn learn(&self, texts: &mut Texts) -> Result<Tokenizer, DataError>;
}

crate::base::registry! {
    /// The tokenizer.
    pub enum TokenizerConfig: dyn TokenizerKind { char: Char, bpe: Bpe, unigram: Unigram, wordpiece: Wordpiece, file: File }
}

impl TokenizerConfig {
    /// The same with these chat marks where the config leaves them to the data.
    pub fn with_chat_markers(&self, markers: ChatMarkers) -> TokenizerConfig {
        let mut config = self.clone();
        let said = match &mut config {
            TokenizerConfig::Bpe(kind) => &mut kind.chat_markers,
            TokenizerConfig::Unigram(kind) => &mut kind.chat_markers,
            TokenizerConfig::Wordpiece(kind) => &mut kind.chat_markers,
            TokenizerConfig::Char(_) | TokenizerConfig::File(_) => return config,
        };
        if *said == ChatMarkers::Auto {
            *said = markers;
        }
        config
    }
}
