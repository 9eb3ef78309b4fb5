//! The bytes that each token stands for: of a part of a character, bytes that are no text alone.

use super::codec::Tokenizer;
use serde_json::Value;
use std::collections::HashMap;

/// Bytes of all tokens, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenBytes {
    all: Vec<Vec<u8>>,
    spaces_words: bool,
}

impl TokenBytes {
    /// Those of the token; none of an id that has no token.
    pub fn of(&self, id: u32) -> &[u8] {
        self.all.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// All, by id.
    pub fn all(&self) -> &[Vec<u8>] {
        &self.all
    }

    /// Every word and every mark has a space in front of it, whatever the text (WordPiece).
    pub fn spaces_words(&self) -> bool {
        self.spaces_words
    }
}

/// How tokens spell bytes, by the decoder of `tokenizer.json`.
#[derive(Debug, Clone, Copy, Default)]
struct Spelling<'a> {
    /// A letter for each byte (GPT-2).
    byte_level: bool,
    /// `<0x0A>` is a byte.
    byte_fallback: bool,
    /// What stands for a space.
    space: Option<&'a str>,
    /// What begins a token that continues a word; others begin with a space (WordPiece).
    inside_word: Option<&'a str>,
}

impl<'a> Spelling<'a> {
    fn of(decoder: &'a Value) -> Spelling<'a> {
        let alone = std::slice::from_ref(decoder);
        let steps = decoder["decoders"].as_array().map_or(alone, Vec::as_slice);
        let mut spelling = Spelling::default();
        for step in steps {
            match step["type"].as_str() {
                Some("ByteLevel") => spelling.byte_level = true,
                Some("ByteFallback") => spelling.byte_fallback = true,
                Some("Metaspace") => spelling.space = step["replacement"].as_str(),
                Some("Replace") if step["content"] == " " => {
                    spelling.space = step["pattern"]["String"].as_str();
                }
                Some("BPEDecoder") => spelling.space = step["suffix"].as_str(),
                Some("WordPiece") => spelling.inside_word = step["prefix"].as_str(),
                _ => {}
            }
        }
        spelling
    }

    fn bytes(self, token: &str, letters: &HashMap<char, u8>) -> Vec<u8> {
        if self.byte_level {
            let bytes: Option<Vec<u8>> = token.chars().map(|c| letters.get(&c).copied()).collect();
            return bytes.unwrap_or_else(|| token.as_bytes().to_vec());
        }
        if let Some(byte) = hex_byte(token).filter(|_| self.byte_fallback) {
            return vec![byte];
        }
        let mut text = token.to_string();
        if let Some(inside) = self.inside_word {
            text = match token.strip_prefix(inside) {
                Some(rest) => rest.into(),
                None => format!(" {token}"),
            };
        }
        if let Some(space) = self.space.filter(|space| !space.is_empty()) {
            text = text.replace(space, " ");
        }
        text.into_bytes()
    }
}

/// `<0x0A>`
fn hex_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The byte of each letter: visible Latin-1 stands for itself, and the others are counted up from U+0100 (GPT-2's
/// `bytes_to_unicode`).
fn letters() -> HashMap<char, u8> {
    let mut next = 0x100;
    let of = |byte: u8| {
        let letter = match byte {
            0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
            _ => {
                next += 1;
                char::from_u32(next - 1).unwrap_or_default()
            }
        };
        (letter, byte)
    };
    (0..=255).map(of).collect()
}

impl Tokenizer {
    /// The bytes of all tokens, within a text: decoders drop the space in front of its first word. Takes some time.
    pub fn token_bytes(&self) -> TokenBytes {
        let decoder = self.decoder();
        let spelling = Spelling::of(&decoder);
        let letters = letters();
        let mut all = vec![Vec::new(); self.vocab_size()];
        for (id, bytes) in (0..).zip(&mut all) {
            if let Some(token) = self.token(id) {
                *bytes = spelling.bytes(&token, &letters);
            }
        }
        // They stand for themselves.
        for added in self.added_tokens() {
            if let Some(bytes) = all
                .get_mut(added.id as usize)
                .filter(|_| !spelling.byte_level)
            {
                *bytes = added.content.into_bytes();
            }
        }
        TokenBytes {
            all,
            spaces_words: spelling.inside_word.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Tokenizer, TokenizerConfig};
    use super::*;
    use serde_json::json;

    const TEXT: &str = "Zwölf Boxer jagen Viktor quer über den Sylter Deich. 日本 🦀\n\tx = 1";

    fn spelt(tokenizer: &Tokenizer, text: &str) -> String {
        let bytes = tokenizer.token_bytes();
        let ids = tokenizer.encode(text).unwrap();
        let all: Vec<u8> = ids.iter().flat_map(|id| bytes.of(*id)).copied().collect();
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn the_bytes_of_the_tokens_of_a_text_are_those_of_the_text() {
        for kind in ["char", "bpe", "unigram", "wordpiece"] {
            let mut settings = json!({});
            if kind != "char" {
                settings["vocab_size"] = 400.into();
            }
            let config: TokenizerConfig = serde_json::from_value(json!({kind: settings})).unwrap();
            let tokenizer = config.build(&TEXT.repeat(20), TEXT).unwrap();
            let ids = tokenizer.encode(TEXT).unwrap();
            let found = spelt(&tokenizer, TEXT);
            assert_eq!(
                found.trim_start(),
                tokenizer.decode(&ids).trim_start(),
                "{kind}"
            );
        }
    }

    #[test]
    fn parts_of_characters_and_spaces_are_bytes_in_every_spelling() {
        let letters = letters();
        let bytes = |decoder: Value, token: &str| Spelling::of(&decoder).bytes(token, &letters);
        let level = json!({"type": "ByteLevel"});
        assert_eq!(bytes(level.clone(), "Ġd"), b" d");
        assert_eq!(bytes(level.clone(), "Ċ"), b"\n");
        assert_eq!(bytes(level.clone(), "ðŁ"), [0xf0, 0x9f]);
        assert_eq!(
            bytes(level, "<|ä b|>"),
            "<|ä b|>".as_bytes(),
            "no letters of bytes"
        );
        let llama = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]});
        assert_eq!(bytes(llama.clone(), "▁a▁"), b" a ");
        assert_eq!(bytes(llama.clone(), "<0xF0>"), [0xf0]);
        assert_eq!(bytes(llama, "<0xg>"), b"<0xg>");
        let words = json!({"type": "WordPiece", "prefix": "##"});
        assert_eq!(bytes(words.clone(), "##ing"), b"ing");
        assert_eq!(bytes(words, "go"), b" go");
        assert_eq!(
            bytes(json!({"type": "BPEDecoder", "suffix": "</w>"}), "a</w>"),
            b"a "
        );
        assert_eq!(bytes(Value::Null, "a"), b"a");
    }
}
