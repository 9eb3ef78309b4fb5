//! Manifests: a crate's dependencies follow from the imports of its rooms.

use crate::arrows::imported_rooms;
use crate::owners::OWNERS;
use crate::sources::{Source, collect, room, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// `[profile.dev]` is meant for third-party crates: one of ours that it does not list would be optimized, without lines in
/// backtraces.
#[test]
fn every_crate_of_ours_is_listed_in_the_dev_profile() {
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

/// A crate's folder, `.` for the root, and the tables of its manifest.
struct Manifest {
    krate: String,
    dependencies: BTreeSet<String>,
    dev: BTreeSet<String>,
}

fn manifests() -> Vec<Manifest> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = fs::read_dir(root.join("crates")).unwrap();
    let folders = crates.map(|entry| format!("crates/{}", entry.unwrap().file_name().display()));
    let all = folders.chain([".".to_string()]).map(|krate| {
        let text = fs::read_to_string(root.join(&krate).join("Cargo.toml")).unwrap();
        Manifest {
            dependencies: names_of(&text, "[dependencies]"),
            dev: names_of(&text, "[dev-dependencies]"),
            krate,
        }
    });
    all.collect()
}

/// The names of a table, as code spells them.
fn names_of(manifest: &str, table: &str) -> BTreeSet<String> {
    let rows = manifest.lines().skip_while(|line| *line != table).skip(1);
    let rows = rows.take_while(|line| !line.starts_with('['));
    let named = rows.filter_map(|row| Some(row.split_once(" = ")?.0.replace('-', "_")));
    named.collect()
}

fn krate_of(source: &Source) -> &str {
    let krate = source.file.split("/src/").next();
    krate.filter(|k| k.starts_with("crates/")).unwrap_or(".")
}

/// A crate depends exactly on what its rooms import: an unneeded dependency would be compiled before it for nothing.
#[test]
fn crates_depend_on_the_crates_of_the_rooms_that_they_import() {
    let sources = sources();
    let home: BTreeMap<&str, &str> = sources
        .iter()
        .map(|source| (room(&source.path), krate_of(source)))
        .collect();
    let mut faults = Vec::new();
    // The root lists all of them: there their rooms are one crate again.
    for manifest in manifests().iter().filter(|manifest| manifest.krate != ".") {
        let of_crate = sources.iter().filter(|s| krate_of(s) == manifest.krate);
        let drawn: BTreeSet<String> = of_crate
            .flat_map(|source| imported_rooms(&source.code))
            .filter_map(|other| home.get(other.as_str()))
            .filter(|krate| **krate != manifest.krate && **krate != ".")
            .map(|krate| krate.replace("crates/", "llmtui_"))
            .collect();
        let named: BTreeSet<String> = manifest
            .dependencies
            .iter()
            .filter(|name| name.starts_with("llmtui_"))
            .cloned()
            .collect();
        if named != drawn {
            faults.push(format!(
                "{}: depends on {named:?}, imports {drawn:?}",
                manifest.krate
            ));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_dependency_is_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut faults = Vec::new();
    for manifest in manifests() {
        let read = |folders: &[&str]| -> String {
            let mut files: Vec<PathBuf> = Vec::new();
            let folders = folders.iter().map(|f| root.join(&manifest.krate).join(f));
            folders
                .filter(|f| f.is_dir())
                .for_each(|f| collect(&f, &mut files));
            files
                .iter()
                .map(|file| fs::read_to_string(file).unwrap())
                .collect()
        };
        let (code, with_tests) = (read(&["src"]), read(&["src", "tests", "benches"]));
        let unused = |names: &BTreeSet<String>, code: &str| -> Vec<String> {
            let forms = |name: &str| {
                [
                    format!("{name}::"),
                    format!("use {name}"),
                    format!("{name} as "),
                ]
            };
            let used = |name: &&String| forms(name).iter().any(|form| code.contains(form));
            names.iter().filter(|name| !used(name)).cloned().collect()
        };
        for name in unused(&manifest.dependencies, &code) {
            faults.push(format!(
                "{}: [dependencies] names `{name}`, and no source does",
                manifest.krate
            ));
        }
        for name in unused(&manifest.dev, &with_tests) {
            faults.push(format!(
                "{}: [dev-dependencies] names `{name}`, and no test does",
                manifest.krate
            ));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// A screen cannot use tensors through a helper if its crate cannot be linked with them.
#[test]
fn heavy_crates_are_dependencies_only_of_their_owners() {
    let sources = sources();
    let mut faults = Vec::new();
    for manifest in manifests() {
        for (heavy, owners) in OWNERS
            .iter()
            .filter(|(name, _)| manifest.dependencies.contains(*name))
        {
            let owned = |s: &Source| owners.iter().any(|owner| s.path.starts_with(owner));
            if !sources
                .iter()
                .any(|s| krate_of(s) == manifest.krate && owned(s))
            {
                faults.push(format!(
                    "{}: holds no room that may name `{heavy}`",
                    manifest.krate
                ));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
