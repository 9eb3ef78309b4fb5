//! The Hugging Face hub: which files a repository has, which of them make up a split, downloads into the cache shared with
//! Hugging Face's own tools, and uploads. File contents are not interpreted here.

mod cache;
mod card;
mod choose;
mod config;
mod download;
mod error;
mod http;
mod list;
mod model;
mod name;
mod pace;
mod send;
#[cfg(test)]
mod tests;
pub mod upload;

pub use card::{CardConfig, configs as card_configs};
pub use choose::{Chosen, Wanted, choose, is_description};
pub use config::{HubConfig, Secret};
pub use error::HubError;
pub use model::{ModelId, cached_file, cached_listing, cached_model, id_of_cached, model_id};
pub use name::{confined, is_repo_id};
pub use pace::Pace;

use crate::base::files::free_space;
use cache::RepoCache;
use http::Http;
use std::path::PathBuf;

/// The type of a repository; part of its URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepoKind {
    Dataset,
    Model,
}

/// A repository at a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repo {
    pub kind: RepoKind,
    /// `org/name`, or `name` for legacy ids.
    pub id: String,
    /// A branch, a tag or a commit.
    pub revision: String,
}

impl Repo {
    /// # Errors
    /// The id is invalid.
    pub fn new(kind: RepoKind, id: &str, revision: Option<&str>) -> Result<Repo, HubError> {
        if !is_repo_id(id) {
            return Err(HubError::BadId(id.to_string()));
        }
        let revision = revision.unwrap_or("main");
        if confined(revision).is_err() {
            return Err(HubError::BadRevision(revision.to_string()));
        }
        Ok(Repo {
            kind,
            id: id.to_string(),
            revision: revision.to_string(),
        })
    }
}

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RemoteFile {
    /// Relative to the repository, with `/`.
    pub name: String,
    /// `None` if it is known from the cache only.
    pub size: Option<u64>,
    /// The blob's name: a git blob SHA-1, or the SHA-256 of a large file.
    pub blob: Option<String>,
    /// Of large files, in hex.
    pub sha256: Option<String>,
}

/// The files of a repository at a commit.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Listing {
    pub commit: String,
    pub files: Vec<RemoteFile>,
    /// Why the cache was used instead of the hub.
    #[serde(skip)]
    pub from_cache: Option<String>,
    /// The files are those that lie in the cache: the repository may have more.
    #[serde(skip)]
    pub partial: bool,
}

impl Listing {
    pub fn names(&self) -> Vec<String> {
        self.files.iter().map(|f| f.name.clone()).collect()
    }
}

/// Download progress callback: file name, bytes so far, total bytes.
pub type OnProgress<'a> = dyn Fn(&str, u64, u64) + 'a;

/// A hub client with its cache.
pub struct Hub {
    config: HubConfig,
    http: Http,
}

impl Hub {
    pub fn new(config: &HubConfig) -> Hub {
        Hub {
            http: Http::new(config),
            config: config.clone(),
        }
    }

    /// The files of a repository. If the hub is unreachable (or offline mode is set), the cache is used.
    ///
    /// # Errors
    /// The repository does not exist, access is denied, or there is neither network nor cache.
    pub fn list(&self, repo: &Repo) -> Result<Listing, HubError> {
        let cache = self.cache(repo)?;
        if self.config.offline {
            return cache.listing("HF_HUB_OFFLINE is set");
        }
        match list::ask(&self.http, repo) {
            Ok(listing) => {
                cache.remember(&listing)?;
                Ok(listing)
            }
            // An outage must not affect users who have the files.
            Err(e) if e.is_outage() => cache.listing(&e.to_string()).map_err(|_| e),
            Err(e) => Err(e),
        }
    }

    /// The path of a file in the cache, downloaded if necessary. An interrupted download resumes.
    ///
    /// # Errors
    /// The file cannot be downloaded, or it does not match the hub's size or hash.
    pub fn fetch(
        &self,
        repo: &Repo,
        listing: &Listing,
        name: &str,
        progress: &OnProgress<'_>,
    ) -> Result<PathBuf, HubError> {
        confined(name)?;
        let cache = self.cache(repo)?;
        let file = listing
            .files
            .iter()
            .find(|f| f.name == name)
            .ok_or_else(|| HubError::NoFile {
                repo: repo.id.clone(),
                file: name.to_string(),
            })?;
        if let Some(path) = cache.snapshot_file(&listing.commit, file) {
            return Ok(path);
        }
        if let Some(why) = self.offline_because(listing) {
            return Err(HubError::NotCached {
                what: format!("{name} of {}", repo.id),
                why,
            });
        }
        download::fetch(
            &self.http,
            &self.config,
            repo,
            &listing.commit,
            file,
            &cache,
            progress,
        )
    }

    /// The first bytes of a file that is still to be downloaded whole; `None` of one of which anything is here, and without a network.
    pub fn beginning(
        &self,
        repo: &Repo,
        listing: &Listing,
        name: &str,
        most: u64,
    ) -> Option<Vec<u8>> {
        let cache = self.cache(repo).ok()?;
        let file = listing.files.iter().find(|file| file.name == name)?;
        let to_come = cache.bytes_to_come(&listing.commit, file);
        if self.offline_because(listing).is_some() || Some(to_come) != file.size {
            return None;
        }
        let (http, config) = (&self.http, &self.config);
        download::beginning(http, config, repo, &listing.commit, file, most).ok()
    }

    /// Whether the disk of the cache has room for what is still to come of these files.
    ///
    /// # Errors
    /// It has not.
    pub fn check_room(
        &self,
        repo: &Repo,
        listing: &Listing,
        names: &[String],
    ) -> Result<(), HubError> {
        if self.offline_because(listing).is_some() {
            return Ok(());
        }
        let cache = self.cache(repo)?;
        let wanted = listing.files.iter().filter(|f| names.contains(&f.name));
        let needs: u64 = wanted
            .map(|file| cache.bytes_to_come(&listing.commit, file))
            .fold(0, u64::saturating_add);
        let folder = cache.folder();
        // The first download makes the folder; a file system that does not report its room may have it.
        let there = folder.ancestors().find(|folder| folder.exists());
        match there.and_then(|there| free_space(there).ok()) {
            Some(free) if free < needs => Err(HubError::Room {
                repo: repo.id.clone(),
                folder: folder.to_path_buf(),
                needs,
                free,
            }),
            _ => Ok(()),
        }
    }

    fn offline_because(&self, listing: &Listing) -> Option<String> {
        match self.config.offline {
            true => Some("HF_HUB_OFFLINE is set".into()),
            false => listing.from_cache.clone(),
        }
    }

    fn cache(&self, repo: &Repo) -> Result<RepoCache, HubError> {
        let root = self.config.cache.as_deref().ok_or(HubError::NoCache)?;
        Ok(RepoCache::new(root, repo))
    }
}
