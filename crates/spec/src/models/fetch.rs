//! Models by name: which files of a hub repository make up a model, and downloading them into the cache. File contents are
//! read by `hf`.

use super::one_per_model;
use crate::base::text::shown;
use crate::hf;
use crate::hub::{self, Hub, HubError, Listing, OnProgress, Repo, RepoKind};
use crate::llama_cpp::PartName;
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
            format!("{} names {missing}, which is missing", hf::INDEX),
            "the repository is not complete: inform its owner, or name another revision",
        )),
    }
}

fn no_model(repo: &Repo, names: &[String]) -> HubError {
    let gguf = names.iter().filter(|name| name.ends_with(".gguf"));
    let gguf = one_per_model(gguf.map(PathBuf::from).collect());
    let gguf: Vec<String> = gguf.iter().take(8).map(|name| listed(name)).collect();
    match gguf.is_empty() {
        true => choice(
            repo,
            format!("it has no {}, so it is not a model", hf::CONFIG),
            "check the name; data sets go to data.sources",
        ),
        false => choice(
            repo,
            format!("it has only GGUF files: {}", gguf.join(", ")),
            "download one of them, in all its parts, and name the file",
        ),
    }
}

/// A GGUF file of a repository, with which part it is where there are several.
fn listed(name: &Path) -> String {
    match PartName::of(name).filter(|part| part.count > 1) {
        Some(part) => format!("{} (part {} of {})", shown(name), part.number, part.count),
        None => shown(name),
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
mod tests {
    use super::*;
    use crate::hub::HubConfig;
    use sha2::{Digest, Sha256};
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::path::Path;
    use std::time::Duration;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    /// Serves files as the hub does, until the test ends.
    fn serve(files: Vec<(String, Vec<u8>)>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut line = String::new();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let _ = reader.read_line(&mut line);
                let path = line.split(' ').nth(1).unwrap_or_default().to_string();
                while line.trim() != "" {
                    line.clear();
                    let _ = reader.read_line(&mut line);
                }
                let body = if path.starts_with("/api/models/") {
                    listing(&files)
                } else {
                    let name = path.rsplit('/').next().unwrap_or_default();
                    let found = files.iter().find(|(n, _)| n == name);
                    found.map(|(_, c)| c.clone()).unwrap_or_default()
                };
                let head = format!(
                    "HTTP/1.1 200 X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(head.as_bytes());
                let _ = stream.write_all(&body);
            }
        });
        endpoint
    }

    fn listing(files: &[(String, Vec<u8>)]) -> Vec<u8> {
        let siblings = files.iter().map(|(name, content)| {
            let digest = Sha256::digest(content);
            let sha: String = digest.iter().map(|b| format!("{b:02x}")).collect();
            serde_json::json!({"rfilename": name, "size": content.len(), "blobId": sha[..40],
                "lfs": {"sha256": sha, "size": content.len()}})
        });
        let siblings: Vec<_> = siblings.collect();
        let value = serde_json::json!({"sha": COMMIT, "siblings": siblings});
        value.to_string().into_bytes()
    }

    /// The files of a folder of fixtures.
    fn fixture(name: &str) -> Vec<(String, Vec<u8>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracle/families");
        let entries = std::fs::read_dir(folder.join(name)).unwrap();
        let read = |entry: std::fs::DirEntry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, std::fs::read(entry.path()).unwrap())
        };
        entries.map(|entry| read(entry.unwrap())).collect()
    }

    fn hub(endpoint: &str, cache: &Path, offline: bool) -> Hub {
        Hub::new(&HubConfig {
            endpoint: endpoint.into(),
            cache: Some(cache.into()),
            timeout: Duration::from_secs(5),
            pause: Duration::from_millis(1),
            offline,
            ..HubConfig::default()
        })
    }

    #[test]
    fn a_sharded_model_comes_whole_and_is_there_without_a_network() {
        let cache = tempfile::tempdir().unwrap();
        let mut files = fixture("llama");
        files.push(("pytorch_model.bin".into(), b"never asked for".to_vec()));
        files.push(("tokenizer.json".into(), b"{}".to_vec()));
        let endpoint = serve(files);
        let repo = repo("org/tiny").unwrap();
        let quiet = |_: &str, _: u64, _: u64| {};
        let online = hub(&endpoint, cache.path(), false);
        let about = fetch(&online, &repo, Parts::Description, &quiet).unwrap();
        assert!(about.join("tokenizer.json").is_file() && !about.join(hf::INDEX).exists());
        let folder = fetch(&online, &repo, Parts::Everything, &quiet).unwrap();
        assert!(hf::load(&folder).is_ok());
        assert!(!folder.join("pytorch_model.bin").exists());
        assert!(!folder.join("expected.safetensors").exists());
        assert_eq!(
            hub::cached_model(cache.path(), "org/tiny", None),
            Some(folder.clone())
        );
        let offline = hub("http://127.0.0.1:1", cache.path(), true);
        assert_eq!(
            fetch(&offline, &repo, Parts::Everything, &quiet).unwrap(),
            folder
        );
    }

    #[test]
    fn repositories_without_a_model_say_what_they_have() {
        let fault = |files: &[&str]| {
            let cache = tempfile::tempdir().unwrap();
            let files = files.iter().map(|n| (n.to_string(), b"{}".to_vec()));
            let endpoint = serve(files.collect());
            let hub = hub(&endpoint, cache.path(), false);
            let repo = repo("org/tiny").unwrap();
            let error = fetch(&hub, &repo, Parts::Everything, &|_, _, _| {});
            error.unwrap_err().to_string()
        };
        let pickle = fault(&["config.json", "pytorch_model.bin"]);
        assert!(
            pickle.contains("pickle") && pickle.contains("save_pretrained"),
            "{pickle}"
        );
        let gguf = fault(&["README.md", "m-Q4_0.gguf"]);
        assert!(gguf.contains("m-Q4_0.gguf"), "{gguf}");
        let parts = fault(&["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]);
        let once = parts.contains("m-00001-of-00002.gguf (part 1 of 2)");
        assert!(once && !parts.contains("m-00002"), "{parts}");
        let later = fault(&["m-00003-of-00003.gguf", "m-00002-of-00003.gguf"]);
        let once = later.contains("m-00002-of-00003.gguf (part 2 of 3)");
        assert!(once && !later.contains("m-00003-"), "{later}");
        assert!(fault(&["README.md"]).contains("no config.json"));
        let index = fault(&["config.json", "model.safetensors.index.json"]);
        assert!(index.contains("weight_map"), "{index}");
    }
}
