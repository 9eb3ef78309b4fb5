//! Byte-level BPE, llama.cpp's `gpt2`: its pre-tokenization rule must have a name in llama.cpp.

use super::{Words, merges};
use crate::data::tokenizer::Tokenizer;
use crate::data::tokenizer::patterns::gguf_name;
use serde_json::Value as Json;

/// The byte 0xFF, as byte-level vocabularies spell it.
const NEVER: &str = "ÿ";

fn steps(json: &Json) -> Vec<&Json> {
    match &json["pre_tokenizer"]["pretokenizers"] {
        Json::Array(steps) => steps.iter().collect(),
        _ => vec![&json["pre_tokenizer"]],
    }
}

pub fn is_byte_level(json: &Json) -> bool {
    let steps = steps(json);
    steps.last().is_some_and(|last| last["type"] == "ByteLevel")
}

pub fn words(tokenizer: &Tokenizer, json: &Json, vocab_size: usize) -> Result<Words, String> {
    let pairs = merges(json).ok_or("its merges are not pairs of tokens")?;
    let (tokens, kinds) = tokenizer.listed(vocab_size);
    let composes = composes(json)?;
    Ok(Words {
        model: "gpt2",
        pre: pre(json)?,
        tokens,
        kinds,
        merges: Some(pairs.iter().map(|(l, r)| format!("{l} {r}")).collect()),
        never: tokenizer.id(NEVER),
        notes: composes
            .then(|| "llama.cpp does not compose characters (NFC): text that spells é as e and an accent gets other tokens there".to_string())
            .into_iter()
            .collect(),
        ..Words::default()
    })
}

/// Whether it brings texts to Unicode's composed form first; any other change of a text llama.cpp does not know here.
fn composes(json: &Json) -> Result<bool, String> {
    let normalizer = &json["normalizer"];
    let steps = match &normalizer["normalizers"] {
        Json::Array(steps) => steps.iter().collect(),
        _ if normalizer.is_null() => Vec::new(),
        _ => vec![normalizer],
    };
    match steps.iter().find(|step| step["type"] != "NFC") {
        None => Ok(!steps.is_empty()),
        Some(step) => Err(format!(
            "it changes a text ({}) in a way that llama.cpp does not know",
            step["type"].as_str().unwrap_or("an unknown step")
        )),
    }
}

/// How words are cut, by llama.cpp's name.
fn pre(json: &Json) -> Result<&'static str, String> {
    let kind = json["model"]["type"].as_str().unwrap_or("none");
    let is_bpe = kind == "BPE" && json["model"]["byte_fallback"] != true;
    let steps = steps(json);
    let Some((last, before)) = steps.split_last() else {
        return Err("it does not split words".into());
    };
    if !is_bpe || last["add_prefix_space"] == true {
        return Err(format!(
            "llama.cpp has no name for a {kind} tokenizer with bytes like this one"
        ));
    }
    let regex = |step: &Json| match step["type"].as_str() {
        Some("Digits") if step["individual_digits"] == true => Some(r"\p{N}".to_string()),
        Some("Split") => step["pattern"]["Regex"].as_str().map(String::from),
        _ => None,
    };
    let splits: Option<Vec<String>> = before.iter().map(|step| regex(step)).collect();
    let ignores_merges = json["model"]["ignore_merges"] == true;
    let uses_gpt2 = last["use_regex"] != false;
    splits
        .and_then(|splits| gguf_name(&splits, uses_gpt2, ignores_merges))
        .ok_or_else(|| "its pre-tokenizer rule has no name in llama.cpp".into())
}
