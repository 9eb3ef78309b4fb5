//! Relative paths in a spec file are relative to the file, so that the spec works from every working directory. A path that does not exist
//! there is relative to the working directory, as on the command line.

use super::layer::Setting;
use serde_json::Value;
use std::path::{Component, Path, PathBuf};

/// The settings that hold paths; of lists, the strings in them that look like one.
const PLACES: [&str; 11] = [
    "data.path",
    "data.val_path",
    "data.sources",
    "data.tokenizer.file.path",
    "train.from",
    "health.reference_run",
    "rewards",
    "eval.extra",
    "eval.tasks",
    "method.ppo.critic_from",
    "method.distill.teacher",
];
/// Those that hold a name or a path.
const NAMES: [&str; 2] = ["data.template", "engine.torch.python"];

/// Makes absolute what the settings of a file in `folder` name there.
pub(super) fn anchor(settings: &mut [Setting], folder: &Path) {
    for setting in settings {
        match setting.path.join(".").as_str() {
            path if PLACES.contains(&path) => anchor_value(&mut setting.value, folder),
            path if NAMES.contains(&path) => anchor_item(&mut setting.value, folder),
            _ => {}
        }
    }
}

/// The same for merged values, for a file that is to be read from other folders.
pub(super) fn anchor_all(spec: &mut Value, folder: &Path) {
    for place in PLACES.iter().chain(&NAMES) {
        let pointer = format!("/{}", place.replace('.', "/"));
        match spec.pointer_mut(&pointer) {
            Some(value) if NAMES.contains(place) => anchor_item(value, folder),
            Some(value) => anchor_value(value, folder),
            None => {}
        }
    }
}

fn anchor_value(value: &mut Value, folder: &Path) {
    match value {
        Value::String(text) => {
            if let Some(full) = found(text, folder) {
                *text = full;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| anchor_item(item, folder)),
        _ => {}
    }
}

/// Where names stand too, of rewards, tasks, templates: a path has a separator or an ending.
fn anchor_item(item: &mut Value, folder: &Path) {
    match item {
        Value::String(text) if text.contains(['/', '.']) => {
            // `PATH | SUBSET | WEIGHT`
            let (path, rest) = text.split_at(text.find('|').unwrap_or(text.len()));
            if let Some(full) = found(path.trim(), folder) {
                *text = match rest {
                    "" => full,
                    rest => format!("{full} {rest}"),
                };
            }
        }
        Value::Object(map) => {
            for (key, value) in map.iter_mut().filter(|(key, _)| *key != "hub") {
                match key.as_str() {
                    // Whatever it looks like: `{path: rows}`.
                    "path" => anchor_value(value, folder),
                    _ => anchor_item(value, folder),
                }
            }
        }
        _ => {}
    }
}

/// The whole path of what a relative one names in `folder`; `None` where nothing is there.
fn found(said: &str, folder: &Path) -> Option<String> {
    let path = Path::new(said);
    let relative = path.is_relative() && !said.is_empty() && !said.starts_with('~');
    if !relative || !target_exists(path, folder) {
        return None;
    }
    let full = std::path::absolute(folder.join(path)).ok()?;
    full.to_str().map(String::from)
}

/// Whether a path, or what a pattern has before its first `*`, is in the folder.
fn target_exists(path: &Path, folder: &Path) -> bool {
    let pattern = |part: &Component| part.as_os_str().to_string_lossy().contains(['*', '?', '[']);
    let fixed: PathBuf = path
        .components()
        .take_while(|part| !pattern(part))
        .collect();
    !fixed.as_os_str().is_empty() && folder.join(fixed).exists()
}

#[cfg(test)]
mod tests {
    use crate::spec::{Draft, RunSpec, SpecSources, load};
    use std::path::{Path, PathBuf};

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn a_spec_elsewhere_names_what_lies_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let (work, other) = (dir.path().join("work"), dir.path().join("other"));
        let text = "a text\n".repeat(100);
        write(&other.join("mine.txt"), &text);
        // Of the same name, and not meant.
        write(&work.join("mine.txt"), &text);
        write(&work.join("held/out.txt"), &text);
        let spec = other.join("spec.yaml");
        write(
            &spec,
            "extends: quickstart\ndata:\n  path: mine.txt\n  val_path: held/out.txt\n",
        );
        let sources = SpecSources {
            project_dir: work.clone(),
            ..SpecSources::default()
        };
        let name = spec.to_str().unwrap();
        let loaded = load(name, &[], &sources).unwrap();
        assert_eq!(loaded.spec.data.path, Some(other.join("mine.txt")));
        assert_eq!(loaded.spec.data.val_path, Some(work.join("held/out.txt")));
        // The editor, and with it the wizard and the checks, read the same.
        let draft = Draft::open(name, &sources).unwrap().spec().unwrap();
        assert_eq!(draft.data.path, loaded.spec.data.path);
        // What is typed starts from the working directory.
        let typed = load(name, &["data.path=mine.txt".into()], &sources).unwrap();
        assert_eq!(typed.spec.data.path, Some(work.join("mine.txt")));
        // A run's record of it trains the same data from anywhere.
        let run = dir.path().join("runs/x/asked.yaml");
        write(&run, &typed.asked);
        let again = load(run.to_str().unwrap(), &[], &SpecSources::default()).unwrap();
        assert_eq!(again.spec.data.path, typed.spec.data.path);
        assert_eq!(again.spec.data.val_path, typed.spec.data.val_path);
    }

    /// A setting with a path that [`PLACES`](super::PLACES) does not name would be read from the working directory.
    #[test]
    fn every_path_of_a_spec_is_looked_for_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("it/file.txt"), "a text\n");
        let specs = [
            "data: {path: it, val_path: it/file.txt, tokenizer: {file: {path: it/file.txt}}}",
            "data: {sources: [it/file.txt, {path: it}]}",
            "eval: {extra: [{name: x, source: {path: it}}]}\ntrain: {from: it}\nhealth: {reference_run: it}",
            "method: {distill: {teacher: it}}",
            "method: {ppo: {critic_from: it}}\nrewards: [{model: {path: it/file.txt}}]\nrollout: {max_new_tokens: 8}",
        ];
        for text in specs {
            let mut value = crate::spec::yaml::parse(text).unwrap();
            super::anchor_all(&mut value, dir.path());
            let spec = RunSpec::from_yaml(&crate::spec::yaml::write(&value)).unwrap();
            let named = spec
                .paths()
                .into_iter()
                .filter(|path| path.starts_with("it"));
            assert_eq!(named.collect::<Vec<_>>(), Vec::<PathBuf>::new(), "{text}");
        }
    }

    #[test]
    fn of_lists_only_paths_are_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let row = "{\"text\": \"a row of it\"}\n";
        write(&dir.path().join("rows/a.jsonl"), row);
        write(&dir.path().join("length"), row);
        let mut value = serde_json::json!({
            "data": {"sources": ["rows/a.jsonl | train | 2", {"path": "rows/*.jsonl"}, {"hub": "rows/a.jsonl"}]},
            "rewards": ["length"],
        });
        super::anchor_all(&mut value, dir.path());
        let full = dir.path().join("rows");
        let full = full.display();
        assert_eq!(
            value,
            serde_json::json!({
                "data": {"sources": [
                    format!("{full}/a.jsonl | train | 2"),
                    {"path": format!("{full}/*.jsonl")},
                    {"hub": "rows/a.jsonl"},
                ]},
                "rewards": ["length"],
            })
        );
    }
}
