//! Whether a path is writable: tested before long work. Writing itself is in [`super::files`].

use super::files::temporary_beside;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Whether a file can be written at `path`, tried before work that takes long. Nothing is left there.
///
/// # Errors
/// Those that writing would end with; a full disk is met later.
pub fn try_write(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(rustix::io::Errno::ISDIR.into());
    }
    let temporary = temporary_beside(path)?;
    File::create(&temporary)?;
    fs::remove_file(&temporary)
}

/// Whether a folder can be made at `path`, or be written into where it is there already: the same.
///
/// # Errors
/// Those that making it would end with.
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
    fn a_place_is_tried_before_the_work_and_stays_as_it_was() {
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
        // In the words of the write itself.
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
