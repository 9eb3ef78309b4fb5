//! Checkpoints of a run that other runs in its directory depend on: these read them again at a resume, so retention keeps
//! them. Dependents elsewhere are not known here.

use crate::base::files::read_plain_text;
use crate::models::{self, MAX_ADAPTERS};
use crate::run::RunDir;
use crate::spec::{RunSpec, yaml};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Steps of `run` whose checkpoints another run beside it begins from, judges by, or has under its adapter.
pub fn by_other_runs(run: &RunDir) -> BTreeSet<u64> {
    let own = run.path().canonicalize().ok();
    let Some(beside) = run.path().parent() else {
        return BTreeSet::new();
    };
    let entries = std::fs::read_dir(beside).into_iter().flatten().flatten();
    let others = entries.filter(|entry| entry.path().canonicalize().ok() != own);
    let texts = others.filter_map(|entry| read_plain_text(entry.path().join("spec.yaml")).ok());
    let named: BTreeSet<PathBuf> = texts.flat_map(|text| named_by(&text)).collect();
    let of_this = |step: &u64| {
        let folder = run.checkpoints_path().join(super::name_of(*step));
        is_needed(&folder, &named)
    };
    let all = super::store::every(&run.checkpoints_path());
    all.into_iter()
        .map(|found| found.step)
        .filter(of_this)
        .collect()
}

/// What is there of the paths that a spec names, and what the adapters among them stand on. Of a spec that this program does not
/// understand, such as one of a later version, all that may be a path.
pub fn named_by(spec: &str) -> Vec<PathBuf> {
    let named = match RunSpec::from_yaml(spec) {
        Ok(spec) => spec.paths(),
        Err(_) => {
            let mut found = Vec::new();
            texts(&yaml::parse(spec).unwrap_or_default(), &mut found);
            found
        }
    };
    let chains = named.iter().flat_map(|path| chain(path));
    chains.filter_map(|path| path.canonicalize().ok()).collect()
}

/// Whether a checkpoint is among these, or a file in it, such as its tokenizer.
pub fn is_needed(checkpoint: &Path, named: &BTreeSet<PathBuf>) -> bool {
    let real = checkpoint.canonicalize();
    real.is_ok_and(|real| named.iter().any(|path| path.starts_with(&real)))
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
fn chain(path: &Path) -> Vec<PathBuf> {
    let mut all = vec![path.to_path_buf()];
    while all.len() <= MAX_ADAPTERS
        && let Some(under) = all.last().and_then(|top| models::under(top))
    {
        all.push(under);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_spec_that_cannot_be_read_all_that_may_be_a_path_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a/step-000030", "b/step-000010"].map(|name| dir.path().join(name));
        for folder in [&a, &b] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let text = format!(
            "train:\n  from: {:?}\nof_later: [{}, gone]\nx: 1\n",
            a,
            b.display()
        );
        let named: BTreeSet<PathBuf> = named_by(&text).into_iter().collect();
        assert!(is_needed(&a, &named) && is_needed(&b, &named));
        assert!(!is_needed(dir.path().join("c").as_path(), &named));
    }
}
