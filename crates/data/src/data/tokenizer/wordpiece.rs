//! WordPiece: words and parts of words, as BERT. Spaces and line ends are not kept.

use super::training::{ChatMarkers, check_size, specials, train};
use super::{Texts, Tokenizer};
use crate::base::registry::Entry;
use crate::data::DataError;
use serde::{Deserialize, Serialize};
use tokenizers::decoders::wordpiece::WordPiece as Joined;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::wordpiece::{WordPiece, WordPieceTrainer};
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;

pub const ENTRY: Entry = Entry {
    id: "wordpiece",
    title: "WordPiece",
    summary: "Words and word pieces. Loses line ends and repeated spaces, and has an unknown token.",
    source: "Schuster & Nakajima 2012; Devlin et al. 2018 (BERT), arXiv 1810.04805",
};

const UNKNOWN: &str = "[UNK]";
/// Characters kept at most: in a large text the rare ones would fill the vocabulary.
const MAX_ALPHABET: usize = 1000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Tokens in the vocabulary, characters and special tokens included.
    #[schemars(range(min = 100, max = 1000000))]
    pub vocab_size: usize,
    /// Your own special tokens, never split.
    pub special_tokens: Vec<String>,
    /// Markers of a chat template as special tokens, never split.
    pub chat_markers: ChatMarkers,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            vocab_size: 4096,
            special_tokens: Vec::new(),
            chat_markers: ChatMarkers::Auto,
        }
    }
}

impl super::TokenizerKind for Config {
    fn vocab_size(&self) -> Option<usize> {
        Some(self.vocab_size)
    }

    fn learn(&self, texts: &mut Texts) -> Result<Tokenizer, DataError> {
        let specials = specials(&[UNKNOWN], self.chat_markers, &self.special_tokens);
        check_size(ENTRY.id, self.vocab_size, specials.len() + 1)?;
        let mut tokenizer = tokenizers::Tokenizer::new(WordPiece::default());
        tokenizer
            .with_pre_tokenizer(Some(BertPreTokenizer))
            .with_decoder(Some(Joined::new("##".into(), false)));
        let trainer: TrainerWrapper = WordPieceTrainer::builder()
            .vocab_size(self.vocab_size)
            .limit_alphabet(MAX_ALPHABET.min(self.vocab_size / 2))
            .special_tokens(specials)
            // A progress bar would draw over the screen.
            .show_progress(false)
            .build()
            .into();
        Tokenizer::from_json(&train(ENTRY.id, tokenizer, trainer, texts)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::TokenizerKind;
    use super::*;

    #[test]
    fn words_are_cut_into_parts_and_strangers_are_unknown() {
        let text = &crate::embed::text("assets/corpora/tinyshakespeare.txt").unwrap()[..60_000];
        let config = Config {
            vocab_size: 500,
            ..Config::default()
        };
        let tokenizer = config.build(text, "").unwrap();
        assert_eq!(tokenizer.vocab_size(), 500);
        let ids = tokenizer.encode("the citizens speak").unwrap();
        assert_eq!(tokenizer.decode(&ids), "the citizens speak");
        let part = ids
            .iter()
            .filter_map(|id| tokenizer.token(*id))
            .any(|t| t.starts_with("##"));
        assert!(part);
        assert_eq!(tokenizer.encode("日").unwrap(), [tokenizer.unk().unwrap()]);
        assert_eq!(tokenizer.eos(), tokenizer.id("<|endoftext|>"));
    }
}
