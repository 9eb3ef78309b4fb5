//! Hub models by id, and their folders in the cache. What counts as a model is decided elsewhere.

use super::name::{confined, is_hex, is_repo_id};
use crate::base::files::read_plain_text;
use std::path::{Path, PathBuf};

/// Prefix of an id that could be mistaken for something else: `hf:gpt2`.
const PREFIX: &str = "hf:";

/// Parses an id and revision: `org/name`, `org/name@revision`, `hf:name`. `None` if it is not an id.
pub fn model_id(word: &str) -> Option<(&str, Option<&str>)> {
    let (prefixed, id) = match word.strip_prefix(PREFIX) {
        Some(id) => (true, id),
        None => (false, word),
    };
    let (id, revision) = match id.split_once('@') {
        Some((id, revision)) => (id, Some(revision)),
        None => (id, None),
    };
    let good = is_repo_id(id)
        && (prefixed || id.contains('/'))
        && revision.is_none_or(|revision| confined(revision).is_ok());
    good.then_some((id, revision))
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

/// The repository whose cached snapshot a folder is: `…/models--org--name/snapshots/COMMIT`.
pub fn id_of_cached(folder: &Path) -> Option<String> {
    let snapshots = folder
        .parent()
        .filter(|parent| parent.ends_with("snapshots"))?;
    let repo = snapshots.parent()?.file_name()?.to_str()?;
    let id = repo.strip_prefix("models--")?.replacen("--", "/", 1);
    super::is_repo_id(&id).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn ids_are_distinguished_from_paths_and_runs() {
        let main = |id| Some((id, None));
        assert_eq!(model_id("Qwen/Qwen2.5-0.5B"), main("Qwen/Qwen2.5-0.5B"));
        assert_eq!(model_id("hf:gpt2"), main("gpt2"));
        assert_eq!(model_id("a/b@v1"), Some(("a/b", Some("v1"))));
        for word in [
            "gpt2", "runs/a/b", "./a/b", "/a/b", "hf:", "a/b@", "a/b@../x",
        ] {
            assert_eq!(model_id(word), None, "{word}");
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
        assert_eq!(id("/c/datasets--a--b/snapshots/0123abc"), None);
        assert_eq!(id("runs/r/checkpoints/step-1"), None);
    }
}
