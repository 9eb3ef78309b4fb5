//! Several keys for one setting, and keys without effect: which of several counts, and one line for many that are off.

use super::{KeyOutcome, Line, Reader};

/// Names of one setting, the one that the tool prefers last (Axolotl `core/builders/rl.py`; TRL 0.16 `SFTConfig`).
const PREFERRED: [&str; 3] = ["max_seq_length", "rl_beta", "beta"];

/// Keys that are off are reported one by one up to here.
const FEW: usize = 8;

/// Of the keys of a phase, the one that counts is read last.
pub(super) fn rank(key: &str) -> usize {
    let place = PREFERRED.iter().position(|name| *name == key);
    place.map_or(0, |place| place + 1)
}

/// A key by itself, its value being empty or false.
fn is_off(line: &Line) -> bool {
    let of_no_effect = matches!(line.outcome, KeyOutcome::Needless | KeyOutcome::Unknown);
    let whole = line.theirs.split_once(": ").is_some_and(|(key, value)| {
        let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        key.chars().all(name) && ["null", "false"].contains(&value)
    });
    of_no_effect && whole
}

impl Reader {
    /// A setting takes another value than an earlier key of the file gave it, which is reported there.
    pub(super) fn replaces(&mut self, path: &str, ours: &str, theirs: &str) {
        let begins = format!("{path}: ");
        let is_other = |line: &&mut Line| {
            let is_set = matches!(line.outcome, KeyOutcome::Mapped | KeyOutcome::Differs);
            is_set && line.ours.starts_with(&begins) && line.ours != ours
        };
        // A method that is also a loss is said by two keys, and neither is lost.
        if path == "method" {
            return;
        }
        for line in self.lines.iter_mut().filter(is_other) {
            line.outcome = KeyOutcome::NoEqual;
            line.ours = String::new();
            line.words = format!("{theirs} is taken for {path}: both keys mean it");
        }
    }

    /// A whole dump of a trainer's settings has a hundred that are off.
    pub(super) fn fold_what_is_off(&mut self) {
        let n = self.lines.iter().filter(|line| is_off(line)).count();
        if n <= FEW {
            return;
        }
        self.lines.retain(|line| !is_off(line));
        let words = "empty or off: nothing to carry over";
        let theirs = format!("({n} keys that are null or false)");
        self.line(KeyOutcome::Needless, theirs, "", words);
    }
}
