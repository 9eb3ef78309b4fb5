//! Requirements of a folder with only an adapter: PEFT's own folders as the healthy case.

use super::*;
use crate::engine::infer::LoadedModel;
use crate::hf::{ADAPTER_CONFIG, ADAPTER_WEIGHTS};
use serde_json::{Value, json};

/// An adapter that PEFT wrote, on `org/base`, with a card.
fn adapter(name: &str, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/oracle/peft")
        .join(name);
    let dir = tempfile::tempdir().unwrap();
    let to = |name: &str| dir.path().join(name);
    fs::copy(from.join(ADAPTER_WEIGHTS), to(ADAPTER_WEIGHTS)).unwrap();
    let mut config: Value =
        serde_json::from_slice(&fs::read(from.join(ADAPTER_CONFIG)).unwrap()).unwrap();
    config["base_model_name_or_path"] = "org/base".into();
    change(&mut config);
    fs::write(to(ADAPTER_CONFIG), config.to_string()).unwrap();
    fs::write(to(card::NAME), CARD.replace("transformers", "peft")).unwrap();
    dir
}

fn fails(dir: &tempfile::TempDir) -> Vec<String> {
    let found = troubles(dir.path());
    let failed = found
        .into_iter()
        .filter(|(_, status, _)| *status == Status::Fail);
    failed
        .map(|(id, _, words)| format!("{id} {words}"))
        .collect()
}

#[test]
fn adapters_of_pefts_pass_and_are_described() {
    for name in [
        "lora",
        "rslora",
        "dora",
        "dora_gpt2",
        "dora_part",
        "one_layer",
    ] {
        let dir = adapter(name, |_| {});
        assert_eq!(fails(&dir), Vec::<String>::new(), "{name}");
    }
    let dir = adapter("dora_gpt2", |_| {});
    let said = findings(dir.path());
    let said = said.iter().find(|f| f.id == "description").unwrap();
    let words = said.evidence.to_string();
    assert!(words.contains("DoRA on org/base, rank 3"), "{words}");
    assert!(words.contains("c_attn"), "{words}");
}

#[test]
fn a_description_that_does_not_fit_the_factors_is_refused() {
    for (change, says) in [
        (json!({"r": 4}), "r is 4"),
        (json!({"target_modules": ["q_proj"]}), "does not name"),
        (json!({"use_dora": true}), "use_dora"),
        (json!({"r": 0}), "positive"),
    ] {
        let dir = adapter("lora", |config| {
            let map = config.as_object_mut().unwrap();
            map.extend(change.as_object().unwrap().clone());
        });
        let found = fails(&dir);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("description") && found[0].contains(says),
            "{found:?}"
        );
    }
    let more = adapter("one_layer", |config| {
        config["target_modules"]
            .as_array_mut()
            .unwrap()
            .push("k_proj".into());
    });
    let found = fails(&more);
    assert!(
        found[0].contains("k_proj") && found[0].contains("no factors"),
        "{found:?}"
    );
}

/// Sets a word of a file of tensors that its header keeps beside them.
fn say(file: &Path, word: &str, text: &str) {
    let bytes = fs::read(file).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let (header, tensors) = bytes[8..].split_at(length);
    let mut header: Value = serde_json::from_slice(header).unwrap();
    header["__metadata__"][word] = text.into();
    let header = header.to_string();
    let length = (header.len() as u64).to_le_bytes();
    fs::write(file, [&length, header.as_bytes(), tensors].concat()).unwrap();
}

#[test]
fn an_adapter_of_other_weights_than_its_base_has_is_told() {
    let dir = adapter("lora", |_| {});
    let cache = tempfile::tempdir().unwrap();
    let base = cached_base(cache.path());
    let here = LocalEnv {
        cache: Some(cache.path().into()),
        ..here()
    };
    let generates = || {
        let subject = Subject::open(dir.path(), &here).unwrap();
        let found = check(&subject, &|_| ());
        found.into_iter().find(|f| f.id == "generates").unwrap()
    };
    assert_eq!(
        generates().status,
        Status::Pass,
        "PEFT's files say nothing of the base's weights"
    );
    let weights = dir.path().join(ADAPTER_WEIGHTS);
    let held = LoadedModel::load_with(&base, &[dir.path().to_path_buf()]).unwrap();
    say(
        &weights,
        "base_fingerprint",
        &held.base_fingerprint().unwrap(),
    );
    let same = generates();
    assert_eq!(same.status, Status::Pass, "{same:?}");
    say(&weights, "base_fingerprint", &"0".repeat(64));
    let other = generates();
    assert_eq!(other.status, Status::Warn, "{other:?}");
    let words = other.evidence.to_string();
    assert!(
        words.contains("weights differ from those it was trained on"),
        "{other:?}"
    );
    assert!(other.fix.contains("base_model_name_or_path"), "{other:?}");
}

#[test]
fn embeddings_of_its_own_need_the_tokenizer_and_the_card_names_the_same_base() {
    let dir = adapter("saved", |_| {});
    let found = fails(&dir);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("tokenizer") && found[0].contains("embeddings"),
        "{found:?}"
    );
    let dir = adapter("lora", |_| {});
    edit(dir.path(), card::NAME, "org/base", "org/other");
    let found = fails(&dir);
    assert!(
        found.len() == 1 && found[0].starts_with("card") && found[0].contains("org/other"),
        "{found:?}"
    );
}
