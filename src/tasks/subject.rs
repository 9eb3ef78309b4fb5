//! The model that is asked, from files or while it trains; and the fingerprint of its files.

use super::error::TaskError;
use super::task::hex;
use crate::data::tokenizer::Tokenizer;
use crate::models::{ModelSource, SourceError};
use crate::nn::Model;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A model read from files, with its tokenizer.
pub struct Loaded {
    model: Model,
    tokenizer: Tokenizer,
    ends: Vec<u32>,
}

impl Loaded {
    /// Loads a model for inference; `tokenizer` is its own.
    ///
    /// # Errors
    /// Its weights cannot be read.
    pub fn load(source: &ModelSource, tokenizer: Tokenizer) -> Result<Loaded, SourceError> {
        Ok(Loaded {
            model: source.load_for_inference()?,
            ends: source.ends(),
            tokenizer,
        })
    }

    /// To be asked.
    pub fn subject(&mut self) -> Subject<'_> {
        Subject::new(&mut self.model, &self.tokenizer, &self.ends)
    }
}

/// The model that is asked.
pub struct Subject<'a> {
    pub(super) model: &'a mut Model,
    pub(super) tokenizer: &'a Tokenizer,
    /// What the tokenizer's own file puts in front of a text.
    pub(super) lead: Vec<u32>,
    /// What stands for nothing before a continuation: the token that begins texts, or the one that ends them.
    pub(super) prefix: Option<u32>,
    /// Tokens that end an answer.
    pub(super) ends: Vec<u32>,
}

impl<'a> Subject<'a> {
    /// `ends`: tokens that end an answer, besides the tokenizer's own.
    pub fn new(model: &'a mut Model, tokenizer: &'a Tokenizer, ends: &[u32]) -> Subject<'a> {
        let mut ends = ends.to_vec();
        ends.extend(tokenizer.eos());
        ends.retain(|id| (*id as usize) < model.shape().vocab_size);
        Subject {
            lead: tokenizer.frame().0,
            prefix: tokenizer.bos().or(tokenizer.eos()),
            ends,
            model,
            tokenizer,
        }
    }

    /// The token in front of texts, in words.
    pub fn begins_with(&self) -> String {
        let shown = |id: &u32| self.tokenizer.token(*id).unwrap_or_default();
        match self.lead.as_slice() {
            [] => "nothing in front of a prompt".into(),
            lead => format!(
                "{} in front of a prompt",
                lead.iter().map(shown).collect::<String>()
            ),
        }
    }
}

/// SHA-256 over what decides a model's answers: weights, configuration and tokenizer, by name and contents.
///
/// # Errors
/// A file cannot be read.
pub fn fingerprint(path: &Path) -> Result<String, TaskError> {
    let mut files: Vec<PathBuf> = match path.is_dir() {
        false => vec![path.to_path_buf()],
        true => std::fs::read_dir(path)
            .map_err(TaskError::io(path))?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| decides(path))
            .collect(),
    };
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        hash.update(name.as_bytes());
        hash.update([0]);
        let mut reader = File::open(&file).map_err(TaskError::io(&file))?;
        std::io::copy(&mut reader, &mut hash).map_err(TaskError::io(&file))?;
    }
    Ok(hex(hash))
}

fn decides(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let kind = file.extension().unwrap_or_default().to_string_lossy();
    match kind.as_ref() {
        "safetensors" => !name.starts_with("optimizer"),
        "json" => !["state.json", "manifest.json"].contains(&name.as_ref()),
        "gguf" | "model" | "bin" => true,
        _ => false,
    }
}
