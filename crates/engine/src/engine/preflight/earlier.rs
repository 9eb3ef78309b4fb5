//! Checks made shortly before a run, as by the wizard: what computed then, of the same spec, data, weights and program, is not
//! computed again at the run's start.

use crate::base::clock::UnixMillis;
use crate::base::digest::hex;
use crate::base::files::{read_plain_text, write_atomic};
use crate::base::finding::{Finding, Status};
use crate::base::paths::Env;
use crate::data::Dataset;
use crate::engine::checkpoint::Fingerprint;
use crate::engine::state::TrainState;
use crate::spec::{RunConfig, RunSpec};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// In the state directory.
const FILE: &str = "preflight.json";
/// Beyond this, checks are made anew: what the key cannot see may have changed.
const FRESH: Duration = Duration::from_secs(15 * 60);

/// The file: the last checks whose results can be used again.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// Of what was checked: [`key`].
    key: String,
    t: UnixMillis,
    findings: Vec<Finding>,
}

/// Results that still hold.
pub struct Earlier {
    findings: Vec<Finding>,
    /// How long ago.
    pub age: Duration,
}

impl Earlier {
    /// What the check of this id found; `None`: it is to be made.
    pub fn of(&self, id: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.id == id)
    }
}

/// Keeps the findings, unless one failed: then something is about to change. If writing fails, the run's start checks again.
pub fn keep(env: &Env, key: String, now: UnixMillis, findings: Vec<Finding>) {
    let Some(folder) = &env.state_dir else { return };
    if findings
        .iter()
        .any(|finding| finding.status == Status::Fail)
    {
        return;
    }
    let kept = Kept {
        key,
        t: now,
        findings,
    };
    if let Ok(text) = serde_json::to_string(&kept) {
        let _ = std::fs::create_dir_all(folder)
            .and_then(|()| write_atomic(&file(folder), text.as_bytes()));
    }
}

/// What was kept under this key within the last quarter of an hour.
pub fn find(env: &Env, key: &str, now: UnixMillis) -> Option<Earlier> {
    let text = read_plain_text(file(env.state_dir.as_ref()?)).ok()?;
    let kept: Kept = serde_json::from_str(&text).ok()?;
    // A clock that was set back since proves no age.
    let age = now.since(kept.t);
    (kept.key == key && now >= kept.t && age < FRESH).then_some(Earlier {
        findings: kept.findings,
        age,
    })
}

fn file(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// A digest of all that the checks that compute depend on; the words by which a run is found again do not count.
/// `None` if the weights cannot be read.
pub fn key(spec: &RunSpec, data: &Dataset, state: &TrainState) -> Option<String> {
    let config: &RunConfig = spec;
    let mut words = serde_json::to_value(config).ok()?;
    for word in ["name", "about", "group"] {
        words.as_object_mut()?.remove(word);
    }
    let models = &state.models;
    let circumstances = Fingerprint::of(spec, data).with(models);
    let parts = [
        words.to_string(),
        serde_json::to_string(&circumstances).ok()?,
        models.policy.base_fingerprint().ok()?,
    ];
    let mut hash = Sha256::new();
    for part in &parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    Some(hex(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fresh_findings_of_the_same_that_all_passed_are_used() {
        let folder = tempfile::tempdir().unwrap();
        let env = Env {
            state_dir: Some(folder.path().join("state")),
            ..Env::default()
        };
        let passed = Finding::pass("memorized in 12 steps").named("overfit", "One batch");
        let begun = UnixMillis(1_000_000);
        let after = |seconds: u64| UnixMillis(begun.0 + 1000 * seconds);
        keep(&env, "a".into(), begun, vec![passed.clone()]);
        let found = find(&env, "a", after(60)).unwrap();
        assert_eq!(found.of("overfit"), Some(&passed));
        assert_eq!((found.of("round_trip"), found.age.as_secs()), (None, 60));
        assert!(find(&env, "b", after(60)).is_none(), "another spec");
        assert!(find(&env, "a", after(901)).is_none(), "too old");
        let before = UnixMillis(begun.0 - 1);
        assert!(find(&env, "a", before).is_none(), "the clock was set back");
        // One that failed leaves what was.
        let failed = Finding::fail("it does not learn", "", "").named("overfit", "One batch");
        keep(&env, "c".into(), begun, vec![failed]);
        assert!(find(&env, "c", begun).is_none() && find(&env, "a", begun).is_some());
    }
}
