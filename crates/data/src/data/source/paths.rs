//! From a path in a source (a file, a folder, a glob) to its files, in name order.

use super::container;
use crate::base::near::{alike, did_you_mean};
use crate::base::paths::not_found_hint;
use crate::base::text::one_line;
use crate::data::DataError;
use crate::hub;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Most files of one source.
const MAX_FILES: usize = 100_000;
/// Folders below a folder whose files are listed for a split.
const MAX_LEVELS: usize = 8;

/// True for names that a reader here knows, compressed or not.
pub fn is_data_file(path: &Path) -> bool {
    container::by_name(path).is_some()
}

/// True for files beside the data that look like rows and describe them: `dataset_info.json`, `state.json`.
pub fn is_description(path: &Path) -> bool {
    hub::is_description(&path.file_name().unwrap_or_default().to_string_lossy())
}

/// How to get at a data set that `datasets` saved as Arrow files, if a folder holds one.
pub fn saved_as_arrow(folder: &Path) -> Option<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_arrow = |path: PathBuf| path.extension().is_some_and(|e| e == "arrow");
    let (split, file) = match folder.join("dataset_dict.json").is_file() {
        true => ("['train']", "train.parquet"),
        false if entries.map(|entry| entry.path()).any(is_arrow) => ("", "rows.parquet"),
        false => return None,
    };
    let folder = one_line(&folder.to_string_lossy());
    Some(format!(
        ".arrow files are not read; in Python: ds = datasets.load_from_disk('{folder}'); ds{split}.to_parquet('{file}')"
    ))
}

/// The files that `said` means. A name that exists is that file or folder even when it has a `*` or `[` in it.
///
/// # Errors
/// Nothing there, nothing readable there, or several kinds of file in one folder.
pub(super) fn resolve(base: &Path, said: &str) -> Result<Vec<PathBuf>, DataError> {
    if said.trim().is_empty() {
        return Err(DataError::source(
            "data",
            "a source has no path",
            "data.path=FILE",
        ));
    }
    if said.contains('\0') {
        let fix = "write the path without it";
        return Err(DataError::source(
            said.replace('\0', "·"),
            "has a NUL byte in its name",
            fix,
        ));
    }
    let full = base.join(said);
    if full.is_dir() {
        return folder(&full);
    }
    if !full.exists() && has_pattern(said) {
        return pattern(&full);
    }
    if !full.exists() {
        return Err(absent(&full, said));
    }
    Ok(vec![full])
}

/// The same for a path that is whole.
///
/// # Errors
/// As there.
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    resolve(Path::new(""), &path.to_string_lossy())
}

/// Whether a path that leads nowhere may be a pattern for several.
pub fn has_pattern(said: &str) -> bool {
    said.contains(['*', '?', '['])
}

fn absent(full: &Path, said: &str) -> DataError {
    let fix = match neighbour(full) {
        _ if said.starts_with('~') => "`~` is not expanded here: write the whole path".into(),
        Some(near) => did_you_mean(beside(said, &near)),
        // A word alone may have been meant as a name of the hub.
        None if !said.contains('/') && full.extension().is_none() => format!(
            "{}; a data set of the hub is org/name",
            not_found_hint(Path::new(said), full)
        ),
        None => not_found_hint(Path::new(said), full),
    };
    DataError::source(said, "does not exist", fix)
}

/// What lies in the folder of a path that leads nowhere, and is called almost like it.
pub fn neighbour(full: &Path) -> Option<String> {
    let name = full.file_name()?.to_string_lossy();
    let folder = full.parent()?;
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let names = fs::read_dir(folder).ok()?.flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let names: Vec<String> = names.collect();
    alike(0.85, &name, names.iter().map(String::as_str)).map(String::from)
}

/// Another name in the folder that was written.
fn beside(said: &str, name: &str) -> String {
    one_line(&Path::new(said).with_file_name(name).to_string_lossy())
}

/// The data files directly in a folder.
fn folder(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    let entries = fs::read_dir(path).map_err(|source| DataError::Unreadable {
        path: path.to_path_buf(),
        source,
    })?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|p| p.is_file() && !is_hidden(p) && is_data_file(p) && !is_description(p))
        .collect();
    files.sort();
    if files.is_empty() {
        let usual = "name a file, a folder with .txt, .jsonl, .json, .csv, .tsv or .parquet files (.gz and .zst too), or a glob like FOLDER/**/*.jsonl";
        let fix = saved_as_arrow(path).or_else(|| other_texts(path));
        let fix = fix.unwrap_or_else(|| usual.into());
        return Err(DataError::source(
            path.display(),
            "holds no data files",
            fix,
        ));
    }
    one_kind(path, &files)?;
    Ok(files)
}

/// Files of different kinds side by side are rarely one set: a README.txt beside data.jsonl is not part of it.
fn one_kind(path: &Path, files: &[PathBuf]) -> Result<(), DataError> {
    let mut kinds: Vec<(&str, usize, &Path)> = Vec::new();
    for file in files {
        let kind = container::by_name(file).map_or("", |c| c.id);
        match kinds.iter_mut().find(|(k, ..)| *k == kind) {
            Some((_, n, _)) => *n += 1,
            None => kinds.push((kind, 1, file)),
        }
    }
    // The two spellings of rows of JSON are read by one format.
    let json = |k: &str| k == "json" || k == "jsonl";
    if kinds.len() < 2 || kinds.iter().all(|(k, ..)| json(k)) {
        return Ok(());
    }
    let found: Vec<String> = kinds.iter().map(|(k, n, _)| format!("{n} {k}")).collect();
    // The most frequent kind, by the ending that its first file has.
    let most = kinds.iter().max_by_key(|(_, n, _)| *n);
    let ending = most.map(|(.., file)| ending(file)).unwrap_or_default();
    Err(DataError::source(
        path.display(),
        format!("holds files of several kinds: {}", found.join(", ")),
        format!("say which: {}", path.join(format!("*.{ending}")).display()),
    ))
}

/// `jsonl`, `jsonl.gz`.
fn ending(file: &Path) -> String {
    let last = |path: &Path| path.extension().map(|x| x.to_string_lossy().into_owned());
    let packed = file.file_stem().map(Path::new);
    let inner = packed.filter(|stem| is_data_file(stem)).and_then(last);
    inner
        .into_iter()
        .chain(last(file))
        .collect::<Vec<_>>()
        .join(".")
}

fn pattern(full: &Path) -> Result<Vec<PathBuf>, DataError> {
    let text = full.to_string_lossy();
    let bad = |what: String| {
        DataError::source(
            &*text,
            what,
            "`*` any name, `**` any folders, `?` one character, `[ab]` one of them",
        )
    };
    // `**` alone means folders; who writes it at the end means the files in them.
    let whole = text.ends_with("**");
    let every = match whole {
        true => format!("{text}/*"),
        false => text.to_string(),
    };
    let paths =
        glob::glob(&every).map_err(|e| bad(format!("is not a valid pattern: {}", e.msg)))?;
    let mut files = Vec::new();
    for path in paths {
        let path = path.map_err(|e| DataError::Unreadable {
            path: e.path().to_path_buf(),
            source: e.into(),
        })?;
        if path.is_file() && !is_hidden(&path) && (!whole || is_data_file(&path)) {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(bad(format!("matches more than {MAX_FILES} files")));
        }
    }
    files.sort();
    // `*.json` means the rows, unless nothing else is there.
    if files.iter().any(|path| !is_description(path)) {
        files.retain(|path| !is_description(path));
    }
    if files.is_empty() {
        return Err(bad("matches no files".into()));
    }
    if whole {
        one_kind(full.parent().unwrap_or(full), &files)?;
    }
    Ok(files)
}

/// Files that describe a data set are not part of it.
fn describes(name: &str) -> bool {
    const DESCRIBE: [&str; 4] = ["readme", "license", "licence", "dataset_info"];
    if hub::is_description(name) {
        return true;
    }
    let name = name.to_lowercase();
    DESCRIBE.iter().any(|word| name.starts_with(word))
}

/// Texts directly in a folder whose ending is read only where it is named: `11 .md files are not read; '../notes/*.md' reads
/// them`.
pub fn other_texts(folder: &Path) -> Option<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let others = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file() && !is_hidden(path) && !is_data_file(path))
        .filter(|path| holds_text(path))
        .filter(|path| {
            !path
                .file_name()
                .is_some_and(|n| describes(&n.to_string_lossy()))
        });
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for path in others {
        *counts.entry(ending(&path)).or_default() += 1;
    }
    let (ending, n) = counts.into_iter().max_by_key(|(_, n)| *n)?;
    let glob = folder.join(format!("*.{ending}"));
    let glob = one_line(&glob.to_string_lossy());
    let files = if n == 1 { "file is" } else { "files are" };
    Some(format!(
        "{n} .{ending} {files} not read; '{glob}' reads them"
    ))
}

/// What lies in a folder beside the files of it that are read, in words: nobody should find out from the loss that half of
/// the texts were left out.
pub fn left_out(folder: &Path, read: &[PathBuf]) -> Option<String> {
    // Folders are named and not looked into: there may be a whole home below.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut others: Vec<String> = entries
        .map(|entry| entry.path())
        .filter(|path| !is_hidden(path) && !read.contains(path))
        .filter_map(|path| {
            let slash = if path.is_dir() { "/" } else { "" };
            Some(format!("{}{slash}", path.file_name()?.to_string_lossy()))
        })
        .filter(|name| !describes(name))
        .collect();
    others.sort();
    let first = others.first()?;
    let more = match others.len() - 1 {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    // Files that a glob could name: those of another kind, or those in folders below.
    let data = others.iter().find(|name| holds_text(Path::new(name)));
    let below = others.iter().any(|name| name.ends_with('/'));
    let glob = match data {
        Some(name) => Some(
            folder
                .join("**")
                .join(format!("*.{}", ending(Path::new(name)))),
        ),
        None => below.then(|| folder.join("**")),
    };
    let glob = glob.map_or(String::new(), |glob| {
        let glob = one_line(&glob.to_string_lossy());
        format!("; a glob such as {glob} names other files")
    });
    let first = one_line(first);
    Some(format!(
        "{}: not read: {first}{more}{glob}",
        folder.display()
    ))
}

/// Data, or a text under another ending than data usually have.
fn holds_text(path: &Path) -> bool {
    const TEXTS: [&str; 6] = ["md", "rst", "tex", "org", "html", "log"];
    let other = path
        .extension()
        .is_some_and(|e| TEXTS.iter().any(|text| e == *text));
    other || is_data_file(path)
}

fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_encoded_bytes().first() == Some(&b'.')
}

/// Every file below a folder, as names relative to it with `/`: the candidates for a data set's split. Links to folders
/// are not followed, so a listing can neither leave the folder nor go round in circles.
pub(super) fn listing(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut open = vec![(root.to_path_buf(), 0)];
    while let Some((folder, level)) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if is_hidden(&path) || names.len() >= MAX_FILES {
                continue;
            }
            if kind.is_dir() && level < MAX_LEVELS {
                open.push((path, level + 1));
            } else if path.is_file()
                && let Ok(name) = path.strip_prefix(root)
            {
                names.push(name.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        dir
    }

    fn names(dir: &tempfile::TempDir, said: &str) -> Vec<String> {
        let files = resolve(dir.path(), said).unwrap();
        let relative = files.iter().map(|f| f.strip_prefix(dir.path()).unwrap());
        relative.map(|p| p.display().to_string()).collect()
    }

    #[test]
    fn a_file_a_folder_and_a_glob() {
        let dir = tree(&[
            "b.jsonl.zst",
            "a.jsonl",
            "deep/c.jsonl",
            ".hidden.jsonl",
            "notes.md",
            "odd[1].jsonl",
        ]);
        assert_eq!(names(&dir, "a.jsonl"), ["a.jsonl"]);
        assert_eq!(
            names(&dir, "."),
            ["a.jsonl", "b.jsonl.zst", "odd[1].jsonl"].map(|n| format!("./{n}").replace("./", ""))
        );
        assert_eq!(
            names(&dir, "**/*.jsonl"),
            ["a.jsonl", "deep/c.jsonl", "odd[1].jsonl"]
        );
        assert_eq!(names(&dir, "odd[1].jsonl"), ["odd[1].jsonl"]);
        assert_eq!(names(&dir, "*.md"), ["notes.md"]);
        let every = ["a.jsonl", "b.jsonl.zst", "deep/c.jsonl", "odd[1].jsonl"];
        assert_eq!(names(&dir, "**"), every);
        assert_eq!(names(&dir, "deep/**"), ["deep/c.jsonl"]);
    }

    #[test]
    fn what_is_not_there_is_told_with_its_neighbour() {
        let dir = tree(&["train.jsonl", "deep/README.md"]);
        let error = resolve(dir.path(), "trian.jsonl").unwrap_err();
        assert_eq!(error.hint(), "did you mean train.jsonl?");
        let whole = dir.path().join("else.csv").display().to_string();
        for (said, relative) in [("else.csv", true), (&whole, false)] {
            let error = resolve(dir.path(), said).unwrap_err();
            assert_eq!(error.hint().contains("relative paths"), relative, "{error}");
        }
        let error = resolve(dir.path(), "*.csv").unwrap_err();
        assert!(error.to_string().contains("matches no files"));
        let error = resolve(dir.path(), "deep").unwrap_err();
        assert!(error.to_string().contains("holds no data files"));
        assert!(resolve(dir.path(), "a\0b").is_err() && resolve(dir.path(), " ").is_err());
    }

    #[test]
    fn files_that_describe_a_data_set_are_none_of_its_rows() {
        let dir = tree(&[
            "dataset_info.json",
            "alpaca.json",
            "set/state.json",
            "set/dataset_info.json",
            "set/data-00000-of-00001.arrow",
            "dict/dataset_dict.json",
            "dict/train/data.arrow",
            "alone/state.json",
        ]);
        assert_eq!(names(&dir, "."), ["alpaca.json"]);
        assert_eq!(names(&dir, "*.json"), ["alpaca.json"]);
        assert_eq!(names(&dir, "set/state.json"), ["set/state.json"]);
        assert_eq!(names(&dir, "alone/*.json"), ["alone/state.json"]);
        let fix = |said| resolve(dir.path(), said).unwrap_err().hint();
        let told = fix("set");
        assert!(
            told.contains("load_from_disk(") && told.contains("; ds.to_parquet("),
            "{told}"
        );
        let told = fix("dict");
        assert!(told.contains("ds['train'].to_parquet("), "{told}");
        assert!(fix("alone").starts_with("name a file"));
        let read = [dir.path().join("alpaca.json")];
        let told = left_out(dir.path(), &read).unwrap();
        assert!(!told.contains("dataset_info"), "{told}");
    }

    #[test]
    fn what_a_folder_holds_besides_is_told() {
        let dir = tree(&["a.txt", "b.md", "deep/c.txt", "README.md", ".hidden"]);
        let read = resolve(dir.path(), ".").unwrap();
        let read: Vec<PathBuf> = read
            .iter()
            .map(|path| dir.path().join(path.file_name().unwrap()))
            .collect();
        let told = left_out(dir.path(), &read).unwrap();
        assert!(told.contains("not read: b.md and 1 more"), "{told}");
        assert!(told.contains("**/*.md"), "{told}");
        let beside = |other: &str| {
            let dir = tree(&["a.txt", other]);
            left_out(dir.path(), &[dir.path().join("a.txt")]).unwrap()
        };
        let told = beside("deep/c.txt");
        assert!(
            told.contains("not read: deep/;") && told.contains("/** names"),
            "{told}"
        );
        let told = beside("b.pdf");
        assert!(told.ends_with("not read: b.pdf"), "{told}");
        let whole = tree(&["a.jsonl", "README.md"]);
        assert_eq!(
            left_out(whole.path(), &[whole.path().join("a.jsonl")]),
            None
        );
    }

    #[test]
    fn texts_under_another_ending_are_counted_with_the_glob_that_reads_them() {
        let dir = tree(&["a.txt", "b.md", "c.md", "README.md", "d.rst"]);
        let told = other_texts(dir.path()).unwrap();
        assert!(told.contains("2 .md files are not read"), "{told}");
        assert!(told.contains("/*.md' reads"), "{told}");
        let dir = tree(&["b.md"]);
        let hint = resolve(dir.path(), ".").unwrap_err().hint();
        assert!(hint.starts_with("1 .md file is not read"), "{hint}");
        assert_eq!(other_texts(tree(&["a.txt"]).path()), None);
    }

    #[test]
    fn a_folder_of_several_kinds_must_say_which() {
        let dir = tree(&["README.txt", "a.jsonl", "b.jsonl"]);
        let error = resolve(dir.path(), ".").unwrap_err();
        assert!(error.to_string().contains("1 text, 2 jsonl"), "{error}");
        let hint = error.hint();
        assert!(hint.ends_with("*.jsonl"), "{hint}");
        assert_eq!(ending(Path::new("a.b.jsonl.gz")), "jsonl.gz");
        assert_eq!(ending(Path::new("a.b.txt")), "txt");
    }

    #[cfg(unix)]
    #[test]
    fn a_listing_stays_inside_its_folder() {
        let outside = tree(&["secret.jsonl"]);
        let dir = tree(&["en/train.jsonl"]);
        std::os::unix::fs::symlink(outside.path(), dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("circle")).unwrap();
        assert_eq!(listing(dir.path()), ["en/train.jsonl"]);
    }
}
