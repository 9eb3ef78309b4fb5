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
fn the_table_of_heavy_crates_is_that_of_this_test() {
    let page = include_str!("../../ARCHITECTURE.md");
    let (_, table) = page
        .split_once("| crate | may be named in |\n|---|---|\n")
        .unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let mut drawn = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let crates: Vec<&str> = cells[0].split(", ").collect();
        let rooms: Vec<&str> = cells[1].split('`').skip(1).step_by(2).collect();
        drawn.push((crates, rooms));
    }
    let shown = |heavy: &str| match heavy {
        "candle_core" | "candle_nn" => "candle".to_string(),
        "serde_yaml" => "YAML".to_string(),
        "nvml_wrapper" => "nvml".to_string(),
        other => other.to_string(),
    };
    let mut faults = Vec::new();
    for (crates, rooms) in &drawn {
        let of_row = OWNERS
            .iter()
            .filter(|(heavy, _)| crates.contains(&shown(heavy).as_str()));
        let mut owners: Vec<&str> = of_row
            .flat_map(|(_, owners)| owners.iter())
            .map(|owner| match *owner {
                "main.rs" => owner,
                owner => owner.trim_end_matches('/').trim_end_matches(".rs"),
            })
            .collect();
        owners.sort_unstable();
        owners.dedup();
        let mut rooms = rooms.clone();
        rooms.sort_unstable();
        if owners != rooms {
            faults.push(format!(
                "{crates:?}: ARCHITECTURE.md has {rooms:?}, OWNERS {owners:?}"
            ));
        }
    }
    let missing = OWNERS.iter().map(|(heavy, _)| shown(heavy));
    faults.extend(
        missing
            .filter(|heavy| {
                !drawn
                    .iter()
                    .any(|(crates, _)| crates.contains(&heavy.as_str()))
            })
            .map(|heavy| format!("{heavy} is not in the table of ARCHITECTURE.md")),
    );
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn crate_names_match_as_whole_words() {
    assert!(names_crate("use tokio::sync;", "tokio") && !names_crate("my_tokio::x", "tokio"));
}
