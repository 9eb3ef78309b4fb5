//! The disk operations of a save, behind a trait, so that tests can fail each of them in turn.

use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    pub bytes: u64,
    /// Lower-case hexadecimal.
    pub sha256: String,
}

/// Fills a file; may be called again when a save is retried.
pub type Fill<'a> = dyn Fn(&mut dyn Write) -> io::Result<()> + 'a;

/// Disk operations, each durable when it returns.
pub trait Disk: Send {
    /// Its parent must exist: a save does not recreate the folder of a deleted run.
    ///
    /// # Errors
    /// It exists, its parent does not, or the disk fails.
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    /// Writes a new file and fsyncs it. A failed fsync fails the attempt; it is never retried on the same file.
    ///
    /// # Errors
    /// The disk fails or is full; those of `fill`.
    fn write(&self, path: &Path, fill: &Fill<'_>) -> io::Result<FileRecord> {
        let mut out = Hashing::new(BufWriter::with_capacity(1 << 18, File::create(path)?));
        fill(&mut out)?;
        let (file, record) = out.finish();
        file.into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .sync_all()?;
        Ok(record)
    }

    /// Gives a file that was written before a second name, which is durable with its folder.
    ///
    /// # Errors
    /// A file system without hard links.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    /// Makes new names and renames inside `path` durable.
    ///
    /// # Errors
    /// The folder cannot be opened, or the disk fails.
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        crate::base::files::sync_dir(path)
    }

    /// Renames; the target must not exist.
    ///
    /// # Errors
    /// The target exists, or the disk fails.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if to.exists() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("{} is in the way", to.display()),
            ));
        }
        fs::rename(from, to)
    }

    /// Lets two names change places in one operation.
    ///
    /// # Errors
    /// `Unsupported` where the file system cannot do it.
    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).map_err(|e| match e {
            Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => io::ErrorKind::Unsupported.into(),
            other => other.into(),
        })
    }

    /// Removes a folder with all that is in it.
    ///
    /// # Errors
    /// It is not there, or the disk fails.
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }
}

/// The machine's disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {}

struct Hashing<W> {
    inner: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Hashing<W> {
    fn new(inner: W) -> Self {
        Hashing {
            inner,
            hash: Sha256::new(),
            bytes: 0,
        }
    }

    fn finish(self) -> (W, FileRecord) {
        let record = FileRecord {
            bytes: self.bytes,
            sha256: hex(&self.hash.finalize()),
        };
        (self.inner, record)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buf)?;
        self.hash.update(&buf[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Size and SHA-256 of an existing file.
///
/// # Errors
/// The file is absent, not plain, or cannot be read.
pub fn record_of(path: &Path) -> io::Result<FileRecord> {
    let mut out = Hashing::new(io::sink());
    io::copy(&mut crate::base::files::open_plain(path)?, &mut out)?;
    Ok(out.finish().1)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_describes_what_stands_on_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let record = RealDisk.write(&path, &|out| out.write_all(b"abc")).unwrap();
        assert_eq!(record, record_of(&path).unwrap());
        assert_eq!(record.bytes, 3);
        // FIPS 180-2's example.
        assert!(record.sha256.starts_with("ba7816bf8f01cfea"));
    }

    #[test]
    fn a_rename_never_replaces() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|n| dir.path().join(n));
        fs::create_dir(&a).unwrap();
        fs::create_dir(&b).unwrap();
        assert!(RealDisk.rename(&a, &b).is_err());
    }
}
