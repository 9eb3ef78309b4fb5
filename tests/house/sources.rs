//! Input of the rules: every source file of the workspace, by room, up to its unit tests.

use std::fs;
use std::path::{Path, PathBuf};

pub struct Source {
    /// From the room on, with `/`.
    pub path: String,
    /// From the repository root on.
    pub file: String,
    /// The text up to its unit tests, which may import anything.
    pub code: String,
    pub lines: usize,
    pub documented: bool,
}

/// Rooms that are crates; every other crate under `crates/` has rooms as modules.
pub const CRATES: [&str; 2] = ["base", "kernels"];

pub fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("src")];
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        folders.push(entry.unwrap().path().join("src"));
    }
    let mut sources = Vec::new();
    for folder in folders {
        let mut files = Vec::new();
        collect(&folder, &mut files);
        files.sort();
        sources.extend(files.iter().map(|file| read(root, &folder, file)));
    }
    sources
}

fn read(root: &Path, folder: &Path, file: &Path) -> Source {
    let text = fs::read_to_string(file).unwrap();
    let relative = |to: &Path| {
        let path = file.strip_prefix(to).unwrap().to_string_lossy();
        path.replace('\\', "/")
    };
    let own = folder.parent().and_then(Path::file_name);
    let own = own.unwrap_or_default().to_string_lossy();
    let inside = match CRATES.contains(&own.as_ref()) {
        true => format!("{own}/"),
        false => String::new(),
    };
    let path = format!("{inside}{}", relative(folder));
    let code = before_inline_tests(&text)
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let test_file = path.ends_with("tests.rs") || path.contains("/tests/");
    Source {
        code: if test_file { String::new() } else { code },
        lines: text.lines().count(),
        documented: text.starts_with("//!") || text.starts_with("/*!"),
        file: relative(root),
        path,
    }
}

/// The text up to `#[cfg(test)] mod … {`; a test module in its own file (`mod tests;`) ends nothing.
fn before_inline_tests(text: &str) -> &str {
    const MARK: &str = "#[cfg(test)]\nmod ";
    let inline = |at: &usize| {
        let line = text[at + MARK.len()..].lines().next();
        line.is_some_and(|line| line.trim_end().ends_with('{'))
    };
    let found = text.match_indices(MARK).map(|(at, _)| at).find(inline);
    &text[..found.unwrap_or(text.len())]
}

pub fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

pub fn room(path: &str) -> &str {
    path.split('/')
        .next()
        .unwrap_or_default()
        .trim_end_matches(".rs")
}
