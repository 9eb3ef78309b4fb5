//! Every rule has a test.

use super::*;
use std::path::{Path, PathBuf};

/// The text after `#[cfg(test)]` in rule files, and the test files.
fn tests() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [
        "src/diagnosis/tests",
        "src/diagnosis/rules",
        "../../tests/planted",
    ];
    let mut files: Vec<PathBuf> = [
        "src/diagnosis/answer_tests.rs",
        "src/diagnosis/tests.rs",
        "../engine/src/engine/tests/rescue.rs",
    ]
    .map(|name| root.join(name))
    .into();
    for folder in folders {
        let entries = std::fs::read_dir(root.join(folder)).unwrap();
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    let of_tests = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        match path
            .parent()
            .is_some_and(|folder| folder.ends_with("rules"))
        {
            true => text
                .split_once("#[cfg(test)]")
                .map_or(String::new(), |(_, tests)| tests.into()),
            false => text,
        }
    };
    files.iter().map(of_tests).collect()
}

#[test]
fn every_rule_is_expected_by_a_test_or_a_planted_fault() {
    let tests = tests();
    let without: Vec<&str> = RULES
        .iter()
        .map(|rule| rule.entry.id)
        .filter(|id| !tests.contains(&format!("\"{id}\"")))
        .collect();
    assert_eq!(without, Vec::<&str>::new());
}
