//! Files of datasets, and keys of theirs that have no equivalent.

use super::*;
use serde_json::json;

fn sources(set: &str, more: &str) -> (Value, Imported) {
    let text = format!("base_model: m\nsequence_len: 64\n{more}datasets:\n  - {set}\n");
    let imported = import("x", &text, None).unwrap();
    (imported.draft.value("data.sources"), imported)
}

/// Of a list the first file was kept and nothing was said of the others.
#[test]
fn each_file_of_a_set_is_a_source() {
    let (found, imported) = sources(
        "{path: json, data_files: [a.jsonl, b.jsonl], type: alpaca, split: train}",
        "",
    );
    let expected = json!([
        {"name": "a.jsonl", "format": "alpaca"},
        {"name": "b.jsonl", "format": "alpaca"},
    ]);
    assert_eq!(found, expected);
    let line = outcome(&imported, "datasets[0].data_files");
    assert_eq!(
        (line.outcome, &*line.ours),
        (KeyOutcome::Mapped, "data.sources: a.jsonl, b.jsonl")
    );
    assert_eq!(imported.draft.value("data.mix"), "concatenate");
    let (one, imported) = sources("{data_files: a.jsonl, ds_type: json, type: alpaca}", "");
    assert_eq!(one, json!([{"name": "a.jsonl", "format": "alpaca"}]));
    assert_eq!(
        outcome(&imported, "datasets[0].ds_type").outcome,
        KeyOutcome::Needless
    );
}

#[test]
fn files_in_a_folder_are_found_in_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.jsonl"), "{}").unwrap();
    let folder = dir.path().display();
    let (found, _) = sources(&format!("{{path: {folder}, data_files: a.jsonl}}"), "");
    let file = dir.path().join("a.jsonl").display().to_string();
    assert_eq!(found, json!([file]));
}

/// The repository was dropped, and a file of this disk was looked for.
#[test]
fn files_of_a_repository_and_maps_of_files_are_told() {
    let (found, imported) = sources("{path: org/set, data_files: en.jsonl, type: alpaca}", "");
    assert_eq!(found, json!([{"name": "org/set", "format": "alpaca"}]));
    let line = outcome(&imported, "datasets[0].data_files");
    assert!(
        line.outcome == KeyOutcome::NoEqual && line.words.contains("download"),
        "{line:?}"
    );
    for path in ["json", "org/set"] {
        let set = format!("{{path: {path}, data_files: {{train: a.jsonl, test: b.jsonl}}}}");
        let (found, imported) = sources(&set, "");
        let line = outcome(&imported, "datasets[0].data_files");
        assert!(
            line.outcome == KeyOutcome::NoEqual && line.words.contains("data.val_path"),
            "{line:?}"
        );
        let name = found[0].as_str().unwrap_or_default();
        assert!(!name.is_empty() && name != "json", "{found}");
    }
}

#[test]
fn columns_that_are_named_one_by_one_stand_side_by_side() {
    let (found, _) = sources(
        "{path: org/set, field_messages: talk, field: body, field_system: s}",
        "",
    );
    assert_eq!(
        found[0]["columns"],
        json!({"messages": "talk", "text": "body"})
    );
}

/// Whichever stood last was taken.
#[test]
fn modules_are_added_to_all_linear_layers_in_either_order() {
    let (list, all) = (
        "lora_target_modules: [q_proj, embed_tokens]\n",
        "lora_target_linear: true\n",
    );
    for text in [format!("{list}{all}"), format!("{all}{list}")] {
        let text = format!("base_model: m\nadapter: lora\n{text}");
        let imported = import("x", &text, None).unwrap();
        assert_eq!(imported.draft.value("adapter.lora.targets"), "all");
        let line = outcome(&imported, "lora_target_modules");
        assert!(
            line.outcome == KeyOutcome::Differs && line.words.contains("embed_tokens"),
            "{line:?}"
        );
    }
    let text =
        format!("base_model: m\nadapter: lora\n{all}lora_target_modules: [q_proj, v_proj]\n");
    let imported = import("x", &text, None).unwrap();
    assert_eq!(imported.draft.value("adapter.lora.targets"), "all");
    assert_eq!(
        outcome(&imported, "lora_target_modules").outcome,
        KeyOutcome::Mapped
    );
}

/// What a spec refuses was dropped, and the setting that needs it was told as taken.
#[test]
fn a_refused_choice_is_told_instead_of_the_setting_that_needs_it() {
    let mut reader = Reader::of(tool("axolotl"), "x", &Map::new(), &Known::default());
    let before = reader.set_before("theirs: 1".into(), "adapter.lora.targets", "nothing");
    assert_eq!(before, None);
    let line = reader.lines.last().unwrap();
    assert!(
        line.outcome == KeyOutcome::NoEqual && line.words.contains("adapter.lora.targets"),
        "{line:?}"
    );
}

#[test]
fn keys_of_a_mixture_and_of_dataset_info_that_are_not_read_are_told() {
    let mixture = "model_name_or_path: m\ndataset_mixture:\n  datasets:\n    - {id: org/a, data_dir: en, data_files: [x], columns: [messages]}\n";
    let imported = import("x", mixture, None).unwrap();
    for (key, is) in [
        ("data_dir", KeyOutcome::NoEqual),
        ("data_files", KeyOutcome::NoEqual),
        ("columns", KeyOutcome::Needless),
    ] {
        let line = outcome(&imported, &format!("dataset_mixture.datasets[0].{key}"));
        assert_eq!(line.outcome, is, "{key}");
    }
    let info = json!({
        "seen": {"hf_hub_url": "org/set", "ms_hub_url": "org/other", "folder": "en", "split": "train[:20%]",
            "columns": {"prompt": "q", "images": "pictures"}},
        "file": {"file_name": "a.json", "split": "train"},
        "book": {"file_name": "book.txt", "columns": {"prompt": "text"}},
    });
    let info = DatasetInfo {
        folder: "sets".into(),
        text: info.to_string(),
    };
    let read = |dataset: &str| {
        let known = Known {
            info: Some(&info),
            ..Known::default()
        };
        import_with(
            "x",
            &format!("stage: pt\ncutoff_len: 64\ndataset: {dataset}\n"),
            &known,
        )
        .unwrap()
    };
    let imported = read("seen");
    for (key, is) in [
        ("folder", KeyOutcome::NoEqual),
        ("columns.images", KeyOutcome::NoEqual),
        ("ms_hub_url", KeyOutcome::Needless),
    ] {
        let line = outcome(&imported, &format!("dataset_info.json seen.{key}"));
        assert_eq!(line.outcome, is, "{key}");
    }
    let source = &imported.draft.value("data.sources")[0];
    assert_eq!(
        (&source["split"], &source["fraction"]),
        (&json!("train"), &json!(0.2))
    );
    assert_eq!(
        outcome(&read("file"), "dataset_info.json file.split").outcome,
        KeyOutcome::Needless
    );
    let told = |line: &Line| line.theirs.starts_with("dataset_info.json");
    assert!(!read("book").lines.iter().any(told));
}
