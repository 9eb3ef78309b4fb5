//! The fast path of byte-level BPE: ASCII text is split into words by hand-written code, and each word's ids are cached. A
//! new word goes through the library's own model, so its ids are correct by construction; only the splits could be wrong, and
//! those are tested against the library.

use super::patterns::Rule;
use super::scan::word_end;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use tokenizers::Model;

/// Words beyond this are not remembered.
const MAX_WORD: usize = 48;
/// Words remembered by one thread: some 10 MB.
const MAX_WORDS: usize = 1 << 17;

/// The data of one tokenizer's fast path.
#[derive(Debug, Clone)]
pub struct Words {
    rule: Rule,
    /// Contents of added tokens by their first byte: text that holds one is the library's.
    added: Arc<[Vec<Vec<u8>>; 256]>,
    /// GPT-2's letter for each byte.
    letters: Arc<[char; 128]>,
    /// Memories that no thread uses at the moment.
    idle: Arc<Mutex<Vec<Memory>>>,
}

/// Ids by word.
#[derive(Debug, Default)]
struct Memory {
    places: HashMap<Box<[u8]>, (u32, u32), BuildHasherDefault<WordHasher>>,
    ids: Vec<u32>,
}

impl Words {
    pub fn new<'a>(rule: Rule, added: impl Iterator<Item = &'a str>) -> Words {
        let mut by_byte = std::array::from_fn(|_| Vec::new());
        for content in added.filter(|content| content.is_ascii()) {
            if let Some(first) = content.bytes().next() {
                by_byte[usize::from(first)].push(content.as_bytes().to_vec());
            }
        }
        // Visible ASCII maps to itself, the rest is counted up from U+0100 (GPT-2's bytes_to_unicode).
        let mut next = 0x100;
        let letters = std::array::from_fn(|byte| match byte {
            0x21..=0x7e => byte as u8 as char,
            _ => {
                next += 1;
                char::from_u32(next - 1).unwrap_or_default()
            }
        });
        Words {
            rule,
            added: Arc::new(by_byte),
            letters: Arc::new(letters),
            idle: Arc::default(),
        }
    }

    /// Whether a text is one for the fast path.
    pub fn takes(&self, text: &str) -> bool {
        text.is_ascii() && !self.holds_added(text.as_bytes())
    }

    fn holds_added(&self, text: &[u8]) -> bool {
        (0..text.len()).any(|at| {
            let tokens = &self.added[usize::from(text[at])];
            !tokens.is_empty() && tokens.iter().any(|token| text[at..].starts_with(token))
        })
    }

    /// The ids of an ASCII text without added tokens.
    pub fn encode(
        &self,
        model: &impl Model,
        text: &str,
        ids: &mut Vec<u32>,
    ) -> tokenizers::Result<()> {
        let lock = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut memory = lock().pop().unwrap_or_default();
        let result = self.encode_with(&mut memory, model, text.as_bytes(), ids);
        lock().push(memory);
        result
    }

    fn encode_with(
        &self,
        memory: &mut Memory,
        model: &impl Model,
        text: &[u8],
        ids: &mut Vec<u32>,
    ) -> tokenizers::Result<()> {
        let mut at = 0;
        while at < text.len() {
            let end = word_end(self.rule, text, at);
            let word = &text[at..end];
            at = end;
            if let Some((start, n)) = memory.places.get(word) {
                let start = *start as usize;
                ids.extend_from_slice(&memory.ids[start..start + *n as usize]);
                continue;
            }
            let letters: String = word.iter().map(|b| self.letters[usize::from(*b)]).collect();
            let tokens = model.tokenize(&letters)?;
            let start = memory.ids.len();
            ids.extend(tokens.iter().map(|token| token.id));
            if word.len() <= MAX_WORD && memory.places.len() < MAX_WORDS {
                memory.ids.extend(tokens.iter().map(|token| token.id));
                let place = (start as u32, tokens.len() as u32);
                memory.places.insert(word.into(), place);
            }
        }
        Ok(())
    }
}

/// A hash of short words: eight bytes at a time, multiplied and folded. No defence against chosen keys, which could slow
/// down, not break, the tokenisation of the text that holds them; memories are bounded.
#[derive(Debug, Default)]
struct WordHasher(u64);

impl WordHasher {
    fn mix(&mut self, word: u64) {
        let product =
            u128::from(self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks::<8>();
        for chunk in whole {
            self.mix(u64::from_le_bytes(*chunk));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn write_usize(&mut self, n: usize) {
        self.mix(n as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::patterns::Split;
    use super::super::{Tokenizer, TokenizerKind, bpe};
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::sync::OnceLock;

    /// One tokenizer of each rule, and the library's own reading of the same file.
    fn pairs() -> &'static [(Tokenizer, tokenizers::Tokenizer)] {
        static PAIRS: OnceLock<Vec<(Tokenizer, tokenizers::Tokenizer)>> = OnceLock::new();
        PAIRS.get_or_init(|| {
            let text = &crate::embed::text("assets/corpora/tinyshakespeare.txt").unwrap()[..40_000];
            let mut pairs: Vec<_> = [Split::Gpt2, Split::Llama3, Split::Qwen2]
                .map(|split| {
                    let config = bpe::Config {
                        vocab_size: 400,
                        split,
                        ..Default::default()
                    };
                    let ours = config.build(text, "").unwrap();
                    let library = tokenizers::Tokenizer::from_bytes(ours.to_json()).unwrap();
                    (ours, library)
                })
                .into();
            let digits = [
                json!({"type": "Digits", "individual_digits": true}),
                json!({"type": "Split", "pattern": {"Regex": "\\p{N}"}, "behavior": "Isolated", "invert": false}),
            ];
            for digits in digits {
                let mut whole: Value = serde_json::from_str(pairs[0].0.to_json()).unwrap();
                let words = whole["pre_tokenizer"].take();
                whole["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [digits, words]});
                let library = tokenizers::Tokenizer::from_bytes(whole.to_string()).unwrap();
                pairs.push((Tokenizer::from_json(&whole.to_string()).unwrap(), library));
            }
            pairs
        })
    }

    fn same(text: &str) {
        for (ours, library) in pairs() {
            assert!(ours.library().unwrap().words.is_some());
            let theirs = library.encode(text, false).unwrap();
            let ids = ours.encode(text).unwrap();
            assert_eq!(ids, theirs.get_ids(), "{text:?}");
        }
    }

    #[test]
    fn awkward_texts_have_the_librarys_ids() {
        for text in [
            "",
            " ",
            "  a",
            "a  \n",
            "\n\n a\r\n\r\n  b \t c",
            "I'LL we've 'Tis ''s '",
            "x=1234567890;//\n\n\n}",
            " \u{b}\u{c}\u{1c}\u{1f}\u{0}\u{7f}",
            "a<|endoftext|>b",
            "<|endoftext|",
            "don't\nstop 's\n",
            "a  5 \n 7\t8  b 9",
        ] {
            same(text);
        }
    }

    #[test]
    fn real_text_has_the_librarys_ids_in_pieces() {
        let text = crate::embed::text("assets/corpora/tinyshakespeare.txt").unwrap();
        same(&text[..300_000]);
        same(&format!("{}ü\n{}", &text[..100_000], &text[..100_000]));
    }

    proptest! {
        #[test]
        fn ascii_has_the_librarys_ids(text in "[ \\n\\r\\t'a-eR-T0-9.,=<|>]{0,60}") {
            same(&text);
        }

        #[test]
        fn any_text_has_the_librarys_ids(text in "(\\PC|[ \\n]){0,40}") {
            same(&text);
        }

        #[test]
        fn marks_in_text_are_found(parts in proptest::collection::vec(prop_oneof![Just("<|endoftext|>"), Just("a b\n"), Just("<|"), Just("ü ")], 0..8)) {
            same(&parts.concat());
        }
    }
}
