//! The tensors of a model, in one file or in several: each file is mapped, and each tensor is found by its name.

use super::ModelFileError;
use crate::base::mapped::Mapped;
use crate::gguf::{Gguf, Metadata, TensorInfo};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// All tensors, by name.
#[derive(Default)]
pub(super) struct Tensors {
    files: Vec<MappedFile>,
    tensors: BTreeMap<String, Stored>,
}

struct MappedFile {
    path: PathBuf,
    /// Byte position that the offsets of its tensors are relative to.
    data_start: u64,
    bytes: Mapped,
}

struct Stored {
    info: TensorInfo,
    /// Index of its file.
    file: usize,
}

impl Tensors {
    /// Maps a file and takes up its tensors; returns its keys.
    ///
    /// # Errors
    /// It cannot be mapped, or became shorter since its head was read.
    pub fn add(&mut self, path: &Path, head: Gguf) -> Result<Metadata, ModelFileError> {
        let wrong = |what: String| ModelFileError::file(path, what);
        let bytes = Mapped::open(path).map_err(|e| wrong(e.to_string()))?;
        let file = self.files.len();
        for info in head.tensors {
            if head.data_start + info.offset + info.bytes > bytes.len() as u64 {
                let what = format!("tensor {} extends past the end of the file", info.name);
                return Err(wrong(what));
            }
            self.tensors
                .insert(info.name.clone(), Stored { info, file });
        }
        self.files.push(MappedFile {
            path: path.into(),
            data_start: head.data_start,
            bytes,
        });
        Ok(head.metadata)
    }

    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// By name.
    pub fn list(&self) -> impl Iterator<Item = &TensorInfo> {
        self.tensors.values().map(|stored| &stored.info)
    }

    pub fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name).map(|stored| &stored.info)
    }

    /// The file that a tensor lies in.
    pub fn file(&self, name: &str) -> Option<&Path> {
        let stored = self.tensors.get(name)?;
        self.files.get(stored.file).map(|file| file.path.as_path())
    }

    /// Whether two tensors have the same shape, format and bits.
    pub fn are_same(&self, one: &str, other: &str) -> bool {
        let form = |name: &str| self.get(name).map(|info| (info.dims.clone(), info.kind.id));
        form(one) == form(other) && self.bytes(one) == self.bytes(other)
    }

    /// The bytes of a tensor; none of a name that it does not have.
    pub fn bytes(&self, name: &str) -> &[u8] {
        let found = self.tensors.get(name).and_then(|Stored { info, file }| {
            let file = self.files.get(*file)?;
            let start = (file.data_start + info.offset) as usize;
            // `add` has checked that they lie inside.
            file.bytes.get(start..start + info.bytes as usize)
        });
        found.unwrap_or_default()
    }
}
