//! Spec files outside the preset folders: distinguishing them from other YAML, and finding those of a folder. Nothing is
//! validated: a faulty spec must still be found to be edited.

use super::base::starts_from;
use super::{alias, import, layer, yaml};
use crate::base::files::read_small_text;
use crate::base::paths::is_yaml;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Largest file that is read, bytes; what YAML may have at most.
const MAX_BYTES: u64 = 1 << 20;
/// Most entries of a folder that are looked at, and most files that are read.
const MAX_ENTRIES: usize = 5_000;
const MAX_READ: usize = 100;

/// A spec in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecFile {
    pub path: PathBuf,
    /// Its `about`, else what it extends; empty where it says neither.
    pub about: String,
    /// A copied template whose model or data are still to be named: as it is it trains a small model, or on made-up rows.
    pub is_unfilled: bool,
}

/// The spec in this file: YAML without `stages`, most of whose keys are settings of a spec.
pub fn spec_file(path: &Path) -> Option<SpecFile> {
    let text = read_small_text(path, MAX_BYTES).ok()?;
    let value = yaml::parse(&text).ok()?;
    let map = value.as_object()?;
    let extends = map.get("extends").and_then(Value::as_str);
    let known = |key: &&String| *key == "extends" || layer::key_is_known(key).is_ok();
    let n_known = map.keys().filter(known).count();
    let is_foreign = import::tool_of(&text).is_some();
    if map.contains_key("stages") || 2 * n_known <= map.len() || is_foreign {
        return None;
    }
    let about = map.get("about").and_then(Value::as_str);
    let about = about.filter(|text| !text.trim().is_empty());
    let parent = extends.map(|parent| format!("extends {parent}"));
    Some(SpecFile {
        path: path.to_path_buf(),
        about: about.map(String::from).or(parent).unwrap_or_default(),
        is_unfilled: is_unfilled(&value),
    })
}

fn is_unfilled(spec: &Value) -> bool {
    let mut settings = Vec::new();
    collect("", spec, &mut settings);
    let starts = settings.iter().any(|(key, _)| starts_from(key));
    let of = |wanted: &str| {
        let is = |key: &str| key == wanted || alias::resolve(key) == Some(wanted);
        settings.iter().find(move |(key, _)| is(key))
    };
    let is_made_up = |source: &Value| source.get("synthetic").is_some();
    let sources = of("data.sources").and_then(|(_, value)| value.as_array());
    let made_up = sources.is_some_and(|sources| sources.iter().all(is_made_up));
    spec.get("group").and_then(Value::as_str) == Some("template")
        && (!starts || (made_up && of("data.path").is_none()))
}

/// Every value that is set, by its dotted path as written.
fn collect<'a>(prefix: &str, value: &'a Value, settings: &mut Vec<(String, &'a Value)>) {
    let Some(map) = value.as_object() else {
        if !value.is_null() {
            settings.push((prefix.into(), value));
        }
        return;
    };
    for (key, value) in map {
        let path = match prefix {
            "" => key.clone(),
            prefix => format!("{prefix}.{key}"),
        };
        collect(&path, value, settings);
    }
}

/// The specs of a folder, last changed first.
pub fn spec_files(folder: &Path) -> Vec<SpecFile> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.take(MAX_ENTRIES).map(|entry| entry.path());
    let yaml = paths.filter(|path| path.to_str().is_some_and(is_yaml));
    let changed = |path: &Path| std::fs::metadata(path).and_then(|meta| meta.modified());
    let mut dated: Vec<(SystemTime, PathBuf)> = yaml
        .map(|path| (changed(&path).unwrap_or(SystemTime::UNIX_EPOCH), path))
        .collect();
    dated.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.cmp(other)));
    let newest = dated.iter().take(MAX_READ);
    newest.filter_map(|(_, path)| spec_file(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_template_is_one_until_it_names_a_model_and_data() {
        let dir = tempfile::tempdir().unwrap();
        let copy = crate::embed::text("presets/sft-lora.yaml").unwrap();
        let is_unfilled = |text: &str| {
            let path = dir.path().join("mine.yaml");
            std::fs::write(&path, text).unwrap();
            spec_file(&path).unwrap().is_unfilled
        };
        assert!(is_unfilled(copy));
        let with_model = copy.replace("\ntrain:\n", "\ntrain:\n  from: model\n");
        assert!(is_unfilled(&with_model), "its rows are made up");
        let with_data = with_model.replace("\ndata:\n", "\ndata:\n  path: rows.jsonl\n");
        assert!(!is_unfilled(&with_data));
        let aliased = copy.replace("\ntrain:\n", "\nbase_model: model\ntrain:\n");
        assert!(is_unfilled(&aliased));
        let aliased = format!("{aliased}\ndataset: rows.jsonl\n");
        assert!(!is_unfilled(&aliased), "by other names of both keys");
        let mixed = "group: template\nmodel_name_or_path: model\ndata:\n  sources:\n    - {synthetic: chats}\n    - {path: rows.jsonl}\n";
        assert!(!is_unfilled(mixed), "a mix of own rows and made-up ones");
        assert!(!is_unfilled("extends: quickstart\nlr: 1e-3\n"));
    }

    #[test]
    fn specs_are_told_from_other_yaml() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("mine.yaml", "extends: quickstart\nname: mine\nlr: 1e-3\n");
        write("own.yml", "about: My own.\nmodel:\n  d_model: 64\n");
        // With a mistake, and still a spec.
        write("typo.yaml", "extends: quickstart\nmax_step: 10\nseed: 1\n");
        write("stages.yaml", "name: two\nabout: Two.\nstages: []\n");
        write("compose.yaml", "name: web\nversion: 3\nservices: {}\n");
        write("broken.yaml", "a: [1\n");
        write("flat.yaml", "micro_batch_size: 2\nlr: 1e-3\n");
        // Another tool's, with more keys that are ours than others.
        write(
            "axolotl.yml",
            "base_model: a/b\ndatasets: []\nlearning_rate: 1e-4\nseed: 1\nmax_steps: 3\n",
        );
        write("empty.yaml", "");
        write("list.yaml", "- 1\n");
        write("notes.txt", "extends: quickstart\n");
        let mut found = spec_files(dir.path());
        found.sort_by(|a, b| a.path.cmp(&b.path));
        let told: Vec<(String, &str)> = found
            .iter()
            .map(|spec| {
                let name = spec.path.file_name().unwrap().to_string_lossy();
                (name.into_owned(), spec.about.as_str())
            })
            .collect();
        assert_eq!(
            told,
            [
                ("flat.yaml".into(), ""),
                ("mine.yaml".into(), "extends quickstart"),
                ("own.yml".into(), "My own."),
                ("typo.yaml".into(), "extends quickstart"),
            ]
        );
        assert_eq!(spec_files(&dir.path().join("nothing")), []);
    }
}
