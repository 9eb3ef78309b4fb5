//! A tokenizer in use: text to ids and back. Its `tokenizer.json` is the standard one, whatever it is made of.

use super::char::Alphabet;
use super::marks::Marks;
use crate::base::human;
use crate::data::DataError;
use rayon::prelude::*;

/// What ends a text, by the names that vocabularies give it.
const END_OF_TEXT: [&str; 5] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|im_end|>",
];

/// Texts are cut into pieces of about this size to be encoded in parallel.
const PIECE_BYTES: usize = 64 << 10;

/// A tokenizer that cannot be applied piece by piece takes at most this much at once: the library needs some hundred
/// bytes of memory for each token.
const MAX_WHOLE_BYTES: usize = 64 << 20;

/// Text to ids and back.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: Inner,
    json: String,
    vocab_size: usize,
    marks: Marks,
    eos: Option<u32>,
    /// What kind of file it came from, for people.
    origin: String,
}

/// A token that stands for itself in any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedToken {
    pub id: u32,
    pub content: String,
    pub special: bool,
}

#[derive(Debug, Clone)]
enum Inner {
    /// One id a character, by table.
    Characters(Alphabet),
    Library {
        tokenizer: Box<tokenizers::Tokenizer>,
        /// GPT-2's splitting rule: no token spans a newline that follows a non-space.
        piecewise: bool,
    },
}

impl Tokenizer {
    pub(super) fn characters(alphabet: Alphabet) -> Tokenizer {
        Tokenizer {
            json: alphabet.to_json(),
            vocab_size: alphabet.len(),
            marks: Marks::default(),
            eos: None,
            origin: "characters".into(),
            inner: Inner::Characters(alphabet),
        }
    }

    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// Not a tokenizer that the library understands.
    pub fn from_json(json: &str) -> Result<Tokenizer, DataError> {
        if let Some(alphabet) = Alphabet::from_json(json) {
            return Ok(Tokenizer {
                json: json.to_string(),
                ..Tokenizer::characters(alphabet)
            });
        }
        let tokenizer = library(json).map_err(|e| fault(&e))?;
        let vocab_size = vocab_size(&tokenizer).map_err(|e| fault(&e))?;
        Ok(Tokenizer {
            eos: END_OF_TEXT.iter().find_map(|t| tokenizer.token_to_id(t)),
            vocab_size,
            marks: Marks::default(),
            origin: "tokenizer.json".into(),
            json: json.to_string(),
            inner: Inner::Library {
                piecewise: splits_like_gpt2(&tokenizer),
                tokenizer: Box::new(tokenizer),
            },
        })
    }

    /// With the marks that stand beside the vocabulary.
    ///
    /// # Errors
    /// A begin or end mark that is no token of the vocabulary.
    pub fn with_marks(mut self, marks: Marks) -> Result<Tokenizer, DataError> {
        for (role, mark) in [("bos_token", &marks.bos), ("eos_token", &marks.eos)] {
            if let Some(mark) = mark.as_ref().filter(|mark| self.id(mark).is_none()) {
                return Err(DataError::Tokenizer {
                    place: super::marks::CONFIG.into(),
                    what: format!("{role} is {mark:?}, which is no token of the vocabulary"),
                });
            }
        }
        if let Some(eos) = &marks.eos {
            self.eos = self.id(eos);
        }
        self.marks = marks;
        Ok(self)
    }

    pub(super) fn with_origin(self, origin: String) -> Tokenizer {
        Tokenizer { origin, ..self }
    }

    /// What kind of file it came from, for people.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Begin, end, padding and unknown mark as the files beside the vocabulary name them, and the chat template.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// The text of the `tokenizer_config.json` that belongs to it: other programs learn from it which token ends a text.
    pub fn config_json(&self) -> String {
        let mut marks = self.marks.clone();
        if marks.eos.is_none() {
            marks.eos = self.eos.and_then(|id| self.token(id));
        }
        marks.to_json()
    }

    /// The id of a token, as the vocabulary spells it.
    pub fn id(&self, token: &str) -> Option<u32> {
        match &self.inner {
            Inner::Characters(alphabet) => alphabet
                .encode(token)
                .ok()
                .filter(|ids| ids.len() == 1)?
                .pop(),
            Inner::Library { tokenizer, .. } => tokenizer.token_to_id(token),
        }
    }

    /// A token as the vocabulary spells it.
    pub fn token(&self, id: u32) -> Option<String> {
        match &self.inner {
            Inner::Characters(alphabet) => {
                ((id as usize) < alphabet.len()).then(|| alphabet.decode(&[id]))
            }
            Inner::Library { tokenizer, .. } => tokenizer.id_to_token(id),
        }
    }

    /// Tokens that stand for themselves in any text, in the order of their ids: special ones, and others that were added.
    pub fn added_tokens(&self) -> Vec<AddedToken> {
        let Inner::Library { tokenizer, .. } = &self.inner else {
            return Vec::new();
        };
        let mut added: Vec<AddedToken> = tokenizer
            .get_added_tokens_decoder()
            .into_iter()
            .map(|(id, token)| AddedToken {
                id,
                content: token.content,
                special: token.special,
            })
            .collect();
        added.sort_by_key(|token| token.id);
        added
    }

    /// The ids that the file's own template puts in front of a text and behind it (`add_special_tokens`). This program adds
    /// none by itself: what begins and ends a document is decided where documents are made.
    pub fn frame(&self) -> (Vec<u32>, Vec<u32>) {
        let Inner::Library { tokenizer, .. } = &self.inner else {
            return Default::default();
        };
        let ids = |special| match tokenizer.encode_fast("", special) {
            Ok(encoding) => encoding.get_ids().to_vec(),
            Err(_) => Vec::new(),
        };
        let framed = tokenizer
            .encode_fast("a", true)
            .map(|e| e.get_ids().to_vec());
        let plain = tokenizer
            .encode_fast("a", false)
            .map(|e| e.get_ids().to_vec());
        let (Ok(framed), Ok(plain)) = (framed, plain) else {
            return (ids(true), Vec::new());
        };
        let at = framed.windows(plain.len().max(1)).position(|w| w == plain);
        match at {
            Some(at) => (framed[..at].to_vec(), framed[at + plain.len()..].to_vec()),
            None => (ids(true), Vec::new()),
        }
    }

    /// The text of `tokenizer.json`.
    pub fn to_json(&self) -> &str {
        &self.json
    }

    /// Ids lie in 0..vocab_size.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The token that begins a text, where the files beside the vocabulary name one.
    pub fn bos(&self) -> Option<u32> {
        self.id(self.marks.bos.as_deref()?)
    }

    /// The token that fills up a batch, where the files beside the vocabulary name one.
    pub fn pad(&self) -> Option<u32> {
        self.id(self.marks.pad.as_deref()?)
    }

    /// The token that ends a text: the one that is named so beside the vocabulary, or else a usual name that is in it.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Text to ids. Nothing is added; special tokens that stand in the text stay whole.
    ///
    /// # Errors
    /// A character outside a character vocabulary; whatever the library refuses.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        match &self.inner {
            Inner::Characters(alphabet) => alphabet.encode(text),
            Inner::Library {
                tokenizer,
                piecewise: true,
            } => {
                let parts: Result<Vec<Vec<u32>>, DataError> = pieces(text)
                    .into_par_iter()
                    .map(|piece| encode_whole(tokenizer, piece))
                    .collect();
                Ok(parts?.concat())
            }
            Inner::Library { tokenizer, .. } => {
                if text.len() > MAX_WHOLE_BYTES {
                    return Err(DataError::TooLarge {
                        place: "a text for this kind of tokenizer".into(),
                        bytes: text.len() as u64,
                        limit: MAX_WHOLE_BYTES as u64,
                    });
                }
                encode_whole(tokenizer, text)
            }
        }
    }

    /// Text to ids, each with the bytes of the text that it stands for. A token of a part of a character stands for the
    /// whole of it, and one that stands for nothing in the text is placed where it would be.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_with_offsets(
        &self,
        text: &str,
    ) -> Result<(Vec<u32>, Vec<std::ops::Range<usize>>), DataError> {
        match &self.inner {
            Inner::Characters(alphabet) => {
                let ends = text.char_indices().map(|(at, c)| at..at + c.len_utf8());
                Ok((alphabet.encode(text)?, ends.collect()))
            }
            Inner::Library { tokenizer, .. } => {
                let encoding = tokenizer
                    .encode(text, false)
                    .map_err(|e| fault(&e.to_string()))?;
                let offsets = encoding.get_offsets().iter();
                let offsets = offsets.map(|(start, end)| *start..*end).collect();
                Ok((encoding.get_ids().to_vec(), offsets))
            }
        }
    }

    /// Ids to text; special tokens are shown. Bytes that are not UTF-8 and ids outside the vocabulary become `�`.
    pub fn decode(&self, ids: &[u32]) -> String {
        match &self.inner {
            Inner::Characters(alphabet) => alphabet.decode(ids),
            Inner::Library { tokenizer, .. } => tokenizer
                .decode(ids, false)
                .unwrap_or_else(|_| "\u{fffd}".repeat(ids.len())),
        }
    }
}

/// A tokenizer.json as the library reads it. May panic on crafted bytes: [`super::vet`] comes first for foreign ones.
pub(super) fn library(json: &str) -> Result<tokenizers::Tokenizer, String> {
    let mut tokenizer = tokenizers::Tokenizer::from_bytes(json).map_err(|e| e.to_string())?;
    // Truncation and padding are the caller's business, and crafted values of them crash the library.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|e| e.to_string())?;
    Ok(tokenizer)
}

/// Ids that no token bears, in vocabularies that leave room for more; Phi-3 and Gemma have some hundreds.
const MAX_HOLES: u64 = 1 << 16;

/// One more than the highest id.
///
/// # Errors
/// No tokens, or ids so far apart that a table over them would be mostly empty.
pub(super) fn vocab_size(tokenizer: &tokenizers::Tokenizer) -> Result<usize, String> {
    let vocab = tokenizer.get_vocab(true);
    let tokens = vocab.len() as u64;
    let Some(highest) = vocab.into_values().max() else {
        return Err("its vocabulary is empty".into());
    };
    if u64::from(highest) >= tokens + MAX_HOLES {
        return Err(format!(
            "it has {} tokens but the id {}",
            human::grouped(tokens),
            human::grouped(highest.into())
        ));
    }
    Ok(highest as usize + 1)
}

fn encode_whole(tokenizer: &tokenizers::Tokenizer, text: &str) -> Result<Vec<u32>, DataError> {
    tokenizer
        .encode_fast(text, false)
        .map(|encoding| encoding.get_ids().to_vec())
        .map_err(|e| fault(&e.to_string()))
}

fn fault(what: &str) -> DataError {
    DataError::Tokenizer {
        place: "tokenizer.json".into(),
        what: what.to_string(),
    }
}

fn splits_like_gpt2(tokenizer: &tokenizers::Tokenizer) -> bool {
    let byte_level = matches!(
        tokenizer.get_pre_tokenizer(),
        Some(tokenizers::PreTokenizerWrapper::ByteLevel(b)) if b.use_regex && !b.add_prefix_space
    );
    let plain_specials = tokenizer
        .get_added_vocabulary()
        .get_vocab()
        .keys()
        .all(|token| !token.contains('\n'));
    byte_level && plain_specials && tokenizer.get_normalizer().is_none()
}

/// Cuts before newlines that follow a non-space: there GPT-2's rule always ends a word, so the ids are those of the whole.
pub(super) fn pieces(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let mut pieces = Vec::with_capacity(text.len() / PIECE_BYTES + 1);
    let mut start = 0;
    while text.len() - start > PIECE_BYTES {
        let cut = (start + PIECE_BYTES..text.len())
            .find(|&i| bytes[i] == b'\n' && bytes[i - 1].is_ascii_graphic());
        let Some(cut) = cut else { break };
        pieces.push(&text[start..cut]);
        start = cut;
    }
    pieces.push(&text[start..]);
    pieces
}

#[cfg(test)]
mod tests {
    use super::super::{TokenizerKind, bpe};
    use super::*;

    fn corpus() -> &'static str {
        crate::embed::text("assets/corpora/tinyshakespeare.txt").unwrap()
    }

    #[test]
    fn pieces_give_the_ids_of_the_whole() {
        let text = format!(
            "{}\n\n  \n\u{a0}\nüber\n\n\n{}",
            &corpus()[..150_000],
            &corpus()[..1000]
        );
        let tokenizer = bpe::Config { vocab_size: 400 }.build(&text, &text).unwrap();
        assert!(pieces(&text).len() > 2);
        let Inner::Library {
            tokenizer: library,
            piecewise: true,
        } = &tokenizer.inner
        else {
            panic!("a trained tokenizer splits like GPT-2");
        };
        assert_eq!(
            tokenizer.encode(&text).unwrap(),
            encode_whole(library, &text).unwrap()
        );
        assert_eq!(tokenizer.decode(&tokenizer.encode(&text).unwrap()), text);
    }

    #[test]
    fn files_that_are_no_tokenizers_are_refused() {
        for text in ["", "{}", "[]", "{\"model\": {\"type\": \"WordLevel\"}}"] {
            let error = Tokenizer::from_json(text).unwrap_err();
            assert!(error.to_string().starts_with("tokenizer.json: "), "{error}");
        }
    }
}
