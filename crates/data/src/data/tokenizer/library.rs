//! Calls to the tokenizers library: how much it is given at once, in parallel, and the text around it.

use super::decoders;
use super::pipeline::{Cut, Pipeline};
use super::words::Words;
use crate::base::human;
use crate::data::DataError;
use crate::kernels::allocations::budget::{Budget, BudgetExceeded, within};
use rayon::prelude::*;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokenizers::pre_tokenizers::metaspace::PrependScheme;
use tokenizers::{ModelWrapper, NormalizerWrapper, PreTokenizerWrapper};

/// Texts are cut into pieces of about this size to be encoded in parallel.
const PIECE_BYTES: usize = 64 << 10;

/// Within a piece, lines are sorted in groups of about this size: those that the fast path takes, and the others.
const LINE_BYTES: usize = 200;

/// A tokenizer that cannot be applied piece by piece takes at most this much at once: the library needs some hundred
/// bytes of memory for each token.
const MAX_WHOLE_BYTES: usize = 64 << 20;

/// Memory for any call of the library: a tokenizer may make pages of a letter, by a normalizer that its try-out did not reach.
const BASE_BYTES: usize = 256 << 20;
/// Memory for each byte of a text, and for each id: some ten times what known tokenizers take.
const PER_BYTE: usize = 1 << 10;
/// Memory for the longest texts.
const MOST_BYTES: usize = 6 << 30;
/// Time for any call, and bytes of text for each further second: a hundredth of the usual speed.
const TIME: Duration = Duration::from_secs(60);
const BYTES_PER_SECOND: usize = 50_000;

/// The library's tokenizer, and what speeds it up.
#[derive(Debug)]
pub struct Library {
    pub tokenizer: tokenizers::Tokenizer,
    pub cut: Cut,
    /// For pieces after the first one, where the first begins with a space that is not in the text.
    behind: Option<tokenizers::Tokenizer>,
    /// The space is put after each added token too, not in front of the whole text alone.
    prefix_each: bool,
    pub words: Option<Words>,
    added: Vec<String>,
    /// Last bytes of added tokens.
    ends: [bool; 256],
    pub unk: Option<u32>,
    /// What the file's own template puts in front of a text, once it was asked for.
    pub lead: OnceLock<Vec<u32>>,
    /// No decoder makes more of ids than their tokens have letters.
    plain_decoder: bool,
    /// What a budget once ran out of: the tokenizer is not asked again.
    spoiled: OnceLock<BudgetExceeded>,
}

/// A tokenizer.json as the library reads it. May panic on crafted bytes: [`super::validate`] comes first for foreign ones.
pub fn library(json: &str) -> Result<tokenizers::Tokenizer, String> {
    // The library panics on some files that are not even JSON.
    serde_json::from_str::<serde::de::IgnoredAny>(json).map_err(|e| e.to_string())?;
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
pub fn vocab_size(tokenizer: &tokenizers::Tokenizer) -> Result<usize, String> {
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

pub fn fault(what: &str) -> DataError {
    DataError::Tokenizer {
        place: "tokenizer.json".into(),
        what: what.to_string(),
    }
}

impl Library {
    pub fn new(tokenizer: tokenizers::Tokenizer, json: &str) -> Library {
        let pipeline = Pipeline::of(json);
        let mut cut = pipeline
            .as_ref()
            .map_or(Cut::Nowhere, |p| p.cut(lines_end_words(&tokenizer)));
        let behind = match cut {
            Cut::BeforeLine => without_prefix(&tokenizer),
            _ => None,
        };
        if cut == Cut::BeforeLine && behind.is_none() {
            cut = Cut::Nowhere;
        }
        // transformers writes an empty text where there is none.
        let none = |part: &Option<String>| part.as_ref().is_none_or(String::is_empty);
        let fast = matches!(tokenizer.get_model(), ModelWrapper::BPE(bpe)
            if bpe.dropout.is_none() && none(&bpe.continuing_subword_prefix) && none(&bpe.end_of_word_suffix));
        let words = pipeline
            .as_ref()
            .filter(|_| fast)
            .and_then(|p| Some(Words::new(p.fast_rule()?, p.added())));
        let added: Vec<String> = pipeline
            .iter()
            .flat_map(Pipeline::added)
            .map(String::from)
            .collect();
        let mut ends = [false; 256];
        for last in added.iter().filter_map(|token| token.bytes().last()) {
            ends[usize::from(last)] = true;
        }
        Library {
            added,
            ends,
            prefix_each: !matches!(tokenizer.get_pre_tokenizer(),
                Some(PreTokenizerWrapper::Metaspace(words)) if words.prepend_scheme == PrependScheme::First),
            behind,
            plain_decoder: decoders::are_plain(&tokenizer),
            spoiled: OnceLock::new(),
            lead: OnceLock::new(),
            unk: unk(&tokenizer, pipeline.as_ref()),
            cut,
            words,
            tokenizer,
        }
    }

    pub fn encode(self: &Arc<Library>, text: &str) -> Result<Vec<u32>, DataError> {
        if self.cut == Cut::Nowhere && text.len() > MAX_WHOLE_BYTES {
            return Err(DataError::TooLarge {
                place: "a text for this kind of tokenizer".into(),
                bytes: text.len() as u64,
                limit: MAX_WHOLE_BYTES as u64,
            });
        }
        if text.len() <= PIECE_BYTES {
            return self.encode_piece(text, true);
        }
        let parts: Result<Vec<Vec<u32>>, DataError> =
            pieces(text, PIECE_BYTES, self.cut, &self.ends)
                .into_par_iter()
                .enumerate()
                .map(|(number, piece)| self.encode_piece(piece, number == 0))
                .collect();
        Ok(parts?.concat())
    }

    /// Runs the library on `bytes` of text or ids, within a budget: the tokenizer is untrusted.
    pub fn within_budget<T: Send + 'static>(
        self: &Arc<Library>,
        bytes: usize,
        call: impl FnOnce(&Library) -> T + Send + 'static,
    ) -> Result<T, DataError> {
        let spoiled = |why: &BudgetExceeded| {
            fault(&format!(
                "{why} for {}, as in a malicious tokenizer; use another one",
                human::bytes(bytes as u64)
            ))
        };
        if let Some(why) = self.spoiled.get() {
            return Err(spoiled(why));
        }
        let budget = Budget {
            bytes: (BASE_BYTES + PER_BYTE.saturating_mul(bytes)).min(MOST_BYTES),
            time: TIME + Duration::from_secs((bytes / BYTES_PER_SECOND) as u64),
        };
        let library = Arc::clone(self);
        within(budget, move || call(&library))
            .map_err(|why| spoiled(self.spoiled.get_or_init(|| why)))
    }

    /// Ids to text; `None` where the library refuses them.
    pub fn decode(self: &Arc<Library>, ids: &[u32]) -> Option<String> {
        if self.plain_decoder {
            return self.tokenizer.decode(ids, false).ok();
        }
        let ids = ids.to_vec();
        self.within_budget(ids.len(), move |library| {
            library.tokenizer.decode(&ids, false).ok()
        })
        .ok()?
    }

    fn encode_slowly(self: &Arc<Library>, text: &str) -> Result<Vec<u32>, DataError> {
        let owned = text.to_string();
        self.within_budget(text.len(), move |library| {
            encode_whole(&library.tokenizer, &owned)
        })?
    }

    fn encode_piece(self: &Arc<Library>, piece: &str, first: bool) -> Result<Vec<u32>, DataError> {
        if self.behind.is_some() && !first {
            return self.encode_behind(piece);
        }
        let Some(words) = &self.words else {
            return self.encode_slowly(piece);
        };
        let mut ids = Vec::with_capacity(piece.len() / 3);
        let model = self.tokenizer.get_model();
        let fast = |part: &str, ids: &mut Vec<u32>| {
            words
                .encode(model, part, ids)
                .map_err(|e| fault(&e.to_string()))
        };
        if words.takes(piece) {
            fast(piece, &mut ids)?;
            return Ok(ids);
        }
        // Neighbors that are not for the fast path go together: each call of the library has its price.
        let (mut start, mut end) = (0, 0);
        for line in pieces(piece, LINE_BYTES, self.cut, &self.ends) {
            if words.takes(line) {
                if start < end {
                    ids.extend(self.encode_slowly(&piece[start..end])?);
                }
                fast(line, &mut ids)?;
                start = end + line.len();
            }
            end += line.len();
        }
        if start < end {
            ids.extend(self.encode_slowly(&piece[start..end])?);
        }
        Ok(ids)
    }

    /// A piece that does not begin the text: no space is put in front of it, but after a token that stands in the text
    /// one is, as in the whole.
    fn encode_behind(self: &Arc<Library>, piece: &str) -> Result<Vec<u32>, DataError> {
        let first = |token: &String| piece.find(token.as_str());
        let at = match self.prefix_each {
            true => self.added.iter().filter_map(first).min(),
            false => None,
        };
        let (plain, rest) = piece.split_at(at.unwrap_or(piece.len()));
        let owned = plain.to_string();
        let mut ids = self.within_budget(plain.len(), move |library| {
            encode_whole(
                library.behind.as_ref().unwrap_or(&library.tokenizer),
                &owned,
            )
        })??;
        if !rest.is_empty() {
            ids.extend(self.encode_slowly(rest)?);
        }
        Ok(ids)
    }
}

/// The same tokenizer with no step that puts something in front of a text.
fn without_prefix(tokenizer: &tokenizers::Tokenizer) -> Option<tokenizers::Tokenizer> {
    fn kept(step: &NormalizerWrapper) -> bool {
        !matches!(step, NormalizerWrapper::Prepend(_))
    }
    let mut behind = tokenizer.clone();
    let rest = match tokenizer.get_normalizer() {
        Some(NormalizerWrapper::Sequence(steps)) => steps
            .as_ref()
            .iter()
            .filter(|step| kept(step))
            .cloned()
            .collect(),
        Some(one) if kept(one) => vec![one.clone()],
        _ => Vec::new(),
    };
    behind
        .with_normalizer(Some(tokenizers::normalizers::Sequence::new(rest)))
        .ok()?;
    if let Some(PreTokenizerWrapper::Metaspace(words)) = tokenizer.get_pre_tokenizer() {
        let mut words = words.clone();
        words.set_prepend_scheme(PrependScheme::Never);
        behind.with_pre_tokenizer(Some(words));
    }
    Some(behind)
}

/// No token holds a newline after something else, and newlines are known: what is before a newline and what begins with it
/// then never share a token.
fn lines_end_words(tokenizer: &tokenizers::Tokenizer) -> bool {
    let vocab = tokenizer.get_vocab(true);
    let known = vocab.contains_key("\n") || vocab.contains_key("<0x0A>");
    known
        && !vocab.keys().any(|token| {
            let bytes = token.as_bytes();
            bytes
                .windows(2)
                .any(|pair| pair[1] == b'\n' && pair[0] != b'\n')
        })
}

fn unk(tokenizer: &tokenizers::Tokenizer, pipeline: Option<&Pipeline>) -> Option<u32> {
    let id = |token: &str| tokenizer.token_to_id(token);
    match tokenizer.get_model() {
        ModelWrapper::BPE(model) => id(model.unk_token.as_deref()?),
        ModelWrapper::WordPiece(model) => id(&model.unk_token),
        ModelWrapper::WordLevel(model) => id(&model.unk_token),
        ModelWrapper::Unigram(_) => pipeline?.unk_id(),
    }
}

/// Cuts a text into pieces of at least `size` bytes, where `cut` allows it and no added token can end.
pub fn pieces<'a>(text: &'a str, size: usize, cut: Cut, ends: &[bool; 256]) -> Vec<&'a str> {
    let bytes = text.as_bytes();
    let may = |i: usize| {
        bytes[i] == b'\n'
            && match cut {
                Cut::Nowhere => false,
                Cut::AfterWord => bytes[i - 1].is_ascii_alphanumeric(),
                Cut::BeforeLine => bytes[i - 1] != b'\n' && !ends[usize::from(bytes[i - 1])],
            }
    };
    let mut pieces = Vec::with_capacity(text.len() / size + 1);
    let mut start = 0;
    while cut != Cut::Nowhere && text.len() - start > size {
        let Some(at) = (start + size..text.len()).find(|i| may(*i)) else {
            break;
        };
        pieces.push(&text[start..at]);
        start = at;
    }
    pieces.push(&text[start..]);
    pieces
}

#[cfg(test)]
mod tests {
    use super::super::{Tokenizer, TokenizerKind, bpe, unigram, wordpiece};
    use super::*;

    fn corpus() -> &'static str {
        crate::embed::text("assets/corpora/tinyshakespeare.txt").unwrap()
    }

    /// In pieces and whole; only the first difference is worth showing.
    fn same(tokenizer: &Tokenizer, text: &str) {
        let ours = tokenizer.encode(text).unwrap();
        let theirs = encode_whole(&tokenizer.library().unwrap().tokenizer, text).unwrap();
        let at = ours.iter().zip(&theirs).position(|(a, b)| a != b);
        assert_eq!((at, ours.len()), (None, theirs.len()));
    }

    #[test]
    fn pieces_give_the_ids_of_the_whole() {
        let text = format!(
            "{}\n\n  \n\u{a0}\nüber\n\n\n{}",
            &corpus()[..150_000],
            &corpus()[..1000]
        );
        let configs: [Box<dyn TokenizerKind>; 3] = [
            Box::new(bpe::Config {
                vocab_size: 400,
                ..Default::default()
            }),
            Box::new(unigram::Config {
                vocab_size: 500,
                ..Default::default()
            }),
            Box::new(wordpiece::Config {
                vocab_size: 400,
                ..Default::default()
            }),
        ];
        for config in configs {
            let tokenizer = config.build(&text[..60_000], "").unwrap();
            let library = tokenizer.library().unwrap();
            assert!(pieces(&text, PIECE_BYTES, library.cut, &library.ends).len() > 2);
            same(&tokenizer, &text);
        }
    }

    /// As a SentencePiece model comes in: a space in front of a text and after marks, bytes for unknown characters.
    #[test]
    fn pieces_of_sentencepiece_give_the_ids_of_the_whole() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/oracle/tokenizers/llama2.model"
        );
        let sentencepiece = super::super::load(path.as_ref(), &Default::default()).unwrap();
        // As transformers 5 writes it: the space is put in front of the text alone.
        let mut first: serde_json::Value = serde_json::from_str(sentencepiece.to_json()).unwrap();
        first["normalizer"].take();
        first["pre_tokenizer"] = serde_json::json!({
            "type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false,
        });
        let first = Tokenizer::from_json(&first.to_string()).unwrap();
        let mut text = String::new();
        for (n, line) in corpus()[..200_000].lines().enumerate() {
            let mark = ["", "", "</s>", "é ", "<s> "][n % 5];
            text.push_str(&format!("{mark}{line}{mark}\n"));
        }
        for tokenizer in [sentencepiece, first] {
            let library = tokenizer.library().unwrap();
            assert_eq!(library.cut, Cut::BeforeLine);
            assert!(pieces(&text, PIECE_BYTES, library.cut, &library.ends).len() > 2);
            same(&tokenizer, &text);
        }
    }

    #[test]
    fn files_that_are_no_tokenizers_are_refused() {
        for text in ["", "{}", "[]", "{\"model\": {\"type\": \"WordLevel\"}}"] {
            let error = Tokenizer::from_json(text).unwrap_err();
            assert!(error.to_string().starts_with("tokenizer.json: "), "{error}");
        }
    }
}
