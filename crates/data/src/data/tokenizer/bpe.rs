//! Byte-level byte-pair encoding, trained on text. A short text may not have enough pairs; the vocabulary is then smaller.

use super::patterns::Split;
use super::training::{ChatMarkers, check_size, error, specials, train};
use super::{Texts, Tokenizer};
use crate::base::registry::Entry;
use crate::data::DataError;
use serde::{Deserialize, Serialize};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper};

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
    /// Pre-tokenizer rule that splits text into words.
    pub split: Split,
    /// Your own special tokens, never split.
    pub special_tokens: Vec<String>,
    /// Markers of a chat template as special tokens, never split.
    pub chat_markers: ChatMarkers,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            vocab_size: 1024,
            split: Split::Gpt2,
            special_tokens: Vec::new(),
            chat_markers: ChatMarkers::Auto,
        }
    }
}

impl super::TokenizerKind for Config {
    fn vocab_size(&self) -> Option<usize> {
        Some(self.vocab_size)
    }

    /// A short text may not have enough pairs: the vocabulary is smaller then.
    fn learn(&self, texts: &mut Texts) -> Result<Tokenizer, DataError> {
        let specials = specials(&[], self.chat_markers, &self.special_tokens);
        check_size(ENTRY.id, self.vocab_size, 256 + specials.len())?;
        let pattern = self.split.pattern();
        let words: PreTokenizerWrapper =
            serde_json::from_value(pattern.pre_tokenizer()).map_err(|e| DataError::Tokenizer {
                place: "the pre-tokenizer rule".into(),
                what: e.to_string(),
            })?;
        let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
        tokenizer
            .with_normalizer(pattern.nfc.then_some(NormalizerWrapper::NFC(NFC)))
            .map_err(|e| error(ENTRY.id, e))?
            .with_pre_tokenizer(Some(words))
            // Every byte can be encoded, spaces belong to the word after them, nothing is put in front of a text.
            .with_decoder(Some(ByteLevel::new(false, true, true)));
        let trainer: TrainerWrapper = BpeTrainer::builder()
            .vocab_size(self.vocab_size)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
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

    fn trained(vocab_size: usize) -> (Tokenizer, &'static str) {
        let text = &crate::embed::text("assets/corpora/tinyshakespeare.txt").unwrap()[..60_000];
        let tokenizer = Config {
            vocab_size,
            ..Default::default()
        }
        .build(text, "")
        .unwrap();
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
    fn markers_and_tokens_of_ones_own_are_whole_and_stand_once() {
        let config = Config {
            vocab_size: 300,
            split: Split::Llama3,
            special_tokens: vec!["<tool>".into(), "<|im_end|>".into()],
            chat_markers: ChatMarkers::Chatml,
        };
        let tokenizer = config.build("ab ab", "").unwrap();
        let names: Vec<String> = tokenizer
            .added_tokens()
            .into_iter()
            .map(|t| t.content)
            .collect();
        assert_eq!(
            names,
            ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool>"]
        );
        let ids = tokenizer.encode("a<tool>12345").unwrap();
        assert_eq!(ids.get(1).copied(), tokenizer.id("<tool>"));
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
        let tokenizer = Config {
            vocab_size: 1000,
            ..Default::default()
        }
        .build("ab ab", "")
        .unwrap();
        assert!((257..270).contains(&tokenizer.vocab_size()));
    }
}
