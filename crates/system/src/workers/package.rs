//! The worker's Python package, embedded in this program and written to disk for Python.

use crate::base::digest::hex;
use crate::base::files::{read_plain, write_atomic};
use crate::embed;
use sha2::{Digest, Sha256};
use std::io;
use std::path::{Path, PathBuf};

/// Its path among the embedded files.
const FOLDER: &str = "assets/torch_worker";
pub(super) const NAME: &str = "llmtui_worker";

/// The package's files with their paths inside it.
fn files() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    embed::list(FOLDER)
        .filter(|path| path.ends_with(".py"))
        .filter_map(|path| {
            let inside = path.strip_prefix(FOLDER)?.strip_prefix('/')?;
            Some((inside, embed::bytes(path)?))
        })
}

/// The requirements that `llmtui engine install torch` installs.
pub(super) fn requirements() -> &'static str {
    embed::text("assets/torch_worker/requirements.txt").unwrap_or_default()
}

/// The first eight hexadecimal digits of the SHA-256 of these texts.
pub(super) fn digest<'a>(parts: impl Iterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize()[..4])
}

/// A hash for names that only need to be distinct.
pub(super) fn short_number(text: &str) -> u32 {
    let digest = Sha256::digest(text.as_bytes());
    u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])
}

/// The digest of the package's files.
pub(super) fn version() -> String {
    digest(files().flat_map(|(path, bytes)| [path.as_bytes(), bytes]))
}

/// Writes the package below `cache`, in a folder of its version, and returns that folder, for PYTHONPATH.
///
/// # Errors
/// It cannot be written.
pub fn unpack(cache: &Path) -> io::Result<PathBuf> {
    let folder = cache.join(format!("torch_worker-{}", version()));
    for (path, bytes) in files() {
        let to = folder.join(path);
        if read_plain(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        write_atomic(&to, bytes)?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_is_embedded_and_modified_files_are_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        let folder = unpack(dir.path()).unwrap();
        let main = folder.join(NAME).join("__main__.py");
        let whole = std::fs::read(&main).unwrap();
        assert!(whole.len() > 500);
        std::fs::write(&main, "import os").unwrap();
        assert_eq!(unpack(dir.path()).unwrap(), folder);
        assert_eq!(std::fs::read(&main).unwrap(), whole);
        assert!(requirements().contains("torch=="));
    }
}
