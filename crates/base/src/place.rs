//! Whether a path is writable: tested before long work. Writing itself is in [`super::files`].

use super::files::temporary_sibling;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Tests whether a file can be written at `path`, before long work. Nothing is left behind.
///
/// # Errors
/// Those of writing there; a full disk is only detected later.
pub fn try_write(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(rustix::io::Errno::ISDIR.into());
    }
    let temporary = temporary_sibling(path)?;
    File::create(&temporary)?;
    fs::remove_file(&temporary)
}

/// Tests whether a folder can be created at `path`, or is writable if it exists.
///
/// # Errors
/// Those of creating it.
pub fn try_make(path: &Path) -> io::Result<()> {
    let mut above = path.ancestors().filter(|at| !at.as_os_str().is_empty());
    let nearest = above.find(|at| at.symlink_metadata().is_ok());
    match nearest {
        Some(at) if at == path && !at.is_dir() => Err(rustix::io::Errno::EXIST.into()),
        Some(at) if !at.is_dir() => Err(rustix::io::Errno::NOTDIR.into()),
        at => try_write(&at.unwrap_or(Path::new(".")).join("file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{not_made, not_written, write_atomic};

    #[test]
    fn trying_a_path_leaves_it_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "").unwrap();
        let names = || fs::read_dir(dir.path()).unwrap().count();
        for good in ["new", "file"] {
            try_write(&at(good)).unwrap();
        }
        for good in ["new", "new/below", "."] {
            try_make(&at(good)).unwrap();
        }
        assert_eq!(names(), 1);
        // The same message as the write itself.
        for bad in ["no/file", "file/below", "."] {
            let (tried, met) = (try_write(&at(bad)), write_atomic(&at(bad), b"x"));
            let words = |error: io::Result<()>| not_written(&at(bad), &error.unwrap_err());
            match bad {
                "." => assert!(words(tried).0.ends_with("is a folder")),
                _ => assert_eq!(words(tried), words(met)),
            }
        }
        for bad in ["file", "file/below"] {
            let (tried, met) = (try_make(&at(bad)), fs::create_dir_all(at(bad)));
            let words = |error: io::Result<()>| not_made(&at(bad), &error.unwrap_err());
            assert_eq!(words(tried), words(met));
        }
        assert_eq!(names(), 1);
    }
}
