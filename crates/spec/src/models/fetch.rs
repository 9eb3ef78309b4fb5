//! Models by name: which files of a hub repository make up a model, and downloading them into the cache. File contents are
//! read by `hf`.

use super::gguf_files::{self, Chosen};
use crate::base::text::one_line;
use crate::hf;
use crate::hub::{self, Hub, HubError, Listing, ModelId, OnProgress, Repo, RepoKind};
use crate::llama_cpp::check_beginning;
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
/// Bytes of a GGUF file in which its architecture is looked for: it is the first key that converters write.
const BEGINNING: u64 = 4096;

/// How much of a model is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    Everything,
    /// What describes it: config.json and the tokenizer; of a GGUF file, which holds these with the weights, all of it.
    Description,
    /// The same, and nothing of a GGUF file.
    WithoutWeights,
}

/// A model of the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubModel {
    pub repo: Repo,
    /// Which of its GGUF files is meant: a quantization (`Q4_K_M`) or a name (`FILE.gguf`).
    pub file: Option<String>,
}

/// Where a model lies now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// A folder, or a GGUF file, of several parts the first.
    pub place: PathBuf,
    /// What was chosen of several, where the user said nothing.
    pub notice: Option<String>,
}

/// The model that a word names: `org/name`, `org/name@REVISION`, `org/name:Q4_K_M`, `org/name@REVISION:FILE.gguf`, `hf:name`. `None` for
/// words that are no id.
pub fn hub_model(word: &str) -> Option<HubModel> {
    let ModelId { id, revision, file } = hub::model_id(word)?;
    let repo = Repo::new(RepoKind::Model, id, revision).ok()?;
    let file = file.map(String::from);
    Some(HubModel { repo, file })
}

/// The repository that a word names: see [`hub_model`].
pub fn repo(word: &str) -> Option<Repo> {
    hub_model(word).map(|model| model.repo)
}

/// Brings a model of the hub into the cache and gives the folder or file that holds it: the GGUF file that is named, the folder of a
/// repository with safetensors, or the GGUF file of one that has only such files.
///
/// # Errors
/// No such repository or file; no model in it, or one in files that are not read; neither network nor cache; no room on the disk.
pub fn fetch(
    hub: &Hub,
    model: &HubModel,
    parts: Parts,
    progress: &OnProgress<'_>,
) -> Result<Fetched, HubError> {
    let repo = &model.repo;
    let listing = hub.list(repo)?;
    let names = listing.names();
    // A config.json describes either kind of repository.
    let describes = parts != Parts::Everything && names.iter().any(|name| name == hf::CONFIG);
    let is_file = match gguf_files::named(model.file.as_deref()) {
        Some(_) => true,
        None if !is_gguf_only(&names) => false,
        None if !listing.partial => true,
        None if describes => false,
        None => return Err(gguf_files::unsaid(repo, &listing)),
    };
    if is_file {
        let chosen = gguf_files::choose(repo, model.file.as_deref(), &listing)
            .map_err(|error| of_cached(&listing, error))?;
        if parts == Parts::WithoutWeights {
            let what = "a GGUF file holds its description and its weights in one".to_string();
            return Err(choice(repo, what, "leave out --without-weights"));
        }
        return gguf(hub, repo, &listing, chosen, progress);
    }
    folder(hub, repo, &listing, parts, progress).map(|place| Fetched {
        place,
        notice: None,
    })
}

/// The same without a network, of what lies in the cache: a folder with a config.json, or a GGUF file with all its parts. `None` also where
/// no file is named, and not all files of the repository are known of which one is to be taken.
pub fn cached(cache: &Path, word: &str) -> Option<PathBuf> {
    let HubModel { repo, file } = hub_model(word)?;
    let is_named = gguf_files::named(file.as_deref()).is_some();
    let listing = hub::cached_listing(cache, &repo);
    let is_file = |listing: &Listing| is_named || is_gguf_only(&listing.names());
    match listing.filter(is_file) {
        // Files that another tool happened to download: the repository may have safetensors, or a file that is taken before these.
        Some(listing) if listing.partial && !is_named => None,
        Some(listing) => {
            let chosen = gguf_files::choose(&repo, file.as_deref(), &listing).ok()?;
            let part = |name: &String| hub::cached_file(cache, &repo, &listing, name);
            let parts: Option<Vec<PathBuf>> = chosen.parts.iter().map(part).collect();
            parts?.into_iter().next()
        }
        None if is_named => None,
        None => hub::cached_model(cache, &repo.id, Some(&repo.revision)),
    }
}

/// What is wrong with a choice among files of which only those in the cache are known.
fn of_cached(listing: &Listing, error: HubError) -> HubError {
    let why = listing.from_cache.as_deref();
    match (why.filter(|_| listing.partial), error) {
        (Some(why), HubError::Choice { repo, what, fix }) => HubError::Choice {
            repo,
            what: format!("of its files in the cache, as the hub is not available ({why}): {what}"),
            fix: format!("go online once (unset HF_HUB_OFFLINE); else {fix}"),
        },
        (_, error) => error,
    }
}

/// Whether a repository has GGUF files and no other weights that are read.
fn is_gguf_only(names: &[String]) -> bool {
    let has = |name: &str| names.iter().any(|n| n == name);
    let is_folder = has(hf::CONFIG) && (has(hf::WEIGHTS) || has(hf::INDEX));
    !is_folder && gguf_files::has_models(names)
}

fn gguf(
    hub: &Hub,
    repo: &Repo,
    listing: &Listing,
    chosen: Chosen,
    progress: &OnProgress<'_>,
) -> Result<Fetched, HubError> {
    let Chosen { parts, notice } = chosen;
    hub.check_room(repo, listing, &parts)?;
    if let Some(name) = parts.first()
        && let Some(bytes) = hub.beginning(repo, listing, name, BEGINNING)
        && let Err(why) = check_beginning(&bytes)
    {
        let fix = "docs/models.md lists the architectures that are read; name another repository";
        return Err(choice(repo, format!("{}: {why}", one_line(name)), fix));
    }
    let mut first = None;
    for name in &parts {
        let place = hub.fetch(repo, listing, name, progress)?;
        first.get_or_insert(place);
    }
    let place = first.ok_or_else(|| HubError::NoFile {
        repo: repo.id.clone(),
        file: "*.gguf".into(),
    })?;
    Ok(Fetched { place, notice })
}

/// The folder of a model with safetensors.
fn folder(
    hub: &Hub,
    repo: &Repo,
    listing: &Listing,
    parts: Parts,
    progress: &OnProgress<'_>,
) -> Result<PathBuf, HubError> {
    let names = listing.names();
    let has = |name: &str| names.iter().any(|n| n == name);
    if !has(hf::CONFIG) {
        return Err(choice(
            repo,
            format!("it has no {}, so it is not a model", hf::CONFIG),
            "check the name; data sets go to data.sources",
        ));
    }
    let config = hub.fetch(repo, listing, hf::CONFIG, progress)?;
    if parts == Parts::Everything {
        let weights = weights(hub, repo, listing, progress)?;
        hub.check_room(repo, listing, &weights)?;
        for name in &weights {
            hub.fetch(repo, listing, name, progress)?;
        }
    }
    for name in BESIDE.into_iter().filter(|name| has(name)) {
        hub.fetch(repo, listing, name, progress)?;
    }
    if !has(hf::TOKENIZER) && has(SENTENCEPIECE) {
        hub.fetch(repo, listing, SENTENCEPIECE, progress)?;
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
            "the repository is broken: report it to its owner",
        )
    })?;
    match shards.iter().find(|shard| !has(shard)) {
        None => Ok(shards),
        Some(missing) => Err(choice(
            repo,
            format!("{} names {missing}, which is missing", hf::INDEX),
            "the repository is not complete: inform its owner, or name another revision",
        )),
    }
}

fn choice(repo: &Repo, what: impl Into<String>, fix: &str) -> HubError {
    HubError::Choice {
        repo: repo.id.clone(),
        what: what.into(),
        fix: fix.into(),
    }
}

#[cfg(test)]
mod tests;
