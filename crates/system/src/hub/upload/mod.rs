//! Uploads a folder as one commit: large files by git LFS, skipping those that the hub already has, so that an interrupted
//! upload continues with the next file; small ones inside the commit itself.

mod lfs;
#[cfg(test)]
mod tests;

use super::http::{Http, encoded};
use super::{HubConfig, HubError, Repo};
use crate::base::base64;
use crate::base::files::{open_plain, read_plain, read_plain_text};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::Read;
use std::path::PathBuf;

/// Files per request; the hub accepts 256.
const BATCH: usize = 100;
/// Leading bytes of a file by which the hub detects text.
const SAMPLE: u64 = 512;
/// Above this many bytes the hub stores a file in LFS whatever its content.
pub const LARGE: u64 = 10 << 20;
/// Extensions that the hub stores in LFS in every new model repository.
pub const LARGE_ENDINGS: &[&str] = &[
    "7z",
    "arrow",
    "bin",
    "bz2",
    "ckpt",
    "ftz",
    "gguf",
    "gz",
    "h5",
    "joblib",
    "mlmodel",
    "model",
    "msgpack",
    "npy",
    "npz",
    "onnx",
    "ot",
    "parquet",
    "pb",
    "pickle",
    "pkl",
    "pt",
    "pth",
    "rar",
    "safetensors",
    "tar",
    "tflite",
    "tgz",
    "wasm",
    "xz",
    "zip",
    "zst",
];
/// The file that lists which files are in LFS.
pub const ATTRIBUTES: &str = ".gitattributes";

/// A file to upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Relative to the repository, with `/`.
    pub name: String,
    pub path: PathBuf,
    pub bytes: u64,
    /// In hex.
    pub sha256: String,
}

impl Outgoing {
    /// Whether the hub will store it in LFS, predicted from extension and size.
    pub fn is_large(&self) -> bool {
        let ending = self.name.rsplit_once('.').map_or("", |(_, ending)| ending);
        self.bytes > LARGE || LARGE_ENDINGS.contains(&ending)
    }
}

/// An upload: the files and their destination.
#[derive(Debug, Clone)]
pub struct Upload {
    pub repo: Repo,
    pub files: Vec<Outgoing>,
    /// The first line of the commit.
    pub message: String,
    /// Visibility of a repository that does not exist yet.
    pub private: bool,
}

/// Progress events of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress<'a> {
    /// The hub has this file already.
    There(&'a str),
    /// Bytes of a file sent so far, and its size.
    Sent(&'a str, u64, u64),
}

/// The result of an upload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uploaded {
    /// The page of the commit.
    pub url: String,
    pub commit: String,
    /// Number of large files that were sent, and that were present already.
    pub sent: usize,
    pub there: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mode {
    path: String,
    upload_mode: String,
    #[serde(default)]
    should_ignore: bool,
    /// Id of the existing file with this name.
    oid: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Committed {
    #[serde(default)]
    commit_url: String,
    #[serde(default)]
    commit_oid: String,
}

/// Creates the repository if necessary, sends what is missing, and commits everything at once: no reader sees a partial upload.
///
/// # Errors
/// There is no token, it lacks write access, the network fails, or the hub rejects a file.
pub fn upload(
    config: &HubConfig,
    upload: &Upload,
    on_progress: &dyn Fn(Progress<'_>),
) -> Result<Uploaded, HubError> {
    if config.offline {
        return Err(HubError::NotCached {
            what: upload.repo.id.clone(),
            why: "HF_HUB_OFFLINE is set".into(),
        });
    }
    if config.token.is_none() {
        return Err(HubError::NoToken);
    }
    for file in &upload.files {
        super::confined(&file.name)?;
    }
    let http = Http::new(config);
    create(&http, upload)?;
    let ways = Ways::ask(&http, upload)?;
    for file in &ways.unchanged {
        on_progress(Progress::There(&file.name));
    }
    let mut done = Uploaded {
        there: ways.unchanged.len(),
        ..Uploaded::default()
    };
    for files in ways.large.chunks(BATCH) {
        let sent = lfs::send(&http, &upload.repo, files, on_progress)?;
        done.sent += sent;
        done.there += files.len() - sent;
    }
    let committed = commit(&http, upload, &ways)?;
    done.url = committed.commit_url;
    done.commit = committed.commit_oid;
    Ok(done)
}

/// How files are sent, as the hub says.
struct Ways<'a> {
    /// Large ones that the repository has: they are left out of the commit.
    unchanged: Vec<&'a Outgoing>,
    large: Vec<&'a Outgoing>,
    /// In the commit itself.
    small: Vec<&'a Outgoing>,
}

impl<'a> Ways<'a> {
    fn ask(http: &Http, upload: &'a Upload) -> Result<Ways<'a>, HubError> {
        let mut modes = Vec::new();
        for files in upload.files.chunks(BATCH) {
            modes.extend(ask_modes(http, upload, files)?);
        }
        let mut ways = Ways {
            unchanged: Vec::new(),
            large: Vec::new(),
            small: Vec::new(),
        };
        for file in &upload.files {
            let mode = modes.iter().find(|mode| mode.path == file.name);
            let mode = mode.ok_or_else(|| HubError::Answer {
                url: http.endpoint.clone(),
                why: format!("it does not say how {} is to be sent", file.name),
            })?;
            let is_there = |oid: &str| oid.eq_ignore_ascii_case(&file.sha256);
            match mode {
                mode if mode.should_ignore => {}
                mode if mode.upload_mode != "lfs" => ways.small.push(file),
                mode if mode.oid.as_deref().is_some_and(is_there) => ways.unchanged.push(file),
                _ => ways.large.push(file),
            }
        }
        Ok(ways)
    }
}

/// Commits everything that was sent, with the small files in it.
fn commit(http: &Http, upload: &Upload, ways: &Ways<'_>) -> Result<Committed, HubError> {
    let body = commit_body(upload, &ways.large, &ways.small)?;
    let url = format!(
        "{}/commit/{}",
        api(http, &upload.repo),
        encoded(&upload.repo.revision, false)
    );
    let answer = http.post(
        &upload.repo,
        &url,
        "application/x-ndjson",
        &[],
        body.as_bytes(),
    )?;
    serde_json::from_value(answer).map_err(|e| HubError::Answer {
        url,
        why: e.to_string(),
    })
}

fn api(http: &Http, repo: &Repo) -> String {
    format!("{}/api/models/{}", http.endpoint, repo.id)
}

/// An existing repository is not an error.
fn create(http: &Http, upload: &Upload) -> Result<(), HubError> {
    let mut wanted = json!({"type": "model", "private": upload.private});
    match upload.repo.id.split_once('/') {
        Some((owner, name)) => {
            wanted["organization"] = owner.into();
            wanted["name"] = name.into();
        }
        None => wanted["name"] = upload.repo.id.as_str().into(),
    }
    let url = format!("{}/api/repos/create", http.endpoint);
    match http.post(
        &upload.repo,
        &url,
        JSON,
        &[409],
        wanted.to_string().as_bytes(),
    ) {
        Ok(_) => Ok(()),
        // A token may have write access to an existing repository but no right to create one.
        Err(HubError::NoWrite { .. }) => http
            .json(&upload.repo, &api(http, &upload.repo))
            .map(|_| ())
            .map_err(|_| HubError::NoWrite {
                repo: upload.repo.id.clone(),
            }),
        Err(error) => Err(error),
    }
}

pub(super) const JSON: &str = "application/json";

/// Asks the hub how each file is to be sent.
fn ask_modes(http: &Http, upload: &Upload, files: &[Outgoing]) -> Result<Vec<Mode>, HubError> {
    let mut asked = Vec::new();
    for file in files {
        let mut sample = Vec::new();
        open_plain(&file.path)
            .and_then(|open| open.take(SAMPLE).read_to_end(&mut sample))
            .map_err(HubError::disk(&file.path))?;
        asked.push(
            json!({"path": file.name, "size": file.bytes, "sample": base64::encode(&sample)}),
        );
    }
    let url = format!(
        "{}/preupload/{}",
        api(http, &upload.repo),
        encoded(&upload.repo.revision, false)
    );
    let mut body = json!({ "files": asked });
    // The commit's own `.gitattributes` determines which of its files are large.
    let attributes = upload.files.iter().find(|file| file.name == ATTRIBUTES);
    if let Some(text) = attributes.and_then(|file| read_plain_text(&file.path).ok()) {
        body["gitAttributes"] = text.into();
    }
    let body = body.to_string();
    let mut answer = http.post(&upload.repo, &url, JSON, &[], body.as_bytes())?;
    serde_json::from_value(answer["files"].take()).map_err(|e| HubError::Answer {
        url,
        why: e.to_string(),
    })
}

/// One line of JSON for the message and one per file.
fn commit_body(
    upload: &Upload,
    large: &[&Outgoing],
    small: &[&Outgoing],
) -> Result<String, HubError> {
    let mut body = String::new();
    let mut line = |key: &str, value: Value| {
        body.push_str(&json!({"key": key, "value": value}).to_string());
        body.push('\n');
    };
    line(
        "header",
        json!({"summary": upload.message, "description": ""}),
    );
    for file in small {
        let bytes = read_plain(&file.path).map_err(HubError::disk(&file.path))?;
        let content = base64::encode(&bytes);
        line(
            "file",
            json!({"path": file.name, "content": content, "encoding": "base64"}),
        );
    }
    for file in large {
        line(
            "lfsFile",
            json!({"path": file.name, "algo": "sha256", "oid": file.sha256, "size": file.bytes}),
        );
    }
    Ok(body)
}
