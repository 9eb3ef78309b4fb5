//! Checkpoints of a run that other runs of its runs directory stand on: they read them again at a resume, so retention keeps them.
//! What lies elsewhere, and names one of them, is not known here.

use crate::base::files::read_plain_text;
use crate::data::tokenizer::TokenizerConfig;
use crate::models;
use crate::run::RunDir;
use crate::spec::RunSpec;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Adapters that may stand on each other.
const MAX_ADAPTERS: usize = 8;

/// Steps of `run` whose checkpoints another run beside it begins from, judges by, or has under its adapter.
pub fn by_other_runs(run: &RunDir) -> BTreeSet<u64> {
    let own = run.path().canonicalize().ok();
    let Some(beside) = run.path().parent() else {
        return BTreeSet::new();
    };
    let entries = std::fs::read_dir(beside).into_iter().flatten().flatten();
    let mut named: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let spec = entry.path().join("spec.yaml");
        if entry.path().canonicalize().ok() == own {
            continue;
        }
        let Ok(text) = read_plain_text(&spec) else {
            continue;
        };
        match RunSpec::from_yaml(&text) {
            Ok(spec) => named.extend(model_paths(&spec)),
            // Of another program's version, or edited: paths stand in it all the same.
            Err(_) => named.extend(paths_in(&text)),
        }
    }
    let chains = named.iter().flat_map(|path| chain(path));
    let places: BTreeSet<PathBuf> = chains.filter_map(|path| path.canonicalize().ok()).collect();
    let of_this = |step: &u64| {
        let folder = run.checkpoints_path().join(super::name_of(*step));
        let place = folder.canonicalize();
        place.is_ok_and(|place| places.iter().any(|path| path.starts_with(&place)))
    };
    let all = super::store::list(&run.checkpoints_path());
    all.into_iter()
        .map(|found| found.step)
        .filter(of_this)
        .collect()
}

/// Models and tokenizers that a spec names.
fn model_paths(spec: &RunSpec) -> Vec<PathBuf> {
    let judges = spec.rewards.iter().filter_map(|one| one.reward.model());
    let critic = spec.method.on_policy().and_then(|method| method.critic());
    let critic = critic.and_then(|critic| critic.critic_from.as_deref());
    let tokenizer = match &spec.data.tokenizer {
        TokenizerConfig::File(file) => Some(file.path.as_path()),
        _ => None,
    };
    let from = spec.train.from.as_deref();
    let all = from.into_iter().chain(judges).chain(critic);
    all.chain(tokenizer).map(PathBuf::from).collect()
}

/// Values that look like checkpoints, of a spec that cannot be read.
fn paths_in(text: &str) -> Vec<PathBuf> {
    let plain = |line: &str| {
        let value = line.rsplit_once(": ").map_or(line, |(_, value)| value);
        let value = value
            .trim()
            .trim_matches(['"', '\'', ',', '{', '}', '[', ']']);
        PathBuf::from(value)
    };
    let lines = text.lines().filter(|line| line.contains("/step-"));
    lines.map(plain).collect()
}

/// A model, and what it stands on where it is an adapter alone.
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
    fn of_a_spec_that_cannot_be_read_checkpoints_are_found_by_their_names() {
        let text =
            "train:\n  from: \"/r/a/checkpoints/step-000030\"\nnew: [/r/b/step-000010]\nx: 1\n";
        let found = paths_in(text);
        assert_eq!(found[0], PathBuf::from("/r/a/checkpoints/step-000030"));
        assert_eq!(found[1..], [PathBuf::from("/r/b/step-000010")]);
    }
}
