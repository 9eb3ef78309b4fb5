//! The cache on disk, in the layout of `huggingface_hub`, so that both share files:
//!
//! ```text
//! datasets--org--name/
//!   refs/main                      the commit of a branch
//!   blobs/<hash>                   contents; <hash>.incomplete during download
//!   snapshots/<commit>/<name>      a link to its blob
//!   .llmtui/<commit>.json          our own: the full listing, so that a partial download is not mistaken for a full one offline
//! ```

use super::name::{confined, is_hex};
use super::{HubError, Listing, RemoteFile, Repo, RepoKind};
use crate::base::files;
use crate::base::files::{read_plain, read_plain_text};
use std::fs;
use std::path::{Path, PathBuf};

pub(super) struct RepoCache {
    root: PathBuf,
    locks: PathBuf,
    repo: String,
    revision: String,
}

impl RepoCache {
    pub fn new(cache: &Path, repo: &Repo) -> RepoCache {
        let kind = match repo.kind {
            RepoKind::Dataset => "datasets",
            RepoKind::Model => "models",
        };
        let folder = format!("{kind}--{}", repo.id.replace('/', "--"));
        RepoCache {
            root: cache.join(&folder),
            locks: cache.join(".locks").join(folder),
            repo: repo.id.clone(),
            revision: repo.revision.clone(),
        }
    }

    /// Stores the hub's answer for offline use.
    pub fn remember(&self, listing: &Listing) -> Result<(), HubError> {
        let write = |path: PathBuf, bytes: &[u8]| {
            if read_plain(&path).is_ok_and(|old| old == bytes) {
                return Ok(());
            }
            make_parent(&path)?;
            files::write_atomic(&path, bytes).map_err(HubError::disk(&path))
        };
        if self.revision != listing.commit {
            let path = self.root.join("refs").join(&self.revision);
            write(path, listing.commit.as_bytes())?;
        }
        let json = serde_json::to_vec(listing).unwrap_or_default();
        write(self.whole_listing(&listing.commit), &json)
    }

    fn whole_listing(&self, commit: &str) -> PathBuf {
        self.root.join(".llmtui").join(format!("{commit}.json"))
    }

    /// The listing according to the cache, without the hub.
    pub fn listing(&self, why: &str) -> Result<Listing, HubError> {
        let missing = || HubError::NotCached {
            what: format!("{} (revision {})", self.repo, self.revision),
            why: why.to_string(),
        };
        let commit = match read_plain_text(self.root.join("refs").join(&self.revision)) {
            Ok(commit) => commit.trim().to_string(),
            Err(_) => self.revision.clone(),
        };
        if !is_hex(&commit) {
            return Err(missing());
        }
        let whole = read_plain(self.whole_listing(&commit)).ok();
        if let Some(mut listing) = whole.and_then(|b| serde_json::from_slice::<Listing>(&b).ok()) {
            listing.from_cache = Some(why.to_string());
            return Ok(listing);
        }
        let snapshot = self.root.join("snapshots").join(&commit);
        let mut found = Vec::new();
        walk(&snapshot, "", &mut found, 0);
        if found.is_empty() {
            return Err(missing());
        }
        found.sort();
        let files = found.into_iter().map(|name| RemoteFile {
            name,
            size: None,
            blob: None,
            sha256: None,
        });
        Ok(Listing {
            commit,
            files: files.collect(),
            from_cache: Some(why.to_string()),
            partial: true,
        })
    }

    /// A complete file of a snapshot.
    pub fn snapshot_file(&self, commit: &str, file: &RemoteFile) -> Option<PathBuf> {
        let path = self.snapshot_path(commit, &file.name).ok()?;
        let size = fs::metadata(&path)
            .ok()
            .filter(fs::Metadata::is_file)?
            .len();
        file.size.is_none_or(|s| s == size).then_some(path)
    }

    fn snapshot_path(&self, commit: &str, name: &str) -> Result<PathBuf, HubError> {
        let name = confined(name)?;
        if !is_hex(commit) {
            return Err(HubError::BadRevision(commit.to_string()));
        }
        Ok(self.root.join("snapshots").join(commit).join(name))
    }

    /// Paths of a blob and of its partial download.
    pub fn blob_paths(&self, blob: &str) -> (PathBuf, PathBuf) {
        let blobs = self.root.join("blobs");
        (blobs.join(blob), blobs.join(format!("{blob}.incomplete")))
    }

    /// The folder of the repository.
    pub fn folder(&self) -> &Path {
        &self.root
    }

    /// Bytes of a file that are still to be downloaded, as far as its size is known.
    pub fn bytes_to_come(&self, commit: &str, file: &RemoteFile) -> u64 {
        let (Some(size), None) = (file.size, self.snapshot_file(commit, file)) else {
            return 0;
        };
        let length = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
        let there = file.blob.as_deref().map_or(0, |blob| {
            let (whole, partial) = self.blob_paths(blob);
            length(&whole).max(length(&partial))
        });
        size.saturating_sub(there)
    }

    /// Adds a file to a snapshot: a relative link to the blob.
    pub fn link(&self, commit: &str, name: &str, blob: &str) -> Result<PathBuf, HubError> {
        let path = self.snapshot_path(commit, name)?;
        make_parent(&path)?;
        let up = "../".repeat(name.split('/').count() + 1);
        let target = format!("{up}blobs/{blob}");
        // A link from an older or broken download.
        if fs::symlink_metadata(&path).is_ok() {
            fs::remove_file(&path).map_err(HubError::disk(&path))?;
        }
        std::os::unix::fs::symlink(target, &path).map_err(HubError::disk(&path))?;
        Ok(path)
    }

    /// One download of a blob at a time, across processes; `huggingface_hub` locks the same file.
    pub fn lock(&self, blob: &str) -> Result<Option<files::Lock>, HubError> {
        let path = self.locks.join(format!("{blob}.lock"));
        make_parent(&path)?;
        files::try_lock(&path).map_err(HubError::disk(path))
    }
}

pub(super) fn make_parent(path: &Path) -> Result<(), HubError> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(HubError::disk(folder))
}

/// Names below a folder. Links to folders are not followed.
fn walk(folder: &Path, prefix: &str, found: &mut Vec<String>, level: usize) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = format!("{prefix}{name}");
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && level < 8 => {
                walk(&entry.path(), &format!("{name}/"), found, level + 1);
            }
            Ok(_) if entry.path().is_file() => found.push(name),
            _ => {}
        }
    }
}
