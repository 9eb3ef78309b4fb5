//! The rules of the house, checked: who may import whom, who owns which heavy crate, how large a file may grow.
//! A rule that is only written down is a wish.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot read the sources has failed"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Room → rooms that it may name. `base` is free to all; a room may always name itself. ARCHITECTURE.md draws this table.
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
    ("workers", &["embed", "hardware"]),
    ("hardware", &["wire"]),
    ("hub", &[]),
    ("nn", &["kernels"]),
    ("optim", &["kernels", "nn"]),
    ("hf", &["nn", "kernels"]),
    ("llama_cpp", &["nn", "kernels", "gguf"]),
    ("data", &["embed", "gguf", "hub", "kernels"]),
    ("metrics", &["wire"]),
    ("methods", &["nn", "data", "metrics"]),
    ("rewards", &["models", "sandbox"]),
    ("models", &["nn", "hf", "llama_cpp", "hub", "data"]),
    (
        "probes",
        &["nn", "kernels", "optim", "hf", "metrics", "wire"],
    ),
    (
        "spec",
        &[
            "methods", "rewards", "nn", "optim", "data", "embed", "hf", "hub", "models", "wire", "workers",
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
            "workers",
            "gguf",
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
        &["plan", "spec", "models", "data", "embed", "hardware"],
    ),
    ("report", &["run", "diagnosis", "tasks", "pipeline", "wire"]),
    (
        "release",
        &[
            "engine", "models", "spec", "data", "hf", "nn", "hub", "wire",
        ],
    ),
    ("pipeline", &["run", "spec", "embed"]),
    ("guide", &["plan", "spec", "run", "diagnosis", "embed"]),
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
            "fleet",
            "workers",
            "hub",
            "llama_cpp",
        ],
    ),
];

/// Heavy crate → where it may be named (path prefixes, from the room on).
const OWNERS: &[(&str, &[&str])] = &[
    ("crossterm", &["ui/"]),
    ("ratatui", &["ui/"]),
    ("tokio", &["ui/", "link/", "cli/"]),
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
];

/// Files of the kernel and of sandboxes, and a folder's descriptor: no user names them.
const READERS: &[&str] = &[
    "base/files.rs",
    "cli/bench/machine.rs",
    "hardware/host/",
    "link/address.rs",
    "sandbox/",
    "workers/group.rs",
];
const READ_PLAIN: &str = "base::files opens plain files alone: a pipe would keep its reader waiting, a device never ends";

/// Pattern → where it may stand, and why nowhere else.
const PATTERNS: &[(&str, &[&str], &str)] = &[
    (
        "println!(",
        &["cli/", "main.rs"],
        "only cli speaks to standard output: a stray print corrupts the screen",
    ),
    (
        "eprintln!(",
        &["cli/", "main.rs"],
        "only cli speaks to standard error: a stray print corrupts the screen",
    ),
    (
        "Color::",
        &["ui/theme"],
        "panes ask the theme for a meaning, never for a colour",
    ),
    (
        "unsafe {",
        &["kernels/", "base/mapped.rs"],
        "unsafe lives in kernels/, and in base/mapped.rs: a memory map cannot be had without, and tokens may be more than memory holds",
    ),
    ("unsafe fn", &["kernels/"], "unsafe lives in kernels/ alone"),
    (
        ".set_symbol(",
        &[],
        "a cell passes control sequences through: draw text by spans",
    ),
    ("fs::read(", READERS, READ_PLAIN),
    ("fs::read_to_string(", READERS, READ_PLAIN),
    (" File::open(", READERS, READ_PLAIN),
    ("fs::File::open(", READERS, READ_PLAIN),
    (
        "from] candle_core::Error",
        &[],
        "with RUST_BACKTRACE its text is a backtrace: keep kernels::errors::error_text of it",
    ),
    ("todo!(", &[], "unfinished code does not land"),
    ("unimplemented!(", &[], "unfinished code does not land"),
];

/// Over this a file is a design fault: a wall is missing.
const MAX_LINES: usize = 700;
const MAX_MEDIAN_LINES: usize = 200;

struct Source {
    /// From the room on, with `/`.
    path: String,
    /// From the repository's root on.
    file: String,
    /// The text up to its unit tests: tests may reach anywhere.
    code: String,
    lines: usize,
    documented: bool,
}

/// Rooms that are crates of their own; every other crate under `crates/` holds rooms as modules.
const CRATES: [&str; 2] = ["base", "kernels"];

fn sources() -> Vec<Source> {
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

/// The text up to `#[cfg(test)] mod … {`; a test module in a file of its own (`mod tests;`) ends nothing.
fn before_inline_tests(text: &str) -> &str {
    const MARK: &str = "#[cfg(test)]\nmod ";
    let inline = |at: &usize| {
        let line = text[at + MARK.len()..].lines().next();
        line.is_some_and(|line| line.trim_end().ends_with('{'))
    };
    let found = text.match_indices(MARK).map(|(at, _)| at).find(inline);
    &text[..found.unwrap_or(text.len())]
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

fn room(path: &str) -> &str {
    path.split('/')
        .next()
        .unwrap_or_default()
        .trim_end_matches(".rs")
}

/// Rooms named as `crate::room` or inside `use crate::{…}`, or by the crate that a room is.
fn imported_rooms(code: &str) -> Vec<String> {
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
fn group_heads(group: &str) -> Vec<String> {
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

fn names_crate(code: &str, name: &str) -> bool {
    // A module of ours may bear a crate's name: `kernels::gemm`, alone or in a group.
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
fn arrows_point_down_only() {
    let mut faults = Vec::new();
    for source in sources() {
        let own = room(&source.path);
        if matches!(own, "main" | "lib") {
            continue;
        }
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == own) else {
            faults.push(format!(
                "{}: the room `{own}` is not in the table of tests/house.rs",
                source.file
            ));
            continue;
        };
        for other in imported_rooms(&source.code) {
            // Within a room that is a crate, `crate::` names its own files.
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

/// Modules of the same room that a file names: `super::x`, as deep as the file lies, or `crate::room::x`.
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

/// A verb may use another one, never in a circle: what two of them share lies below both.
#[test]
fn the_verbs_of_the_command_line_have_no_circles() {
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
    // Leaves go first, until nothing is left or all that is left hangs on a circle.
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

/// An arrow that nobody draws is a permission that nobody decided on.
#[test]
fn every_allowed_arrow_is_drawn() {
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
fn forbidden_words_stay_in_their_rooms() {
    let faults: Vec<String> = sources()
        .iter()
        .flat_map(|source| {
            PATTERNS
                .iter()
                .filter(|(pattern, owners, _)| {
                    source.code.contains(pattern)
                        && !owners.iter().any(|owner| source.path.starts_with(owner))
                })
                .map(|(pattern, _, why)| format!("{}: `{pattern}`: {why}", source.file))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// JSON on a terminal must not steer it, and `serde_json` escapes only the C0 controls.
#[test]
fn the_command_line_prints_json_by_one_door() {
    let raw = [
        "serde_json::to_string",
        "serde_json::to_writer",
        "quiet_json(",
    ];
    let faults: Vec<String> = sources()
        .iter()
        .filter(|source| source.path.starts_with("cli/") && source.path != "cli/out.rs")
        .filter(|source| raw.iter().any(|word| source.code.contains(word)))
        .map(|source| format!("{}: print by out::json or out::json_line", source.file))
        .collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// A file's name may hold control sequences: what is printed goes by `base::text::shown`, what is data is a `String` first.
#[test]
fn paths_are_shown_by_one_door() {
    let mut faults = Vec::new();
    for source in sources() {
        let printed = source.path.starts_with("cli/");
        let code: String = source.code.split_whitespace().collect();
        for (at, display) in code.match_indices(".display()") {
            let data = code[at + display.len()..].starts_with(".to_string()");
            let before = code[..at].trim_end_matches(|c: char| !"&,;".contains(c));
            let wrapped = before.ends_with("one_line(&") && source.path != "base/text.rs";
            if (printed && !data) || wrapped {
                let skip = code[..at].chars().count().saturating_sub(40);
                let place: String = code[..at].chars().skip(skip).collect();
                faults.push(format!(
                    "{}: {place}.display(): say shown(path)",
                    source.file
                ));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn files_stay_small_and_say_what_lives_in_them() {
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

/// A merge that nobody finished: the changelog once had one, and no compiler reads it.
#[test]
fn no_text_holds_the_marks_of_a_conflict() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = Vec::new();
    for folder in [
        "",
        "docs",
        "presets",
        "pipelines",
        "assets/guide",
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

/// ARCHITECTURE.md says in which crate a room lives.
#[test]
fn the_table_of_crates_names_every_room_beside_its_crate() {
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

#[test]
fn the_reader_of_imports_sees_groups_and_paths() {
    let code = "use crate::base::rng;\nuse crate::{data::DataConfig, nn::{Model, x}, spec};\nlet x = crate::wire::VERSION;";
    assert_eq!(imported_rooms(code), ["base", "data", "nn", "spec", "wire"]);
    assert_eq!(imported_rooms("use llmtui_base::rng::Rng;"), ["base"]);
    assert!(names_crate("use tokio::sync;", "tokio") && !names_crate("my_tokio::x", "tokio"));
}

/// What `[profile.dev]` says is for the crates of others: one of ours that it does not name would be optimized, without lines in backtraces.
#[test]
fn every_crate_of_ours_is_named_in_the_profile_of_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, profile) = manifest.split_once("[profile.dev.package]").unwrap();
    let profile = profile.split("\n[").next().unwrap();
    let crates = fs::read_dir(root.join("crates")).unwrap();
    let names = crates.map(|e| format!("llmtui-{}", e.unwrap().file_name().display()));
    for name in names.chain(["llmtui".into()]) {
        let row = |line: &str| {
            line.starts_with(&format!("{name} = {{ opt-level")) && line.contains("line-tables-only")
        };
        assert!(
            profile.lines().any(row),
            "Cargo.toml, [profile.dev.package]: `{name}` is missing"
        );
    }
}
