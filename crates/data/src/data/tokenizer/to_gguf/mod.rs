//! A tokenizer as the keys of a GGUF file, which `import::gguf` reads. Byte-level BPE, SentencePiece's BPE with byte
//! fallback, and single characters can be written; llama.cpp has no equivalent for the rest.

mod byte_level;
mod characters;
mod pieces;

use super::Tokenizer;
use super::char::Alphabet;
use crate::data::DataError;
use crate::gguf::{Array, Value};
use serde_json::Value as Json;

/// llama.h, `enum llama_token_type`.
const NORMAL: i32 = 1;
pub const UNKNOWN: i32 = 2;
pub const CONTROL: i32 = 3;
pub const USER_DEFINED: i32 = 4;
pub const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// The keys `tokenizer.*` of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct GgufTokenizer {
    pub keys: Vec<(String, Value)>,
    /// What llama.cpp does otherwise with them.
    pub notes: Vec<String>,
}

/// What the kinds differ in.
#[derive(Debug, Default)]
struct Words {
    /// `tokenizer.ggml.model`.
    model: &'static str,
    /// `tokenizer.ggml.pre`: the rule by which words are cut.
    pre: &'static str,
    tokens: Vec<String>,
    kinds: Vec<i32>,
    scores: Option<Vec<f32>>,
    merges: Option<Vec<String>>,
    /// A space is put in front of a text.
    space_prefix: Option<bool>,
    /// A token that no text has: the byte 0xFF.
    never: Option<u32>,
    notes: Vec<String>,
}

impl Tokenizer {
    /// The keys `tokenizer.*` of a model with `vocab_size` tokens; ids that the tokenizer does not know are marked unused.
    ///
    /// # Errors
    /// It is of a kind that llama.cpp has no equal for, or cuts words by a rule that llama.cpp has no name for.
    pub fn gguf_keys(&self, vocab_size: usize) -> Result<GgufTokenizer, DataError> {
        let cannot = |what: String| DataError::Tokenizer {
            place: "the tokenizer".into(),
            what,
        };
        let json: Json = serde_json::from_str(self.to_json())
            .map_err(|e| cannot(format!("it is not JSON: {e}")))?;
        let mut words = self.words(&json, vocab_size).map_err(cannot)?;
        let bare = added_that_take_spaces(&json);
        if bare > 0 {
            words.notes.push(format!(
                "{bare} of the added tokens take the spaces beside them, which llama.cpp does not do"
            ));
        }
        Ok(self.keys(words))
    }

    fn words(&self, json: &Json, vocab_size: usize) -> Result<Words, String> {
        if let Some(alphabet) = Alphabet::from_json(self.to_json()) {
            return Ok(characters::words(&alphabet, vocab_size));
        }
        let kind = json["model"]["type"].as_str().unwrap_or("none");
        let bytes = json["model"]["byte_fallback"] == true;
        match (kind, bytes) {
            _ if byte_level::is_byte_level(json) => byte_level::words(self, json, vocab_size),
            ("BPE", true) => pieces::words(self, json, vocab_size),
            ("Unigram", true) => Err("llama.cpp's Unigram spells nothing in bytes, as this one does; the model stays in its folder (--format hf)".into()),
            _ => Err(format!(
                "llama.cpp gets byte-level BPE, BPE with bytes and single characters from here, and this one is of the kind {kind}; the model stays in its folder (--format hf)"
            )),
        }
    }

    /// The tokens of ids below `vocab_size`, and what is known of them.
    fn listed(&self, vocab_size: usize) -> (Vec<String>, Vec<i32>) {
        let added = self.added_tokens();
        let of = |id: u32| {
            let Some(token) = self.token(id) else {
                let mut unused = format!("[PAD{id}]");
                // llama.cpp ends where two tokens are spelt alike.
                while self.id(&unused).is_some() {
                    unused.push('_');
                }
                return (unused, UNUSED);
            };
            let own = added.iter().find(|added| added.id == id);
            let kind = match own {
                _ if self.unk() == Some(id) => UNKNOWN,
                Some(added) if added.special => CONTROL,
                Some(_) => USER_DEFINED,
                None => NORMAL,
            };
            (token, kind)
        };
        (0..vocab_size as u32).map(of).unzip()
    }

    fn keys(&self, words: Words) -> GgufTokenizer {
        let mut notes = words.notes;
        let text = |text: &str| Value::String(text.into());
        let mut keys = vec![
            ("tokenizer.ggml.model".to_string(), text(words.model)),
            ("tokenizer.ggml.pre".into(), text(words.pre)),
        ];
        let arrays = [
            ("tokens", Some(Array::Strings(words.tokens))),
            ("scores", words.scores.map(Array::F32)),
            ("token_type", Some(Array::I32(words.kinds))),
            ("merges", words.merges.map(Array::Strings)),
        ];
        for (name, array) in arrays {
            if let Some(array) = array {
                keys.push((format!("tokenizer.ggml.{name}"), Value::Array(array)));
            }
        }
        // Where a file names none, llama.cpp takes the token of a fixed id: as the end it would cut answers short.
        let eos = self.eos().or(words.never);
        if self.eos().is_none() && eos.is_some() {
            notes.push("no token ends a text: a byte that no text has is named as the end".into());
        }
        let ids = [
            ("bos_token_id", self.bos()),
            ("eos_token_id", eos),
            ("padding_token_id", self.pad()),
            ("unknown_token_id", self.unk()),
        ];
        for (key, id) in ids {
            if let Some(id) = id {
                keys.push((format!("tokenizer.ggml.{key}"), Value::Unsigned(id.into())));
            }
        }
        // What stands around a text here stands around it there: beside a tokenizer.json the flags of
        // tokenizer_config.json have no effect, here as in transformers.
        let (lead, tail) = self.frame();
        let marks = self.marks();
        let bos = self.bos().is_some() && !lead.is_empty();
        let eos = self.eos().is_some() && !tail.is_empty();
        keys.push(("tokenizer.ggml.add_bos_token".into(), Value::Bool(bos)));
        keys.push(("tokenizer.ggml.add_eos_token".into(), Value::Bool(eos)));
        if let Some(yes) = words.space_prefix {
            keys.push(("tokenizer.ggml.add_space_prefix".into(), Value::Bool(yes)));
        }
        if let Some(template) = &marks.chat_template {
            keys.push(("tokenizer.chat_template".into(), text(template)));
        }
        GgufTokenizer { keys, notes }
    }
}

fn added_that_take_spaces(json: &Json) -> usize {
    let takes = |token: &&Json| token["lstrip"] == true || token["rstrip"] == true;
    let added = json["added_tokens"].as_array();
    added.map_or(0, |added| added.iter().filter(takes).count())
}

/// Pairs, written as lists or as one string with a space.
fn merges(json: &Json) -> Option<Vec<(&str, &str)>> {
    json["model"]["merges"]
        .as_array()?
        .iter()
        .map(pair)
        .collect()
}

fn pair(merge: &Json) -> Option<(&str, &str)> {
    match merge {
        Json::String(pair) => pair.split_once(' '),
        Json::Array(pair) => Some((pair.first()?.as_str()?, pair.get(1)?.as_str()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tokenizer::{Marks, TokenizerConfig};
    use crate::gguf::{Gguf, write};

    const TEXT: &str = "the theme of the thesis: there are 12 of them\n";

    fn supervised() -> Tokenizer {
        let config: TokenizerConfig =
            serde_json::from_value(serde_json::json!({"bpe": {"vocab_size": 270}})).unwrap();
        config.build(&TEXT.repeat(50), TEXT).unwrap()
    }

    #[test]
    fn a_tokenizer_comes_back_from_a_file_with_the_same_ids() {
        let tokenizer = supervised();
        let eos = tokenizer.eos().and_then(|id| tokenizer.token(id));
        let marks = Marks {
            eos,
            chat_template: Some("{{ messages }}".into()),
            add_bos: Some(false),
            ..Marks::default()
        };
        let tokenizer = tokenizer.with_marks(marks).unwrap();
        let vocab_size = tokenizer.vocab_size() + 3;
        let keys = tokenizer.gguf_keys(vocab_size).unwrap().keys;
        let mut bytes = Vec::new();
        write(&mut bytes, &keys, &[], &mut |_, _| Ok(())).unwrap();
        let head = Gguf::read(bytes.as_slice(), bytes.len() as u64).unwrap();
        let tokens = head.metadata.strings("tokenizer.ggml.tokens").unwrap();
        assert_eq!(tokens.len(), vocab_size);
        assert_eq!(tokens[vocab_size - 1], format!("[PAD{}]", vocab_size - 1));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        std::fs::write(&path, bytes).unwrap();
        let child = crate::base::child::Child::of_this_program();
        let back = crate::data::tokenizer::load(&path, &child);
        // Without the program beside the tests there is no child to vet it.
        if let Ok(back) = back {
            assert_eq!(back.encode(TEXT).unwrap(), tokenizer.encode(TEXT).unwrap());
            assert_eq!(back.eos(), tokenizer.eos());
            assert_eq!(back.marks().chat_template, tokenizer.marks().chat_template);
        }
    }

    fn built(config: serde_json::Value) -> Tokenizer {
        let config: TokenizerConfig = serde_json::from_value(config).unwrap();
        config.build(&TEXT.repeat(50), TEXT).unwrap()
    }

    #[test]
    fn kinds_without_an_equal_are_refused() {
        let error = |tokenizer: &Tokenizer| tokenizer.gguf_keys(900).unwrap_err().to_string();
        let wordpiece = built(serde_json::json!({"wordpiece": {"vocab_size": 300}}));
        assert!(
            error(&wordpiece).contains("WordPiece"),
            "{}",
            error(&wordpiece)
        );
        let unigram = built(serde_json::json!({"unigram": {"vocab_size": 500}}));
        assert!(error(&unigram).contains("in bytes"), "{}", error(&unigram));
        let odd = supervised()
            .to_json()
            .replace("\"use_regex\": true", "\"use_regex\": false");
        let odd = Tokenizer::from_json(&odd).unwrap();
        assert!(error(&odd).contains("pre-tokenizer"), "{}", error(&odd));
    }

    /// A normalizer was left out without a word: other tokens for the same text.
    #[test]
    fn a_normalizer_of_bytes_is_told_or_refused() {
        let with = |normalizer: Json| {
            let mut json: Json = serde_json::from_str(supervised().to_json()).unwrap();
            json["normalizer"] = normalizer;
            let tokenizer = Tokenizer::from_json(&json.to_string()).unwrap();
            tokenizer.gguf_keys(300).map_err(|e| e.to_string())
        };
        assert_eq!(with(Json::Null).unwrap().notes, Vec::<String>::new());
        let nfc = serde_json::json!({"type": "NFC"});
        for composed in [
            nfc.clone(),
            serde_json::json!({"type": "Sequence", "normalizers": [nfc]}),
        ] {
            let notes = with(composed).unwrap().notes;
            assert!(notes.len() == 1 && notes[0].contains("NFC"), "{notes:?}");
        }
        for kind in ["Lowercase", "NFKC"] {
            let error = with(serde_json::json!({"type": kind})).unwrap_err();
            assert!(
                error.contains(kind) && error.contains("llama.cpp"),
                "{error}"
            );
        }
    }

    /// Pieces of single characters, bytes and what `merges` makes.
    fn pieces(merges: &[(&str, &str)], more: &[&str]) -> Tokenizer {
        let mut tokens: Vec<String> = vec!["<unk>".into(), "</s>".into()];
        tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
        tokens.extend("▁abc".chars().map(String::from));
        tokens.extend(more.iter().map(|token| token.to_string()));
        let vocab: serde_json::Map<String, Json> = tokens
            .iter()
            .enumerate()
            .map(|(id, token)| (token.clone(), id.into()))
            .collect();
        let special = |id: usize| {
            serde_json::json!({"id": id, "content": tokens[id], "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false, "special": true})
        };
        let json = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [special(0), special(1)],
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            "pre_tokenizer": null, "post_processor": null, "decoder": null,
            "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
                "vocab": vocab, "merges": merges},
        });
        Tokenizer::from_json(&json.to_string()).unwrap()
    }

    #[test]
    fn merges_become_scores_where_scores_say_the_same() {
        let sound = pieces(
            &[("a", "b"), ("b", "c"), ("a", "bc"), ("ab", "c")],
            &["ab", "bc", "abc"],
        );
        let keys = sound.gguf_keys(265).unwrap().keys;
        let value = |key: &str| {
            let key = format!("tokenizer.ggml.{key}");
            keys.iter()
                .find(|(k, _)| *k == key)
                .map(|(_, v)| v.clone())
                .unwrap()
        };
        let Value::Array(Array::F32(scores)) = value("scores") else {
            panic!("no scores")
        };
        assert_eq!(scores[258..], [0.0, 0.0, 0.0, 0.0, -1.0, -2.0, -3.0]);
        assert_eq!(scores[1], -1e9);
        let Value::Array(Array::I32(kinds)) = value("token_type") else {
            panic!("no types")
        };
        assert_eq!(kinds[..3], [UNKNOWN, CONTROL, BYTE]);
        assert_eq!(value("add_space_prefix"), Value::Bool(false));
        // A way to make abc is missing; and abc is made before and after another token.
        let missing = pieces(&[("a", "b"), ("b", "c"), ("a", "bc")], &["ab", "bc", "abc"]);
        let error = missing.gguf_keys(265).unwrap_err().to_string();
        assert!(error.contains("does not merge \"ab\" and \"c\""), "{error}");
        let between = [("a", "b"), ("ab", "c"), ("b", "c"), ("a", "bc")];
        let error = pieces(&between, &["ab", "bc", "abc"])
            .gguf_keys(265)
            .unwrap_err()
            .to_string();
        assert!(error.contains("between them"), "{error}");
    }

    #[test]
    fn characters_are_spelt_so_that_no_text_is_mistaken() {
        let config = TokenizerConfig::Char(Default::default());
        let tokenizer = config.build("", "a\\\n\u{1}é").unwrap();
        let keys = tokenizer.gguf_keys(7).unwrap().keys;
        assert_eq!(keys[0].1, Value::String("rwkv".into()));
        let Value::Array(Array::Strings(tokens)) = &keys[2].1 else {
            panic!("no tokens")
        };
        assert_eq!(
            *tokens,
            ["\\x01", "\\n", "\\\\", "a", "é", "\\xff5", "\\xff6"]
        );
    }
}
