//! Specs as users write them, right and wrong: each wrong one must get a helpful message.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod context;
mod layers;
mod models;
mod words;
mod written;
mod wrong;

use llmtui::spec::{self, SpecErrors, SpecSources};
use std::fs;

fn nowhere() -> (tempfile::TempDir, SpecSources) {
    let dir = tempfile::tempdir().unwrap();
    let sources = SpecSources {
        config_dir: None,
        project_dir: dir.path().to_path_buf(),
        ..SpecSources::default()
    };
    (dir, sources)
}

fn set(words: &[&str]) -> Result<spec::Loaded, SpecErrors> {
    let (_dir, sources) = nowhere();
    let words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
    spec::load("quickstart", &words, &sources)
}

fn file(text: &str) -> Result<spec::Loaded, SpecErrors> {
    let (dir, sources) = nowhere();
    fs::write(dir.path().join("my.yaml"), text).unwrap();
    spec::load("my.yaml", &[], &sources)
}
