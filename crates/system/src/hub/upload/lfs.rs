//! Large files by git LFS (github.com/git-lfs/git-lfs, docs/api): one request lists the missing ones, then each of those is
//! sent in one piece or in the parts that the hub requests.

use super::super::http::Http;
use super::super::{HubError, Repo};
use super::{Outgoing, Progress};
use crate::base::files::open_plain;
use crate::base::text::one_line;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

const TYPE: &str = "application/vnd.git-lfs+json";
/// The largest number of parts that stores accept.
const MAX_PARTS: u64 = 10_000;

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    objects: Vec<ObjectAnswer>,
}

#[derive(Deserialize)]
struct ObjectAnswer {
    oid: String,
    /// `None`: the hub has the object.
    actions: Option<Actions>,
    error: Option<Fault>,
}

#[derive(Deserialize)]
struct Actions {
    upload: Option<Action>,
    verify: Option<Action>,
}

#[derive(Deserialize)]
struct Action {
    href: String,
    #[serde(default)]
    header: Map<String, Value>,
}

#[derive(Deserialize)]
struct Fault {
    code: i64,
    #[serde(default)]
    message: String,
}

/// Sends those files that the hub lacks; returns how many.
pub fn send(
    http: &Http,
    repo: &Repo,
    files: &[&Outgoing],
    on_progress: &dyn Fn(Progress<'_>),
) -> Result<usize, HubError> {
    let url = format!("{}/{}.git/info/lfs/objects/batch", http.endpoint, repo.id);
    let asked: Vec<Value> = files
        .iter()
        .map(|file| json!({"oid": file.sha256, "size": file.bytes}))
        .collect();
    let body = json!({
        "operation": "upload",
        "transfers": ["basic", "multipart"],
        "objects": asked,
        "hash_algo": "sha256",
        "ref": {"name": repo.revision},
    });
    let answer = http.post(repo, &url, TYPE, &[], body.to_string().as_bytes())?;
    let strange = |why: String| HubError::Answer {
        url: url.clone(),
        why,
    };
    let answer: Answer = serde_json::from_value(answer).map_err(|e| strange(e.to_string()))?;
    let mut sent = 0;
    for file in files {
        let answered = answer
            .objects
            .iter()
            .find(|answered| answered.oid == file.sha256);
        let answered =
            answered.ok_or_else(|| strange(format!("it says nothing of {}", file.name)))?;
        sent += usize::from(send_one(http, repo, file, answered, on_progress)?);
    }
    Ok(sent)
}

/// Sends a file as the hub answered; whether it lacked it.
fn send_one(
    http: &Http,
    repo: &Repo,
    file: &Outgoing,
    answered: &ObjectAnswer,
    on_progress: &dyn Fn(Progress<'_>),
) -> Result<bool, HubError> {
    if let Some(fault) = &answered.error {
        return Err(HubError::Refused {
            what: file.name.clone(),
            why: format!("{} ({})", one_line(&fault.message), fault.code),
        });
    }
    let actions = answered.actions.as_ref();
    let Some(action) = actions.and_then(|actions| actions.upload.as_ref()) else {
        on_progress(Progress::There(&file.name));
        return Ok(false);
    };
    match number(action.header.get("chunk_size")) {
        Some(size) => parts(http, repo, file, action, size, on_progress)?,
        None => whole(http, file, action, on_progress)?,
    }
    if let Some(verify) = actions.and_then(|actions| actions.verify.as_ref()) {
        let body = json!({"oid": file.sha256, "size": file.bytes}).to_string();
        http.post(repo, &verify.href, TYPE, &[], body.as_bytes())?;
    }
    Ok(true)
}

/// The hub writes some numbers as strings.
fn number(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn whole(
    http: &Http,
    file: &Outgoing,
    action: &Action,
    on_progress: &dyn Fn(Progress<'_>),
) -> Result<(), HubError> {
    let headers: Vec<(&str, &str)> = action
        .header
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
        .collect();
    let sent = Cell::new(0);
    http.put(&action.href, &headers, file.bytes, &mut || {
        sent.set(0);
        Part::open(file, 0, file.bytes, &sent, on_progress)
    })
    .map(|_| ())
}

/// The part URLs are in the header, keyed by part number; the store's tag of each part goes into the final request.
fn parts(
    http: &Http,
    repo: &Repo,
    file: &Outgoing,
    action: &Action,
    size: u64,
    on_progress: &dyn Fn(Progress<'_>),
) -> Result<(), HubError> {
    let strange = |why: &str| HubError::Answer {
        url: action.href.clone(),
        why: why.into(),
    };
    let n = if size == 0 {
        0
    } else {
        file.bytes.div_ceil(size)
    };
    if n == 0 || n > MAX_PARTS {
        return Err(strange("its parts do not make up the file"));
    }
    let mut places: Vec<(u64, &str)> = action
        .header
        .iter()
        .filter_map(|(name, value)| Some((name.parse().ok()?, value.as_str()?)))
        .collect();
    places.sort_unstable();
    if places.len() as u64 != n {
        return Err(strange(
            "it names another number of parts than the file has",
        ));
    }
    let sent = Cell::new(0);
    let mut tags = Vec::new();
    for (at, (number, place)) in places.into_iter().enumerate() {
        let from = at as u64 * size;
        let length = size.min(file.bytes - from);
        let tag = http.put(place, &[], length, &mut || {
            sent.set(from);
            Part::open(file, from, length, &sent, on_progress)
        })?;
        let tag = tag.ok_or_else(|| strange("the store gives no tag for a part"))?;
        tags.push(json!({"partNumber": number, "etag": tag}));
    }
    let body = json!({"oid": file.sha256, "parts": tags}).to_string();
    http.post(repo, &action.href, TYPE, &[], body.as_bytes())
        .map(|_| ())
}

/// A part of a file, as the body of a request.
pub struct Part<'a> {
    input: io::Take<File>,
    file: &'a Outgoing,
    sent: &'a Cell<u64>,
    on_progress: &'a dyn Fn(Progress<'_>),
}

impl<'a> Part<'a> {
    fn open(
        file: &'a Outgoing,
        from: u64,
        length: u64,
        sent: &'a Cell<u64>,
        on_progress: &'a dyn Fn(Progress<'_>),
    ) -> io::Result<Box<dyn Read + 'a>> {
        let mut input = open_plain(&file.path)?;
        input.seek(SeekFrom::Start(from))?;
        Ok(Box::new(Part {
            input: input.take(length),
            file,
            sent,
            on_progress,
        }))
    }
}

impl Read for Part<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(into)?;
        self.sent.set(self.sent.get() + n as u64);
        (self.on_progress)(Progress::Sent(
            &self.file.name,
            self.sent.get(),
            self.file.bytes,
        ));
        Ok(n)
    }
}
