//! A hash of a source's files: the part of a cache key that changes when a file is edited.

use crate::base::files::{open_plain, read_plain};
use crate::data::DataError;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Files up to this size are read whole. Of larger ones the size, the time of the last change and both ends count: reading
/// a terabyte to find that nothing changed would take an hour.
const WHOLE: u64 = 32 << 20;
const ENDS: u64 = 1 << 20;

/// Whether the time of a change counts for one of the files: a copy of it has another digest.
pub(crate) fn by_time(files: &[PathBuf]) -> bool {
    let large = |path: &PathBuf| fs::metadata(path).is_ok_and(|meta| meta.len() > WHOLE);
    files.iter().any(large)
}

/// SHA-256 in hex over the files, in their order. Names do not count.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn digest(files: &[PathBuf]) -> Result<String, DataError> {
    let mut hash = Sha256::new();
    for path in files {
        add(path, &mut hash).map_err(|source| DataError::Unreadable {
            path: path.clone(),
            source,
        })?;
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

fn add(path: &Path, hash: &mut Sha256) -> std::io::Result<()> {
    let meta = fs::metadata(path)?;
    hash.update(meta.len().to_le_bytes());
    if meta.len() <= WHOLE {
        hash.update(read_plain(path)?);
        return Ok(());
    }
    let changed = meta
        .modified()?
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    hash.update(changed.as_nanos().to_le_bytes());
    let mut file = open_plain(path)?;
    for from in [0, meta.len() - ENDS] {
        file.seek(SeekFrom::Start(from))?;
        let mut end = Vec::new();
        (&mut file).take(ENDS).read_to_end(&mut end)?;
        hash.update(end);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn what_a_file_holds_counts_and_its_name_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let (a, b) = (file("a", b"text"), file("b", b"text"));
        assert_eq!(
            digest(std::slice::from_ref(&a)).unwrap(),
            digest(std::slice::from_ref(&b)).unwrap()
        );
        let before = digest(&[a.clone(), b.clone()]).unwrap();
        file("b", b"tExt");
        assert_ne!(digest(&[a, b]).unwrap(), before);
        assert!(digest(&[dir.path().join("absent")]).is_err());
    }

    #[test]
    fn both_ends_of_a_large_file_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        let large = File::create(&path).unwrap();
        large.set_len(WHOLE + 10).unwrap();
        let before = digest(std::slice::from_ref(&path)).unwrap();
        let mut bytes = vec![0; (WHOLE + 10) as usize];
        if let Some(last) = bytes.last_mut() {
            *last = 1;
        }
        fs::write(&path, &bytes).unwrap();
        assert_ne!(digest(&[path]).unwrap(), before);
    }
}
