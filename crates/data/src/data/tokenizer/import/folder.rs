//! A model folder: which of its files is the tokenizer.

use super::{Imported, fault, gguf, gpt2, sentencepiece, tokenizer_json};
use crate::data::DataError;
use crate::data::tokenizer::marks::Marks;
use crate::gguf::one_per_model;
use std::path::{Path, PathBuf};

/// SentencePiece models by the names that model folders give them.
const MODELS: [&str; 4] = [
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
];

pub(super) fn read(folder: &Path) -> Result<Imported, DataError> {
    let whole = folder.join("tokenizer.json");
    if whole.is_file() {
        return tokenizer_json(&whole);
    }
    if folder.join(gpt2::VOCAB).is_file() && folder.join(gpt2::MERGES).is_file() {
        return gpt2::read(folder);
    }
    if let Some(model) = MODELS
        .iter()
        .map(|name| folder.join(name))
        .find(|path| path.is_file())
    {
        return sentencepiece::read(&model, Marks::of_folder(folder)?, Marks::added(folder)?);
    }
    match ggufs(folder).as_slice() {
        [one] => gguf::read(one),
        [] => Err(fault(
            folder,
            "no tokenizer here: no tokenizer.json, no vocab.json with merges.txt, no tokenizer.model, no .gguf file",
        )),
        several => Err(fault(
            folder,
            format!(
                "{} .gguf files and no other tokenizer: name one of them",
                several.len()
            ),
        )),
    }
}

/// Whether a folder holds a tokenizer of any kind.
pub fn has_tokenizer(folder: &Path) -> bool {
    let whole = ["tokenizer.json", gpt2::VOCAB];
    let known = whole.iter().chain(&MODELS);
    known.into_iter().any(|name| folder.join(name).is_file()) || !ggufs(folder).is_empty()
}

/// Of a model in several parts one.
fn ggufs(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "gguf") && path.is_file());
    one_per_model(files.collect())
}
