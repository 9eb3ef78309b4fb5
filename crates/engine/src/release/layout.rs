//! The folder to upload: copies of the model's files, attributes for git LFS, and a list of checksums. It has a temporary
//! name until it is complete.

use super::card;
use super::files::{self, Entry, sha256_of};
use super::subject::Subject;
use crate::base::files::{open_plain, sync_dir, write_synced};
use crate::engine::checkpoint;
use crate::hub::upload::{ATTRIBUTES, LARGE, LARGE_ENDINGS};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The list of checksums, as `sha256sum -c` reads it. The card is not in it: people go on editing that, also on the hub.
pub const SUMS: &str = "SHA256SUMS";
/// Files of a checkpoint or a training beside a model, by whole name.
const LEFT_OUT: &[&str] = &[
    checkpoint::STATE,
    checkpoint::OPTIMIZER,
    checkpoint::CRITIC,
    checkpoint::REFERENCE,
    checkpoint::ROLLOUT,
    checkpoint::manifest::FILE,
    SUMS,
    ATTRIBUTES,
    "trainer_state.json",
    "training_args.bin",
    "scheduler.pt",
    "optimizer.pt",
    "rng_state.pth",
    "events.jsonl",
    "engine.log",
    ".DS_Store",
    "Thumbs.db",
];
/// The same by ending, and by folder.
const LEFT_ENDINGS: &[&str] = &["log", "tmp", "lock", "swp", "part", "partial", "incomplete"];
const LEFT_FOLDERS: &[&str] = &[
    "__pycache__/",
    "runs/",
    "wandb/",
    "checkpoints/",
    ".ipynb_checkpoints/",
];

/// Why nothing was laid out.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} already exists and is not empty", .0.display())]
    Occupied(PathBuf),
    #[error("{} exists and is not a folder", .0.display())]
    NoFolder(PathBuf),
    #[error("{} is inside the folder itself", .0.display())]
    Within(PathBuf),
}

impl LayoutError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            LayoutError::Io { .. } => "check the free space and the permissions there",
            LayoutError::Occupied(_) | LayoutError::Within(_) => "choose another folder for --to",
            LayoutError::NoFolder(_) => "name a new folder: --to DIR",
        }
    }
}

/// The files that a model consists of for others.
pub fn belonging(subject: &Subject) -> Vec<&Entry> {
    let belongs = |file: &&Entry| {
        let in_folder = |folder: &&str| file.name.starts_with(*folder);
        file.can_be_read()
            && !LEFT_OUT.contains(&file.base())
            && !LEFT_ENDINGS.contains(&file.ending().as_str())
            && !LEFT_FOLDERS.iter().any(in_folder)
            && !file.base().starts_with(".tmp-")
    };
    subject.files.iter().filter(belongs).collect()
}

/// Copies them to `to`, which is absent or empty, and seals it.
///
/// # Errors
/// The destination exists, or the disk refuses; no partial output is left.
pub fn copy_to(subject: &Subject, to: &Path) -> Result<(), LayoutError> {
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| LayoutError::Io { path, source }
    };
    let empty = fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_none());
    if to.exists() && !to.is_dir() {
        return Err(LayoutError::NoFolder(to.into()));
    }
    if to.exists() && !empty {
        return Err(LayoutError::Occupied(to.into()));
    }
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).map_err(io(parent))?;
    let inside = fs::canonicalize(parent).map_err(io(parent))?;
    let home = fs::canonicalize(&subject.folder).map_err(io(&subject.folder))?;
    if inside.starts_with(&home) {
        return Err(LayoutError::Within(to.into()));
    }
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let partial = parent.join(format!(".{name}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(io(&partial))?;
    }
    let done = fill(subject, &partial).and_then(|()| {
        if to.exists() {
            fs::remove_dir(to).map_err(io(to))?;
        }
        fs::rename(&partial, to).map_err(io(to))?;
        sync_dir(parent).map_err(io(parent))
    });
    if done.is_err() {
        let _ = fs::remove_dir_all(&partial);
    }
    done
}

fn fill(subject: &Subject, partial: &Path) -> Result<(), LayoutError> {
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| LayoutError::Io { path, source }
    };
    fs::create_dir(partial).map_err(io(partial))?;
    for file in belonging(subject) {
        let (from, to) = (subject.folder.join(&file.name), partial.join(&file.name));
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(io(parent))?;
        }
        // The contents alone: no link, and no permission to run.
        let mut input = open_plain(&from).map_err(io(&from))?;
        let mut output = fs::File::create_new(&to).map_err(io(&to))?;
        io::copy(&mut input, &mut output).map_err(io(&to))?;
        output.sync_all().map_err(io(&to))?;
    }
    write_checksums(partial)
}

/// Writes `.gitattributes` and the list of checksums into a folder.
///
/// # Errors
/// It cannot be read or written.
pub fn write_checksums(folder: &Path) -> Result<(), LayoutError> {
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| LayoutError::Io { path, source }
    };
    let listed = || {
        files::list(folder).map_err(|e| LayoutError::Io {
            path: folder.into(),
            source: io::Error::other(e.to_string()),
        })
    };
    let line = |what: &str| format!("{what} filter=lfs diff=lfs merge=lfs -text\n");
    let mut text: String = LARGE_ENDINGS
        .iter()
        .map(|ending| line(&format!("*.{ending}")))
        .collect();
    // A tokenizer of a large vocabulary is over what git itself may hold there.
    let is_large = |file: &&Entry| file.bytes > LARGE && !LARGE_ENDINGS.contains(&&*file.ending());
    text.extend(
        listed()?
            .iter()
            .filter(is_large)
            .map(|file| line(&file.name)),
    );
    let attributes = folder.join(ATTRIBUTES);
    write_synced(&attributes, text.as_bytes()).map_err(io(&attributes))?;
    let files = listed()?;
    let mut sums = String::new();
    for file in files
        .iter()
        .filter(|file| ![SUMS, card::NAME].contains(&file.name.as_str()) && file.can_be_read())
    {
        let path = folder.join(&file.name);
        let (sum, _) = sha256_of(&path).map_err(io(&path))?;
        sums.push_str(&format!("{sum}  {}\n", file.name));
    }
    let path = folder.join(SUMS);
    write_synced(&path, sums.as_bytes()).map_err(io(&path))
}
