//! One token per distinct character of the training text, in code-point order.

use super::{Texts, Tokenizer};
use crate::base::registry::Entry;
use crate::data::DataError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};

pub const ENTRY: Entry = Entry {
    id: "char",
    title: "Characters",
    summary: "One token per distinct character: needs no training, good for tiny models.",
    source: "nanoGPT, data/shakespeare_char",
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl super::TokenizerKind for Config {
    fn vocab_size(&self) -> Option<usize> {
        None
    }

    fn build(&self, _train_text: &str, whole_text: &str) -> Result<Tokenizer, DataError> {
        Ok(Tokenizer::characters(Alphabet::of(whole_text)))
    }

    fn learn(&self, texts: &mut Texts) -> Result<Tokenizer, DataError> {
        let mut chars = BTreeSet::new();
        for text in texts {
            chars.extend(Alphabet::of(&text).chars);
        }
        Ok(Tokenizer::characters(Alphabet::new(
            chars.into_iter().collect(),
        )))
    }
}

/// The characters of a vocabulary: id = place in the list. A character outside it is an error, never replaced: a prompt
/// would silently mean something else.
#[derive(Debug, Clone)]
pub(super) struct Alphabet {
    chars: Vec<char>,
    /// Ids of characters below U+0800 by code point, `NONE` where there is none: most text is looked up here.
    low: Vec<u32>,
    rest: HashMap<char, u32>,
}

const LOW: usize = 0x800;
/// Characters of a vocabulary that an error shows.
const SHOWN: usize = 12;
const NONE: u32 = u32::MAX;

/// What splits text into characters in the tokenizer.json. `.` alone would leave newlines out.
const EVERY_CHARACTER: &str = "[\\s\\S]";

impl Alphabet {
    /// Every character of a text, in code-point order.
    fn of(text: &str) -> Alphabet {
        let mut low = [false; LOW];
        let mut chars = BTreeSet::new();
        for c in text.chars() {
            match low.get_mut(c as usize) {
                Some(seen) => *seen = true,
                None => {
                    chars.insert(c);
                }
            }
        }
        let seen = (0..LOW as u32).filter(|c| low[*c as usize]);
        chars.extend(seen.filter_map(char::from_u32));
        Alphabet::new(chars.into_iter().collect())
    }

    pub fn new(chars: Vec<char>) -> Alphabet {
        let mut alphabet = Alphabet {
            low: vec![NONE; LOW],
            rest: HashMap::new(),
            chars,
        };
        for (id, c) in alphabet.chars.iter().enumerate() {
            match alphabet.low.get_mut(*c as usize) {
                Some(place) => *place = id as u32,
                None => {
                    alphabet.rest.insert(*c, id as u32);
                }
            }
        }
        alphabet
    }

    pub fn len(&self) -> usize {
        self.chars.len()
    }

    /// `which has 65 characters: '\n' ' ' '!' …`
    fn described(&self) -> String {
        let n = self.chars.len();
        let first = self.chars.iter().take(SHOWN).map(|c| format!("{c:?}"));
        let first: Vec<String> = first.collect();
        let (word, more) = (if n == 1 { "character" } else { "characters" }, n > SHOWN);
        let more = if more { " …" } else { "" };
        format!("which has {n} {word}: {}{more}", first.join(" "))
    }

    fn id(&self, c: char) -> Option<u32> {
        match self.low.get(c as usize) {
            Some(&NONE) => None,
            Some(id) => Some(*id),
            None => self.rest.get(&c).copied(),
        }
    }

    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let mut ids = Vec::with_capacity(text.len());
        for (position, character) in text.chars().enumerate() {
            let unknown = || DataError::UnknownCharacter {
                character,
                position,
                known: self.described(),
            };
            ids.push(self.id(character).ok_or_else(unknown)?);
        }
        Ok(ids)
    }

    pub fn decode(&self, ids: &[u32]) -> String {
        let char_of = |id: &u32| self.chars.get(*id as usize).copied();
        ids.iter()
            .map(|id| char_of(id).unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect()
    }

    /// The standard form: a word-level model over single characters, joined without spaces.
    pub fn to_json(&self) -> String {
        let vocab: Map<String, Value> = self
            .chars
            .iter()
            .enumerate()
            .map(|(id, c)| (c.to_string(), Value::from(id)))
            .collect();
        let json = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": [],
            "normalizer": null,
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": EVERY_CHARACTER},
                "behavior": "Isolated",
                "invert": false,
            },
            "post_processor": null,
            "decoder": {"type": "Fuse"},
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
        });
        format!("{json:#}\n")
    }

    /// Recognises what [`Alphabet::to_json`] writes; `None` for any other tokenizer.
    pub fn from_json(json: &str) -> Option<Alphabet> {
        let json: Value = serde_json::from_str(json).ok()?;
        let ours = json["model"]["type"] == "WordLevel"
            && json["pre_tokenizer"]["pattern"]["Regex"] == EVERY_CHARACTER
            && json["decoder"]["type"] == "Fuse"
            && json["normalizer"].is_null()
            && json["added_tokens"].as_array().is_none_or(Vec::is_empty);
        if !ours {
            return None;
        }
        let vocab = json["model"]["vocab"].as_object()?;
        let mut chars = vec![None; vocab.len()];
        for (token, id) in vocab {
            let mut token = token.chars();
            let (Some(c), None) = (token.next(), token.next()) else {
                return None;
            };
            let place = chars.get_mut(usize::try_from(id.as_u64()?).ok()?)?;
            if place.replace(c).is_some() {
                return None;
            }
        }
        chars.into_iter().collect::<Option<_>>().map(Alphabet::new)
    }
}

#[cfg(test)]
mod tests {
    use super::super::TokenizerKind;
    use super::*;

    fn tokenizer(text: &str) -> Tokenizer {
        Config {}.build("", text).unwrap()
    }

    #[test]
    fn shakespeare_has_nanogpts_vocabulary() {
        let text = crate::embed::text("assets/corpora/tinyshakespeare.txt").unwrap();
        let tokenizer = tokenizer(text);
        assert_eq!(tokenizer.vocab_size(), 65);
        let alphabet: Vec<u32> = (0..65).collect();
        assert_eq!(
            tokenizer.decode(&alphabet),
            "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
        );
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(ids.len(), text.len());
        assert_eq!(tokenizer.decode(&ids), text);
    }

    #[test]
    fn the_library_reads_the_file_and_agrees() {
        let text = "Ünï\n\n two  spaces\t𝄞 — \r\n\"quoted\" \\";
        let ours = tokenizer(text);
        let library = tokenizers::Tokenizer::from_bytes(ours.to_json()).unwrap();
        let ids = ours.encode(text).unwrap();
        assert_eq!(library.encode(text, false).unwrap().get_ids(), ids);
        assert_eq!(library.decode(&ids, false).unwrap(), text);
        assert!(
            library.encode("ö", false).is_err(),
            "unknown to the library too"
        );
    }

    #[test]
    fn reading_its_own_file_gives_the_same_ids() {
        let ours = tokenizer("zebra\n ü");
        let again = Tokenizer::from_json(ours.to_json()).unwrap();
        assert_eq!(again.to_json(), ours.to_json());
        assert_eq!(
            again.encode("bar ü\n").unwrap(),
            ours.encode("bar ü\n").unwrap()
        );
        assert_eq!(again.vocab_size(), ours.vocab_size());
    }

    #[test]
    fn a_stranger_is_named_with_its_place() {
        let error = tokenizer("abc").encode("ab€c").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the character '€' (at character 2) is not in the vocabulary, which has 3 characters: 'a' 'b' 'c'"
        );
        let hint = error.hint();
        assert!(hint.contains("data.tokenizer=bpe"), "{hint}");
        let error = tokenizer("abcdefghijklmn\n").encode("H").unwrap_err();
        let said = error.to_string();
        let known = "which has 15 characters: '\\n' 'a' 'b' 'c' 'd' 'e' 'f' 'g' 'h' 'i' 'j' 'k' …";
        assert!(said.ends_with(known), "{said}");
        assert_eq!(tokenizer("abc").decode(&[0, 9]), "a\u{fffd}");
    }
}
