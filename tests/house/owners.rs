//! Which rooms may use which heavy crate.

use crate::arrows::group_heads;
use crate::sources::sources;

/// Heavy crate → where it may be used (path prefixes, from the room on).
pub const OWNERS: &[(&str, &[&str])] = &[
    ("crossterm", &["ui/"]),
    ("ratatui", &["ui/"]),
    ("tokio", &["ui/", "link/", "cli/"]),
    ("axum", &["cli/serve/"]),
    ("serde_yaml", &["spec/yaml.rs"]),
    ("clap", &["cli/", "main.rs"]),
    ("anyhow", &["cli/", "ui/runtime", "main.rs"]),
    ("sysinfo", &["hardware/"]),
    ("nvml_wrapper", &["hardware/nvml.rs"]),
    ("gemm", &["kernels/"]),
    (
        "candle_core",
        &[
            "kernels/",
            "nn/",
            "optim/",
            "hf/",
            "llama_cpp/",
            "merging/",
            "methods/",
            "probes/",
            "engine/",
            "cli/bench",
        ],
    ),
    ("candle_nn", &["kernels/"]),
    ("tokenizers", &["data/"]),
    ("minijinja", &["data/chat/"]),
    ("parquet", &["data/source/"]),
    ("ureq", &["hub/"]),
    ("llguidance", &["engine/infer/form.rs"]),
];

fn names_crate(code: &str, name: &str) -> bool {
    // A module of ours may have a crate's name: `kernels::gemm`, alone or in a group.
    let own = code.match_indices("kernels::{").any(|(at, open)| {
        let heads = group_heads(&code[at + open.len()..]);
        heads.iter().any(|head| head == name)
    });
    !own && code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = &code[at + name.len()..];
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '"')
            && !code[..at].ends_with("kernels::")
            && (after.starts_with("::") || (after.starts_with(';') && code[..at].ends_with("use ")))
    })
}

#[test]
fn heavy_crates_have_one_owner() {
    let faults: Vec<String> = sources()
        .iter()
        .flat_map(|source| {
            OWNERS
                .iter()
                .filter(|(name, owners)| {
                    names_crate(&source.code, name)
                        && !owners.iter().any(|owner| source.path.starts_with(owner))
                })
                .map(|(name, owners)| {
                    format!(
                        "{}: only {owners:?} may name the crate `{name}`",
                        source.file
                    )
                })
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn crate_names_match_as_whole_words() {
    assert!(names_crate("use tokio::sync;", "tokio") && !names_crate("my_tokio::x", "tokio"));
}
