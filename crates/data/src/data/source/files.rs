//! The files of a source: on this machine, or on the hub and then in its cache.

use super::context::ReadContext;
use super::{Origin, SourceConfig, is_data_file, paths};
use crate::base::files::read_plain_text;
use crate::base::text::one_line;
use crate::data::DataError;
use crate::hub::{self, Chosen, Hub, Repo, RepoKind, Wanted, is_repo_id};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SourceFile {
    pub path: PathBuf,
    /// Its name for display.
    pub shown: Arc<str>,
}

impl SourceFile {
    pub fn new(path: PathBuf, shown: &str) -> SourceFile {
        SourceFile {
            path,
            shown: one_line(shown).into(),
        }
    }
}

/// Finds the files, downloading those of the hub.
pub(super) fn find(
    source: &SourceConfig,
    context: &ReadContext,
) -> Result<Vec<SourceFile>, DataError> {
    match &source.origin {
        Origin::Path(path) => local(source, path, context),
        Origin::Hub(id) => remote(source, id, context),
        Origin::Named(name) if is_local(name, &context.base) => local(source, name, context),
        Origin::Named(name) => remote(source, name, context),
        Origin::Synthetic(_) => Ok(Vec::new()),
    }
}

/// A name is local when there is such a thing, or when it can be no data set of the hub: one has an organization, and no
/// file's name in a folder that is here.
fn is_local(name: &str, base: &Path) -> bool {
    let full = base.join(name);
    full.exists()
        || paths::has_pattern(name)
        || !name.contains('/')
        || name.starts_with(['.', '/', '~'])
        || is_data_file(Path::new(name))
        || !is_repo_id(name)
        || (is_like_a_file(name) && full.parent().is_some_and(Path::is_dir))
}

/// Whether a name ends like one of a file, known or mistyped: `.jsnl`, and not the `.5` of a version.
fn is_like_a_file(name: &str) -> bool {
    let ending = Path::new(name).extension().unwrap_or_default();
    let ending = ending.to_string_lossy();
    (2..=8).contains(&ending.len()) && ending.bytes().all(|b| b.is_ascii_alphabetic())
}

fn local(
    source: &SourceConfig,
    path: &str,
    context: &ReadContext,
) -> Result<Vec<SourceFile>, DataError> {
    let wanted = Wanted {
        subset: source.subset.as_deref(),
        split: source.split.as_deref(),
    };
    let full = context.base.join(path);
    if wanted.subset.is_none() && wanted.split.is_none() {
        let files = paths::resolve(&context.base, path)?;
        let file = |p: PathBuf| SourceFile::new(p.clone(), &shown(&context.base, &p));
        return Ok(files.into_iter().map(file).collect());
    }
    if !full.is_dir() {
        let what = "is not a folder, but a subset or a split was requested";
        let fix = "name the dataset's folder, or drop subset and split";
        return Err(DataError::source(path, what, fix));
    }
    let names = paths::listing(&full);
    let readme = read_plain_text(full.join("README.md")).ok();
    let chosen = choose(path, &names, readme.as_deref(), wanted)?;
    let file = |name: String| {
        let full = full.join(&name);
        SourceFile::new(full.clone(), &shown(&context.base, &full))
    };
    Ok(chosen.files.into_iter().map(file).collect())
}

/// The name of a file as a spec's reader knows it: relative to where relative paths start.
fn shown(base: &Path, path: &Path) -> String {
    let path = path.strip_prefix(base).unwrap_or(path);
    path.strip_prefix(".").unwrap_or(path).display().to_string()
}

fn remote(
    source: &SourceConfig,
    id: &str,
    context: &ReadContext,
) -> Result<Vec<SourceFile>, DataError> {
    let repo = Repo::new(RepoKind::Dataset, id, source.revision.as_deref())?;
    let hub = Hub::new(&context.hub);
    let listing = hub.list(&repo)?;
    let progress = |name: &str, done: u64, all: u64| {
        if let Some(progress) = &context.progress {
            progress(&format!("{id}/{name}"), done, all);
        }
    };
    let readme = match listing.files.iter().any(|f| f.name == "README.md") {
        true => Some(hub.fetch(&repo, &listing, "README.md", &progress)?),
        false => None,
    };
    // A card is text of a few kilobytes; anything else is ignored.
    let readme = readme.and_then(|path| read_plain_text(path).ok());
    let wanted = Wanted {
        subset: source.subset.as_deref(),
        split: source.split.as_deref(),
    };
    let chosen = choose(id, &listing.names(), readme.as_deref(), wanted)?;
    let mut files = Vec::new();
    for name in chosen.files {
        let path = hub.fetch(&repo, &listing, &name, &progress)?;
        files.push(SourceFile::new(path, &format!("{id}/{name}")));
    }
    Ok(files)
}

fn choose(
    id: &str,
    names: &[String],
    readme: Option<&str>,
    wanted: Wanted<'_>,
) -> Result<Chosen, DataError> {
    let is_data = |name: &str| is_data_file(Path::new(name));
    let by_pattern = wanted.subset.is_some_and(|s| s.contains(['*', '?']));
    let card = match readme.map(hub::card_configs) {
        Some(Err(line)) if !by_pattern => {
            return Err(DataError::source(
                format!("{id}/README.md:{line}"),
                "describes its subsets in an unsupported way",
                format!("use a file pattern instead of the subset: `{id} | data/train-*.parquet`"),
            ));
        }
        Some(Ok(card)) => card,
        _ => None,
    };
    Ok(hub::choose(id, names, card.as_deref(), wanted, &is_data)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_path_when_it_is_there_and_never_when_it_cannot_be_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("org/name")).unwrap();
        assert!(is_local("org/name", dir.path()));
        assert!(!is_local("org/other", dir.path()) && !is_local("org/v2.5", dir.path()));
        assert!(!is_local("elsewhere/a.jsnl", dir.path()));
        for path in [
            "a.jsonl",
            "./org/x",
            "/abs",
            "*.txt",
            "a/b/c",
            "train.csv.gz",
            "six.jsnl",
            "six",
            "org/six.jsnl",
        ] {
            assert!(is_local(path, dir.path()), "{path}");
        }
    }

    #[test]
    fn a_mistyped_file_is_told_with_its_neighbour_and_no_hub_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("six.jsonl"), "{}").unwrap();
        let context = ReadContext {
            base: dir.path().to_path_buf(),
            ..ReadContext::default()
        };
        let told = |name: &str| {
            let error = find(&SourceConfig::parse(name).unwrap(), &context).unwrap_err();
            format!("{error}; {}", error.hint())
        };
        assert_eq!(
            told("six.jsnl"),
            "six.jsnl does not exist; did you mean six.jsonl?"
        );
        let told = told("imdb");
        assert!(
            told.contains("does not exist") && told.contains("org/name"),
            "{told}"
        );
    }

    #[test]
    fn a_data_set_on_disk_has_subsets_and_splits_as_on_the_hub() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "set/en/train.jsonl",
            "set/en/test.jsonl",
            "set/fr/train.jsonl",
        ] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "{}").unwrap();
        }
        let context = ReadContext {
            base: dir.path().to_path_buf(),
            ..ReadContext::default()
        };
        let source = SourceConfig::parse("set | en").unwrap();
        let found = find(&source, &context).unwrap();
        let names: Vec<&str> = found.iter().map(|f| &*f.shown).collect();
        assert_eq!(names, ["set/en/train.jsonl"]);
        let outside = SourceConfig::parse("set | ../..").unwrap();
        assert!(find(&outside, &context).is_err());
    }

    #[test]
    fn without_a_cache_the_hub_is_never_asked() {
        let source = SourceConfig::parse("org/name").unwrap();
        let error = find(&source, &ReadContext::default()).unwrap_err();
        assert!(error.hint().contains("HF_HOME"), "{error}");
    }
}
