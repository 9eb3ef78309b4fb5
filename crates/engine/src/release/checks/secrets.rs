//! No private data: tokens, keys, paths of the machine on which the files were made.

use super::super::files::Entry;
use super::super::subject::Subject;
use super::{Check, several};
use crate::base::files::open_plain;
use crate::base::finding::Finding;
use std::io::Read;

pub(super) const CHECK: Check = Check {
    id: "secrets",
    title: "No secrets",
    run,
};

/// Bytes of a file that are searched: all of a text, the header of weights.
const MOST: u64 = 64 << 20;
/// A header of safetensors is at most so long.
const MOST_OF_WEIGHTS: u64 = 16 << 20;

/// The prefix of a secret, and the least number of letters and digits after it.
const TOKENS: &[(&str, usize, &str)] = &[
    ("hf_", 30, "a Hugging Face token"),
    ("api_org_", 30, "a Hugging Face token"),
    ("ghp_", 36, "a GitHub token"),
    ("gho_", 36, "a GitHub token"),
    ("ghs_", 36, "a GitHub token"),
    ("github_pat_", 40, "a GitHub token"),
    ("glpat-", 20, "a GitLab token"),
    ("sk-ant-", 30, "an API key"),
    ("sk-proj-", 30, "an API key"),
    ("AKIA", 16, "an AWS key"),
    ("xoxb-", 20, "a Slack token"),
    ("xoxp-", 20, "a Slack token"),
];
const PRIVATE_KEY: &str = "-----BEGIN ";
/// Files that are secrets by name.
const NAMES: &[&str] = &[
    ".env", ".netrc", "id_rsa", "id_ed25519", "credentials", ".git-credentials", "token", ".npmrc", ".pypirc",
];
/// Homes of users in paths.
const HOMES: &[&str] = &["/home/", "/Users/", "/root/", "C:\\\\Users\\\\"];

fn run(subject: &Subject) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut homes = Vec::new();
    for file in subject.files.iter().filter(|file| file.can_be_read()) {
        if NAMES.contains(&file.base()) || file.ending() == "pem" {
            let found = Finding::fail(
                format!("{}: files of this name contain secrets", file.name),
                "anyone who downloads the folder could use them",
                "delete it; if it was ever published, revoke its contents",
            );
            findings.push(found.at(&file.name));
            continue;
        }
        let Some(bytes) = read(subject, file) else {
            findings.push(
                Finding::unknown(format!("{} cannot be read", file.name), "check its permissions")
                    .at(&file.name),
            );
            continue;
        };
        for (at, what) in secrets(&bytes) {
            let place = format!("{}:{}", file.name, line_of(&bytes, at));
            let found = Finding::fail(
                format!("{what} ({}…)", String::from_utf8_lossy(&bytes[at..at + 6])),
                "anyone who downloads the folder could act on your behalf",
                "remove it from the file, and revoke the token",
            );
            findings.push(found.at(place));
        }
        let small = file.bytes <= 1 << 20 && !matches!(file.base(), "tokenizer.json" | "vocab.json");
        if let Some(at) = small.then(|| home(&bytes)).flatten() {
            homes.push(format!("{}:{}", file.name, line_of(&bytes, at)));
        }
    }
    if !homes.is_empty() {
        let found = Finding::warn(
            format!("{}: a path in a home folder", several(&homes)),
            "it reveals a user name and is useless on other machines",
            "replace it with a hub id or a plain name",
        );
        findings.push(found.at(homes[0].clone()));
    }
    if findings.is_empty() {
        findings.push(Finding::pass("no tokens, keys or paths in home folders"));
    }
    findings
}

fn read(subject: &Subject, file: &Entry) -> Option<Vec<u8>> {
    let is_weights = matches!(file.ending().as_str(), "safetensors" | "gguf");
    let most = if is_weights { MOST_OF_WEIGHTS } else { MOST };
    let mut bytes = Vec::new();
    let mut input = open_plain(subject.folder.join(&file.name)).ok()?.take(most);
    input.read_to_end(&mut bytes).ok()?;
    if is_weights && file.ending() == "safetensors" {
        // Behind the header lie numbers.
        let header = bytes.first_chunk::<8>().map_or(0, |n| u64::from_le_bytes(*n));
        bytes.truncate(usize::try_from(header.saturating_add(8)).unwrap_or(usize::MAX));
    }
    Some(bytes)
}

/// Places and kinds of what looks like a secret; the first of each kind.
fn secrets(bytes: &[u8]) -> Vec<(usize, &'static str)> {
    let mut found: Vec<(usize, &'static str)> = Vec::new();
    for (start, least, what) in TOKENS {
        let start = start.as_bytes();
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || *b == b'-';
        let whole = |at: &usize| {
            let apart = *at == 0 || !is_word(&bytes[at - 1]);
            let rest = &bytes[at + start.len()..];
            let run = &rest[..rest.iter().take_while(|b| is_word(b)).count()];
            // Real ones mix cases and digits; words of a vocabulary do not.
            let mixed = run.iter().any(u8::is_ascii_digit) || run.iter().any(u8::is_ascii_uppercase);
            let varied = run.iter().collect::<std::collections::BTreeSet<_>>().len() > 8;
            apart && run.len() >= *least && mixed && varied
        };
        let hit = places(bytes, start).find(whole);
        found.extend(hit.filter(|_| !found.iter().any(|(_, w)| w == what)).map(|at| (at, *what)));
    }
    let key = places(bytes, PRIVATE_KEY.as_bytes()).find(|at| {
        let line = &bytes[*at..bytes.len().min(at + 60)];
        line.windows(11).any(|part| part == b"PRIVATE KEY")
    });
    found.extend(key.map(|at| (at, "a private key")));
    found
}

fn places<'a>(bytes: &'a [u8], part: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let first = part.first().copied().unwrap_or_default();
    let candidates = bytes.iter().enumerate().filter(move |(_, b)| **b == first);
    candidates
        .map(|(at, _)| at)
        .filter(move |at| bytes[*at..].starts_with(part))
}

/// A home folder with a user's name in it.
fn home(bytes: &[u8]) -> Option<usize> {
    HOMES.iter().find_map(|home| {
        places(bytes, home.as_bytes()).find(|at| {
            let apart = *at == 0 || !bytes[at - 1].is_ascii_alphanumeric();
            let next = bytes.get(at + home.len());
            apart && next.is_some_and(u8::is_ascii_alphanumeric)
        })
    })
}

fn line_of(bytes: &[u8], at: usize) -> usize {
    1 + bytes[..at].iter().filter(|b| **b == b'\n').count()
}
