//! Completing a path that is being typed, as a shell does.

use crate::base::paths::expand_home;
use std::fs;
use std::path::Path;

/// Entries of a folder that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// The path as far as it is unambiguous, and the names that it could go on with; folders end in `/`. `~` is listed as
/// the user's home and stays as it was typed.
pub fn complete(path: &str, home: Option<&Path>) -> (String, Vec<String>) {
    if path == "~" && home.is_some() {
        return ("~/".into(), vec!["~/".into()]);
    }
    let (folder, start) = match path.rfind('/') {
        Some(slash) => path.split_at(slash + 1),
        None => ("", path),
    };
    let here = match folder {
        "" => Ok(".".into()),
        folder => expand_home(Path::new(folder), Path::new(""), home),
    };
    // What cannot be expanded has no names; the error comes with the answer.
    let here = here.unwrap_or_else(|_| folder.into());
    let listing = fs::read_dir(&here);
    let entries = listing.into_iter().flatten().take(MAX_ENTRIES).flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    // Hidden names are offered only to those who ask for them.
    let fits = |name: &String| {
        name.starts_with(start) && (start.starts_with('.') || !name.starts_with('.'))
    };
    let mut names: Vec<String> = names.filter(fits).collect();
    names.sort();
    let common = common_start(&names).unwrap_or(start).to_string();
    for name in &mut names {
        if here.join(&*name).is_dir() {
            name.push('/');
        }
    }
    let end = match names.as_slice() {
        [only] => only.clone(),
        _ => common,
    };
    (format!("{folder}{end}"), names)
}

/// The longest text with which all names start.
fn common_start(names: &[String]) -> Option<&str> {
    let (first, last) = (names.first()?, names.last()?);
    // In sorted order the first and the last differ earliest.
    let same = first.char_indices().zip(last.chars());
    let end = same
        .take_while(|((_, a), b)| a == b)
        .last()
        .map_or(0, |((at, c), _)| at + c.len_utf8());
    Some(&first[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_completed_as_far_as_it_is_unambiguous() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["chats.jsonl", "chats.csv", "köln.txt", ".hidden"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        fs::create_dir(dir.path().join("models")).unwrap();
        let root = format!("{}/", dir.path().display());
        let completed = |start: &str| {
            let (path, names) = complete(&format!("{root}{start}"), None);
            (path.strip_prefix(&root).unwrap().to_string(), names.len())
        };
        assert_eq!(completed("c"), ("chats.".into(), 2));
        assert_eq!(completed("chats.j"), ("chats.jsonl".into(), 1));
        assert_eq!(completed("m"), ("models/".into(), 1));
        assert_eq!(completed("kö"), ("köln.txt".into(), 1));
        assert_eq!(completed("x"), ("x".into(), 0));
        assert_eq!(completed(""), (String::new(), 4));
        assert_eq!(completed(".h"), (".hidden".into(), 1));
        assert_eq!(complete("/no/such/folder/x", None).1.len(), 0);
    }

    #[test]
    fn a_tilde_is_completed_in_the_home_folder_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes.txt"), "x").unwrap();
        fs::create_dir(dir.path().join("models")).unwrap();
        let home = Some(dir.path());
        assert_eq!(complete("~", home).0, "~/");
        assert_eq!(complete("~/no", home).0, "~/notes.txt");
        assert_eq!(complete("~/m", home).0, "~/models/");
        assert_eq!(complete("~/", home).1, ["models/", "notes.txt"]);
        assert!(complete("~/no", None).1.is_empty() && complete("~root/", home).1.is_empty());
    }
}
