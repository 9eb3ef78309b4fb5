//! Two keys for one setting, secrets, and dumps of every setting.

use super::*;

#[test]
fn of_two_keys_for_one_setting_the_one_that_does_not_count_says_so() {
    for (text, path, wanted, loser, winner) in [
        (
            "base_model: m\nsequence_len: 64\nrl: dpo\nrl_beta: 0.2\ndpo_beta: 0.1\n",
            "method.dpo.beta",
            0.2,
            "dpo_beta",
            "rl_beta: 0.2",
        ),
        (
            "dataset_name: d\nmax_seq_length: 64\nmax_length: 128\n",
            "model.seq_len",
            64.0,
            "max_length",
            "max_seq_length: 64",
        ),
    ] {
        let imported = import("x", text, None).unwrap();
        assert_eq!(imported.draft.value(path).as_f64(), Some(wanted), "{text}");
        let line = outcome(&imported, loser);
        assert!(
            line.outcome == KeyOutcome::NoEqual && line.words.contains(winner),
            "{line:?}"
        );
        let (winner, _) = winner.split_once(':').unwrap();
        assert!(outcome(&imported, winner).outcome <= KeyOutcome::Differs);
    }
    // The same twice is no contradiction.
    let same = import(
        "x",
        "dataset_name: d\nmax_seq_length: 64\nmax_length: 64\n",
        None,
    );
    let same = same.unwrap();
    let mapped = |line: &&Line| line.ours == "model.seq_len: 64";
    assert_eq!(same.lines.iter().filter(mapped).count(), 2);
}

#[test]
fn secrets_are_not_printed_and_what_is_off_is_one_line() {
    let off: String = (0..30)
        .map(|i| format!("an_option_{i}: {}\n", ["null", "false"][i % 2]))
        .collect();
    let text = format!(
        "model_name_or_path: m\ndataset_name: d\nhub_token: hf_verysecret\nwandb_api_key: abcdef\neos_token: </s>\nbf16: false\n{off}"
    );
    let imported = import("x", &text, None).unwrap();
    let report = format!("{:?}\n{}", imported.lines, imported.draft.to_yaml(&[]));
    assert!(
        !report.contains("verysecret") && !report.contains("abcdef"),
        "{report}"
    );
    let token = outcome(&imported, "hub_token");
    assert!(
        token.theirs.ends_with("***") && token.words.contains("nothing is uploaded"),
        "{token:?}"
    );
    assert!(outcome(&imported, "eos_token").theirs.ends_with("</s>"));
    let folded = |line: &&Line| line.theirs == "(30 keys that are null or false)";
    assert_eq!(
        imported.lines.iter().find(folded).unwrap().outcome,
        KeyOutcome::Needless
    );
    // What is mapped stays, and a few stay by themselves.
    assert_eq!(outcome(&imported, "bf16").outcome, KeyOutcome::Mapped);
    let few = import("x", "dataset_name: d\nan_option: false\n", None).unwrap();
    assert_eq!(outcome(&few, "an_option").outcome, KeyOutcome::Unknown);
}

/// transformers: `eval_steps` is `logging_steps` where the file has none.
#[test]
fn evaluations_without_a_number_of_steps_are_those_of_the_log() {
    let every = |more: &str| {
        let text = format!("dataset_name: d\neval_strategy: steps\n{more}");
        import("x", &text, None).unwrap().draft.value("eval.every")
    };
    let default = Draft::blank("x").value("eval.every");
    assert_eq!(every("logging_steps: 7\n"), 7);
    assert_eq!(every("logging_steps: 7\neval_steps: 3\n"), 3);
    assert_eq!(every("logging_steps: 7\neval_steps: null\n"), 7);
    assert_eq!(every(""), default);
    let neither = import("x", "dataset_name: d\neval_strategy: steps\n", None).unwrap();
    let line = outcome(&neither, "eval_strategy");
    assert!(
        line.outcome == KeyOutcome::NoEqual && line.words.contains("set eval.every"),
        "{line:?}"
    );
    let never = "dataset_name: d\neval_strategy: no\nlogging_steps: 7\n";
    assert_eq!(
        import("x", never, None).unwrap().draft.value("eval.every"),
        0
    );
}
