//! Models by name: which files of a repository of the hub make a model, and bringing them into the cache. What the files
//! hold is `hf`'s matter.

use crate::base::text::one_line;
use crate::hf;
use crate::hub::{self, Hub, HubError, Listing, OnProgress, Repo, RepoKind};
use std::path::{Path, PathBuf};

/// Files that travel with a model where its repository has them.
const BESIDE: [&str; 8] = [
    hf::GENERATION,
    hf::TOKENIZER,
    hf::TOKENIZER_CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
];
/// A tokenizer of SentencePiece, taken where there is no other.
const SENTENCEPIECE: &str = "tokenizer.model";

/// How much of a model is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    Everything,
    /// config.json and the tokenizer.
    Description,
}

/// The repository that a word names: `org/name`, `org/name@revision`, `hf:name`. `None` for words that are no id.
pub fn repo(word: &str) -> Option<Repo> {
    let (id, revision) = hub::model_id(word)?;
    Repo::new(RepoKind::Model, id, revision).ok()
}

/// Brings a model of the hub into the cache and gives the folder that holds it.
///
/// # Errors
/// No such repository; no model in it, or one in files that are not read; neither network nor cache.
pub fn fetch(
    hub: &Hub,
    repo: &Repo,
    parts: Parts,
    progress: &OnProgress<'_>,
) -> Result<PathBuf, HubError> {
    let listing = hub.list(repo)?;
    let names = listing.names();
    let has = |name: &str| names.iter().any(|n| n == name);
    if !has(hf::CONFIG) {
        return Err(no_model(repo, &names));
    }
    let config = hub.fetch(repo, &listing, hf::CONFIG, progress)?;
    if parts == Parts::Everything {
        let weights = weights(hub, repo, &listing, progress)?;
        for name in &weights {
            hub.fetch(repo, &listing, name, progress)?;
        }
    }
    for name in BESIDE.into_iter().filter(|name| has(name)) {
        hub.fetch(repo, &listing, name, progress)?;
    }
    if !has(hf::TOKENIZER) && has(SENTENCEPIECE) {
        hub.fetch(repo, &listing, SENTENCEPIECE, progress)?;
    }
    Ok(config.parent().unwrap_or(Path::new(".")).to_path_buf())
}

/// The names of the files with weights.
fn weights(
    hub: &Hub,
    repo: &Repo,
    listing: &Listing,
    progress: &OnProgress<'_>,
) -> Result<Vec<String>, HubError> {
    let names = listing.names();
    let has = |name: &str| names.iter().any(|n| n == name);
    if has(hf::WEIGHTS) {
        return Ok(vec![hf::WEIGHTS.into()]);
    }
    if !has(hf::INDEX) {
        return Err(choice(
            repo,
            hf::why_no_weights(&names),
            "name another repository or revision (org/name@revision)",
        ));
    }
    let index = hub.fetch(repo, listing, hf::INDEX, progress)?;
    let shards = hf::shards_of(&index).map_err(|e| {
        choice(
            repo,
            e.to_string(),
            "the repository is broken: tell its owner",
        )
    })?;
    match shards.iter().find(|shard| !has(shard)) {
        None => Ok(shards),
        Some(missing) => Err(choice(
            repo,
            format!("{} names {missing}, which is not there", hf::INDEX),
            "the repository is not complete: tell its owner, or name another revision",
        )),
    }
}

fn no_model(repo: &Repo, names: &[String]) -> HubError {
    let gguf: Vec<String> = names
        .iter()
        .filter(|name| name.ends_with(".gguf"))
        .map(|name| one_line(name))
        .take(8)
        .collect();
    match gguf.is_empty() {
        true => choice(
            repo,
            format!("it has no {}, so it holds no model", hf::CONFIG),
            "check the name; data sets go to data.sources",
        ),
        false => choice(
            repo,
            format!("it has GGUF files alone: {}", gguf.join(", ")),
            "download one of them and name the file",
        ),
    }
}

fn choice(repo: &Repo, what: impl Into<String>, fix: &str) -> HubError {
    HubError::Choice {
        repo: repo.id.clone(),
        what: what.into(),
        fix: fix.into(),
    }
}
