//! Allowed imports: between rooms, and between the verbs of the command line.

use crate::sources::{CRATES, room, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Room → rooms that it may import. `base` is free to all; a room may always import itself.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("embed", &[]),
    ("wire", &[]),
    ("gguf", &[]),
    ("sandbox", &[]),
    ("kernels", &[]),
    ("run", &["wire"]),
    ("diagnosis", &["run", "wire"]),
    ("watch", &["metrics", "wire"]),
    ("history", &["run", "watch", "wire"]),
    ("workers", &["embed", "hardware"]),
    ("hardware", &["wire"]),
    ("hub", &[]),
    ("nn", &["kernels"]),
    ("optim", &["kernels", "nn"]),
    ("hf", &["nn", "kernels"]),
    ("llama_cpp", &["nn", "kernels", "gguf"]),
    ("merging", &["nn"]),
    ("data", &["embed", "gguf", "hub", "kernels"]),
    ("metrics", &["wire"]),
    ("methods", &["nn", "data", "metrics"]),
    ("rewards", &["models", "sandbox"]),
    ("models", &["nn", "hf", "llama_cpp", "hub", "data", "run"]),
    (
        "probes",
        &["nn", "kernels", "optim", "hf", "metrics", "wire"],
    ),
    (
        "spec",
        &[
            "methods", "rewards", "nn", "optim", "data", "embed", "hf", "hub", "models", "wire",
            "workers",
        ],
    ),
    (
        "tasks",
        &[
            "spec", "data", "models", "nn", "rewards", "embed", "sandbox",
        ],
    ),
    (
        "engine",
        &[
            "tasks",
            "hub",
            "models",
            "spec",
            "methods",
            "rewards",
            "metrics",
            "probes",
            "nn",
            "optim",
            "data",
            "hf",
            "run",
            "diagnosis",
            "wire",
            "kernels",
            "hardware",
            "llama_cpp",
            "merging",
            "workers",
            "gguf",
            "plan",
        ],
    ),
    (
        "plan",
        &[
            "spec", "methods", "models", "nn", "data", "metrics", "run", "hardware",
        ],
    ),
    (
        "advisor",
        &[
            "plan", "spec", "methods", "models", "data", "embed", "hardware",
        ],
    ),
    ("report", &["run", "diagnosis", "tasks", "pipeline", "wire"]),
    (
        "release",
        &[
            "engine", "models", "spec", "data", "hf", "nn", "hub", "wire",
        ],
    ),
    ("pipeline", &["run", "spec", "embed"]),
    (
        "guide",
        &[
            "plan",
            "spec",
            "run",
            "diagnosis",
            "embed",
            "methods",
            "metrics",
            "wire",
        ],
    ),
    ("link", &["run", "wire"]),
    ("fleet", &["spec"]),
    (
        "ui",
        &[
            "link",
            "guide",
            "advisor",
            "run",
            "diagnosis",
            "pipeline",
            "tasks",
            "spec",
            "plan",
            "wire",
            "embed",
            "hardware",
            "data",
            "metrics",
            "watch",
            "fleet",
            "gguf",
        ],
    ),
    (
        "cli",
        &[
            "metrics",
            "ui",
            "link",
            "guide",
            "advisor",
            "engine",
            "tasks",
            "report",
            "release",
            "pipeline",
            "plan",
            "spec",
            "models",
            "methods",
            "rewards",
            "sandbox",
            "probes",
            "nn",
            "optim",
            "data",
            "hf",
            "run",
            "diagnosis",
            "wire",
            "kernels",
            "embed",
            "hardware",
            "watch",
            "history",
            "fleet",
            "workers",
            "hub",
            "llama_cpp",
            "merging",
        ],
    ),
];

/// Rooms imported as `crate::room` or inside `use crate::{…}`, or by the name of a crate that is a room.
pub fn imported_rooms(code: &str) -> Vec<String> {
    let named = |room: &&str| code.contains(&format!("llmtui_{room}::"));
    let crates = CRATES.into_iter().filter(named);
    let mut rooms: Vec<String> = crates.map(String::from).collect();
    for (at, _) in code.match_indices("crate::") {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => rooms.extend(group_heads(group)),
            None => rooms.push(identifier(rest)),
        }
    }
    rooms
}

/// The first word of each top-level item of a `{…}` group.
pub fn group_heads(group: &str) -> Vec<String> {
    let (mut depth, mut heads, mut item) = (0, Vec::new(), String::new());
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => heads.push(std::mem::take(&mut item)),
            _ => item.push(c),
        }
    }
    heads.push(item);
    heads
        .iter()
        .map(|item| identifier(item.trim_start()))
        .filter(|head| !head.is_empty())
        .collect()
}

fn identifier(text: &str) -> String {
    text.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}

#[test]
fn imports_point_down_only() {
    let mut faults = Vec::new();
    for source in sources() {
        let own = room(&source.path);
        if matches!(own, "main" | "lib") {
            continue;
        }
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == own) else {
            faults.push(format!(
                "{}: the room `{own}` is not in the table of tests/house/arrows.rs",
                source.file
            ));
            continue;
        };
        for other in imported_rooms(&source.code) {
            // Within a room that is a crate, `crate::` refers to its own files.
            let own_file = CRATES.contains(&own) && !CRATES.contains(&other.as_str());
            let known = !own_file && MAY_IMPORT.iter().any(|(name, _)| *name == other);
            if known && other != own && other != "base" && !allowed.contains(&other.as_str()) {
                faults.push(format!(
                    "{}: `{own}` must not import `{other}`",
                    source.file
                ));
            }
        }
    }
    faults.dedup();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Modules of the same room that a file imports: `super::x`, as deep as the file is, or `crate::room::x`.
fn siblings(path: &str, code: &str) -> Vec<String> {
    let depth = path.matches('/').count() - usize::from(path.ends_with("/mod.rs"));
    let prefixes = ["super::".repeat(depth), format!("crate::{}::", room(path))];
    let mut names = Vec::new();
    for prefix in prefixes {
        for (at, _) in code.match_indices(&prefix) {
            let before = code[..at].chars().next_back();
            let rest = &code[at + prefix.len()..];
            if before.is_some_and(|c| c == ':' || c.is_alphanumeric()) {
                continue;
            }
            match rest.strip_prefix('{') {
                Some(group) => names.extend(group_heads(group)),
                None => names.push(identifier(rest)),
            }
        }
    }
    names
}

/// A verb may use another one, never in a cycle: what two of them share is below both.
#[test]
fn the_verbs_of_the_command_line_have_no_cycles() {
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources() {
        let Some(inner) = source.path.strip_prefix("cli/") else {
            continue;
        };
        let own = room(inner).to_string();
        if own != "mod" {
            let named = siblings(&source.path, &source.code);
            graph.entry(own).or_default().extend(named);
        }
    }
    assert!(
        graph["train"].contains("run_ref"),
        "the reader reads nothing"
    );
    // Leaves are removed first, until nothing is left or only a cycle.
    while let Some(leaf) = graph.iter().find_map(|(module, named)| {
        let free = named.iter().all(|n| n == module || !graph.contains_key(n));
        free.then(|| module.clone())
    }) {
        graph.remove(&leaf);
    }
    let left: Vec<&String> = graph.keys().collect();
    assert!(
        left.is_empty(),
        "these modules of cli hang on a circle: {left:?}"
    );
}

/// An import that is allowed but unused is a permission that nobody decided on.
#[test]
fn every_allowed_import_is_used() {
    let sources = sources();
    let mut faults = Vec::new();
    for (own, allowed) in MAY_IMPORT {
        let of_room = sources.iter().filter(|source| room(&source.path) == *own);
        let drawn: Vec<String> = of_room.flat_map(|s| imported_rooms(&s.code)).collect();
        for other in allowed
            .iter()
            .filter(|other| !drawn.iter().any(|d| d == *other))
        {
            faults.push(format!(
                "`{own}` may import `{other}` and does not: take it out"
            ));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn imports_are_read_from_groups_and_paths() {
    let code = "use crate::base::rng;\nuse crate::{data::DataConfig, nn::{Model, x}, spec};\nlet x = crate::wire::VERSION;";
    assert_eq!(imported_rooms(code), ["base", "data", "nn", "spec", "wire"]);
    assert_eq!(imported_rooms("use llmtui_base::rng::Rng;"), ["base"]);
}
