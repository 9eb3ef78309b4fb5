//! An existing tokenizer, in any format that `import` reads.

use super::import;
use super::{Texts, Tokenizer};
use crate::base::child::Child;
use crate::base::registry::Entry;
use crate::data::DataError;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub const ENTRY: Entry = Entry {
    id: "file",
    title: "From a file",
    summary: "An existing tokenizer: tokenizer.json, a model folder, GPT-2 files, SentencePiece, GGUF.",
    source: "huggingface/tokenizers",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// A tokenizer.json, a model folder, vocab.json beside merges.txt, a SentencePiece .model, or a .gguf file.
    pub path: PathBuf,
}

impl super::TokenizerKind for Config {
    fn vocab_size(&self) -> Option<usize> {
        None
    }

    fn build(&self, _train_text: &str, _whole_text: &str) -> Result<Tokenizer, DataError> {
        import::load(&self.path, &Child::of_this_program())
    }

    fn learn(&self, _texts: &mut Texts) -> Result<Tokenizer, DataError> {
        Err(DataError::Tokenizer {
            place: self.path.display().to_string(),
            what: "an existing tokenizer is not trained".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::TokenizerKind;
    use super::*;

    #[test]
    fn a_file_is_found_read_and_blamed_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            path: dir.path().join("t.json"),
        };
        let build = || config.build("", "");
        assert!(matches!(build(), Err(DataError::Unreadable { .. })));
        std::fs::write(&config.path, "{}").unwrap();
        assert!(build().unwrap_err().to_string().contains("t.json: "));
        let made = super::super::bpe::Config {
            vocab_size: 260,
            ..Default::default()
        }
        .build("aa aa", "")
        .unwrap();
        std::fs::write(&config.path, made.to_json()).unwrap();
        let read = build().unwrap();
        assert_eq!(read.encode("aa a").unwrap(), made.encode("aa a").unwrap());
        assert_eq!(read.eos(), made.eos());
    }
}
