//! The tokenizer inside a GGUF file (llama.cpp's keys `tokenizer.ggml.*`).

use super::assemble::{Pieces, Spaces, byte_level_bpe, sentencepiece};
use super::sentencepiece::{CONTROL, UNKNOWN, UNUSED, USER_DEFINED};
use super::{Imported, fault};
use crate::data::DataError;
use crate::data::tokenizer::char::Alphabet;
use crate::data::tokenizer::marks::{Added, Marks};
use crate::data::tokenizer::patterns::{Pattern, gguf_adds_bos};
use crate::gguf::{Array, Metadata, open_first};
use serde_json::Value;
use std::path::Path;

/// Of a model in several parts the first has the tokenizer; any of them may be named.
pub(super) fn read(path: &Path) -> Result<Imported, DataError> {
    let part = open_first(path).map_err(|e| fault(&e.path, e.what))?;
    import(&part.head.metadata).map_err(|what| fault(&part.path, what))
}

fn import(metadata: &Metadata) -> Result<Imported, String> {
    let model = metadata
        .str("tokenizer.ggml.model")
        .ok_or("it has no tokenizer (no key tokenizer.ggml.model)")?;
    if matches!(model, "no_vocab" | "none") {
        return Err(
            "it has a model without a tokenizer: it was converted from a folder without one".into(),
        );
    }
    let tokens = metadata
        .strings("tokenizer.ggml.tokens")
        .filter(|tokens| !tokens.is_empty())
        .ok_or("its tokenizer has no tokens")?;
    let added = added(metadata, tokens)?;
    let marks = marks(metadata, tokens, model);
    let origin = format!("a GGUF file ({model})");
    let tokenizer = match model {
        "gpt2" => byte_level(metadata, tokens, &added)?,
        "llama" | "t5" => pieces(metadata, tokens, &added, model)?,
        // Its own form of a tokenizer.json, which has no special tokens.
        "rwkv" => {
            return Ok(Imported {
                json: characters(metadata, tokens)?,
                marks,
                origin,
            });
        }
        other => {
            return Err(format!(
                "its tokenizer is of the kind {other:?}; gpt2, llama and t5 are supported, and rwkv with single characters. Use the model's tokenizer.json instead"
            ));
        }
    };
    Ok(Imported::assembled(tokenizer, marks, origin))
}

fn marks(metadata: &Metadata, tokens: &[String], model: &str) -> Marks {
    let token = |key: &str| {
        let id = metadata.u64(&format!("tokenizer.ggml.{key}"))?;
        tokens.get(usize::try_from(id).ok()?).cloned()
    };
    let pre = metadata.str("tokenizer.ggml.pre").unwrap_or_default();
    let default = |adds: bool| adds.then_some(true);
    Marks {
        bos: token("bos_token_id"),
        eos: token("eos_token_id"),
        pad: token("padding_token_id"),
        unk: token("unknown_token_id"),
        // Older files do not say: what llama.cpp adds to texts of this kind.
        add_bos: metadata.bool("tokenizer.ggml.add_bos_token").or(default(
            model == "llama" || (model == "gpt2" && gguf_adds_bos(pre)),
        )),
        add_eos: metadata
            .bool("tokenizer.ggml.add_eos_token")
            .or(default(model == "t5")),
        chat_template: metadata.str("tokenizer.chat_template").map(String::from),
        ..Marks::default()
    }
}

/// Control tokens (and the unknown token) are special; user-defined ones stand for themselves too.
fn added(metadata: &Metadata, tokens: &[String]) -> Result<Vec<Added>, String> {
    let Some(array) = metadata.array("tokenizer.ggml.token_type") else {
        return Ok(Vec::new());
    };
    let kinds: Vec<u64> = match array {
        Array::I32(kinds) => kinds.iter().map(|k| *k as u64).collect(),
        Array::Unsigned(kinds) => kinds.clone(),
        _ => return Err("its token types are not integers".into()),
    };
    if kinds.len() != tokens.len() {
        return Err(format!(
            "it has {} tokens and {} token types",
            tokens.len(),
            kinds.len()
        ));
    }
    Ok(kinds
        .into_iter()
        .enumerate()
        .filter(|(id, kind)| {
            matches!(*kind, UNKNOWN | CONTROL | USER_DEFINED) && !tokens[*id].is_empty()
        })
        .map(|(id, kind)| Added {
            id,
            content: tokens[id].clone(),
            special: kind != USER_DEFINED,
        })
        .collect())
}

/// Single characters; ids after them may be unused.
fn characters(metadata: &Metadata, tokens: &[String]) -> Result<String, String> {
    let is_used = |id: usize| match metadata.array("tokenizer.ggml.token_type") {
        Some(Array::I32(kinds)) => kinds.get(id).is_none_or(|kind| *kind as u64 != UNUSED),
        _ => true,
    };
    let used = (0..tokens.len())
        .rposition(is_used)
        .map_or(0, |last| last + 1);
    let mut chars = Vec::with_capacity(used);
    for token in &tokens[..used] {
        let plain = unescaped(token).filter(|text| text.chars().count() == 1);
        let plain = plain.ok_or_else(|| {
            format!(
                "its tokenizer is of kind rwkv, but the token {token:?} is not a single character"
            )
        })?;
        chars.extend(plain.chars());
    }
    Ok(Alphabet::new(chars).to_json())
}

/// The text of a token of the kind rwkv; none if it is not text.
fn unescaped(token: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = token.chars();
    while let Some(c) = rest.next() {
        match (c, if c == '\\' { rest.next() } else { None }) {
            ('\\', Some('n')) => bytes.push(b'\n'),
            ('\\', Some('r')) => bytes.push(b'\r'),
            ('\\', Some('t')) => bytes.push(b'\t'),
            ('\\', Some('x')) => {
                let digits: String = rest.by_ref().take(2).collect();
                bytes.push(u8::from_str_radix(&digits, 16).ok()?);
            }
            ('\\', Some(other)) => bytes.extend(other.to_string().bytes()),
            ('\\', None) => return None,
            (other, _) => bytes.extend(other.to_string().bytes()),
        }
    }
    String::from_utf8(bytes).ok()
}

fn byte_level(metadata: &Metadata, tokens: &[String], added: &[Added]) -> Result<Value, String> {
    let pre = metadata.str("tokenizer.ggml.pre").unwrap_or("gpt-2");
    let pattern = Pattern::of_gguf(pre).ok_or_else(|| {
        format!(
            "the pre-tokenizer {pre:?} is not known here. Use the model's tokenizer.json instead"
        )
    })?;
    let lines = metadata
        .strings("tokenizer.ggml.merges")
        .ok_or("it has no merges")?;
    let mut merges = Vec::with_capacity(lines.len());
    for line in lines {
        let (left, right) = line
            .split_once(' ')
            .ok_or_else(|| format!("the merge {line:?} is not two tokens"))?;
        merges.push((left.to_string(), right.to_string()));
    }
    let vocab = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| (token.clone(), id.into()))
        .collect();
    Ok(byte_level_bpe(vocab, &merges, &pattern, added))
}

/// Whether tokens of several characters have the same score, so that scores do not say which comes first.
fn has_ties(tokens: &[String], scores: &[f32]) -> bool {
    let long = tokens.iter().zip(scores);
    let long = long.filter(|(token, score)| token.chars().count() > 1 && **score < 0.0);
    let mut seen = std::collections::HashSet::new();
    let bytes = |token: &str| token.starts_with("<0x");
    !long
        .filter(|(token, _)| !bytes(token))
        .filter(|(_, score)| **score > -1e9)
        .all(|(_, score)| seen.insert(score.to_bits()))
}

fn pieces(
    metadata: &Metadata,
    tokens: &[String],
    added: &[Added],
    model: &str,
) -> Result<Value, String> {
    let scores = match metadata.array("tokenizer.ggml.scores") {
        Some(Array::F32(scores)) if scores.len() == tokens.len() => scores.clone(),
        _ => return Err("it has no score for each token".into()),
    };
    if scores.iter().any(|score| !score.is_finite()) {
        return Err("a token's score is not a finite number".into());
    }
    let unk = metadata.u64("tokenizer.ggml.unknown_token_id");
    let unk = unk
        .and_then(|id| usize::try_from(id).ok())
        .filter(|id| *id < tokens.len());
    let architecture = metadata.str("general.architecture").unwrap_or_default();
    let pieces = match model {
        "t5" => Pieces::Unigram {
            unk: unk.ok_or("it has no unknown token")?,
            scores,
        },
        // Gemma's scores do not follow its merges in all files; the order of its tokens does.
        _ => Pieces::Bpe {
            unk: Some(tokens[unk.unwrap_or(0)].clone()),
            scores: match architecture.starts_with("gemma") && has_ties(tokens, &scores) {
                true => (0..tokens.len()).map(|id| -(id as f32)).collect(),
                false => scores,
            },
        },
    };
    let charsmap = match metadata.array("tokenizer.ggml.precompiled_charsmap") {
        Some(Array::U8(bytes)) => bytes.clone(),
        Some(Array::Signed(bytes)) => bytes.iter().map(|b| *b as u8).collect(),
        _ => Vec::new(),
    };
    let flag = |key: &str, default| metadata.bool(key).unwrap_or(default);
    let spaces = Spaces {
        charsmap,
        dummy_prefix: flag("tokenizer.ggml.add_space_prefix", true),
        collapse: flag("tokenizer.ggml.remove_extra_whitespaces", false),
        byte_fallback: tokens.iter().any(|token| token == "<0x00>"),
    };
    // Files spell runs of spaces as such; everything else here knows them as ▁.
    let tokens: Vec<String> = tokens
        .iter()
        .map(|token| match token.trim_matches(' ').is_empty() {
            true => "▁".repeat(token.len()),
            false => token.clone(),
        })
        .collect();
    Ok(sentencepiece(&tokens, &pieces, &spaces, added))
}
