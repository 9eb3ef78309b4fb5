//! GPT-2's two files: vocab.json (token → id) and merges.txt (one pair a line, best first).

use super::assemble::{byte_level_bpe, check_ids};
use super::{Imported, fault, json, text};
use crate::data::DataError;
use crate::data::tokenizer::marks::{Added, Marks};
use crate::data::tokenizer::patterns::Pattern;
use serde_json::{Map, Value};
use std::path::Path;

pub const VOCAB: &str = "vocab.json";
pub const MERGES: &str = "merges.txt";

pub(super) fn read(folder: &Path) -> Result<Imported, DataError> {
    let vocab_path = folder.join(VOCAB);
    let Value::Object(vocab) = json(&vocab_path)? else {
        return Err(fault(&vocab_path, "not a table of tokens and ids"));
    };
    if let Some((token, id)) = vocab.iter().find(|(_, id)| id.as_u64().is_none()) {
        return Err(fault(
            &vocab_path,
            format!("the token {token:?} has {id} for an id"),
        ));
    }
    let merges_path = folder.join(MERGES);
    let merges = merges(&merges_path, &text(&merges_path)?, &vocab)?;
    let marks = Marks::of_folder(folder)?;
    let class = marks.class.clone().unwrap_or_default();
    let pattern = Pattern::of_class(&class).ok_or_else(|| {
        let what = format!(
            "the pre-tokenizer of {class} is not known here; transformers can save it: \
             AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) makes a tokenizer.json"
        );
        fault(&folder.join("tokenizer_config.json"), what)
    })?;
    let mut added = Marks::added(folder)?;
    let id_of = |token: &str| Some(vocab.get(token)?.as_u64()? as usize);
    check_ids(&added, &id_of, vocab.len()).map_err(|what| fault(&vocab_path, what))?;
    let end = "<|endoftext|>";
    let known = marks.eos.is_some() || added.iter().any(|a| a.content == end);
    if let (false, Some(id)) = (known, vocab.get(end).and_then(Value::as_u64)) {
        added.push(Added {
            id: id as usize,
            content: end.into(),
            special: true,
        });
    }
    for token in marks.tokens() {
        let id = vocab.get(token).and_then(Value::as_u64);
        if let (Some(id), false) = (id, added.iter().any(|a| a.content == *token)) {
            added.push(Added {
                id: id as usize,
                content: token.into(),
                special: true,
            });
        }
    }
    let tokenizer = byte_level_bpe(vocab, &merges, &pattern, &added);
    let origin = "vocab.json and merges.txt".into();
    Ok(Imported::assembled(tokenizer, marks, origin))
}

fn merges(
    path: &Path,
    text: &str,
    vocab: &Map<String, Value>,
) -> Result<Vec<(String, String)>, DataError> {
    let mut merges = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || (number == 0 && line.starts_with("#version")) {
            continue;
        }
        let bad = |what: String| fault(path, format!("line {}: {what}", number + 1));
        let Some((left, right)) = line.split_once(' ').filter(|(_, r)| !r.contains(' ')) else {
            return Err(bad("not two tokens with a space between them".into()));
        };
        let made = format!("{left}{right}");
        if let Some(absent) = [left, right, &made]
            .into_iter()
            .find(|token| !vocab.contains_key(*token))
        {
            return Err(bad(format!("{absent:?} is not in vocab.json")));
        }
        merges.push((left.to_string(), right.to_string()));
    }
    Ok(merges)
}
