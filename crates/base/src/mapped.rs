//! Memory-mapped files, so that data larger than memory can be read as a slice. Contents are interpreted by their
//! owners.
#![allow(unsafe_code)]

use crate::files::open_plain;
use memmap2::Mmap;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the last file that did not fit into the address space.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Bytes of the last file that did not fit into the address space; 0 if there was none.
pub fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// The bytes of an immutable file.
#[derive(Debug)]
pub struct Mapped {
    /// `None` for an empty file: there is nothing to map.
    map: Option<Mmap>,
}

impl Mapped {
    /// Maps a whole file. The file must be written once, renamed into place and never changed: truncating it
    /// while it is mapped kills this process.
    ///
    /// # Errors
    /// The file cannot be opened or mapped.
    pub fn open(path: &Path) -> io::Result<Mapped> {
        let file = open_plain(path)?;
        let bytes = file.metadata()?.len();
        if bytes == 0 {
            return Ok(Mapped { map: None });
        }
        // SAFETY: the map is read-only, and files opened here are complete before they get their name and are
        // replaced by renaming or removed, never written in place: their bytes do not change while the map lives.
        let map = unsafe { Mmap::map(&file) };
        if map
            .as_ref()
            .is_err_and(|e| e.kind() == io::ErrorKind::OutOfMemory)
        {
            REFUSED.store(bytes, Ordering::Relaxed);
        }
        Ok(Mapped { map: Some(map?) })
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_file_stays_readable_after_it_is_unlinked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, b"bytes").unwrap();
        let mapped = Mapped::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(&*mapped, b"bytes");
        std::fs::write(&path, b"").unwrap();
        assert!(Mapped::open(&path).unwrap().is_empty());
        assert!(Mapped::open(&dir.path().join("absent")).is_err());
    }
}
