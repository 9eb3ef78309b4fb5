//! A folder that is being written: each file is on the disk before the next, and the files that are copied along.

use super::ExportError;
use crate::base::files::{open_plain, read_plain_text};
use crate::data::tokenizer::Marks;
use crate::hf;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Tokenizer files beside a model's weights: copied unchanged.
const BESIDE: [&str; 8] = [
    hf::TOKENIZER,
    hf::TOKENIZER_CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
];

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub name: String,
    pub bytes: u64,
    /// Notes on deviations from the request.
    pub notes: Vec<String>,
}

/// An empty folder that fills.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    written: Vec<Written>,
    notes: Vec<String>,
}

impl Folder {
    pub(super) fn new(path: &Path) -> Folder {
        Folder {
            path: path.to_path_buf(),
            written: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn written(mut self) -> Vec<Written> {
        if let Some(last) = self.written.last_mut() {
            last.notes = self.notes;
        }
        self.written
    }

    /// Notes on the last file.
    pub fn note(&mut self, notes: Vec<String>) {
        self.notes.extend(notes);
    }

    /// Writes one file as a stream, through to the disk.
    ///
    /// # Errors
    /// Errors of the disk or of `fill`.
    pub fn file(
        &mut self,
        name: &str,
        fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), ExportError> {
        let path = self.path.join(name);
        let done = File::create(&path).and_then(|file| {
            let mut out = BufWriter::with_capacity(1 << 20, file);
            fill(&mut out)?;
            out.flush()?;
            out.get_ref().sync_all()?;
            Ok(out.get_ref().metadata()?.len())
        });
        match done {
            Ok(bytes) => {
                self.written.push(Written {
                    name: name.into(),
                    bytes,
                    notes: Vec::new(),
                });
                Ok(())
            }
            Err(source) => Err(ExportError::Io { path, source }),
        }
    }

    /// Writes a short text.
    ///
    /// # Errors
    /// As [`Folder::file`].
    pub fn text(&mut self, name: &str, text: &str) -> Result<(), ExportError> {
        self.file(name, &mut |out| out.write_all(text.as_bytes()))
    }

    /// Copies the tokenizer's files that `from` has; says whether there is any. For a reward model they say what pads.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn tokenizer(&mut self, from: &Path, pad: Option<&str>) -> Result<bool, ExportError> {
        let mut any = false;
        for name in BESIDE {
            any |= match pad.filter(|_| name == hf::TOKENIZER_CONFIG) {
                Some(pad) => self.padded_config(&from.join(name), pad)?,
                None => self.copy(from, name)?,
            };
        }
        Ok(any)
    }

    fn padded_config(&mut self, path: &Path, pad: &str) -> Result<bool, ExportError> {
        let text = match path.is_file() {
            true => read_plain_text(path).map_err(|source| ExportError::Unread {
                path: path.into(),
                source,
            })?,
            false => Marks::default().to_json(),
        };
        self.text(hf::TOKENIZER_CONFIG, &padded(&text, pad))?;
        Ok(true)
    }

    /// Copies one file where `from` has it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn copy(&mut self, from: &Path, name: &str) -> Result<bool, ExportError> {
        let path = from.join(name);
        if !path.is_file() {
            return Ok(false);
        }
        let mut file = open_plain(&path).map_err(|source| ExportError::Unread { path, source })?;
        self.file(name, &mut |out| io::copy(&mut file, out).map(|_| ()))?;
        Ok(true)
    }
}

/// A tokenizer_config.json that also says what pads, and that it does so on the right, as in training.
pub(super) fn padded(config: &str, pad: &str) -> String {
    let mut config: Map<String, Value> = serde_json::from_str(config).unwrap_or_default();
    config.insert("pad_token".into(), pad.into());
    config.insert("padding_side".into(), "right".into());
    format!("{:#}\n", Value::Object(config))
}
