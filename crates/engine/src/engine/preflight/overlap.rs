//! No passage of the validation split occurs in the training split: otherwise validation measures memorization.

use super::{Check, Finding, Subject};
use crate::base::human::percent;
use crate::base::ssh::shell_quote;
use crate::base::text::shown;
use crate::data::{DataConfig, Dataset};
use crate::engine::EngineError;
use std::collections::HashMap;

pub const CHECK: Check = Check {
    id: "overlap",
    title: "No validation text in the training text",
    computes: false,
    run,
};

/// Length of a passage in bytes of text, about one line: shorter ones repeat by themselves.
const PASSAGE_BYTES: f64 = 64.0;
/// Tokens of each split that are compared, of documents: as much as a second or two allow.
const SAMPLE: usize = 16 << 20;
/// Bytes per token if they were not counted: about those of English with a subword tokenizer.
const TYPICAL_BYTES: f64 = 4.0;
/// Shares of passages found in training at which we warn and fail. Natural text repeats itself a little.
const WARN: f64 = 0.01;
const FAIL: f64 = 0.10;
/// Fewest of them that fail: of 17 rows two are 12 %, and may be chance.
const FEWEST: u64 = 3;

fn run(subject: &mut Subject<'_>) -> Result<Finding, EngineError> {
    Ok(overlap(&subject.spec.data, subject.data))
}

/// What the check finds in data that are open: nothing is computed, so a dry run shows it too.
pub fn overlap(config: &DataConfig, data: &Dataset) -> Finding {
    if let Some((found, of)) = data.repeated() {
        let evidence = format!(
            "{found} of {of} validation examples are also in the training split, word for word"
        );
        return rate(found, of, evidence, &repair(config));
    }
    let bytes_per_token = data.val_bytes_per_token().unwrap_or(TYPICAL_BYTES);
    let n = (PASSAGE_BYTES / bytes_per_token).ceil().max(8.0) as usize;
    let (train, val) = (data.train_sample(SAMPLE), data.val_sample(SAMPLE));
    judge(&train, &val, n)
}

fn judge(train: &[u32], val: &[u32], n: usize) -> Finding {
    if val.len() < n || train.len() < n {
        return Finding::unknown(
            format!("a split is shorter than one passage of {n} tokens"),
            "more text makes validation more meaningful",
        );
    }
    let passages = val.len() / n;
    let found = seen_in(train, val, n);
    let share = found as f64 / passages as f64;
    let evidence = format!(
        "{found} of {passages} validation passages of {n} tokens are also in the training text ({})",
        percent(share, 1)
    );
    let fix = "remove duplicates from the text, or hold out a part that does not occur in the rest";
    rate(found as u64, passages as u64, evidence, fix)
}

/// What takes repeated documents out.
fn repair(data: &DataConfig) -> String {
    match (&data.path, &data.val_path) {
        (Some(path), None) => format!(
            "`llmtui data clean {} --drop duplicates --out FILE`, then train on that file",
            shell_quote(&shown(path))
        ),
        (_, Some(_)) => "remove the rows of the validation file from the training file".into(),
        _ => "remove duplicates with `llmtui data clean FILE --drop duplicates --out FILE`".into(),
    }
}

fn rate(found: u64, of: u64, evidence: String, fix: &str) -> Finding {
    let cause = "validation loss will look better than it is";
    let share = found as f64 / of.max(1) as f64;
    match share {
        s if s >= FAIL && found >= FEWEST => Finding::fail(evidence, cause, fix),
        s if s >= WARN => Finding::warn(evidence, cause, fix),
        _ => Finding::pass(evidence),
    }
}

/// How many of the disjoint n-token passages of `val` occur anywhere in `train` (Rabin–Karp, hits compared in full).
fn seen_in(train: &[u32], val: &[u32], n: usize) -> usize {
    const BASE: u64 = 0x9E37_79B9_7F4A_7C15;
    let push = |hash: u64, token: u32| hash.wrapping_mul(BASE).wrapping_add(u64::from(token) + 1);
    let mut wanted: HashMap<u64, (&[u32], usize)> = HashMap::new();
    for passage in val.chunks_exact(n) {
        let hash = passage.iter().fold(0, |h, t| push(h, *t));
        wanted.entry(hash).or_insert((passage, 0)).1 += 1;
    }
    let leading = (0..n).fold(1u64, |p, _| p.wrapping_mul(BASE));
    let mut hash = train[..n - 1].iter().fold(0, |h, t| push(h, *t));
    let mut found = 0;
    for end in n..=train.len() {
        hash = push(hash, train[end - 1]);
        if end > n {
            let gone = u64::from(train[end - 1 - n]) + 1;
            hash = hash.wrapping_sub(gone.wrapping_mul(leading));
        }
        if let Some((passage, count)) = wanted.get(&hash).copied()
            && *passage == train[end - n..end]
        {
            found += count;
            wanted.remove(&hash);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;
    use crate::base::rng::{Rng, Stream};

    fn text(lane: u32, len: usize) -> Vec<u32> {
        let mut rng = Rng::new(1, Stream::Test, 0, lane);
        (0..len).map(|_| rng.below(65) as u32).collect()
    }

    #[test]
    fn a_cut_at_a_boundary_passes_and_a_copy_fails() {
        let (train, val) = (text(0, 9000), text(1, 1000));
        assert_eq!(judge(&train, &val, 64).status, Status::Pass);
        let mut leaky = train.clone();
        leaky.splice(3000..3000, val.iter().copied());
        let verdict = judge(&leaky, &val, 64);
        assert_eq!(verdict.status, Status::Fail);
        assert!(
            verdict.evidence.to_string().starts_with("15 of 15"),
            "{}",
            verdict.evidence
        );
    }

    #[test]
    fn two_rows_of_a_few_warn_and_a_copy_of_a_few_fails() {
        let status = |found, of| rate(found, of, String::new(), "").status;
        for (found, of) in [(2, 17), (1, 1), (2, 2), (1, 100), (9, 100)] {
            assert_eq!(status(found, of), Status::Warn, "{found} of {of}");
        }
        for (found, of) in [(3, 3), (3, 6), (3, 17), (17, 17), (5, 50), (10, 100)] {
            assert_eq!(status(found, of), Status::Fail, "{found} of {of}");
        }
        assert_eq!(status(0, 17), Status::Pass);
        assert_eq!(status(1, 1000), Status::Pass);
    }

    #[test]
    fn repeated_documents_are_repaired_by_a_command() {
        let config = |value| serde_json::from_value::<DataConfig>(value).unwrap();
        let one = repair(&config(serde_json::json!({"path": "a.jsonl"})));
        assert!(
            one.contains("llmtui data clean a.jsonl --drop duplicates --out FILE"),
            "{one}"
        );
        let spaces = repair(&config(serde_json::json!({"path": "my data/a.jsonl"})));
        assert!(
            spaces.contains("clean 'my data/a.jsonl' --drop"),
            "{spaces}"
        );
        let two = repair(&config(
            serde_json::json!({"path": "a.jsonl", "val_path": "b.jsonl"}),
        ));
        assert!(two.contains("validation file"), "{two}");
    }

    #[test]
    fn single_quotes_warn_and_are_found_at_either_end() {
        let val = text(1, 64 * 50);
        for at in [0, 8936] {
            let mut train = text(0, 9000);
            train[at..at + 64].copy_from_slice(&val[128..192]);
            assert_eq!(seen_in(&train, &val, 64), 1);
            assert_eq!(judge(&train, &val, 64).status, Status::Warn);
        }
        assert_eq!(judge(&val, &val[..10], 64).status, Status::Unknown);
    }
}
