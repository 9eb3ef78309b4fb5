//! Base models: folders, runs, reward models, the hub's cache.

use super::*;
use llmtui::spec::{Origin, RunSpec};
use std::path::Path;

/// A model folder `ckpt`: the model of a spec, dummy weights, and a tokenizer's name.
pub(super) fn base(dir: &Path, spec: &RunSpec) {
    let folder = dir.join("ckpt");
    fs::create_dir(&folder).unwrap();
    let cpu = candle_core::Device::Cpu;
    let model = llmtui::nn::Model::new(&spec.model, 65, &cpu).unwrap();
    fs::write(
        folder.join("config.json"),
        llmtui::hf::config_json(&model, None),
    )
    .unwrap();
    fs::write(folder.join("model.safetensors"), "").unwrap();
    fs::write(folder.join("tokenizer.json"), "{}").unwrap();
}

#[test]
fn a_base_without_weights_is_rejected_and_a_config_in_the_hubs_cache_is_not() {
    let (dir, mut sources) = nowhere();
    base(dir.path(), &set(&[]).unwrap().spec);
    let weights = dir.path().join("ckpt/model.safetensors");
    fs::remove_file(&weights).unwrap();
    let words = ["train.from=ckpt".to_string()];
    let refused = |sources: &SpecSources| {
        let error = spec::load("quickstart", &words, sources).unwrap_err();
        error.to_string()
    };
    let error = refused(&sources);
    for part in [
        "-s train.from=ckpt",
        "ckpt has a model config but no weights",
        "this folder has no weights",
        "put the weights next to it",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    // Shards are named by their index.
    let index = dir.path().join("ckpt/model.safetensors.index.json");
    fs::write(
        index,
        r#"{"weight_map": {"a": "model-00001-of-00001.safetensors"}}"#,
    )
    .unwrap();
    let error = refused(&sources);
    assert!(error.contains("names model-00001-of-00001"), "{error}");
    fs::write(dir.path().join("ckpt/model-00001-of-00001.safetensors"), "").unwrap();
    spec::load("quickstart", &words, &sources).unwrap();
    // Weights of a hub model are downloaded before the run.
    fs::remove_file(dir.path().join("ckpt/model.safetensors.index.json")).unwrap();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let root = dir.path().join("hub/models--org--name");
    fs::create_dir_all(root.join("snapshots")).unwrap();
    fs::create_dir_all(root.join("refs")).unwrap();
    fs::write(root.join("refs/main"), commit).unwrap();
    fs::rename(dir.path().join("ckpt"), root.join("snapshots").join(commit)).unwrap();
    sources.hub_cache = Some(dir.path().join("hub"));
    let words = ["train.from=org/name".to_string()];
    spec::load("quickstart", &words, &sources).unwrap();
}

#[test]
fn a_base_fills_in_omitted_settings_and_contradictions_are_errors() {
    let (dir, sources) = nowhere();
    let words = [
        "model.position=rope",
        "model.d_model=64",
        "model.seq_len=32",
    ];
    base(dir.path(), &set(&words).unwrap().spec);
    let load = |text: &str| {
        fs::write(dir.path().join("f.yaml"), text).unwrap();
        spec::load("f.yaml", &[], &sources)
    };
    let loaded = load("train: {from: ckpt}\ndata: {corpus: tinyshakespeare}\n").unwrap();
    let model = &loaded.spec.model;
    assert_eq!(
        (model.d_model, model.seq_len, model.vocab_size),
        (64, 32, Some(65))
    );
    assert!(model.position.rope().is_some());
    let origin = loaded.origins.get("model.d_model");
    assert!(
        matches!(&origin, Origin::Model(folder) if folder.ends_with("ckpt")),
        "{origin}"
    );
    let tokenizer = loaded.spec.data.tokenizer.entry().id;
    assert_eq!(tokenizer, "file");
    assert!(!loaded.asked.contains("d_model"), "{}", loaded.asked);
    // The spec's own settings where only training depends on them, and a shorter context.
    let shorter = load("train: {from: ckpt}\ndata: {corpus: tinyshakespeare}\nmodel: {seq_len: 16, init_std: 0.5, d_model: 64}\n").unwrap();
    assert_eq!(
        (shorter.spec.model.seq_len, shorter.spec.model.init_std),
        (16, 0.5)
    );
    // A shorter seq_len does not change the context in the model's files; a run's spec has both.
    let cpu = candle_core::Device::Cpu;
    let files = llmtui::nn::Model::new(&shorter.spec.model, 65, &cpu).unwrap();
    let files = llmtui::hf::config_json(&files, None);
    assert!(files.contains("\"seq_len\": 32"), "{files}");
    assert!(!shorter.notes().iter().any(|note| note.contains("context")));
    let both = "train: {from: ckpt}\ndata: {corpus: tinyshakespeare}\nmodel: {seq_len: 16, context_len: 32}\n";
    assert_eq!(load(both).unwrap().spec.model.context_len, Some(32));
    for (setting, parts) in [
        ("d_model: 128", ["model.d_model", "has 64"]),
        ("context_len: 64", ["model.context_len", "at most 32"]),
        (
            "context_len: 8",
            ["model.context_len", "shorter than seq_len 32"],
        ),
        ("seq_len: 64", ["model.seq_len", "at most 32"]),
        ("position: learned", ["model.position", "remove"]),
        ("n_kv_head: 2", ["model.n_kv_head", "has 4"]),
    ] {
        let text = format!(
            "train: {{from: ckpt}}\ndata: {{corpus: tinyshakespeare}}\nmodel: {{{setting}}}\n"
        );
        let error = load(&text).unwrap_err().to_string();
        for part in parts {
            assert!(
                error.contains(part) && error.contains("f.yaml:3"),
                "{setting}: {error}"
            );
        }
    }
    let learned = load("data: {corpus: tinyshakespeare}\nmodel: {seq_len: 16, context_len: 32}\n");
    let error = learned.unwrap_err().to_string();
    assert!(error.contains("exist for seq_len 16 only"), "{error}");
    // A preset describes a new model: the base overrides that, but not its recipe, nor explicit settings.
    let preset = spec::load("quickstart", &["train.from=ckpt".into()], &sources).unwrap();
    assert_eq!(preset.spec.model.position.entry().id, "rope");
    assert_eq!(preset.spec.model.seq_len, 32);
    let tokenizer = preset.spec.data.tokenizer.entry().id;
    assert_eq!(tokenizer, "file");
    assert!(
        preset
            .origins
            .iter()
            .all(|(path, origin)| !path.starts_with("model")
                || matches!(origin, Origin::Model(_))
                || path == "model.dropout"),
        "{:?}",
        preset.origins
    );
    let words = ["train.from=ckpt".to_string(), "model.n_layer=9".to_string()];
    let error = spec::load("quickstart", &words, &sources).unwrap_err();
    assert!(error.to_string().contains("-s model.n_layer=9"), "{error}");
    fs::write(
        dir.path().join("ckpt/config.json"),
        "{\"model_type\": \"mamba\"}",
    )
    .unwrap();
    let error = load("train: {from: ckpt}\n").unwrap_err().to_string();
    assert!(
        error.contains("f.yaml:1") && error.contains("mamba"),
        "{error}"
    );
}

#[test]
fn a_run_in_place_of_a_model_gets_its_newest_checkpoint_as_a_hint() {
    let (dir, sources) = nowhere();
    fs::create_dir_all(dir.path().join("rm/checkpoints/step-000010")).unwrap();
    fs::create_dir_all(dir.path().join("rm/checkpoints/step-000020")).unwrap();
    fs::write(dir.path().join("rm/run.json"), "{}").unwrap();
    let words = ["rewards=[{model: {path: rm}}]".to_string()];
    let error = spec::load("grpo-sort", &words, &sources).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("rm is a run, not a model"), "{error}");
    assert!(error.contains("rm/checkpoints/step-000020"), "{error}");
}

#[test]
fn a_reward_model_is_checked_before_the_first_answer() {
    let (dir, sources) = nowhere();
    fs::create_dir(dir.path().join("rm")).unwrap();
    let refusal = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        let error = spec::load("ppo-demo", &words, &sources).unwrap_err();
        error.to_string()
    };
    let rewarded = ["rewards=[{model: {path: rm}}]"];
    let error = refusal(&rewarded);
    assert!(
        error.contains("  rewards") && error.contains("holds no config.json"),
        "{error}"
    );
    assert!(error.contains("name a checkpoint folder"), "{error}");
    let error = refusal(&["method.ppo.critic_from=rm"]);
    assert!(error.contains("  method.ppo.critic_from"), "{error}");

    // A config without weights, and a language model.
    base(dir.path(), &set(&[]).unwrap().spec);
    for file in ["config.json", "tokenizer.json"] {
        let _ = fs::copy(
            dir.path().join("ckpt").join(file),
            dir.path().join("rm").join(file),
        );
    }
    fs::remove_file(dir.path().join("rm/model.safetensors")).unwrap_or_default();
    let error = refusal(&rewarded);
    assert!(error.contains("a model config but no weights"), "{error}");
    fs::write(dir.path().join("rm/model.safetensors"), "").unwrap();
    let error = refusal(&rewarded);
    assert!(
        error.contains("it has no score") && error.contains("llmtui train reward"),
        "{error}"
    );
}

#[test]
fn a_model_of_the_hub_is_found_in_its_cache() {
    let (dir, mut sources) = nowhere();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let root = dir.path().join("hub/models--org--name");
    fs::create_dir_all(root.join("snapshots")).unwrap();
    fs::create_dir_all(root.join("refs")).unwrap();
    fs::write(root.join("refs/main"), commit).unwrap();
    base(dir.path(), &set(&[]).unwrap().spec);
    fs::rename(dir.path().join("ckpt"), root.join("snapshots").join(commit)).unwrap();
    let words = ["train.from=org/name".to_string()];
    assert_eq!(
        spec::hub_models("quickstart", &words, &sources),
        ["org/name"]
    );
    let error = spec::load("quickstart", &words, &sources).unwrap_err();
    assert!(
        error.to_string().contains("llmtui model pull org/name"),
        "{error}"
    );
    sources.hub_cache = Some(dir.path().join("hub"));
    let loaded = spec::load("quickstart", &words, &sources).unwrap();
    let from = loaded.spec.train.from.clone().unwrap();
    assert!(from.ends_with(commit), "{}", from.display());
    assert!(loaded.asked.contains("org/name"), "{}", loaded.asked);
}

#[test]
fn a_gguf_file_of_the_hub_is_pinned_with_its_commit_and_its_name() {
    let (dir, mut sources) = nowhere();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let root = dir.path().join("hub/models--org--name");
    let snapshot = root.join("snapshots").join(commit);
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(root.join("refs")).unwrap();
    fs::write(root.join("refs/main"), commit).unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/gguf/gpt2.gguf");
    for name in ["m-Q4_K_M.gguf", "m-Q8_0.gguf"] {
        fs::copy(&file, snapshot.join(name)).unwrap();
    }
    let words = |from: &str| {
        let text = "data.tokenizer.file.path=org/name:Q8_0".to_string();
        vec![format!("train.from={from}"), text]
    };
    assert_eq!(
        spec::hub_models("quickstart", &words("org/name:Q4_K_M"), &sources),
        ["org/name:Q4_K_M", "org/name:Q8_0"]
    );
    let error = spec::load("quickstart", &words("org/name:Q4_K_M"), &sources).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("llmtui model pull org/name:Q4_K_M"),
        "{error}"
    );
    sources.hub_cache = Some(dir.path().join("hub"));
    // Which one the repository gives is known of all its files alone.
    let place = spec::base_folder("org/name", dir.path(), sources.hub_cache.as_deref());
    assert_eq!(place, None);
    let files = r#"[{"name": "m-Q4_K_M.gguf"}, {"name": "m-Q8_0.gguf"}]"#;
    let list = format!(r#"{{"commit": "{commit}", "files": {files}}}"#);
    fs::create_dir_all(root.join(".llmtui")).unwrap();
    fs::write(root.join(".llmtui").join(format!("{commit}.json")), list).unwrap();
    for (word, name) in [
        ("org/name:Q8_0", "m-Q8_0.gguf"),
        ("org/name@main:m-Q8_0.gguf", "m-Q8_0.gguf"),
        ("org/name", "m-Q4_K_M.gguf"),
    ] {
        match spec::load("quickstart", &words(word), &sources) {
            Ok(loaded) => assert_eq!(loaded.spec.train.from, Some(snapshot.join(name))),
            // The file has no tokenizer, which is all that is wrong with it: it was found.
            Err(error) => assert!(!error.to_string().contains("model pull"), "{error}"),
        }
        let place = spec::base_folder(word, dir.path(), sources.hub_cache.as_deref());
        assert_eq!(place, Some(snapshot.join(name)), "{word}");
    }
}
