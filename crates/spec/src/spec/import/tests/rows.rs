//! How other tools read the rows of a dataset.

use super::*;
use serde_json::json;

fn sources(text: &str) -> (Value, Imported) {
    let imported = import("x", text, None).unwrap();
    (imported.draft.value("data.sources"), imported)
}

fn axolotl(set: &str, more: &str) -> Value {
    let text = format!("base_model: m\nsequence_len: 64\n{more}\ndatasets:\n  - {set}\n");
    sources(&text).0[0].clone()
}

#[test]
fn turns_of_from_and_value_are_read_as_such() {
    let mapped = "{path: org/set, type: chat_template, field_messages: conversations, \
        message_property_mappings: {role: from, content: value}}";
    let expected = json!({"name": "org/set", "format": "sharegpt"});
    assert_eq!(axolotl(mapped, ""), expected);
    let older = "{path: org/set, type: chat_template, field_messages: turns, message_field_role: from, message_field_content: value}";
    let turns =
        json!({"name": "org/set", "format": "sharegpt", "columns": {"conversations": "turns"}});
    assert_eq!(axolotl(older, ""), turns);
    let roles = "{path: org/set, type: chat_template, field_messages: conversation}";
    let named =
        json!({"name": "org/set", "format": "messages", "columns": {"messages": "conversation"}});
    assert_eq!(axolotl(roles, ""), named);
    // The columns tell it.
    assert_eq!(
        axolotl("{path: org/set, type: chat_template}", ""),
        json!("org/set")
    );
}

#[test]
fn pairs_have_their_conversation_before_the_answers() {
    let chat = "{path: org/set, type: chat_template.default, field_messages: conversation, field_chosen: good, \
        message_property_mappings: {role: role, content: content}, roles: {user: [user], assistant: [assistant]}}";
    let expected = json!({"name": "org/set", "format": "preference",
        "columns": {"prompt": "conversation", "chosen": "good"}});
    assert_eq!(axolotl(chat, "rl: dpo"), expected);
    let intel =
        json!({"name": "org/set", "format": "preference", "columns": {"prompt": "question"}});
    assert_eq!(
        axolotl("{path: org/set, type: chatml.intel}", "rl: dpo"),
        intel
    );
}

/// A spec with a split of a file failed once it was trained.
#[test]
fn a_file_has_no_splits_and_the_first_part_of_a_split_is_a_fraction() {
    let file = "{path: a/b.jsonl, ds_type: json, type: alpaca, split: train}";
    assert_eq!(
        axolotl(file, ""),
        json!({"name": "a/b.jsonl", "format": "alpaca"})
    );
    let hub = "{path: org/set, type: alpaca, split: \"train[:20%]\"}";
    let first = json!({"name": "org/set", "format": "alpaca", "split": "train", "fraction": 0.2});
    assert_eq!(axolotl(hub, ""), first);
    let of_file = "{path: a/b.jsonl, type: alpaca, split: \"train[:5%]\"}";
    let expected = json!({"name": "a/b.jsonl", "format": "alpaca", "fraction": 0.05});
    assert_eq!(axolotl(of_file, ""), expected);
    let shards = "{path: org/set, type: alpaca, shards: 4}";
    let expected = json!({"name": "org/set", "format": "alpaca", "fraction": 0.25});
    assert_eq!(axolotl(shards, ""), expected);
    let (trl, _) =
        sources("dataset_name: org/set\ndataset_train_split: \"train[:10%]\"\nbeta: 0.1\n");
    assert_eq!(
        trl,
        json!([{"name": "org/set", "split": "train", "fraction": 0.1}])
    );
    // Other parts are no beginning.
    let hub = "{path: org/set, type: alpaca, split: \"train[20%:40%]\"}";
    let whole = json!({"name": "org/set", "format": "alpaca", "split": "train"});
    assert_eq!(axolotl(hub, ""), whole);
    let text = format!("base_model: m\nsequence_len: 64\ndatasets:\n  - {hub}\n");
    let (_, imported) = sources(&text);
    assert_eq!(
        outcome(&imported, "datasets[0].split").outcome,
        KeyOutcome::Differs
    );
    let (trl, imported) = sources(
        "dataset_config: en\ndataset_name: a.jsonl\ndataset_train_split: train\nbeta: 0.1\n",
    );
    assert_eq!(trl, json!(["a.jsonl"]));
    assert_eq!(
        outcome(&imported, "dataset_config").outcome,
        KeyOutcome::Needless
    );
}

#[test]
fn trls_mixtures_are_several_sources() {
    let (all, imported) = sources(
        "model_name_or_path: m\ndatasets:\n  - path: org/a\n    name: en\n    split: train\n    columns: [prompt]\n  - path: org/b\n",
    );
    assert_eq!(imported.dialect, tool("trl"));
    assert_eq!(
        all,
        json!([{"name": "org/a", "subset": "en", "split": "train"}, "org/b"])
    );
    assert_eq!(imported.draft.value("data.mix"), "concatenate");
}

/// `dataset_mixer` of the alignment handbook reads the first rows of each set, and joins them.
#[test]
fn the_handbooks_mixers_are_sources_with_fractions() {
    let text = "model_name_or_path: m\ndataset_mixer:\n  org/a: 1.0\n  org/b: 0.25\n  org/c: 0\n  org/d: 2\n\
        dataset_splits: [train_sft, test_sft]\ndataset_configs: [null, en]\npreprocessing_num_workers: 12\n\
        num_train_epochs: 1\nlearning_rate: 2.0e-05\nchat_template: \"{% for m in messages %}{% endfor %}\"\n";
    let (all, imported) = sources(text);
    assert_eq!(imported.dialect, tool("trl"));
    let expected = json!([
        {"name": "org/a", "split": "train_sft"},
        {"name": "org/b", "subset": "en", "split": "train_sft", "fraction": 0.25},
    ]);
    assert_eq!(all, expected);
    assert_eq!(imported.draft.value("data.mix"), "concatenate");
    for (key, is, words) in [
        ("dataset_mixer.org/a", KeyOutcome::Mapped, ""),
        ("dataset_mixer.org/b", KeyOutcome::Differs, "first rows"),
        ("dataset_mixer.org/c", KeyOutcome::Needless, "left out"),
        ("dataset_mixer.org/d", KeyOutcome::NoEqual, "at most 1"),
        (
            "dataset_splits",
            KeyOutcome::Differs,
            "test_sft is not read",
        ),
        ("dataset_configs", KeyOutcome::Mapped, ""),
        ("preprocessing_num_workers", KeyOutcome::Needless, ""),
        ("chat_template", KeyOutcome::NoEqual, "data.template"),
    ] {
        let line = outcome(&imported, key);
        assert!(
            line.outcome == is && line.words.contains(words),
            "{key}: {line:?}"
        );
    }
    // A spec of it can be read.
    let yaml = imported.draft.to_yaml(&[]);
    assert!(yaml.contains("fraction: 0.25"), "{yaml}");
    let (one, _) = sources("dataset_mixer: {org/a: 0.5}\nbeta: 0.01\n");
    assert_eq!(one, json!([{"name": "org/a", "fraction": 0.5}]));
    let (newer, imported) = sources(
        "model_name_or_path: m\ndataset_mixture:\n  datasets:\n    - {id: org/a, config: all, split: train, columns: [messages], weight: 0.5}\n    \
         - {id: org/b}\n  seed: 1\n  test_split_size: 0.05\n",
    );
    let expected =
        json!([{"name": "org/a", "subset": "all", "split": "train", "fraction": 0.5}, "org/b"]);
    assert_eq!(newer, expected);
    assert_eq!(imported.draft.value("data.val_fraction"), 0.05);
    let line = outcome(&imported, "dataset_mixture.datasets[0]");
    assert!(line.words.contains("at random"), "{line:?}");
}

#[test]
fn labelled_answers_of_axolotl_are_read_by_their_type() {
    for (kind, columns) in [
        ("llama3.ultra", json!(null)),
        ("chatml.prompt_pairs", json!(null)),
        ("chatml.argilla", json!({"prompt": "instruction"})),
        ("llama3.intel", json!({"prompt": "question"})),
        (
            "{field_prompt: q, field_completion: a, field_label: good}",
            json!({"prompt": "q", "completion": "a", "label": "good"}),
        ),
    ] {
        let found = axolotl(&format!("{{path: org/set, type: {kind}}}"), "rl: kto");
        let mut expected = json!({"name": "org/set", "format": "kto"});
        if !columns.is_null() {
            expected["columns"] = columns;
        }
        assert_eq!(found, expected, "{kind}");
    }
    let pairs = "{path: org/set, type: {field_prompt: q, field_chosen: good, field_rejected: bad}}";
    let expected = json!({"name": "org/set", "format": "preference",
        "columns": {"prompt": "q", "chosen": "good", "rejected": "bad"}});
    assert_eq!(axolotl(pairs, "rl: dpo"), expected);
    // What puts texts together is not passed over.
    let text = "base_model: m\nsequence_len: 64\nrl: kto\ndatasets:\n  - {path: org/set, type: ";
    for (kind, words) in [
        (
            "{field_prompt: q, prompt_format: \"<{prompt}>\"}",
            "`format`",
        ),
        ("chatml.argilla_chat", "rename that column to `messages`"),
    ] {
        let (_, imported) = sources(&format!("{text}{kind}}}\n"));
        let line = outcome(&imported, "datasets[0].type");
        assert!(
            line.outcome == KeyOutcome::NoEqual && line.words.contains(words),
            "{line:?}"
        );
    }
}

#[test]
fn keys_that_axolotl_knows_are_known_here() {
    for key in [
        "attn_implementation: flash_attention_2",
        "trust_remote_code: true",
        "dataset_processes: 4",
        "shuffle_merged_datasets: true",
        "lora_on_cpu: true",
        "unfrozen_parameters: [a]",
        "excess_length_strategy: drop",
    ] {
        let text = format!("base_model: m\nsequence_len: 64\n{key}\n");
        let imported = import("x", &text, None).unwrap();
        let word = key.split(':').next().unwrap();
        assert_ne!(
            outcome(&imported, word).outcome,
            KeyOutcome::Unknown,
            "{key}"
        );
    }
    let drop = import(
        "x",
        "base_model: m\nsequence_len: 64\nexcess_length_strategy: drop\n",
        None,
    )
    .unwrap();
    assert_eq!(drop.draft.value("data.too_long"), "drop");
}
