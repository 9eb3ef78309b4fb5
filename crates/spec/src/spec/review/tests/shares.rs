//! What ranks share, and the share of the distribution that completions are sampled from.

use super::*;

#[test]
fn completions_of_a_truncated_distribution_are_told_of() {
    let told = |preset: &str, words: &[&str]| -> Vec<String> {
        let found = said(preset, words, Sizes::default()).into_iter();
        let found = found.filter(|f| f.evidence.to_string().contains("never sampled"));
        found.flat_map(|f| f.changes()).collect()
    };
    let both = ["rollout.top_k=50", "rollout.top_p=0.9"];
    let changes = told("grpo-sort", &both);
    assert_eq!(changes, ["rollout.top_k=0", "rollout.top_p=1"]);
    assert!(told("grpo-sort", &["rollout.top_k=0", "rollout.top_p=1"]).is_empty());
    assert!(told("quickstart", &both).is_empty());
}

#[test]
fn rows_that_ranks_cannot_share_are_wasted_work() {
    let told = |rows: &str, ranks: u64| {
        let sizes = Sizes {
            ranks: Some(ranks),
            ..KNOWN
        };
        let rows = format!("train.micro_batch_size={rows}");
        let found = said("quickstart", &["engine=torch", &rows], sizes);
        let found = found.into_iter().find(|f| f.fix.contains("fewer ranks"));
        found.map(|f| (f.evidence.to_string(), f.changes()))
    };
    let (words, changes) = told("12", 8).unwrap();
    assert!(
        words.contains("12 over 8: 2 ranks get none, 25 %"),
        "{words}"
    );
    assert_eq!(changes, ["train.micro_batch_size=16"]);
    assert_eq!(told("16", 8), None);
    assert_eq!(told("5", 1), None);
}
