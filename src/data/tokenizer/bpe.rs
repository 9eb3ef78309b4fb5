//! Byte-level byte-pair encoding, trained on the training split.

use super::Tokenizer;
use super::codec::pieces;
use crate::base::registry::Entry;
use crate::data::DataError;
use serde::{Deserialize, Serialize};
use tokenizers::AddedToken;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

const END_OF_TEXT: &str = "<|endoftext|>";

pub const ENTRY: Entry = Entry {
    id: "bpe",
    title: "Byte-level BPE",
    summary: "Merges frequent byte pairs into subwords; any text can be encoded.",
    source: "Sennrich et al. 2016, arXiv 1508.07909; Radford et al. 2019 (GPT-2)",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Tokens in the vocabulary, the 256 bytes and the end-of-text token included.
    #[schemars(range(min = 257, max = 1000000))]
    pub vocab_size: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config { vocab_size: 1024 }
    }
}

impl super::TokenizerKind for Config {
    fn vocab_size(&self) -> Option<usize> {
        Some(self.vocab_size)
    }

    /// Learns merges from the training split. A short text may not have enough pairs: the vocabulary is smaller then.
    fn build(&self, train_text: &str, _whole_text: &str) -> Result<Tokenizer, DataError> {
        let json = self.train(train_text).map_err(|e| DataError::Tokenizer {
            place: "training the bpe tokenizer".into(),
            what: e.to_string(),
        })?;
        Tokenizer::from_json(&json)
    }
}

impl Config {
    fn train(&self, text: &str) -> tokenizers::Result<String> {
        // Every byte can be encoded, spaces belong to the word behind them, nothing is put in front of a text.
        let byte_level = ByteLevel::new(false, true, true);
        let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
        tokenizer
            .with_pre_tokenizer(Some(byte_level))
            .with_decoder(Some(byte_level));
        let mut trainer: TrainerWrapper = BpeTrainer::builder()
            .vocab_size(self.vocab_size)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .special_tokens(vec![AddedToken::from(END_OF_TEXT, true)])
            // A progress bar would draw over the screen.
            .show_progress(false)
            .build()
            .into();
        tokenizer.train(&mut trainer, pieces(text).into_iter())?;
        tokenizer.to_string(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::TokenizerKind;
    use super::*;

    fn trained(vocab_size: usize) -> (Tokenizer, &'static str) {
        let text = &crate::embed::text("assets/corpora/tinyshakespeare.txt").unwrap()[..60_000];
        let tokenizer = Config { vocab_size }.build(text, "").unwrap();
        (tokenizer, text)
    }

    #[test]
    fn any_text_survives_and_common_words_are_single_tokens() {
        let (tokenizer, text) = trained(600);
        assert_eq!(tokenizer.vocab_size(), 600);
        for text in [text, "", " \n\n\t  x", "日本語 𝄞\u{0}\r\n", "ﬁ"] {
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(tokenizer.decode(&ids), text);
            assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocab_size()));
        }
        assert_eq!(tokenizer.encode(" the").unwrap().len(), 1);
    }

    #[test]
    fn the_end_of_text_token_is_never_split() {
        let (tokenizer, _) = trained(300);
        let eos = tokenizer.eos().unwrap();
        let ids = tokenizer.encode("a<|endoftext|>b").unwrap();
        assert_eq!(ids[1], eos);
        assert_eq!(ids.len(), 3);
        assert_eq!(tokenizer.decode(&ids), "a<|endoftext|>b");
    }

    #[test]
    fn training_is_repeatable_and_the_file_reads_back() {
        let (one, text) = trained(500);
        let (two, _) = trained(500);
        assert_eq!(one.to_json(), two.to_json());
        let again = Tokenizer::from_json(one.to_json()).unwrap();
        assert_eq!(again.encode(text).unwrap(), one.encode(text).unwrap());
    }

    #[test]
    fn a_short_text_gives_what_it_can() {
        let tokenizer = Config { vocab_size: 1000 }.build("ab ab", "").unwrap();
        assert!((257..270).contains(&tokenizer.vocab_size()));
    }
}
