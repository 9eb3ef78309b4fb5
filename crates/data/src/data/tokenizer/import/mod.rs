//! Existing tokenizers in their usual formats: tokenizer.json, GPT-2's vocab.json + merges.txt, a SentencePiece model, a GGUF
//! file, a model folder. Each becomes a tokenizer.json as transformers writes it, with its special tokens (BOS, EOS, padding)
//! and chat template. The bytes are untrusted: the result is vetted before it is used.

mod assemble;
mod folder;
mod gguf;
mod gpt2;
mod sentencepiece;

pub use folder::has_tokenizer;

use super::Tokenizer;
use super::marks::Marks;
use super::validate::validate;
use crate::base::child::Child;
use crate::base::files::{open_plain, read_plain};
use crate::data::DataError;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::Path;

/// The largest known tokenizer.json has 33 MB, the largest SentencePiece model 5 MB.
const MAX_BYTES: u64 = 256 << 20;

/// A tokenizer on its way in.
#[derive(Debug, Clone, Default)]
pub(super) struct Imported {
    /// The text of a tokenizer.json.
    pub json: String,
    pub marks: Marks,
    /// What kind of file it was, for display.
    pub origin: String,
}

impl Imported {
    /// A tokenizer.json put together here of a file that is none.
    fn assembled(tokenizer: Value, marks: Marks, origin: String) -> Imported {
        Imported {
            json: assemble::framed(tokenizer, &marks),
            marks,
            origin,
        }
    }
}

/// Reads a tokenizer from a file or a folder, of whatever kind it turns out to be.
///
/// # Errors
/// The location, what was found there and what was expected.
pub fn load(path: &Path, child: &Child) -> Result<Tokenizer, DataError> {
    let imported = read(path)?;
    let place = path.display().to_string();
    validate(&imported.json, &place, child)?;
    let tokenizer = Tokenizer::from_json(&imported.json).map_err(|error| match error {
        DataError::Tokenizer { what, .. } => DataError::Tokenizer { place, what },
        other => other,
    })?;
    Ok(tokenizer
        .with_marks(imported.marks)?
        .with_origin(imported.origin))
}

fn read(path: &Path) -> Result<Imported, DataError> {
    let info = fs::metadata(path).map_err(|source| DataError::Unreadable {
        path: path.to_path_buf(),
        source,
    })?;
    if info.is_dir() {
        return folder::read(path);
    }
    let mut head = [0; 4];
    let n = open_plain(path)
        .and_then(|mut file| file.read(&mut head))
        .map_err(|source| DataError::Unreadable {
            path: path.to_path_buf(),
            source,
        })?;
    if n == 4 && head == crate::gguf::MAGIC {
        return gguf::read(path);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name == "merges.txt" || name == "vocab.json" {
        return gpt2::read(path.parent().unwrap_or(Path::new(".")));
    }
    if name.ends_with(".model") || name.ends_with(".spm") || head[..n].starts_with(b"\x0a") {
        return sentencepiece::read(path, Marks::default(), Vec::new());
    }
    tokenizer_json(path)
}

/// A tokenizer.json, and its metadata.
fn tokenizer_json(path: &Path) -> Result<Imported, DataError> {
    let json = text(path)?;
    let beside = path.parent().unwrap_or(Path::new("."));
    Ok(Imported {
        marks: Marks::of_folder(beside)?,
        json,
        origin: "tokenizer.json".into(),
    })
}

fn bytes(path: &Path) -> Result<Vec<u8>, DataError> {
    let unreadable = |source| DataError::Unreadable {
        path: path.to_path_buf(),
        source,
    };
    let length = fs::metadata(path).map_err(unreadable)?.len();
    if length > MAX_BYTES {
        return Err(DataError::TooLarge {
            place: path.display().to_string(),
            bytes: length,
            limit: MAX_BYTES,
        });
    }
    read_plain(path).map_err(unreadable)
}

fn text(path: &Path) -> Result<String, DataError> {
    String::from_utf8(bytes(path)?).map_err(|e| {
        let offset = e.utf8_error().valid_up_to();
        fault(path, format!("not UTF-8 at byte {offset}"))
    })
}

fn json(path: &Path) -> Result<Value, DataError> {
    serde_json::from_str(&text(path)?).map_err(|e| fault(path, format!("not JSON: {e}")))
}

fn fault(path: &Path, what: impl Into<String>) -> DataError {
    DataError::Tokenizer {
        place: path.display().to_string(),
        what: what.into(),
    }
}

#[cfg(test)]
mod tests;
