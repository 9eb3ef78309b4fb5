//! Errors of the hub, the network or the cache: what failed, why, and what to do.

use crate::base::files::is_path_error;
use crate::base::human;
use crate::base::text::shown;
use std::path::PathBuf;

/// An error of the hub, the network or the cache.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error("`{0}` is not a hub repository id")]
    BadId(String),
    #[error("`{0}` is not a valid revision")]
    BadRevision(String),
    #[error("the hub lists a file `{0}`, whose path leads outside its folder")]
    BadName(String),
    #[error("there is no cache folder for hub files")]
    NoCache,
    #[error("{repo} does not exist on {endpoint}, or is private")]
    NotFound { repo: String, endpoint: String },
    #[error("{repo} has no file {file}")]
    NoFile { repo: String, file: String },
    #[error("access to {repo} denied ({status})")]
    Denied {
        repo: String,
        status: u16,
        token: bool,
    },
    #[error("there is no token: uploads need one")]
    NoToken,
    #[error("the token may not write to {repo}")]
    NoWrite { repo: String },
    #[error("the hub refuses {what}: {why}")]
    Refused { what: String, why: String },
    #[error("{url} sends to another server, where nothing is sent to")]
    Elsewhere { url: String },
    #[error("{what} is not in the cache, and the hub is not available: {why}")]
    NotCached { what: String, why: String },
    #[error("{url} answered {status}")]
    Status { url: String, status: u16 },
    #[error("{url} cannot be reached: {why}")]
    Unreachable { url: String, why: String },
    #[error("unexpected response from {url}: {why}")]
    Answer { url: String, why: String },
    #[error("{file}: received {got} bytes, expected {expected}")]
    Size {
        file: String,
        got: u64,
        expected: u64,
    },
    #[error("{file}: SHA-256 mismatch: received {got}, expected {expected}")]
    Hash {
        file: String,
        got: String,
        expected: String,
    },
    #[error("{path}: {source}")]
    Disk {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{repo}: {} more are to be downloaded, and {} are free at {}", human::bytes(*needs), human::bytes(*free), shown(folder))]
    Room {
        repo: String,
        folder: PathBuf,
        needs: u64,
        free: u64,
    },
    #[error("{repo}: {what}")]
    Choice {
        repo: String,
        what: String,
        fix: String,
    },
}

impl HubError {
    pub(super) fn disk(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> HubError {
        let path = path.into();
        move |source| HubError::Disk { path, source }
    }

    /// True if the hub or the network failed, not the request.
    pub fn is_outage(&self) -> bool {
        match self {
            HubError::Unreachable { .. } => true,
            HubError::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }

    /// Whether the network, the hub or the disk is the cause, and not the request.
    pub fn is_environment_error(&self) -> bool {
        match self {
            HubError::Disk { source, .. } => !is_path_error(source),
            HubError::Room { .. } => true,
            _ => self.is_outage(),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            HubError::BadId(_) => "use org/name, as in its page's URL; for a local file, check the path".into(),
            HubError::BadRevision(_) => "use a branch, a tag or a commit; the default is main".into(),
            HubError::BadName(_) => "do not use this repository: its file names try to write outside the cache".into(),
            HubError::NoCache => "set HF_HOME or HF_HUB_CACHE to a folder".into(),
            HubError::NotFound { .. } => {
                "check the name; for a private one set HF_TOKEN to a token with read access (huggingface.co/settings/tokens)".into()
            }
            HubError::NoFile { .. } => "check the repository's file list".into(),
            HubError::Denied { token: false, .. } => {
                "set HF_TOKEN to a token with read access (huggingface.co/settings/tokens), and accept its terms on its page if it has any".into()
            }
            HubError::Denied { token: true, .. } => {
                "the token has no read access: accept the terms on the repository's page, or use another token (HF_TOKEN)".into()
            }
            HubError::NoToken => {
                "set HF_TOKEN to a token with write access (huggingface.co/settings/tokens)".into()
            }
            HubError::NoWrite { .. } => {
                "use a token with write access to that owner (HF_TOKEN), and check OWNER/NAME".into()
            }
            HubError::Refused { .. } => {
                "correct what it names and upload again: what is there already is not sent again".into()
            }
            HubError::Elsewhere { .. } => "check HF_ENDPOINT, and whether the repository was renamed".into(),
            HubError::NotCached { .. } => {
                "download it once while online (unset HF_HUB_OFFLINE); HF_HOME sets the cache location".into()
            }
            HubError::Status { status: 429, .. } => {
                "too many requests: wait a few minutes; a token (HF_TOKEN) raises the limit".into()
            }
            HubError::Status { .. } => "try again later; status.huggingface.co reports outages".into(),
            HubError::Unreachable { .. } => {
                "check the network and any proxy (HTTPS_PROXY); HF_ENDPOINT selects a mirror, HF_HUB_DOWNLOAD_TIMEOUT sets the timeout in seconds".into()
            }
            HubError::Answer { .. } => "check HF_ENDPOINT: the server there is not the hub".into(),
            HubError::Size { .. } | HubError::Hash { .. } => {
                "the download was discarded: try again; if it keeps failing, a proxy or mirror modifies the file".into()
            }
            HubError::Disk { .. } => "check free space and permissions of the cache folder (HF_HOME)".into(),
            HubError::Room { .. } => {
                "free some, choose another folder (HF_HOME), or take a smaller file or model".into()
            }
            HubError::Choice { fix, .. } => fix.clone(),
        }
    }
}
