//! A folder that is being written: each file is on the disk before the next, and the files that are copied along.

use super::ExportError;
use crate::base::files::{open_plain, read_plain_text};
use crate::data::tokenizer::{GENERIC_CLASS, Marks};
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
            last.notes.extend(self.notes);
        }
        self.written
    }

    /// Notes on the folder, which the last file of all bears.
    pub fn note(&mut self, notes: Vec<String>) {
        self.notes.extend(notes);
    }

    /// Notes on the file that was written last so far.
    pub(super) fn note_file(&mut self, notes: Vec<String>) {
        if let Some(last) = self.written.last_mut() {
            last.notes.extend(notes);
        }
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

    /// Copies the tokenizer's files that `from` has; says whether there is any.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub(super) fn tokenizer(
        &mut self,
        from: &Path,
        restated: Restated<'_>,
    ) -> Result<bool, ExportError> {
        let mut any = false;
        for name in BESIDE {
            any |= match name == hf::TOKENIZER_CONFIG && restated.changes(from) {
                true => self.tokenizer_config(&from.join(name), restated)?,
                false => self.copy(from, name)?,
            };
        }
        Ok(any)
    }

    fn tokenizer_config(
        &mut self,
        path: &Path,
        restated: Restated<'_>,
    ) -> Result<bool, ExportError> {
        let text = match path.is_file() {
            true => read_plain_text(path).map_err(|source| ExportError::Unread {
                path: path.into(),
                source,
            })?,
            false => Marks::default().to_json(),
        };
        self.text(hf::TOKENIZER_CONFIG, &restated.applied(&text))?;
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

/// What a tokenizer_config.json says otherwise where it is written than where it came from.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Restated<'a> {
    /// The token that pads, of a reward model, which does so on the right, as in training.
    pub pad: Option<&'a str>,
    /// transformers takes tokenizer.json as it is: beside another `model_type` it would build a tokenizer of the named class with
    /// that one's rules.
    pub is_generic: bool,
}

impl Restated<'_> {
    /// Whether the file of a folder changes.
    fn changes(self, folder: &Path) -> bool {
        self.pad.is_some() || self.is_generic && folder.join(hf::TOKENIZER).is_file()
    }

    /// The text of a file with it.
    pub fn applied(self, config: &str) -> String {
        let mut config: Map<String, Value> = serde_json::from_str(config).unwrap_or_default();
        if let Some(pad) = self.pad {
            config.insert("pad_token".into(), pad.into());
            config.insert("padding_side".into(), "right".into());
        }
        if self.is_generic {
            config.insert("tokenizer_class".into(), GENERIC_CLASS.into());
        }
        format!("{:#}\n", Value::Object(config))
    }
}
