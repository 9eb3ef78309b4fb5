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
fn a_file_has_no_splits_and_a_share_of_a_split_is_told() {
    let file = "{path: a/b.jsonl, ds_type: json, type: alpaca, split: train}";
    assert_eq!(
        axolotl(file, ""),
        json!({"name": "a/b.jsonl", "format": "alpaca"})
    );
    let hub = "{path: org/set, type: alpaca, split: \"train[:20%]\"}";
    let whole = json!({"name": "org/set", "format": "alpaca", "split": "train"});
    assert_eq!(axolotl(hub, ""), whole);
    let text = format!("base_model: m\nsequence_len: 64\ndatasets:\n  - {hub}\n");
    let (_, imported) = sources(&text);
    assert_eq!(fate(&imported, "datasets[0].split").fate, Fate::Differs);
    let (trl, imported) = sources(
        "dataset_config: en\ndataset_name: a.jsonl\ndataset_train_split: train\nbeta: 0.1\n",
    );
    assert_eq!(trl, json!(["a.jsonl"]));
    assert_eq!(fate(&imported, "dataset_config").fate, Fate::Needless);
}

#[test]
fn trls_mixtures_are_several_sources() {
    let (all, imported) = sources(
        "model_name_or_path: m\ndatasets:\n  - path: org/a\n    name: en\n    split: train\n    columns: [prompt]\n  - path: org/b\n",
    );
    assert_eq!(imported.dialect, Dialect::Trl);
    assert_eq!(
        all,
        json!([{"name": "org/a", "subset": "en", "split": "train"}, "org/b"])
    );
    assert_eq!(imported.draft.value("data.mix"), "concatenate");
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
        assert_ne!(fate(&imported, word).fate, Fate::Unknown, "{key}");
    }
    let drop = import(
        "x",
        "base_model: m\nsequence_len: 64\nexcess_length_strategy: drop\n",
        None,
    )
    .unwrap();
    assert_eq!(drop.draft.value("data.too_long"), "drop");
}
