//! A tokenizer in use: text to ids and back. Its `tokenizer.json` is the standard one, whatever its origin.

use super::char::Alphabet;
use super::library::{self, Library, fault};
use super::marks::Marks;
use crate::data::DataError;
use crate::data::chat::Template;
use serde_json::Value;
use std::sync::Arc;

/// What ends a text, by the names that vocabularies give it.
const END_OF_TEXT: [&str; 5] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|im_end|>",
];

/// Text to ids and back.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: Inner,
    json: String,
    vocab_size: usize,
    marks: Marks,
    eos: Option<u32>,
    /// What kind of file it came from, for display.
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
    Library(Arc<Library>),
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
        let tokenizer = library::library(json).map_err(|e| fault(&e))?;
        let vocab_size = library::vocab_size(&tokenizer).map_err(|e| fault(&e))?;
        Ok(Tokenizer {
            eos: END_OF_TEXT.iter().find_map(|t| tokenizer.token_to_id(t)),
            vocab_size,
            marks: Marks::default(),
            origin: "tokenizer.json".into(),
            json: json.to_string(),
            inner: Inner::Library(Arc::new(Library::new(tokenizer, json))),
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
                    what: format!("{role} is {mark:?}, which is not in the vocabulary"),
                });
            }
        }
        if let Some(eos) = &marks.eos {
            self.eos = self.id(eos);
        }
        self.marks = marks;
        Ok(self)
    }

    /// With the template that conversations are rendered with, so that whoever reads the files beside the vocabulary writes them
    /// alike. Begin and end mark become those that the template names, where it names any.
    #[must_use]
    pub fn with_template(mut self, template: &Template) -> Tokenizer {
        let told = |name: &str| {
            let named = template.source().contains(name);
            template.token(name).filter(|_| named).map(String::from)
        };
        if let Some(bos) = told("bos_token").filter(|t| self.id(t).is_some()) {
            self.marks.bos = Some(bos);
        }
        if let Some(eos) = told("eos_token").filter(|t| self.id(t).is_some()) {
            self.eos = self.id(&eos);
            self.marks.eos = Some(eos);
        }
        self.marks.chat_template = Some(template.source().to_string());
        self
    }

    pub(super) fn with_origin(self, origin: String) -> Tokenizer {
        Tokenizer { origin, ..self }
    }

    /// What kind of file it came from, for display.
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
        // Where the file says whether they are added, transformers 5 replaces what tokenizer.json puts around a text.
        let (lead, tail) = self.frame();
        let adds = |mark: Option<u32>, ids: &[u32]| match ids {
            [] => Some(false),
            [id] if Some(*id) == mark => Some(true),
            _ => None,
        };
        let adds = adds(self.bos(), &lead).zip(adds(self.eos, &tail));
        let said = marks.add_bos.is_some() || marks.add_eos.is_some();
        (marks.add_bos, marks.add_eos) = adds.filter(|_| said).unzip();
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
            Inner::Library(library) => library.tokenizer.token_to_id(token),
        }
    }

    /// A token as the vocabulary spells it.
    pub fn token(&self, id: u32) -> Option<String> {
        match &self.inner {
            Inner::Characters(alphabet) => {
                ((id as usize) < alphabet.len()).then(|| alphabet.decode(&[id]))
            }
            Inner::Library(library) => library.tokenizer.id_to_token(id),
        }
    }

    /// Tokens that stand for themselves in any text, in the order of their ids: special ones, and others that were added.
    pub fn added_tokens(&self) -> Vec<AddedToken> {
        let Inner::Library(library) = &self.inner else {
            return Vec::new();
        };
        let tokenizer = &library.tokenizer;
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

    /// The ids that the file's own template puts in front of a text and after it (`add_special_tokens`). This program adds
    /// none by itself: what begins and ends a document is decided where documents are made.
    pub fn frame(&self) -> (Vec<u32>, Vec<u32>) {
        let Inner::Library(library) = &self.inner else {
            return Default::default();
        };
        let tokenizer = &library.tokenizer;
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

    /// The end and pad tokens configured in the files next to the vocabulary, if they differ from those of tokenizer.json.
    pub fn sidecar_note(&self) -> Option<String> {
        let alone = END_OF_TEXT.iter().find_map(|t| self.id(t));
        let (eos, pad) = (self.eos, self.pad().filter(|pad| Some(*pad) != alone));
        (eos != alone || pad.is_some()).then(|| format!("eos {eos:?} pad {pad:?}"))
    }

    /// Text to ids. Nothing is added; special tokens that stand in the text stay whole.
    ///
    /// # Errors
    /// A character outside a character vocabulary; whatever the library refuses.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        match &self.inner {
            Inner::Characters(alphabet) => alphabet.encode(text),
            Inner::Library(library) => library.encode(text),
        }
    }

    /// The ids that the file's own template puts in front of a text, such as that of `<s>` in Llama's.
    pub fn lead(&self) -> &[u32] {
        match &self.inner {
            Inner::Characters(_) => &[],
            Inner::Library(library) => library.lead.get_or_init(|| self.frame().0),
        }
    }

    /// Text to ids as a text begins from nothing: with [`Tokenizer::lead`] in front, once.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_begun(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let (lead, ids) = (self.lead(), self.encode(text)?);
        Ok(match ids.starts_with(lead) {
            true => ids,
            false => [lead, &ids].concat(),
        })
    }

    /// The token that stands for what the vocabulary does not know, where there is one.
    pub fn unk(&self) -> Option<u32> {
        match &self.inner {
            Inner::Characters(_) => None,
            Inner::Library(library) => library.unk,
        }
    }

    #[cfg(test)]
    pub(super) fn library(&self) -> Option<&Arc<Library>> {
        match &self.inner {
            Inner::Library(library) => Some(library),
            Inner::Characters(_) => None,
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
            Inner::Library(library) => {
                let owned = text.to_string();
                library.within_budget(text.len(), move |library| {
                    let encoding = library
                        .tokenizer
                        .encode(owned.as_str(), false)
                        .map_err(|e| fault(&e.to_string()))?;
                    let offsets = encoding.get_offsets().iter();
                    let offsets = offsets.map(|(start, end)| *start..*end).collect();
                    Ok((encoding.get_ids().to_vec(), offsets))
                })?
            }
        }
    }

    /// The decoder of `tokenizer.json`; null where there is none.
    pub(super) fn decoder(&self) -> Value {
        match &self.inner {
            Inner::Characters(_) => Value::Null,
            Inner::Library(library) => {
                serde_json::to_value(library.tokenizer.get_decoder()).unwrap_or_default()
            }
        }
    }

    /// Ids to text; special tokens are shown. Bytes that are not UTF-8 and ids outside the vocabulary become `�`.
    pub fn decode(&self, ids: &[u32]) -> String {
        match &self.inner {
            Inner::Characters(alphabet) => alphabet.decode(ids),
            Inner::Library(library) => library
                .decode(ids)
                .unwrap_or_else(|| "\u{fffd}".repeat(ids.len())),
        }
    }
}
