//! Checkpoints of a run that other runs in its directory depend on: these read them again at a resume, so retention keeps
//! them. Dependents elsewhere are not known here. What cannot be read may depend on anything: it is an error, never "nothing".

use crate::base::files::{is_absent, read_plain_text};
use crate::base::text::shown;
use crate::models::{self, MAX_ADAPTERS};
use crate::run::RunDir;
use crate::spec::{RunSpec, yaml};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// What to do about a spec that [`by_other_runs`] cannot read.
pub const UNREADABLE_FIX: &str =
    "make that file readable, or delete its run if it is not needed: llmtui rm RUN";

/// Steps of `run` whose checkpoints another run beside it begins from, judges by, or has under its adapter.
///
/// # Errors
/// A neighbour's spec is there and cannot be read: it may need any of them. The message names the file.
pub fn by_other_runs(run: &RunDir) -> io::Result<BTreeSet<u64>> {
    let Some(beside) = run.path().parent() else {
        return Ok(BTreeSet::new());
    };
    let own = run.path().canonicalize();
    let entries = std::fs::read_dir(beside).map_err(|error| at(beside, &error))?;
    let mut named = BTreeSet::new();
    for entry in entries {
        let other = entry.map_err(|error| at(beside, &error))?.path();
        let is_own = matches!((&own, other.canonicalize()), (Ok(own), Ok(other)) if *own == other);
        if !is_own {
            named.extend(named_in(&other.join("spec.yaml"))?);
        }
    }
    let of_this = |step: &u64| {
        let folder = run.checkpoints_path().join(super::name_of(*step));
        is_needed(&folder, &named)
    };
    let all = super::store::every(&run.checkpoints_path());
    Ok(all
        .into_iter()
        .map(|found| found.step)
        .filter(of_this)
        .collect())
}

/// [`named_by`] of a spec's file; none is there: nothing.
///
/// # Errors
/// It is there and cannot be read. The message names it.
pub fn named_in(spec: &Path) -> io::Result<Vec<PathBuf>> {
    match read_plain_text(spec) {
        Ok(text) => named_by(&text).map_err(|error| at(spec, &error)),
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        Err(error) => Err(at(spec, &error)),
    }
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", shown(path)))
}

/// What is there of the paths that a spec names, and what the adapters among them stand on. Of a spec that this program does not
/// understand, such as one of a later version, all that may be a path.
///
/// # Errors
/// It is no YAML, or what it names cannot be looked up.
pub fn named_by(spec: &str) -> io::Result<Vec<PathBuf>> {
    let named = match RunSpec::from_yaml(spec) {
        Ok(spec) => spec.paths(),
        Err(_) => {
            let value = yaml::parse(spec);
            let value = value.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            let mut found = Vec::new();
            texts(&value, &mut found);
            found
        }
    };
    let mut there = Vec::new();
    // No file has a name with a zero in it, which is an error of its own.
    let may_be_there = |path: &&PathBuf| !path.as_os_str().as_encoded_bytes().contains(&0);
    for path in named.iter().filter(may_be_there) {
        for link in chain(path)? {
            match link.canonicalize() {
                Ok(real) => there.push(real),
                Err(error) if is_absent(&error) => {}
                // A folder of somebody else; that of a run is readable to whom its checkpoints belong.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    there.push(std::path::absolute(&link)?);
                }
                Err(error) => return Err(at(&link, &error)),
            }
        }
    }
    Ok(there)
}

/// Whether a checkpoint is among these, or a file in it, such as its tokenizer. One that cannot be looked up may be.
pub fn is_needed(checkpoint: &Path, named: &BTreeSet<PathBuf>) -> bool {
    match checkpoint.canonicalize() {
        Ok(real) => named.iter().any(|path| path.starts_with(&real)),
        Err(error) => !is_absent(&error),
    }
}

/// All texts in a value.
fn texts(value: &Value, found: &mut Vec<PathBuf>) {
    match value {
        Value::String(text) => found.push(text.into()),
        Value::Array(values) => values.iter().for_each(|value| texts(value, found)),
        Value::Object(map) => map.values().for_each(|value| texts(value, found)),
        _ => {}
    }
}

/// A model, and its base if it is an adapter alone.
fn chain(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = vec![path.to_path_buf()];
    while all.len() <= MAX_ADAPTERS
        && let Some(top) = all.last()
        && let Some(under) = models::find_under(top).map_err(|error| at(top, &error))?
    {
        all.push(under);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;

    #[test]
    fn of_a_spec_that_cannot_be_read_all_that_may_be_a_path_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a/step-000030", "b/step-000010"].map(|name| dir.path().join(name));
        for folder in [&a, &b] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let text = format!(
            "train:\n  from: {:?}\nof_later: [{}, gone, {}]\nx: 1\n",
            a,
            b.display(),
            "long".repeat(2_000)
        );
        let named: BTreeSet<PathBuf> = named_by(&text).unwrap().into_iter().collect();
        assert!(is_needed(&a, &named) && is_needed(&b, &named));
        assert!(!is_needed(dir.path().join("c").as_path(), &named));
    }

    /// `gc` offered the checkpoint that a run began from when that run's spec could not be read.
    #[test]
    fn a_neighbour_whose_spec_cannot_be_read_needs_everything() {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::new();
        let made = RunDir::create(dir.path(), "alpha", "{}", "", &clock).unwrap();
        let folder = made.checkpoints_path().join("step-000005");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("manifest.json"), "{}").unwrap();
        let spec = format!("train: {{from: {}}}", folder.display());
        let beta = RunDir::create(dir.path(), "beta", &spec, "", &clock).unwrap();
        // Neither a run nor a spec.
        std::fs::create_dir(dir.path().join("notes")).unwrap();
        std::fs::write(dir.path().join("a file"), "").unwrap();
        assert_eq!(by_other_runs(&made).unwrap(), BTreeSet::from([5]));

        std::fs::write(beta.spec_path(), "train: {from: [").unwrap();
        let why = by_other_runs(&made).unwrap_err().to_string();
        assert!(
            why.contains("spec.yaml") && why.contains(&beta.folder()),
            "{why}"
        );
        // Also to root, who may read any file.
        std::fs::remove_file(beta.spec_path()).unwrap();
        std::fs::create_dir(beta.spec_path()).unwrap();
        let why = by_other_runs(&made).unwrap_err().to_string();
        assert!(why.contains(&beta.folder()), "{why}");
        std::fs::remove_dir(beta.spec_path()).unwrap();
        assert!(by_other_runs(&made).unwrap().is_empty(), "no spec, no need");
    }

    /// The chain below an adapter ends where its file says so, not where it cannot be read.
    #[test]
    fn an_adapter_whose_base_cannot_be_read_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let adapter = dir.path().join("adapter");
        std::fs::create_dir(&adapter).unwrap();
        let text = format!("train: {{from: {}}}", adapter.display());
        assert!(named_by(&text).is_ok(), "a model without adapters");
        std::fs::create_dir(adapter.join("adapter_config.json")).unwrap();
        assert!(named_by(&text).is_err());
    }
}
