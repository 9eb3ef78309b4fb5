//! Whether folders of runs and specs are as they were. By names and times alone: nothing is opened, so it can be asked every
//! few seconds.

use super::{JobContext, kept};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Most entries of a folder that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// What is looked at of an entry.
type Stamp = (OsString, Option<SystemTime>);

impl JobContext {
    /// A number for the folders of runs, presets and spec files as they are now.
    pub fn folders(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        // A run's folder changes with its checkpoints and with its end.
        entries(&self.runs_dir, |_| true).hash(&mut hasher);
        let here = &self.sources.project_dir;
        let config = self.sources.config_dir.iter();
        let of = |dir: &PathBuf| [dir.join("presets"), dir.join("pipelines")];
        let own = config.chain([here]).flat_map(of);
        for folder in own.chain([here.clone()]) {
            entries(&folder, is_spec).hash(&mut hasher);
        }
        for path in kept::specs(&self.env) {
            stamp(path.as_os_str(), path.metadata().ok()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

fn is_spec(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ["yaml", "yml", "json"].contains(&ending))
}

fn entries(folder: &Path, wanted: impl Fn(&Path) -> bool) -> BTreeSet<Stamp> {
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let found = found
        .take(MAX_ENTRIES)
        .filter(|entry| wanted(&entry.path()));
    let seen = found.map(|entry| stamp(&entry.file_name(), entry.metadata().ok()));
    seen.collect()
}

fn stamp(name: &std::ffi::OsStr, meta: Option<Metadata>) -> Stamp {
    let changed = meta.and_then(|meta| meta.modified().ok());
    (name.to_os_string(), changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::paths::Env;
    use crate::spec::SpecSources;

    #[test]
    fn runs_and_specs_that_come_and_go_change_the_number() {
        let dir = tempfile::tempdir().unwrap();
        let place = JobContext {
            runs_dir: dir.path().join("runs"),
            env: Env::default(),
            sources: SpecSources {
                project_dir: dir.path().into(),
                ..SpecSources::default()
            },
            hardware: None,
            measure: |_| None,
        };
        let none = place.folders();
        std::fs::create_dir_all(place.runs_dir.join("2026-11-21-1422-a-k3qf")).unwrap();
        let one = place.folders();
        assert_ne!(none, one);
        assert_eq!(one, place.folders());
        // What is no spec is nobody's matter here.
        std::fs::write(dir.path().join("notes.txt"), "").unwrap();
        assert_eq!(one, place.folders());
        let spec = dir.path().join("own.yaml");
        std::fs::write(&spec, "extends: quickstart").unwrap();
        assert_ne!(one, place.folders());
        std::fs::remove_file(spec).unwrap();
        assert_eq!(one, place.folders());
    }
}
