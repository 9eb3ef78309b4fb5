//! Embeds `presets/`, `pipelines/`, `themes/` and `assets/` as a table of (path, bytes), so that one binary is enough.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = here.join("../..");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut files = Vec::new();
    for folder in ["presets", "pipelines", "themes", "assets"] {
        println!("cargo::rerun-if-changed=../../{folder}");
        collect(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut table = String::from("&[\n");
    for file in &files {
        let name = file
            .strip_prefix(&root)
            .unwrap_or(file)
            .to_string_lossy()
            .replace('\\', "/");
        // By env!, so that the compiler sees it when the checkout has moved or shares its build folder with another.
        let path = format!("/../../{name}");
        writeln!(
            table,
            "    ({name:?}, include_bytes!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?}))),"
        )
        .expect("writing to a string");
    }
    table.push(']');
    // Written to a new file, never in place: build folders may be hard-linked copies of each other.
    let embedded = out.join("embedded.rs");
    let _ = std::fs::remove_file(&embedded);
    std::fs::write(embedded, table)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        // Leftovers of Python next to its sources.
        if path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("__pycache__"))
        {
            continue;
        }
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
