//! SentencePiece's BPE with byte fallback (Llama 2, Mistral, Gemma, Phi-3), llama.cpp's `llama`. It uses scores of tokens
//! instead of merges: any two neighbours may become a token, the best token first. The two are equivalent if the merges
//! contain every split of each token into two others, in the order of the tokens, as they do if they came from scores.

use super::{BYTE, NORMAL, Words, merges};
use crate::data::tokenizer::Tokenizer;
use serde_json::Value as Json;
use std::collections::{HashMap, HashSet};

const SPACE: char = '▁';
/// What is made of nothing by merges: added tokens, which stand for themselves in a text.
const LAST: f32 = -1e9;

pub fn words(tokenizer: &Tokenizer, json: &Json, vocab_size: usize) -> Result<Words, String> {
    let model = &json["model"];
    let pairs = merges(json).ok_or("its merges are not pairs of tokens")?;
    let (tokens, mut kinds) = tokenizer.listed(vocab_size);
    for byte in 0..=255_u8 {
        let missing = || format!("its vocabulary has no token for the byte {byte}");
        let id = tokenizer.id(&spelt(byte)).ok_or_else(missing)?;
        if let Some(kind) = kinds.get_mut(id as usize) {
            *kind = BYTE;
        }
    }
    let plain = model["dropout"].is_null()
        && model["ignore_merges"] != true
        && is_none(&model["continuing_subword_prefix"])
        && is_none(&model["end_of_word_suffix"]);
    if !plain {
        return Err(
            "llama.cpp merges without dropout, prefixes and words that ignore merges".into(),
        );
    }
    let mut notes = Vec::new();
    let prefix = prefix(json, &tokens)?;
    if prefix == Prefix::Where {
        let note = "llama.cpp puts a space in front of a text that begins with one, and behind special tokens, where this tokenizer puts none";
        notes.push(note.into());
    }
    let ranks = ranks(&pairs)?;
    complete(&tokens, &kinds, &pairs, &ranks)?;
    let score = |(token, kind): (&String, &i32)| match (ranks.get(token.as_str()), *kind) {
        (Some(rank), _) => -(*rank as f32),
        (None, NORMAL | BYTE) => 0.0,
        (None, _) => LAST,
    };
    Ok(Words {
        model: "llama",
        pre: "default",
        scores: Some(tokens.iter().zip(&kinds).map(score).collect()),
        tokens,
        kinds,
        merges: None,
        space_prefix: Some(prefix != Prefix::None),
        never: tokenizer.id(&spelt(0xff)),
        notes,
    })
}

fn spelt(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

fn is_none(part: &Json) -> bool {
    part.as_str().is_none_or(str::is_empty)
}

/// Where a space is put that is not in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prefix {
    None,
    /// In front of a text, and after each token that stands for itself.
    Each,
    /// Where Metaspace puts it: not in front of a space, and with `first` not after tokens that stand for themselves.
    Where,
}

/// How spaces become ▁, and whether one is put in front.
fn prefix(json: &Json, tokens: &[String]) -> Result<Prefix, String> {
    let odd = |what: &Json| {
        let kind = what["type"].as_str().unwrap_or("an unknown step");
        Err(format!(
            "it normalizes text ({kind}) in a way that llama.cpp does not support"
        ))
    };
    let mut prefix = Prefix::None;
    let mut replaces = false;
    for step in steps(&json["normalizer"], "normalizers") {
        match step["type"].as_str() {
            Some("Prepend") if step["prepend"] == "▁" => prefix = Prefix::Each,
            Some("Replace") if step["pattern"]["String"] == " " && step["content"] == "▁" => {
                replaces = true;
            }
            _ => return odd(step),
        }
    }
    for step in steps(&json["pre_tokenizer"], "pretokenizers") {
        match step["type"].as_str() {
            Some("Metaspace") if step["replacement"] == "▁" => {
                let crosses = |token: &String| token.chars().skip(1).any(|c| c == SPACE);
                if step["split"] != false && tokens.iter().any(crosses) {
                    return Err("it splits text at spaces, but has tokens that contain one".into());
                }
                replaces = true;
                match step["prepend_scheme"].as_str() {
                    Some("never") => {}
                    // Nothing is put in front of a space that was put there before.
                    _ if prefix == Prefix::Each => {}
                    _ => prefix = Prefix::Where,
                }
            }
            // Of spaces that are ▁ by now.
            Some("Split") if replaces && step["pattern"]["String"] == " " => {}
            _ => return odd(step),
        }
    }
    match replaces {
        true => Ok(prefix),
        false => Err("spaces stand as such in its tokens".into()),
    }
}

/// One step or several.
fn steps<'a>(part: &'a Json, several: &str) -> Vec<&'a Json> {
    match (&part[several], part.is_null()) {
        (_, true) => Vec::new(),
        (Json::Array(steps), _) => steps.iter().collect(),
        _ => vec![part],
    }
}

/// Of each token that is made by merges, which one it is in order.
fn ranks(pairs: &[(&str, &str)]) -> Result<HashMap<String, usize>, String> {
    let mut ranks: HashMap<String, usize> = HashMap::new();
    let mut last = String::new();
    for (left, right) in pairs {
        let token = format!("{left}{right}");
        if token == last {
            continue;
        }
        let next = ranks.len() + 1;
        if ranks.insert(token.clone(), next).is_some() {
            return Err(format!(
                "ways to make the token {token:?} have other tokens between them, which scores cannot say"
            ));
        }
        last = token;
    }
    Ok(ranks)
}

/// That every way to make a token of two others is a merge: llama.cpp takes all.
fn complete(
    tokens: &[String],
    kinds: &[i32],
    pairs: &[(&str, &str)],
    ranks: &HashMap<String, usize>,
) -> Result<(), String> {
    let listed = tokens.iter().zip(kinds);
    let made_of = |(token, kind): &(&String, &i32)| {
        **kind == NORMAL && (token.chars().count() == 1 || ranks.contains_key(token.as_str()))
    };
    let parts: HashSet<&str> = listed
        .clone()
        .filter(made_of)
        .map(|(token, _)| token.as_str())
        .collect();
    let pairs: HashSet<(&str, &str)> = pairs.iter().copied().collect();
    for (token, _) in listed.filter(|(_, kind)| **kind == NORMAL) {
        let ways = token
            .char_indices()
            .skip(1)
            .map(|(at, _)| token.split_at(at));
        for (left, right) in ways {
            let both = parts.contains(left) && parts.contains(right);
            if both && !pairs.contains(&(left, right)) {
                return Err(format!(
                    "it does not merge {left:?} and {right:?} into the token {token:?}, which llama.cpp would do"
                ));
            }
        }
    }
    Ok(())
}
