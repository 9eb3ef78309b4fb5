//! `manifest.json`: the files of a checkpoint with their sizes and checksums. A folder that does not match it is broken,
//! and the fault says which file.

use super::disk::{FileRecord, record_of};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The manifest's own file name; it is written last.
pub const FILE: &str = "manifest.json";
/// Version of the checkpoint format.
pub const FORMAT: u32 = 1;
/// Largest manifest that is read.
const MAX_BYTES: u64 = 1 << 20;

/// What a checkpoint consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: u32,
    pub step: u64,
    pub files: BTreeMap<String, FileRecord>,
}

/// Why a checkpoint is not whole.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{0}: {1}")]
    Unreadable(PathBuf, std::io::Error),
    #[error("{0} is not a manifest: {1}")]
    Malformed(PathBuf, String),
    #[error(
        "{path} was written by a newer llmtui (checkpoint format {format}, this program reads up to {FORMAT})"
    )]
    Newer { path: PathBuf, format: u32 },
    #[error(
        "{path} has {found} bytes, the manifest says {expected}: the file was cut or changed after it was saved"
    )]
    Size {
        path: PathBuf,
        found: u64,
        expected: u64,
    },
    #[error(
        "{0} does not match its SHA-256: the file changed after it was saved (disk fault, or edited)"
    )]
    Checksum(PathBuf),
}

impl Manifest {
    pub fn total_bytes(&self) -> u64 {
        self.files.values().map(|f| f.bytes).sum()
    }

    /// Reads the manifest of a checkpoint folder without looking at the other files.
    pub fn read(folder: &Path) -> Result<Manifest, Fault> {
        let path = folder.join(FILE);
        let unreadable = |e| Fault::Unreadable(path.clone(), e);
        let malformed = |what: String| Fault::Malformed(path.clone(), what);
        if std::fs::metadata(&path).map_err(unreadable)?.len() > MAX_BYTES {
            return Err(malformed(format!("larger than {MAX_BYTES} bytes")));
        }
        let text = std::fs::read(&path).map_err(unreadable)?;
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|e| malformed(e.to_string()))?;
        if manifest.format > FORMAT {
            return Err(Fault::Newer {
                path,
                format: manifest.format,
            });
        }
        let plain = |name: &String| Path::new(name).file_name() == Some(name.as_ref());
        if let Some(name) = manifest.files.keys().find(|name| !plain(name)) {
            return Err(malformed(format!("`{name}` is not a plain file name")));
        }
        Ok(manifest)
    }

    /// Reads the manifest and holds every file against it.
    pub fn verify(folder: &Path) -> Result<Manifest, Fault> {
        let manifest = Manifest::read(folder)?;
        for (name, expected) in &manifest.files {
            let path = folder.join(name);
            let unreadable = |e| Fault::Unreadable(path.clone(), e);
            let found = std::fs::metadata(&path).map_err(unreadable)?.len();
            if found != expected.bytes {
                return Err(Fault::Size {
                    path,
                    found,
                    expected: expected.bytes,
                });
            }
            if record_of(&path).map_err(unreadable)? != *expected {
                return Err(Fault::Checksum(path));
            }
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest_of(json: serde_json::Value) -> Result<Manifest, Fault> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), json.to_string()).unwrap();
        Manifest::verify(dir.path())
    }

    #[test]
    fn names_stay_inside_the_folder_and_newer_formats_are_refused() {
        let record = serde_json::json!({"bytes": 0, "sha256": ""});
        for name in ["../state.json", "/etc/passwd", "a/b", "..", ""] {
            let found =
                manifest_of(serde_json::json!({"format": 1, "step": 1, "files": {name: record}}));
            assert!(matches!(found, Err(Fault::Malformed(..))), "{name}");
        }
        assert!(matches!(
            manifest_of(serde_json::json!({"format": 2, "step": 1, "files": {}})),
            Err(Fault::Newer { format: 2, .. })
        ));
        assert!(matches!(
            manifest_of(serde_json::json!([1])),
            Err(Fault::Malformed(..))
        ));
    }
}
