//! Files: their size, their first line, the map that lists them, and no conflict markers.

use crate::sources::{CRATES, room, sources};
use std::fs;
use std::path::{Path, PathBuf};

/// A longer file is a design fault: it lacks a boundary.
const MAX_LINES: usize = 700;
const MAX_MEDIAN_LINES: usize = 200;

#[test]
fn files_stay_small_and_begin_with_a_description() {
    let sources = sources();
    let mut faults: Vec<String> = Vec::new();
    for source in &sources {
        if source.lines > MAX_LINES {
            faults.push(format!(
                "{}: {} lines, more than {MAX_LINES}: which wall is missing?",
                source.file, source.lines
            ));
        }
        if !source.documented {
            faults.push(format!(
                "{}: begin with a `//!` line on what lives here and what does not",
                source.file
            ));
        }
    }
    let mut lines: Vec<usize> = sources.iter().map(|s| s.lines).collect();
    lines.sort_unstable();
    let median = lines[lines.len() / 2];
    if median > MAX_MEDIAN_LINES {
        faults.push(format!(
            "the median file has {median} lines, more than {MAX_MEDIAN_LINES}"
        ));
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// An unfinished merge: the changelog once had one, and no compiler reads it.
#[test]
fn no_text_contains_conflict_markers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = Vec::new();
    for folder in [
        "",
        "docs",
        "presets",
        "pipelines",
        "assets/guide",
        "assets/guide/trouble",
        "assets/tasks",
    ] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let known = path.extension().and_then(|e| e.to_str());
            if matches!(known, Some("md" | "yaml" | "toml")) {
                texts.push(path);
            }
        }
    }
    assert!(texts.len() > 60, "{} texts", texts.len());
    let marked = |path: &&PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        text.lines().any(|line| {
            line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ") || line == "======="
        })
    };
    let marked: Vec<&PathBuf> = texts.iter().filter(marked).collect();
    assert!(marked.is_empty(), "conflicts: {marked:?}");
}

#[test]
fn every_room_of_the_map_exists() {
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    for source in sources() {
        let own = room(&source.path);
        if !matches!(own, "main" | "lib") {
            assert!(
                lib.contains(&format!("[`{own}`]")),
                "src/lib.rs, the map, does not name the room `{own}`"
            );
        }
    }
}

/// ARCHITECTURE.md states which crate a room belongs to.
#[test]
fn the_table_of_crates_lists_every_room_with_its_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    for source in sources() {
        let (own, krate) = (room(&source.path), source.file.split("/src/").next());
        let krate = krate.filter(|k| k.starts_with("crates/")).unwrap_or("src/");
        if matches!(own, "main" | "lib") || CRATES.contains(&own) {
            continue;
        }
        let row = |line: &str| line.starts_with("| `") && line.contains(krate);
        assert!(
            text.lines()
                .any(|line| row(line) && line.contains(&format!("`{own}`"))),
            "ARCHITECTURE.md, the table of crates: `{own}` is missing beside `{krate}`"
        );
    }
}

/// A path of the repository that a page names and that has moved is worse than none.
#[test]
fn paths_named_in_the_pages_for_developers_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut faults) = (0, Vec::new());
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"] {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let quoted = text.split('`').skip(1).step_by(2);
        let tops = ["crates/", "src/cli/", "tests/", "assets/", "docs/", "fuzz/"];
        for path in quoted.filter(|word| tops.iter().any(|top| word.starts_with(top))) {
            // A form of paths (`methods/foo.rs`, `step-*`), or a command.
            if path.contains("foo") || path.contains(['*', ' ', '<', '{']) {
                continue;
            }
            found += 1;
            if !root.join(path).exists() {
                faults.push(format!("{page}: {path} does not exist"));
            }
        }
    }
    assert!(found > 40, "{found} paths: the reader reads nothing");
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
