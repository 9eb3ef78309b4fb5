//! The files of a repository, from the hub's API.

use super::http::{Http, encoded};
use super::name::is_hex;
use super::{HubError, Listing, RemoteFile, Repo, RepoKind};
use serde::Deserialize;

#[derive(Deserialize)]
struct Info {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: Option<String>,
    size: Option<u64>,
}

pub(super) fn ask(http: &Http, repo: &Repo) -> Result<Listing, HubError> {
    let kind = match repo.kind {
        RepoKind::Dataset => "datasets",
        RepoKind::Model => "models",
    };
    let url = format!(
        "{}/api/{kind}/{}/revision/{}?blobs=true",
        http.endpoint,
        repo.id,
        encoded(&repo.revision, false)
    );
    let answer = |why: &str| HubError::Answer {
        url: url.clone(),
        why: why.to_string(),
    };
    let value = http.json(repo, &url)?;
    let info: Info = serde_json::from_value(value).map_err(|e| answer(&e.to_string()))?;
    if !is_hex(&info.sha) {
        return Err(answer("its commit is not a hash"));
    }
    let files = info.siblings.into_iter().map(|s| {
        let lfs = s.lfs.as_ref();
        let sha256 = lfs.and_then(|l| l.sha256.clone()).filter(|h| is_hex(h));
        RemoteFile {
            size: lfs.and_then(|l| l.size).or(s.size),
            // A large file is identified by its SHA-256, a small one by its git blob hash.
            blob: sha256.clone().or(s.blob_id).filter(|b| is_hex(b)),
            sha256,
            name: s.rfilename,
        }
    });
    Ok(Listing {
        files: files.collect(),
        commit: info.sha,
        from_cache: None,
        partial: false,
    })
}
