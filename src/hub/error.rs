//! What can go wrong between here and the hub: the place, the cause, what to do.

use std::path::PathBuf;

/// A fault of the hub, of the way to it or of the cache.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error("`{0}` is no repository of the hub")]
    BadId(String),
    #[error("`{0}` is no revision")]
    BadRevision(String),
    #[error("the hub names a file `{0}`, which leaves the folder that it belongs into")]
    BadName(String),
    #[error("there is no folder for files of the hub")]
    NoCache,
    #[error("{repo} does not exist on {endpoint}, or is private")]
    NotFound { repo: String, endpoint: String },
    #[error("{repo} has no file {file}")]
    NoFile { repo: String, file: String },
    #[error("{repo} may not be read ({status})")]
    Denied {
        repo: String,
        status: u16,
        token: bool,
    },
    #[error("{what} is not in the cache, and the hub cannot be asked: {why}")]
    NotCached { what: String, why: String },
    #[error("{url} answered {status}")]
    Status { url: String, status: u16 },
    #[error("{url} cannot be reached: {why}")]
    Unreachable { url: String, why: String },
    #[error("{url} answered what is no answer of the hub: {why}")]
    Answer { url: String, why: String },
    #[error("{file}: {got} bytes came, {expected} were announced")]
    Size {
        file: String,
        got: u64,
        expected: u64,
    },
    #[error("{file}: what came has the SHA-256 {got}, announced was {expected}")]
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

    /// True when the hub or the way to it failed, not the question.
    pub fn is_outage(&self) -> bool {
        match self {
            HubError::Unreachable { .. } => true,
            HubError::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            HubError::BadId(_) => "org/name, as in the address of its page; a file that should be there: check its path".into(),
            HubError::BadRevision(_) => "a branch, a tag or a commit; the default is main".into(),
            HubError::BadName(_) => "do not use this repository: its names try to write elsewhere".into(),
            HubError::NoCache => "set HF_HOME or HF_HUB_CACHE to a folder".into(),
            HubError::NotFound { .. } => {
                "check the name; for a private one set HF_TOKEN to a token that may read it (huggingface.co/settings/tokens)".into()
            }
            HubError::NoFile { .. } => "look at the repository's list of files".into(),
            HubError::Denied { token: false, .. } => {
                "set HF_TOKEN to a token that may read it (huggingface.co/settings/tokens), and accept its terms on its page if it has any".into()
            }
            HubError::Denied { token: true, .. } => {
                "the token may not read it: accept the terms on its page, or use another token (HF_TOKEN)".into()
            }
            HubError::NotCached { .. } => {
                "fetch it once with a network (unset HF_HUB_OFFLINE); HF_HOME says where the cache is".into()
            }
            HubError::Status { status: 429, .. } => {
                "too many requests: wait some minutes; a token (HF_TOKEN) raises the limit".into()
            }
            HubError::Status { .. } => "try again later; status.huggingface.co tells of outages".into(),
            HubError::Unreachable { .. } => {
                "check the network and any proxy (HTTPS_PROXY); HF_ENDPOINT names a mirror, HF_HUB_DOWNLOAD_TIMEOUT the seconds to wait".into()
            }
            HubError::Answer { .. } => "check HF_ENDPOINT: something else than the hub answers there".into(),
            HubError::Size { .. } | HubError::Hash { .. } => {
                "the download was thrown away: try again; if it stays so, a proxy or mirror changes the file".into()
            }
            HubError::Disk { .. } => "check the room and the permissions of the cache folder (HF_HOME)".into(),
            HubError::Choice { fix, .. } => fix.clone(),
        }
    }
}
