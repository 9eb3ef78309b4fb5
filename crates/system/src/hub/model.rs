//! Hub models by id, and their folders in the cache. What counts as a model is decided elsewhere.

use super::cache::RepoCache;
use super::name::{confined, is_hex, is_repo_id};
use super::{Listing, Repo};
use crate::base::files::read_plain_text;
use std::path::{Path, PathBuf};

/// What may stand before an id: a mark for one that could be mistaken for something else (`hf:gpt2`), or the hub's address.
const PREFIXES: [&str; 5] = [
    "hf:",
    "https://huggingface.co/",
    "https://hf.co/",
    "huggingface.co/",
    "hf.co/",
];

/// The parts of a word that names a model of the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelId<'a> {
    pub id: &'a str,
    pub revision: Option<&'a str>,
    /// Which of its files is meant: `Q4_K_M`, `FILE.gguf`.
    pub file: Option<&'a str>,
}

/// Parses `org/name[@REVISION][:FILE]`, after `hf:` also `name`; a revision has no colon. `None` if it is not an id.
pub fn model_id(word: &str) -> Option<ModelId<'_>> {
    let prefixes = || PREFIXES.iter().find_map(|prefix| word.strip_prefix(prefix));
    let (prefixed, rest) = match prefixes() {
        Some(rest) => (true, rest),
        None => (false, word),
    };
    let (rest, file) = match rest.split_once(':') {
        Some((rest, file)) => (rest, Some(file)),
        None => (rest, None),
    };
    let (id, revision) = match rest.split_once('@') {
        Some((id, revision)) => (id, Some(revision)),
        None => (rest, None),
    };
    let good = is_repo_id(id)
        && (prefixed || id.contains('/'))
        && revision.is_none_or(|revision| confined(revision).is_ok())
        && file.is_none_or(|file| confined(file).is_ok());
    good.then_some(ModelId { id, revision, file })
}

/// The cached folder with a model's config.json at a revision; uses no network.
pub fn cached_model(cache: &Path, id: &str, revision: Option<&str>) -> Option<PathBuf> {
    let root = cache.join(format!("models--{}", id.replace('/', "--")));
    let revision = revision.unwrap_or("main");
    let commit = match read_plain_text(root.join("refs").join(revision)) {
        Ok(commit) => commit.trim().to_string(),
        Err(_) => revision.to_string(),
    };
    let folder = root.join("snapshots").join(&commit);
    (is_hex(&commit) && folder.join("config.json").is_file()).then_some(folder)
}

/// The files of a repository as the cache knows them; uses no network.
pub fn cached_listing(cache: &Path, repo: &Repo) -> Option<Listing> {
    RepoCache::new(cache, repo).listing("it was not asked").ok()
}

/// A whole file of a repository in the cache; uses no network.
pub fn cached_file(cache: &Path, repo: &Repo, listing: &Listing, name: &str) -> Option<PathBuf> {
    let file = listing.files.iter().find(|file| file.name == name)?;
    RepoCache::new(cache, repo).snapshot_file(&listing.commit, file)
}

/// The repository whose cached snapshot a folder is, or in which a file lies: `…/models--org--name/snapshots/COMMIT`.
pub fn id_of_cached(place: &Path) -> Option<String> {
    let in_snapshots = |folder: &&Path| folder.parent().is_some_and(|up| up.ends_with("snapshots"));
    let snapshot = place.ancestors().find(in_snapshots)?;
    let repo = snapshot.parent()?.parent()?.file_name()?.to_str()?;
    let id = repo.strip_prefix("models--")?.replacen("--", "/", 1);
    super::is_repo_id(&id).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn parts<'a>(
        id: &'a str,
        revision: Option<&'a str>,
        file: Option<&'a str>,
    ) -> Option<ModelId<'a>> {
        Some(ModelId { id, revision, file })
    }

    #[test]
    fn ids_are_distinguished_from_paths_and_runs() {
        let main = |id| parts(id, None, None);
        assert_eq!(model_id("Qwen/Qwen2.5-0.5B"), main("Qwen/Qwen2.5-0.5B"));
        assert_eq!(model_id("hf:gpt2"), main("gpt2"));
        assert_eq!(model_id("a/b@v1"), parts("a/b", Some("v1"), None));
        for word in [
            "gpt2",
            "runs/a/b",
            "./a/b",
            "/a/b",
            "hf:",
            "a/b@",
            "a/b@../x",
            "gpt2:Q4_0",
            "a/b:",
            "a/b:../x",
            "a/b:/x",
            "http://a/b",
        ] {
            assert_eq!(model_id(word), None, "{word}");
        }
    }

    #[test]
    fn a_file_of_a_repository_is_named_behind_its_revision() {
        let file = |file| parts("a/b", None, Some(file));
        assert_eq!(model_id("a/b:Q4_K_M"), file("Q4_K_M"));
        assert_eq!(model_id("hf:a/b:Q4_K_M"), file("Q4_K_M"));
        assert_eq!(model_id("a/b:sub/m.gguf"), file("sub/m.gguf"));
        let both = parts("a/b", Some("refs/pr/1"), Some("Q8_0"));
        assert_eq!(model_id("a/b@refs/pr/1:Q8_0"), both);
    }

    #[test]
    fn the_hubs_address_may_stand_before_an_id() {
        for before in ["hf.co/", "huggingface.co/", "https://huggingface.co/"] {
            let word = format!("{before}a/b:Q4_K_M");
            assert_eq!(model_id(&word), parts("a/b", None, Some("Q4_K_M")));
        }
    }

    #[test]
    fn a_revision_in_the_cache_is_found_by_name_and_by_commit() {
        let cache = tempfile::tempdir().unwrap();
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let root = cache.path().join("models--a--b");
        let folder = root.join("snapshots").join(commit);
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(root.join("refs")).unwrap();
        fs::write(root.join("refs/main"), commit).unwrap();
        let find = |revision| cached_model(cache.path(), "a/b", revision);
        assert_eq!(find(None), None, "no config.json yet");
        fs::write(folder.join("config.json"), "{}").unwrap();
        assert_eq!(find(None), Some(folder.clone()));
        assert_eq!(find(Some(commit)), Some(folder));
        assert_eq!(find(Some("v2")), None);
        fs::write(root.join("refs/main"), "../../elsewhere").unwrap();
        assert_eq!(find(None), None);
    }

    #[test]
    fn a_snapshots_path_identifies_its_repository() {
        let id = |path: &str| id_of_cached(Path::new(path));
        let long = "/c/models--Qwen--Qwen2.5-0.5B/snapshots/0123abc";
        assert_eq!(id(long).as_deref(), Some("Qwen/Qwen2.5-0.5B"));
        assert_eq!(
            id("/c/models--gpt2/snapshots/0123abc").as_deref(),
            Some("gpt2")
        );
        let file = "/c/models--a--b/snapshots/0123abc/sub/m.gguf";
        assert_eq!(id(file).as_deref(), Some("a/b"));
        assert_eq!(id("/c/datasets--a--b/snapshots/0123abc"), None);
        assert_eq!(id("runs/r/checkpoints/step-1"), None);
    }
}
