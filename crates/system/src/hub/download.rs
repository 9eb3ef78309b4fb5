//! Downloading a file: resumable, verified, and only then renamed to its final name.

use super::cache::{RepoCache, make_parent};
use super::http::{Http, encoded};
use super::{HubConfig, HubError, OnProgress, RemoteFile, Repo, RepoKind};
use crate::base::digest::hex;
use crate::base::files::open_plain;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Consecutive connection failures without a single byte received.
const BREAKS: u32 = 5;
/// Rounds of waiting, without progress, for another process that downloads the same file.
const ROUNDS_FOR_OTHERS: u32 = 600;
const CHUNK: usize = 1 << 18;

pub(super) fn fetch(
    http: &Http,
    config: &HubConfig,
    repo: &Repo,
    commit: &str,
    file: &RemoteFile,
    cache: &RepoCache,
    progress: &OnProgress<'_>,
) -> Result<PathBuf, HubError> {
    let blob = file.blob.as_deref().ok_or_else(|| HubError::Answer {
        url: config.endpoint.clone(),
        why: format!("it does not report the hash of {}", file.name),
    })?;
    let (whole, partial) = cache.blob_paths(blob);
    make_parent(&whole)?;
    let _lock = wait_for_lock(http, cache, blob)?;
    let there = fs::metadata(&whole).is_ok_and(|m| file.size.is_none_or(|s| s == m.len()));
    if !there {
        let url = url(config, repo, commit, file);
        receive(http, repo, &url, file, &partial, progress)?;
        verify(file, &partial)?;
        fs::rename(&partial, &whole).map_err(HubError::disk(&whole))?;
    }
    cache.link(commit, &file.name, blob)
}

fn url(config: &HubConfig, repo: &Repo, commit: &str, file: &RemoteFile) -> String {
    let prefix = match repo.kind {
        RepoKind::Dataset => "datasets/",
        RepoKind::Model => "",
    };
    format!(
        "{}/{prefix}{}/resolve/{commit}/{}",
        config.endpoint,
        repo.id,
        encoded(&file.name, true)
    )
}

/// The first bytes of a file, as far as they come; nothing is kept.
pub(super) fn beginning(
    http: &Http,
    config: &HubConfig,
    repo: &Repo,
    commit: &str,
    file: &RemoteFile,
    most: u64,
) -> Result<Vec<u8>, HubError> {
    let response = http.get(repo, &url(config, repo, commit, file), 0)?;
    let mut bytes = Vec::new();
    let mut body = response.into_body().into_reader().take(most);
    // What a broken connection leaves is a beginning too.
    let _ = body.read_to_end(&mut bytes);
    Ok(bytes)
}

fn wait_for_lock(
    http: &Http,
    cache: &RepoCache,
    blob: &str,
) -> Result<Option<crate::base::files::Lock>, HubError> {
    let (_, partial) = cache.blob_paths(blob);
    let arrived = || fs::metadata(&partial).map_or(0, |m| m.len());
    let (mut idle, mut bytes) = (0, arrived());
    while idle < ROUNDS_FOR_OTHERS {
        if let Some(lock) = cache.lock(blob)? {
            return Ok(Some(lock));
        }
        http.wait(0, None);
        let now = arrived();
        idle = if now == bytes { idle + 1 } else { 0 };
        bytes = now;
    }
    // The lock holder is stuck. Writing anyway would interleave two downloads.
    Err(HubError::NotCached {
        what: blob.to_string(),
        why: "another program holds its lock".into(),
    })
}

/// Fills the partial file up to the expected size.
fn receive(
    http: &Http,
    repo: &Repo,
    url: &str,
    file: &RemoteFile,
    partial: &Path,
    progress: &OnProgress<'_>,
) -> Result<(), HubError> {
    let mut breaks = 0;
    loop {
        let before = fs::metadata(partial).map_or(0, |m| m.len());
        // More bytes than expected, or already complete: the hash decides.
        let before = match file.size {
            Some(size) if before == size && size > 0 => return Ok(()),
            Some(size) if before > size => {
                fs::remove_file(partial).map_err(HubError::disk(partial))?;
                0
            }
            _ => before,
        };
        let (got, ended) = receive_once(http, repo, url, file, partial, before, progress)?;
        match file.size {
            None if ended => return Ok(()),
            Some(size) if got == size => return Ok(()),
            Some(size) if got > size => {
                let _ = fs::remove_file(partial);
                return Err(HubError::Size {
                    file: file.name.clone(),
                    got,
                    expected: size,
                });
            }
            _ => {}
        }
        breaks = if got > before { 0 } else { breaks + 1 };
        if breaks >= BREAKS {
            return Err(HubError::Size {
                file: file.name.clone(),
                got,
                expected: file.size.unwrap_or(0),
            });
        }
        http.wait(breaks, None);
    }
}

/// One connection: bytes in the partial file afterwards, and whether the response was complete.
fn receive_once(
    http: &Http,
    repo: &Repo,
    url: &str,
    file: &RemoteFile,
    partial: &Path,
    from: u64,
    progress: &OnProgress<'_>,
) -> Result<(u64, bool), HubError> {
    let response = http.get(repo, url, from)?;
    let resumes = response.status() == 206 && starts_at(&response, from);
    if response.status() == 416 {
        let _ = fs::remove_file(partial);
        return Ok((0, false));
    }
    let mut out: File = OpenOptions::new()
        .create(true)
        .write(true)
        .append(resumes)
        .truncate(!resumes)
        .open(partial)
        .map_err(HubError::disk(partial))?;
    let mut got = if resumes { from } else { 0 };
    let total = file.size.unwrap_or(0);
    let mut body = response.into_body().into_reader();
    let mut chunk = vec![0; CHUNK];
    let ended = loop {
        match body.read(&mut chunk) {
            Ok(0) => break true,
            Ok(n) => {
                out.write_all(&chunk[..n])
                    .map_err(HubError::disk(partial))?;
                got += n as u64;
                progress(&file.name, got, total);
                if file.size.is_some_and(|size| got > size) {
                    break true;
                }
            }
            // The connection broke: received bytes are kept.
            Err(_) => break false,
        }
    };
    out.sync_all().map_err(HubError::disk(partial))?;
    Ok((got, ended))
}

fn starts_at(response: &ureq::http::Response<ureq::Body>, from: u64) -> bool {
    let range = response.headers().get("content-range");
    range
        .and_then(|r| r.to_str().ok())
        .is_some_and(|r| r.starts_with(&format!("bytes {from}-")))
}

fn verify(file: &RemoteFile, partial: &Path) -> Result<(), HubError> {
    let Some(expected) = &file.sha256 else {
        return Ok(());
    };
    let mut hash = Sha256::new();
    let mut input = open_plain(partial).map_err(HubError::disk(partial))?;
    let mut chunk = vec![0; CHUNK];
    loop {
        match input.read(&mut chunk).map_err(HubError::disk(partial))? {
            0 => break,
            n => hash.update(&chunk[..n]),
        }
    }
    let got = hex(&hash.finalize());
    if got.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    let _ = fs::remove_file(partial);
    Err(HubError::Hash {
        file: file.name.clone(),
        got,
        expected: expected.clone(),
    })
}
