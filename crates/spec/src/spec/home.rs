//! `~` at the beginning of a spec's paths, which is the user's home: after all layers are merged and before anything is
//! looked up, so that presets, files and `-s` are read alike. What was asked for keeps its `~`.

use super::issue::{Issue, Origin};
use super::merge::Merged;
use super::presets::SpecSources;
use super::{RunConfig, config_paths};
use crate::base::paths::{NOT_UTF8, check_utf8, expand_home};
use crate::base::text::shown;
use serde_json::Value;
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// A path of a spec as it is looked up; one that cannot be expanded stays, and is reported with all paths.
pub(super) fn expanded(said: &Path, sources: &SpecSources) -> PathBuf {
    let full = expand_home(said, &sources.project_dir, sources.home.as_deref());
    full.unwrap_or_else(|_| said.to_path_buf())
}

/// Expands every path of a config.
pub(super) fn expand(
    config: RunConfig,
    merged: &Merged,
    sources: &SpecSources,
    issues: &mut Vec<Issue>,
) -> RunConfig {
    let faults = RefCell::new(Vec::new());
    let whole = |said: &Path| {
        let full = expand_home(said, &sources.project_dir, sources.home.as_deref());
        let full = full.and_then(|full| match expressible(said, &full, sources) {
            true => Ok(full),
            false => Err((
                format!("{}: {NOT_UTF8}", shown(said)),
                "rename the folder".into(),
            )),
        });
        full.unwrap_or_else(|fault| {
            faults.borrow_mut().push((said.to_path_buf(), fault));
            said.to_path_buf()
        })
    };
    let config = config_paths::paths(config, &whole);
    for (said, (what, hint)) in faults.into_inner() {
        let path = place_of(&merged.value, &said.to_string_lossy(), String::new());
        let path = path.unwrap_or_default();
        let issue = Issue {
            origin: match path.as_str() {
                "" => Origin::Default,
                path => merged.origins.nearest(path),
            },
            path,
            what,
            hint,
        };
        if !issues.contains(&issue) {
            issues.push(issue);
        }
    }
    config
}

/// Whether a run's spec can name it, as a whole path of characters. What is empty, or no file (the name of a template), is no path.
fn expressible(said: &Path, full: &Path, sources: &SpecSources) -> bool {
    let full = sources.project_dir.join(full);
    said.as_os_str().is_empty() || !full.exists() || check_utf8(&full).is_ok()
}

/// The key whose value begins with a text; a list counts as one value, as it does for origins.
fn place_of(value: &Value, said: &str, path: String) -> Option<String> {
    let below = |key: &str| match path.as_str() {
        "" => key.to_string(),
        path => format!("{path}.{key}"),
    };
    match value {
        Value::String(text) => text.trim_start().starts_with(said).then_some(path),
        Value::Array(list) => {
            let mut found = list.iter().map(|v| place_of(v, said, String::new()));
            found.any(|place| place.is_some()).then_some(path)
        }
        Value::Object(map) => map
            .iter()
            .find_map(|(key, value)| place_of(value, said, below(key))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::load;
    use std::os::unix::ffi::OsStrExt;

    /// They were looked for under the replacement character, and did not exist.
    #[test]
    fn paths_below_a_folder_whose_name_is_not_utf8_are_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join(std::ffi::OsStr::from_bytes(b"sp \xff"));
        std::fs::create_dir(&odd).unwrap();
        std::fs::write(odd.join("a.txt"), "words ".repeat(100)).unwrap();
        let sources = SpecSources {
            project_dir: odd,
            ..SpecSources::default()
        };
        let words = ["data.path=a.txt".to_string()];
        let refused = load("quickstart", &words, &sources)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("not UTF-8"), "{refused}");
        assert!(refused.contains("data.path"), "{refused}");
        // What names no file of it is as good there as anywhere.
        load("quickstart", &[], &sources).unwrap();
    }
}
