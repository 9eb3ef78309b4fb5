//! Everything that is offered for rows of a kind is checked against the loader: a method that the engine then refuses must
//! not be advised.

use super::*;
use crate::advisor::inspection;
use crate::data::DataEnv;
use crate::spec::{SpecSources, load};
use std::collections::BTreeSet;

/// A file of each kind, as people have them.
const FILES: [(DataKind, &str, &[&str]); 9] = [
    (
        DataKind::Text,
        "text",
        &[r#"{"text": "a text with number N"}"#],
    ),
    (
        DataKind::Demos,
        "demos",
        &[r#"{"prompt": "say N: ", "completion": "yes N"}"#],
    ),
    (
        DataKind::Demos,
        "alpaca",
        &[r#"{"instruction": "say N", "input": "", "output": "yes N"}"#],
    ),
    (
        DataKind::Demos,
        "chats",
        &[
            r#"{"messages": [{"role": "user", "content": "say N"}, {"role": "assistant", "content": "yes N"}]}"#,
        ],
    ),
    (
        DataKind::Pairs,
        "pairs",
        &[r#"{"prompt": "say N: ", "chosen": "yes N", "rejected": "no N"}"#],
    ),
    (
        DataKind::Pairs,
        "sharegpt-pairs",
        &[
            r#"{"conversations": [{"from": "human", "value": "say N"}], "chosen": {"from": "gpt", "value": "yes N"}, "rejected": {"from": "gpt", "value": "no N"}}"#,
        ],
    ),
    (
        DataKind::Thumbs,
        "thumbs",
        &[
            r#"{"prompt": "say N: ", "completion": "yes N", "label": true}"#,
            r#"{"prompt": "say N: ", "completion": "no N", "label": false}"#,
        ],
    ),
    (
        DataKind::Thumbs,
        "kto-chats",
        &[
            r#"{"messages": [{"role": "user", "content": "say N"}, {"role": "assistant", "content": "yes N"}], "label": true}"#,
            r#"{"messages": [{"role": "user", "content": "say N"}, {"role": "assistant", "content": "no N"}], "label": false}"#,
        ],
    ),
    (DataKind::Prompts, "prompts", &[r#"{"prompt": "say N: "}"#]),
];

/// The methods that some input with data of this kind is offered.
fn offered(kind: DataKind) -> BTreeSet<&'static str> {
    let inputs = super::tests::every_input().filter(|inputs| inputs.data == kind);
    let offers = inputs.flat_map(|inputs| advise(&inputs));
    offers
        .filter(|advice| advice.available && advice.verdict != Verdict::Unfit)
        .map(|advice| advice.facts.spec_word)
        .collect()
}

#[test]
fn every_method_that_is_offered_for_rows_can_read_them() {
    let dir = tempfile::tempdir().unwrap();
    for (kind, name, rows) in FILES {
        let path = dir.path().join(name).with_extension("jsonl");
        let lines = (1..=80).map(|n| rows[n % rows.len()].replace('N', &n.to_string()));
        std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
        assert_eq!(inspection::data(&path).unwrap().kind, kind, "{name}");
        let methods = offered(kind);
        assert!(!methods.is_empty());
        for method in methods {
            // Rewards are the wizard's question, not that of the rows.
            let rewards = "rewards=[{tags: {}}]".to_string();
            let mut words = vec![
                format!("method={method}"),
                format!("data.path={}", path.display()),
                "data.val_fraction=0.2".into(),
                "data.cache=off".into(),
                "train.micro_batch_size=8".into(),
            ];
            let answers = ["grpo", "rloo", "ppo"].contains(&method);
            words.push(format!("model.seq_len={}", if answers { 512 } else { 128 }));
            if answers {
                words.push(rewards);
            }
            if method == "distill" {
                let to_come = crate::models::TO_COME;
                words.push(format!("method.distill.teacher={to_come}"));
            }
            let spec = load("quickstart", &words, &SpecSources::default());
            let spec = spec
                .unwrap_or_else(|e| panic!("{name}, {method}: {e}"))
                .spec;
            let data = spec.open_data(&DataEnv::default());
            if let Err(error) = data {
                panic!("{method} is offered for {name}: {error}; {}", error.hint());
            }
        }
    }
}
