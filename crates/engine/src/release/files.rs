//! The files of a folder: names, sizes, where links lead, first bytes, checksums.

use super::error::SubjectError;
use crate::base::digest::hex;
use crate::base::files::open_plain;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// More files, or deeper folders, are not a model's.
const MAX_FILES: usize = 10_000;
const MAX_DEPTH: usize = 8;
/// Folders of tools that do not belong to a model: git's, and those of the hub's own tools.
const TOOLS: [&str; 3] = [".git", ".cache", ".huggingface"];
/// Leading bytes by which formats are distinguished.
const HEAD: usize = 512;
const CHUNK: usize = 1 << 20;

/// Where a name leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// It is the file itself.
    None,
    /// To a file of the same folder, or of the hub's cache that the folder belongs to.
    Inside,
    /// To somewhere else, or nowhere.
    Outside(PathBuf),
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the folder, with `/`.
    pub name: String,
    pub bytes: u64,
    pub link: Link,
    /// A socket, a pipe or a device.
    pub is_special: bool,
    pub is_executable: bool,
}

impl Entry {
    /// Its ending, in small letters.
    pub fn ending(&self) -> String {
        let ending = Path::new(&self.name).extension().unwrap_or_default();
        ending.to_string_lossy().to_lowercase()
    }

    /// Its name without folders.
    pub fn base(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }

    pub fn is_gguf(&self) -> bool {
        self.ending() == "gguf" && !self.name.contains('/')
    }

    pub fn can_be_read(&self) -> bool {
        !self.is_special && !matches!(self.link, Link::Outside(_))
    }

    /// The first bytes; empty where it cannot be read.
    pub fn head(&self, folder: &Path) -> Vec<u8> {
        let mut head = Vec::new();
        if self.can_be_read()
            && let Ok(file) = open_plain(folder.join(&self.name))
        {
            let _ = file.take(HEAD as u64).read_to_end(&mut head);
        }
        head
    }
}

/// Every file below a folder, by name.
///
/// # Errors
/// It cannot be read, or is not the folder of one model.
pub fn list(folder: &Path) -> Result<Vec<Entry>, SubjectError> {
    let home = fs::canonicalize(folder).map_err(|source| SubjectError::Io {
        path: folder.into(),
        source,
    })?;
    let mut files = Vec::new();
    walk(folder, &homes(&home), "", 0, &mut files)?;
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// Where links of a folder may lead: into itself; from a snapshot of the hub's cache to the cache's own blobs.
fn homes(home: &Path) -> Vec<PathBuf> {
    let above = home.parent().and_then(Path::parent);
    let is_snapshot = home
        .parent()
        .is_some_and(|parent| parent.ends_with("snapshots"));
    let blobs = above.filter(|_| is_snapshot).map(|repo| repo.join("blobs"));
    std::iter::once(home.to_path_buf()).chain(blobs).collect()
}

fn walk(
    folder: &Path,
    homes: &[PathBuf],
    prefix: &str,
    depth: usize,
    files: &mut Vec<Entry>,
) -> Result<(), SubjectError> {
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| SubjectError::Io { path, source }
    };
    let too_much = |what: &str| SubjectError::TooMuch {
        path: folder.into(),
        what: what.into(),
    };
    if depth > MAX_DEPTH {
        return Err(too_much("folders are nested deeper than a model's"));
    }
    for entry in fs::read_dir(folder).map_err(io(folder))? {
        let entry = entry.map_err(io(folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if prefix.is_empty() && TOOLS.contains(&name.as_str()) {
            continue;
        }
        let path = entry.path();
        let own = fs::symlink_metadata(&path).map_err(io(&path))?;
        let name = format!("{prefix}{name}");
        let link = match own.is_symlink() {
            false => Link::None,
            true => leads(&path, homes),
        };
        let meta = match link {
            Link::Outside(_) => own.clone(),
            _ => fs::metadata(&path).map_err(io(&path))?,
        };
        if meta.is_dir() {
            // A folder behind a link may hold this one.
            if link == Link::None {
                walk(&path, homes, &format!("{name}/"), depth + 1, files)?;
            }
            continue;
        }
        if files.len() == MAX_FILES {
            return Err(too_much("more files than a model has"));
        }
        files.push(Entry {
            bytes: meta.len(),
            is_special: !meta.is_file() && !own.is_symlink(),
            is_executable: is_executable(&meta) && link == Link::None,
            link,
            name,
        });
    }
    Ok(())
}

fn leads(path: &Path, homes: &[PathBuf]) -> Link {
    match fs::canonicalize(path) {
        Ok(to) if homes.iter().any(|home| to.starts_with(home)) => Link::Inside,
        Ok(to) => Link::Outside(to),
        Err(_) => Link::Outside(fs::read_link(path).unwrap_or_default()),
    }
}

fn is_executable(meta: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    meta.permissions().mode() & 0o111 != 0
}

/// SHA-256 in hex and how many bytes there are.
///
/// # Errors
/// The file cannot be read.
pub fn sha256_of(path: &Path) -> io::Result<(String, u64)> {
    let mut file = open_plain(path)?;
    let (mut hash, mut bytes, mut chunk) = (Sha256::new(), 0, vec![0; CHUNK]);
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            n => {
                hash.update(&chunk[..n]);
                bytes += n as u64;
            }
        }
    }
    Ok((hex(&hash.finalize()), bytes))
}
