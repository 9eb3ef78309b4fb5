//! Unigram: a vocabulary with probabilities, pruned from a large one; a text gets its most probable segmentation.

use super::patterns::LINES;
use super::training::{ChatMarkers, check_size, error, specials, train};
use super::{Texts, Tokenizer};
use crate::base::registry::Entry;
use crate::data::DataError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokenizers::models::unigram::{Unigram, UnigramTrainer};
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior};

pub const ENTRY: Entry = Entry {
    id: "unigram",
    title: "Unigram",
    summary: "Keeps the pieces that make the text most probable; falls back to bytes for unseen characters.",
    source: "Kudo 2018, arXiv 1804.10959; SentencePiece",
};

const UNKNOWN: &str = "<unk>";
const BYTES: usize = 256;
/// Visible ASCII is in every vocabulary, so that a text which spells `<0x41>` is never taken for a byte.
const VISIBLE: std::ops::RangeInclusive<char> = ' '..='~';
const N_VISIBLE: usize = 95;
/// A byte is less likely than so many of the rarest piece: longer than its spelling.
const SPELLING: f64 = 8.0;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Tokens in the vocabulary, the 256 bytes and the special tokens included.
    #[schemars(range(min = 400, max = 1000000))]
    pub vocab_size: usize,
    /// Your own special tokens, never split.
    pub special_tokens: Vec<String>,
    /// Markers of a chat template as special tokens, never split.
    pub chat_markers: ChatMarkers,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            vocab_size: 2048,
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
        check_size(
            ENTRY.id,
            self.vocab_size,
            BYTES + N_VISIBLE + specials.len() + 1,
        )?;
        let lines = Split::new(
            SplitPattern::Regex(LINES.into()),
            SplitDelimiterBehavior::Isolated,
            false,
        )
        .map_err(|e| error(ENTRY.id, e))?;
        let words = Metaspace::new('▁', PrependScheme::Never, true);
        let mut tokenizer = tokenizers::Tokenizer::new(Unigram::default());
        tokenizer.with_pre_tokenizer(Some(Sequence::new(vec![
            PreTokenizerWrapper::Split(lines),
            PreTokenizerWrapper::Metaspace(words),
        ])));
        let trainer = UnigramTrainer::builder()
            .vocab_size((self.vocab_size - BYTES) as u32)
            .special_tokens(specials)
            .unk_token(Some(UNKNOWN.into()))
            .initial_alphabet(VISIBLE.collect())
            // A progress bar would draw over the screen.
            .show_progress(false)
            .build()
            .map_err(|e| error(ENTRY.id, e))?;
        let json = train(ENTRY.id, tokenizer, trainer.into(), texts)?;
        let json =
            with_bytes(&json).ok_or_else(|| error(ENTRY.id, "the library wrote no vocabulary"))?;
        Tokenizer::from_json(&json)
    }
}

/// Adds the 256 bytes after all other tokens, and the decoder that makes text of them.
fn with_bytes(json: &str) -> Option<String> {
    let mut whole: Value = serde_json::from_str(json).ok()?;
    let vocab = whole["model"]["vocab"].as_array_mut()?;
    let rarest = vocab
        .iter()
        .filter_map(|piece| piece[1].as_f64())
        .fold(-1.0, f64::min);
    vocab.extend((0..BYTES).map(|byte| json!([format!("<0x{byte:02X}>"), rarest * SPELLING])));
    whole["model"]["byte_fallback"] = json!(true);
    whole["decoder"] = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]});
    Some(format!("{whole:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::super::TokenizerKind;
    use super::*;

    fn trained() -> Tokenizer {
        let text = &crate::embed::text("assets/corpora/tinyshakespeare.txt").unwrap()[..60_000];
        let config = Config {
            vocab_size: 700,
            chat_markers: ChatMarkers::Chatml,
            ..Config::default()
        };
        config.build(text, "").unwrap()
    }

    #[test]
    fn any_text_survives_and_common_words_are_single_tokens() {
        let tokenizer = trained();
        assert!((600..=700).contains(&tokenizer.vocab_size()));
        for text in [
            "To be, or not\n\n  to be",
            "",
            "日本語 𝄞\r\n\t",
            " x ",
            "<0x41>",
        ] {
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(tokenizer.decode(&ids), text, "{ids:?}");
            assert!(!ids.contains(&tokenizer.unk().unwrap()));
        }
        assert_eq!(tokenizer.encode(" the").unwrap().len(), 1);
    }

    #[test]
    fn markers_are_whole_and_the_end_is_known() {
        let tokenizer = trained();
        let ids = tokenizer.encode("<|im_start|>user\nhi<|im_end|>").unwrap();
        assert_eq!(ids.first().copied(), tokenizer.id("<|im_start|>"));
        assert_eq!(ids.last().copied(), tokenizer.id("<|im_end|>"));
        assert_eq!(tokenizer.eos(), tokenizer.id("<|endoftext|>"));
    }

    #[test]
    fn a_vocabulary_without_room_for_the_bytes_is_refused() {
        let config = Config {
            vocab_size: 200,
            ..Config::default()
        };
        let error = config.build("ab ab", "").unwrap_err().to_string();
        assert!(error.contains("vocab_size 200 is less than"), "{error}");
    }
}
