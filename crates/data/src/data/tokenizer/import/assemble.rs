//! Assembles a tokenizer.json from parts: shared by files of different origin.

use crate::base::base64;
use crate::data::tokenizer::marks::{Added, Marks};
use crate::data::tokenizer::patterns::Pattern;
use serde_json::{Map, Value, json};

fn added_json(added: &[Added]) -> Value {
    let mut added: Vec<&Added> = added.iter().collect();
    added.sort_by_key(|token| token.id);
    added.dedup_by_key(|token| token.id);
    added
        .into_iter()
        .map(|token| {
            json!({
                "id": token.id,
                "content": token.content,
                "single_word": false,
                "lstrip": false,
                "rstrip": false,
                "normalized": false,
                "special": token.special,
            })
        })
        .collect()
}

/// Whether the tokens that files add to a vocabulary of `size` are in it, or behind it without a gap: the library numbers them so,
/// whatever id a file says.
///
/// # Errors
/// Another id for a token.
pub fn check_ids(
    added: &[Added],
    id_of: &dyn Fn(&str) -> Option<usize>,
    size: usize,
) -> Result<(), String> {
    let mut added: Vec<&Added> = added.iter().collect();
    added.sort_by_key(|token| token.id);
    let mut next = size;
    for Added { id, content, .. } in added {
        match id_of(content) {
            Some(known) if known == *id => {}
            None if *id == next => next += 1,
            Some(known) => {
                return Err(format!(
                    "the files beside it add {content:?} as token {id}, and it is token {known}"
                ));
            }
            None => {
                return Err(format!(
                    "the files beside it add {content:?} as token {id}, and the next one would be {next}"
                ));
            }
        }
    }
    Ok(())
}

fn whole(
    added: &[Added],
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
    model: Value,
) -> Value {
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added_json(added),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": null,
        "decoder": decoder,
        "model": model,
    })
}

/// A tokenizer.json that adds BOS and EOS to a text if the metadata beside the vocabulary say so: such files leave
/// that to the reading program. As transformers' `update_post_processor`.
pub fn framed(mut tokenizer: Value, marks: &Marks) -> String {
    let framing = |adds: bool, mark: &Option<String>| {
        let mark = mark.clone().filter(|_| adds)?;
        let id = id_of(&tokenizer, &mark)?;
        Some((mark, id))
    };
    let begin = framing(marks.adds_bos(), &marks.bos);
    let end = framing(marks.add_eos == Some(true), &marks.eos);
    if begin.is_some() || end.is_some() {
        let around = |sequence: &str, part: u8| -> Vec<Value> {
            let special =
                |(mark, _): &(String, u64)| json!({"SpecialToken": {"id": mark, "type_id": part}});
            let text = json!({"Sequence": {"id": sequence, "type_id": part}});
            let parts = [
                begin.as_ref().map(special),
                Some(text),
                end.as_ref().map(special),
            ];
            parts.into_iter().flatten().collect()
        };
        let tokens: Map<String, Value> = [&begin, &end]
            .into_iter()
            .flatten()
            .map(|(mark, id)| {
                (
                    mark.clone(),
                    json!({"id": mark, "ids": [id], "tokens": [mark]}),
                )
            })
            .collect();
        let pair = [around("A", 0), around("B", 1)].concat();
        tokenizer["post_processor"] = json!({
            "type": "TemplateProcessing",
            "single": around("A", 0),
            "pair": pair,
            "special_tokens": tokens,
        });
    }
    format!("{tokenizer:#}\n")
}

/// The id of a token: added ones come first, as when texts are read.
fn id_of(tokenizer: &Value, token: &str) -> Option<u64> {
    let added = tokenizer["added_tokens"].as_array();
    let added = added.and_then(|added| added.iter().find(|one| one["content"] == token));
    let vocab = &tokenizer["model"]["vocab"];
    let listed = |vocab: &Vec<Value>| vocab.iter().position(|piece| piece[0] == token);
    added
        .and_then(|one| one["id"].as_u64())
        .or_else(|| vocab.get(token)?.as_u64())
        .or_else(|| Some(listed(vocab.as_array()?)? as u64))
}

/// Byte-level BPE, as GPT-2 and most after it.
pub fn byte_level_bpe(
    vocab: Map<String, Value>,
    merges: &[(String, String)],
    pattern: &Pattern,
    added: &[Added],
) -> Value {
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let model = json!({
        "type": "BPE",
        "dropout": null,
        "unk_token": null,
        "continuing_subword_prefix": null,
        "end_of_word_suffix": null,
        "fuse_unk": false,
        "byte_fallback": false,
        "ignore_merges": pattern.ignore_merges,
        "vocab": vocab,
        "merges": merges,
    });
    let normalizer = match pattern.nfc {
        true => json!({"type": "NFC"}),
        false => Value::Null,
    };
    whole(
        added,
        normalizer,
        pattern.pre_tokenizer(),
        byte_level,
        model,
    )
}

/// How a SentencePiece model treats spaces and bytes.
#[derive(Debug, Clone, Default)]
pub struct Spaces {
    /// The trie of the normalizer, empty for none.
    pub charsmap: Vec<u8>,
    /// A space is put in front of a text.
    pub dummy_prefix: bool,
    /// Runs of spaces become one, spaces at both ends none.
    pub collapse: bool,
    /// Unknown characters become their bytes.
    pub byte_fallback: bool,
}

/// The parts of a SentencePiece model.
#[derive(Debug, Clone)]
pub enum Pieces {
    /// By score, highest first.
    Bpe {
        unk: Option<String>,
        /// Merges of higher score come first; equal ones in the order of ids.
        scores: Vec<f32>,
    },
    Unigram {
        unk: usize,
        scores: Vec<f32>,
    },
}

const SPACE: char = '▁';

/// A SentencePiece model: `tokens[id]`.
pub fn sentencepiece(
    tokens: &[String],
    pieces: &Pieces,
    spaces: &Spaces,
    added: &[Added],
) -> Value {
    // Where no piece holds a space after its first character, none can cross one: words can be looked at one by one.
    let one_word = tokens
        .iter()
        .all(|token| !token.chars().skip(1).any(|c| c == SPACE));
    let pre_tokenizer = match one_word {
        true => {
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true})
        }
        false => Value::Null,
    };
    whole(
        added,
        spaces.normalizer(),
        pre_tokenizer,
        spaces.decoder(),
        pieces.model(tokens, spaces.byte_fallback),
    )
}

impl Spaces {
    /// sentencepiece's normalizer.cc: the trie, then spaces.
    fn normalizer(&self) -> Value {
        let mut steps = Vec::new();
        if !self.charsmap.is_empty() {
            let charsmap = base64::encode(&self.charsmap);
            steps.push(json!({"type": "Precompiled", "precompiled_charsmap": charsmap}));
        }
        if self.collapse {
            steps.push(json!({"type": "Replace", "pattern": {"Regex": "^ +| +$"}, "content": ""}));
            steps.push(json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}));
        }
        if self.dummy_prefix {
            steps.push(json!({"type": "Prepend", "prepend": "▁"}));
        }
        steps.push(json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}));
        json!({"type": "Sequence", "normalizers": steps})
    }

    fn decoder(&self) -> Value {
        let mut steps = vec![
            json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if self.dummy_prefix {
            steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        json!({"type": "Sequence", "decoders": steps})
    }
}

impl Pieces {
    fn model(&self, tokens: &[String], byte_fallback: bool) -> Value {
        match self {
            Pieces::Bpe { unk, scores } => {
                let vocab: Map<String, Value> = tokens
                    .iter()
                    .enumerate()
                    .map(|(id, token)| (token.clone(), id.into()))
                    .collect();
                let merges = merges(tokens, &vocab, scores);
                json!({
                    "type": "BPE",
                    "dropout": null,
                    "unk_token": unk,
                    "continuing_subword_prefix": null,
                    "end_of_word_suffix": null,
                    "fuse_unk": true,
                    "byte_fallback": byte_fallback,
                    "ignore_merges": false,
                    "vocab": vocab,
                    "merges": merges,
                })
            }
            Pieces::Unigram { unk, scores } => {
                let vocab: Vec<(&String, f64)> = tokens
                    .iter()
                    .zip(scores)
                    .map(|(token, score)| (token, f64::from(*score)))
                    .collect();
                json!({"type": "Unigram", "unk_id": unk, "vocab": vocab, "byte_fallback": byte_fallback})
            }
        }
    }
}

/// The merges that a vocabulary with scores implies: every way to make a piece of two others, better pieces first, then
/// shorter parts first, as transformers' `generate_merges`.
fn merges<'a>(
    tokens: &'a [String],
    vocab: &Map<String, Value>,
    scores: &[f32],
) -> Vec<(&'a str, &'a str)> {
    let ids: std::collections::HashMap<&str, usize> = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| (token.as_str(), id))
        .filter(|(token, _)| vocab.contains_key(*token))
        .collect();
    let mut merges = Vec::new();
    for (id, token) in tokens.iter().enumerate() {
        let mut own: Vec<(usize, usize, &str, &str)> = token
            .char_indices()
            .skip(1)
            .filter_map(|(at, _)| {
                let (left, right) = token.split_at(at);
                Some((*ids.get(left)?, *ids.get(right)?, left, right))
            })
            .collect();
        own.sort_by_key(|(left, right, ..)| (*left, *right));
        let score = scores.get(id).copied().unwrap_or_default();
        merges.extend(
            own.into_iter()
                .map(|(_, _, left, right)| (score, left, right)),
        );
    }
    merges.sort_by(|a, b| b.0.total_cmp(&a.0));
    merges.into_iter().map(|(_, l, r)| (l, r)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_follow_the_scores() {
        let tokens: Vec<String> = ["a", "b", "ab", "aba", "ba"].map(String::from).into();
        let vocab = tokens
            .iter()
            .enumerate()
            .map(|(i, t)| (t.clone(), i.into()))
            .collect();
        let scores = [0.0, 0.0, -2.0, -3.0, -1.0];
        assert_eq!(
            merges(&tokens, &vocab, &scores),
            [("b", "a"), ("a", "b"), ("a", "ba"), ("ab", "a")]
        );
    }
}
