//! Specs as people write them, right and wrong: each wrong one must be met with the words that help.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use llmtui::base::every::Every;
use llmtui::nn::{ActivationCheckpointing, Precision};
use llmtui::spec::{self, Origin, RunSpec, SpecErrors, SpecSources};
use std::fs;
use std::path::Path;

fn nowhere() -> (tempfile::TempDir, SpecSources) {
    let dir = tempfile::tempdir().unwrap();
    let sources = SpecSources {
        config_dir: None,
        project_dir: dir.path().to_path_buf(),
        ..SpecSources::default()
    };
    (dir, sources)
}

fn set(words: &[&str]) -> Result<spec::Loaded, SpecErrors> {
    let (_dir, sources) = nowhere();
    let words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
    spec::load("quickstart", &words, &sources)
}

fn file(text: &str) -> Result<spec::Loaded, SpecErrors> {
    let (dir, sources) = nowhere();
    fs::write(dir.path().join("my.yaml"), text).unwrap();
    spec::load("my.yaml", &[], &sources)
}

/// (text of a file, phrases that the report must contain)
const WRONG_FILES: &[(&str, &[&str])] = &[
    (
        "max_stpes: 5",
        &["my.yaml:1", "max_stpes", "did you mean max_steps?"],
    ),
    (
        "train:\n  max_steps: 0",
        &["my.yaml:2", "0 is too small", "at least 1"],
    ),
    (
        "train:\n  max_steps: many",
        &["a whole number", "the text `many`"],
    ),
    ("train:\n  max_steps: 1.5", &["a whole number", "1.5"]),
    ("train:\n  max_steps: 1_000", &["write 1000 without"]),
    (
        "model:\n  n_lyaer: 3",
        &["model.n_lyaer", "did you mean n_layer?"],
    ),
    ("model:\n  bias: yes", &["true or false", "write true"]),
    ("model: 3", &["a section of keys, found 3"]),
    ("model:", &["there is no value here"]),
    (
        "model:\n  position: roep",
        &["`roep` is unknown", "did you mean rope?"],
    ),
    (
        "model:\n  position: {learned: {}, rope: {}}",
        &["both learned and rope"],
    ),
    (
        "model: {position: {rope: {theta: 0.5}}}",
        &["0.5 is too small"],
    ),
    ("optimizer: sgd", &["`sgd` is unknown", "adamw"]),
    (
        "optimizer: {adamw: {momentum: 0.9}}",
        &["optimizer.adamw.momentum", "unknown key"],
    ),
    (
        "lr: 1e-3\noptimizer: {adamw: {lr: 1e-4}}",
        &["set twice", "remove one"],
    ),
    ("lr: fast", &["a number", "the text `fast`"]),
    ("lr: 0", &["learns nothing"]),
    (
        "optimizer: {adamw: {eps: 0}}",
        &["optimizer.adamw.eps", "divides by 0", "1e-8 is usual"],
    ),
    (
        "optimizer: {muon: {adamw_eps: 1e-30}}",
        &["optimizer.muon.adamw_eps", "1e-20 is the least"],
    ),
    (
        "optimizer: {adafactor: {eps: 0}}",
        &["optimizer.adafactor.eps", "1e-37 is the least"],
    ),
    ("lr: .nan", &["not a finite number", "my.yaml:1"]),
    ("seed: -1", &["-1 is too small"]),
    ("name: a/b", &["letters, digits"]),
    ("name: 12", &["put it in quotes"]),
    ("name: {a: 1}", &["expected text, found a section"]),
    ("model: {dropout: 0.99}", &["0.99 is too large"]),
    ("fp16: true", &["set train.precision"]),
    ("precision: f16", &["one of: auto, f32, bf16"]),
    ("train: {precision: true}", &["one of: auto, f32, bf16"]),
    ("activation_checkpointing: all", &["did you mean full?"]),
    (
        "activation_checkpointing: {every_n: 0}",
        &["0 is too small"],
    ),
    (
        "activation_checkpointing: {every_n: 2, full: }",
        &["both every_n and full are selected"],
    ),
    (
        "eval: {every: 1.5}",
        &["eval.every", "a share of the run below 1", "1.5"],
    ),
    (
        "save_every: -0.5",
        &["checkpoint.every", "a share of the run below 1"],
    ),
    ("num_train_epochs: -1", &["train.epochs", "too small"]),
    ("model: {lr: 1}", &["did you mean optimizer"]),
    ("data: {order: shufled}", &["did you mean shuffled?"]),
    (
        "data: {corpus: shakespeare}",
        &["no corpus", "tinyshakespeare"],
    ),
    ("data: {path: absent.txt}", &["absent.txt does not exist"]),
    (
        "data: {path: ~/x.txt}",
        &[
            "my.yaml:1",
            "data.path",
            "HOME is not set",
            "write the whole path",
        ],
    ),
    (
        "seed: 1\ndata: {sources: [~nobody/x.jsonl]}",
        &["my.yaml:2", "data.sources", "`~nobody` is not expanded"],
    ),
    ("extends: ~/base.yaml", &["extends", "HOME is not set"]),
    ("data: {val_fraction: 0}", &["held-out"]),
    ("data: {val_fraction: 2}", &["2 is too large", "0.9"]),
    (
        "tokenizer: {file: {path: t.json}}",
        &["t.json does not exist"],
    ),
    ("tokenizer: file", &["which file?"]),
    (
        "model: {from: gone}",
        &["train.from", "gone does not exist"],
    ),
    (
        "model: {d_model: 130, n_head: 4}",
        &["not a multiple", "128 or 132"],
    ),
    (
        "model: {n_kv_head: 3}",
        &["n_head 4 is not a multiple of n_kv_head 3"],
    ),
    (
        "model: {d_model: 12, n_head: 4, position: rope}",
        &["head_dim is 3: odd"],
    ),
    ("schedule: {cosine: {min_lr: 1}}", &["min_lr 1 is above"]),
    (
        "schedule: constant\nmin_lr: 1e-4",
        &["schedule.constant has no min_lr"],
    ),
    (
        "checkpoint: {keep_last: 1}",
        &["1 is too small", "at least 2"],
    ),
    (
        "micro_batch_size: 1000000\ngrad_accum_steps: 1000000",
        &["tokens in one step"],
    ),
    (
        "model: {vocab_size: 300}\ntokenizer: bpe",
        &["smaller than the tokenizer's 1024"],
    ),
    (
        "sample: {sampling: {top_p: 0}}",
        &["top_p 0 keeps no token"],
    ),
    (
        "sample: {sampling: {stop: [1]}}",
        &["expected text, found 1"],
    ),
    ("a: [1\nb: 2", &["not valid YAML", "my.yaml:"]),
    ("seed: 1\nseed: 2", &["duplicate key `seed`"]),
    ("- a\n- b", &["not a map of keys"]),
    ("extends: [a, b]", &["at most one parent"]),
    (
        "extends: nobody",
        &["my.yaml:1", "no preset is called `nobody`", "quickstart"],
    ),
    ("extends: my.yaml", &["forms a cycle"]),
];

#[test]
fn every_wrong_file_is_met_with_words_that_help() {
    for (text, phrases) in WRONG_FILES {
        let Err(errors) = file(text) else {
            panic!("accepted: {text}");
        };
        let report = errors.to_string();
        for phrase in *phrases {
            assert!(
                report.contains(phrase),
                "{text}\nlacks `{phrase}`:\n{report}"
            );
        }
    }
}

#[test]
fn all_issues_come_at_once_each_with_its_own_origin() {
    let (dir, sources) = nowhere();
    let text = "max_stpes: 5\nmodel:\n  n_head: 3\n  bias: maybe\nlr: -1\n";
    fs::write(dir.path().join("my.yaml"), text).unwrap();
    let errors = spec::load(
        "my.yaml",
        &["savee_every=1".into(), "seed".into()],
        &sources,
    )
    .unwrap_err();
    let places: Vec<String> = errors
        .issues()
        .iter()
        .map(|i| i.origin.to_string())
        .collect();
    assert_eq!(
        places,
        [
            "my.yaml:1",
            "my.yaml:4",
            "my.yaml:5",
            "-s savee_every=1",
            "-s seed",
            "my.yaml:3"
        ]
        .iter()
        .map(|s| s.to_string())
        .collect::<Vec<_>>()
        .as_slice(),
        "{errors}"
    );
}

#[test]
fn a_missing_file_has_neighbours() {
    let (dir, sources) = nowhere();
    fs::write(dir.path().join("corpus.txt"), "x").unwrap();
    let error = spec::load("quickstart", &["data.path=corpsu.txt".into()], &sources).unwrap_err();
    assert!(
        error.to_string().contains("did you mean corpus.txt?"),
        "{error}"
    );
    // Two of four letters are another word, not a slip.
    fs::write(dir.path().join("home"), "x").unwrap();
    for key in ["data.path", "train.from"] {
        let error = spec::load("quickstart", &[format!("{key}=nope")], &sources).unwrap_err();
        assert!(!error.to_string().contains("did you mean"), "{error}");
    }
    fs::create_dir(dir.path().join("empty")).unwrap();
    let error = spec::load("quickstart", &["data.path=empty".into()], &sources).unwrap_err();
    assert!(error.to_string().contains("no data file"), "{error}");
}

#[test]
fn an_unknown_preset_or_file_is_named_with_what_is_near() {
    let (dir, sources) = nowhere();
    fs::write(dir.path().join("my.yaml"), "").unwrap();
    for (target, phrase) in [
        ("quickstat", "did you mean quickstart?"),
        ("mx.yaml", "did you mean my.yaml?"),
        ("my", "did you mean my.yaml?"),
        ("other.toml", "specs are YAML"),
        ("zzzzzzzzz", "presets: "),
        ("./", "is a folder"),
    ] {
        let error = spec::load(target, &[], &sources).unwrap_err().to_string();
        assert!(error.contains(phrase), "{target}: {error}");
    }
}

/// A model folder `ckpt`: the model of a spec, weights that nobody reads, and a tokenizer's name.
fn base(dir: &Path, spec: &RunSpec) {
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
fn a_base_without_weights_is_refused_and_a_description_in_the_hubs_cache_is_not() {
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
        "ckpt holds a description of a model alone",
        "this folder has no weights",
        "put the weights beside it",
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
    // Of a model of the hub the weights come before the run.
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
fn a_base_fills_in_what_a_spec_leaves_out_and_contradictions_are_errors() {
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
    // Its own word for what training alone depends on, and a shorter context.
    let shorter = load("train: {from: ckpt}\ndata: {corpus: tinyshakespeare}\nmodel: {seq_len: 16, init_std: 0.5, d_model: 64}\n").unwrap();
    assert_eq!(
        (shorter.spec.model.seq_len, shorter.spec.model.init_std),
        (16, 0.5)
    );
    // Shorter rows do not shorten what the model's files name as its context; a run's own spec says both.
    let cpu = candle_core::Device::Cpu;
    let files = llmtui::nn::Model::new(&shorter.spec.model, 65, &cpu).unwrap();
    let files = llmtui::hf::config_json(&files, None);
    assert!(files.contains("\"seq_len\": 32"), "{files}");
    assert!(!shorter.notes().iter().any(|note| note.contains("context")));
    let both = "train: {from: ckpt}\ndata: {corpus: tinyshakespeare}\nmodel: {seq_len: 16, context_len: 32}\n";
    assert_eq!(load(both).unwrap().spec.model.context_len, Some(32));
    for (said, parts) in [
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
            "train: {{from: ckpt}}\ndata: {{corpus: tinyshakespeare}}\nmodel: {{{said}}}\n"
        );
        let error = load(&text).unwrap_err().to_string();
        for part in parts {
            assert!(
                error.contains(part) && error.contains("f.yaml:3"),
                "{said}: {error}"
            );
        }
    }
    let learned = load("data: {corpus: tinyshakespeare}\nmodel: {seq_len: 16, context_len: 32}\n");
    let error = learned.unwrap_err().to_string();
    assert!(error.contains("exist for seq_len 16 only"), "{error}");
    // A preset describes a new model: it gives way, but not its recipe, nor what is said besides it.
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
fn a_run_in_place_of_a_model_is_told_its_newest_checkpoint() {
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
fn a_reward_model_is_looked_at_before_the_first_answer() {
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

    // A description without weights, and a model that writes.
    base(dir.path(), &set(&[]).unwrap().spec);
    for file in ["config.json", "tokenizer.json"] {
        let _ = fs::copy(
            dir.path().join("ckpt").join(file),
            dir.path().join("rm").join(file),
        );
    }
    fs::remove_file(dir.path().join("rm/model.safetensors")).unwrap_or_default();
    let error = refusal(&rewarded);
    assert!(error.contains("a description of a model alone"), "{error}");
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
fn every_alias_works_on_the_command_line_and_in_a_file() {
    let (dir, sources) = nowhere();
    base(
        dir.path(),
        &spec::load("quickstart", &[], &sources).unwrap().spec,
    );
    fs::write(dir.path().join("t.txt"), "text").unwrap();
    for (name, target) in spec::alias::ALIASES {
        let value = match *target {
            "train.from" => "ckpt",
            "data.path" => "t.txt",
            "optimizer" => "adamw",
            "schedule" => "linear",
            "train.precision" => "f32",
            "train.activation_checkpointing" => "full",
            "data.tokenizer" => "bpe",
            "model.position" => "rope",
            "model.norm" => "rmsnorm",
            "model.mlp" => "swiglu",
            "model.position.rope.theta" => "500000.0",
            "model.n_head" | "model.n_kv_head" | "keep_last" => "4",
            "model.d_model" => "256",
            "model.attention_type" => "mha",
            "model.attention_bias" => "qkv",
            "model.qk_norm" | "model.moe.norm_topk" => "true",
            "model.dropout" | "adapter.lora.dropout" => "0.5",
            "model.moe.top_k" => "1",
            "model.moe.every" => "2",
            "model.vocab_size" => "2000",
            "model.tie_embeddings" => "false",
            "name" | "sample.prompt" => "abc",
            "train.warmup_ratio" => "0.5",
            t if t.ends_with("min_lr") || t.ends_with(".lr") || t.ends_with(".eps") => "2e-4",
            t if t.ends_with("beta1") || t.ends_with("beta2") || t.ends_with("fraction") => "0.5",
            _ => "7",
        };
        let by_word = spec::load("quickstart", &[format!("{name}={value}")], &sources)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let dashed = name.replace('_', "-");
        let nested = dashed.replacen('.', ": {", 1);
        let close = if name.contains('.') { "}" } else { "" };
        let text = format!("extends: quickstart\nname: quickstart\n{nested}: {value}{close}\n");
        let text = if *name == "run_name" {
            text.replace("name: quickstart\n", "")
        } else {
            text
        };
        fs::write(dir.path().join("f.yaml"), text).unwrap();
        let by_file = spec::load("f.yaml", &[], &sources).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(by_word.spec, by_file.spec, "{name}");
        let plain = spec::load("quickstart", &[], &sources).unwrap();
        let default_already = ["model.n_head", "model.n_kv_head", "optimizer"].contains(target);
        assert!(
            default_already || by_word.spec != plain.spec,
            "{name} changed nothing"
        );
    }
}

#[test]
fn words_are_values_of_the_right_kind() {
    let spec = set(&[
        "lr=1e-3",
        "max-steps=1e3",
        "train.micro-batch-size=4",
        "name=2024",
        "sample.prompt=\"\\n\"",
        "stop=1",
    ]);
    assert!(spec.is_err(), "stop is no alias");
    let spec = set(&[
        "lr=1e-3",
        "max-steps=1e3",
        "name=2024",
        "sample.prompt=a: b",
    ])
    .unwrap()
    .spec;
    assert_eq!(spec.optimizer.lr(), 1e-3);
    assert_eq!(spec.train.max_steps, 1000);
    assert_eq!(spec.name, "2024");
    assert_eq!(spec.sample.prompt, "a: b");
    let spec = set(&[
        "sample.prompt=\"a\\n\"",
        "sample.sampling.stop=[x, 'y z']",
        "lr=1",
        "lr=2e-4",
    ])
    .unwrap()
    .spec;
    assert_eq!(spec.sample.prompt, "a\n");
    assert_eq!(spec.sample.sampling.stop, ["x", "y z"]);
    assert_eq!(spec.optimizer.lr(), 2e-4);
}

#[test]
fn switches_of_other_tools_mean_our_words() {
    let checkpointing = |word: &str| set(&[word]).map(|l| l.spec.train.activation_checkpointing);
    let full = ActivationCheckpointing::Full {};
    assert_eq!(checkpointing("gradient_checkpointing=true").unwrap(), full);
    assert_eq!(
        checkpointing("activation_checkpointing=true").unwrap(),
        full
    );
    assert_eq!(
        checkpointing("activation-checkpointing=full").unwrap(),
        full
    );
    assert_eq!(
        checkpointing("use_gradient_checkpointing=false").unwrap(),
        ActivationCheckpointing::None {}
    );
    for text in ["{every_n: 3}", "{every_n: {n: 3}}"] {
        let said = format!("activation_checkpointing={text}");
        let every_three = ActivationCheckpointing::EveryN { n: 3 };
        assert_eq!(checkpointing(&said).unwrap(), every_three);
    }
    let precision = |word: &str| set(&[word]).unwrap().spec.train.precision;
    assert_eq!(precision("bf16=false"), Precision::F32);
    assert_eq!(precision("bf16=auto"), Precision::Auto);
    // A spec may ask for what another machine has; whether this one has it is asked before a start.
    let asked = set(&["bf16=true"]).unwrap().spec;
    assert_eq!(asked.train.precision, Precision::Bf16);
    assert_eq!(
        asked.computes_here().is_ok(),
        Precision::Bf16.resolve().is_ok()
    );
    let on_ranks = set(&["bf16=true", "engine=torch"]).unwrap().spec;
    assert!(on_ranks.computes_here().is_ok());
}

#[test]
fn choosing_another_member_replaces_the_lower_one_and_naming_the_same_keeps_it() {
    let (dir, sources) = nowhere();
    fs::write(
        dir.path().join("a.yaml"),
        "model: {position: {rope: {theta: 5}}}\nlr: 0.01\n",
    )
    .unwrap();
    let load = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
        spec::load("a.yaml", &words, &sources).unwrap()
    };
    assert_eq!(load(&[]).spec.model.position.rotary_theta(), Some(5.0));
    let kept = load(&["model.position=rope", "optimizer.adamw.beta1=0.5"]);
    assert_eq!(kept.spec.model.position.rotary_theta(), Some(5.0));
    assert_eq!(kept.spec.optimizer.lr(), 0.01);
    let replaced = load(&["model.position=learned"]);
    assert_eq!(replaced.spec.model.position.rotary_theta(), None);
    assert_eq!(
        replaced.origins.get("model.position.rope.theta"),
        Origin::Default
    );
    // A field without its member's name means the chosen member.
    let starred = load(&["model.position.theta=7", "optimizer.lr=0.02"]);
    assert_eq!(starred.spec.model.position.rotary_theta(), Some(7.0));
    assert_eq!(starred.spec.optimizer.lr(), 0.02);
}

#[test]
fn layers_lie_upon_each_other_and_every_value_knows_its_origin() {
    let (dir, mut sources) = nowhere();
    let user = dir.path().join("user");
    fs::create_dir_all(user.join("presets")).unwrap();
    fs::create_dir_all(dir.path().join("presets")).unwrap();
    fs::write(
        user.join("presets/quickstart.yaml"),
        "seed: 1\nmax_steps: 300\nlog_every: 3\n",
    )
    .unwrap();
    fs::write(
        dir.path().join("presets/quickstart.yaml"),
        "max_steps: 400\neval_every: 9\n",
    )
    .unwrap();
    sources.config_dir = Some(user);
    let loaded = spec::load("quickstart", &["eval_every=11".into()], &sources).unwrap();
    assert_eq!(
        (
            loaded.spec.seed,
            loaded.spec.train.log_every,
            loaded.spec.train.max_steps,
            loaded.spec.eval.every
        ),
        (1, 3, 400, Every::Steps(11))
    );
    assert_eq!(loaded.spec.model.n_layer, 4);
    let origin = |path: &str| loaded.origins.get(path).to_string();
    assert!(origin("seed").ends_with("user/presets/quickstart.yaml:1"));
    assert_eq!(origin("train.max_steps"), "./presets/quickstart.yaml:1");
    assert_eq!(origin("eval.every"), "-s eval_every=11");
    assert!(origin("model.n_layer").starts_with("presets/quickstart.yaml:"));
    assert_eq!(origin("model.init_std"), "default");
}

#[test]
fn a_parent_replaces_lower_namesakes_unless_it_is_them() {
    let (dir, sources) = nowhere();
    fs::create_dir_all(dir.path().join("presets")).unwrap();
    let own = dir.path().join("presets/quickstart.yaml");
    fs::write(
        dir.path().join("presets/base.yaml"),
        "model: {n_layer: 2}\n",
    )
    .unwrap();
    fs::write(&own, "extends: base\nseed: 5\n").unwrap();
    let loaded = spec::load("quickstart", &[], &sources).unwrap();
    assert_eq!((loaded.spec.model.n_layer, loaded.spec.seed), (2, 5));
    assert_eq!(
        loaded.spec.train.max_steps, 1000,
        "quickstart's 2000 is not below"
    );
    fs::write(&own, "extends: quickstart\nseed: 6\n").unwrap();
    let loaded = spec::load("quickstart", &[], &sources).unwrap();
    assert_eq!((loaded.spec.train.max_steps, loaded.spec.seed), (2000, 6));
    // Relative parents start from their child's folder; a file that says no name is called after itself.
    fs::write(
        dir.path().join("presets/child.yaml"),
        "extends: ./base.yaml\n",
    )
    .unwrap();
    let loaded = spec::load("presets/child.yaml", &[], &sources).unwrap();
    assert_eq!(
        (loaded.spec.model.n_layer, loaded.spec.name.as_str()),
        (2, "child")
    );
}

#[test]
fn circles_of_parents_are_found() {
    let (dir, sources) = nowhere();
    fs::create_dir_all(dir.path().join("presets")).unwrap();
    fs::write(dir.path().join("presets/a.yaml"), "extends: b\n").unwrap();
    fs::write(dir.path().join("presets/b.yaml"), "extends: a\n").unwrap();
    let error = spec::load("a", &[], &sources).unwrap_err().to_string();
    assert!(error.contains("a → b → a"), "{error}");
}

#[test]
fn every_preset_loads_round_trips_and_takes_other_text() {
    let (dir, sources) = nowhere();
    fs::write(dir.path().join("my.txt"), "some text\n").unwrap();
    let mut begins = std::collections::BTreeSet::new();
    for preset in spec::presets(&sources) {
        assert!(!preset.about.is_empty(), "{} has no about", preset.name);
        // What a narrow list shows of the sentence tells presets apart.
        let begin: String = preset.about.chars().take(40).collect();
        assert!(begins.insert(begin), "{}: {}", preset.name, preset.about);
        let loaded = spec::load(&preset.name, &[], &sources)
            .unwrap_or_else(|e| panic!("{}: {e}", preset.name));
        assert_eq!(loaded.spec.name, preset.name);
        // One that is made for a base model says so as long as none is named.
        let mut advice = loaded.spec.advice();
        advice.retain(|finding| finding.place != "adapter");
        assert_eq!(advice, [], "{}", preset.name);
        assert_eq!(
            RunSpec::from_yaml(&loaded.spec.to_yaml()).unwrap(),
            loaded.spec
        );
        let text = llmtui::embed::text(&format!("presets/{}.yaml", preset.name)).unwrap();
        assert!(
            text.lines().take(2).all(|l| l.starts_with("# ")),
            "{}: two opening lines",
            preset.name
        );
        // Where a preset lists sources, another text goes among them.
        if !loaded.spec.data.sources.is_empty() {
            continue;
        }
        let own = spec::load(&preset.name, &["data.path=my.txt".into()], &sources).unwrap();
        assert_eq!(
            own.spec.data.path.as_deref(),
            Some(dir.path().join("my.txt").as_path())
        );
    }
}

#[test]
fn what_was_asked_is_a_spec_of_its_own() {
    let loaded = set(&["lr=3e-3", "model.position=rope"]).unwrap();
    let (dir, sources) = nowhere();
    fs::write(dir.path().join("asked.yaml"), &loaded.asked).unwrap();
    let again = spec::load("asked.yaml", &[], &sources).unwrap();
    assert_eq!(again.spec, loaded.spec);
    assert!(
        loaded
            .asked
            .starts_with("# Requested: quickstart -s lr=3e-3")
    );
    assert!(
        !loaded.asked.contains("init_std"),
        "defaults were not asked for"
    );
}

#[test]
fn derived_numbers_are_filled_in_and_written() {
    let spec = set(&["model.mlp=swiglu", "d_model=256", "grad_accum_steps=2"])
        .unwrap()
        .spec;
    assert_eq!(spec.model.n_kv_head, Some(4));
    assert_eq!(spec.model.d_ff, Some(704));
    assert_eq!(spec.batch_tokens(), 12 * 2 * 64);
    let yaml = spec.to_yaml();
    assert!(
        yaml.contains("d_ff: 704") && yaml.contains("temperature: 0.8\n"),
        "{yaml}"
    );
}

#[test]
fn a_written_spec_needs_no_files_to_be_read_again() {
    let (dir, sources) = nowhere();
    let path = dir.path().join("my.txt");
    fs::write(&path, "text").unwrap();
    let spec = spec::load("quickstart", &["data.path=my.txt".into()], &sources)
        .unwrap()
        .spec;
    assert!(spec.data.path.as_deref().is_some_and(Path::is_absolute));
    fs::remove_file(&path).unwrap();
    assert_eq!(RunSpec::from_yaml(&spec.to_yaml()).unwrap(), spec);
    assert!(RunSpec::from_yaml("model: {n_head: 3}").is_err());
}

proptest::proptest! {
    #[test]
    fn floats_keep_every_bit(lr in 1e-12f64..10.0, beta in 0.0f64..0.999, temperature in 0.0f32..5.0) {
        let words = [format!("lr={lr}"), format!("beta2={beta:e}"), "schedule=constant".to_string(),
            format!("sample.sampling.temperature={temperature}")];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let spec = set(&words).unwrap().spec;
        let llmtui::optim::OptimizerConfig::AdamW(adamw) = &spec.optimizer else {
            panic!("the default is AdamW")
        };
        proptest::prop_assert_eq!(adamw.lr.to_bits(), lr.to_bits());
        proptest::prop_assert_eq!(adamw.beta2.to_bits(), beta.to_bits());
        proptest::prop_assert_eq!(spec.sample.sampling.temperature.to_bits(), temperature.to_bits());
        let again = RunSpec::from_yaml(&spec.to_yaml()).unwrap();
        proptest::prop_assert_eq!(&again, &spec);
    }

    #[test]
    fn no_text_makes_the_loader_panic(text in "\\PC{0,80}", word in "\\PC{0,40}") {
        let _ = file(&text);
        let _ = set(&[&word]);
    }

    #[test]
    fn any_name_and_prompt_survive_writing(prompt in "\\PC*|[ \n\t#:'\"-]*") {
        let (_dir, sources) = nowhere();
        let quoted = serde_json::to_string(&prompt).unwrap();
        let spec = spec::load("quickstart", &[format!("sample.prompt={quoted}")], &sources).unwrap().spec;
        proptest::prop_assert_eq!(&spec.sample.prompt, &prompt);
        proptest::prop_assert_eq!(RunSpec::from_yaml(&spec.to_yaml()).unwrap(), spec);
    }
}

#[test]
fn poor_settings_are_advised_against_but_run() {
    let spec = set(&["max_steps=20", "lr=0.1", "clip_norm=0"])
        .unwrap()
        .spec;
    let advice: Vec<String> = spec.advice().into_iter().map(|a| a.place).collect();
    assert_eq!(advice, ["optimizer", "schedule", "train.clip_norm"]);
}

#[test]
fn a_tilde_in_a_spec_means_the_users_home_and_a_run_holds_the_whole_path() {
    let (dir, mut sources) = nowhere();
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("base.yaml"), "extends: quickstart\nseed: 7\n").unwrap();
    for name in ["train.txt", "val.txt", "more.txt"] {
        fs::write(home.join(name), "some text\n".repeat(400)).unwrap();
    }
    sources.home = Some(home.clone());
    let own = "extends: ~/base.yaml\ndata: {val_path: ~/val.txt}\n\
               eval: {extra: [{name: more, source: ~/more.txt}]}\n";
    fs::write(dir.path().join("my.yaml"), own).unwrap();
    let set = ["data.path=~/train.txt".to_string()];
    let loaded = spec::load("my.yaml", &set, &sources).unwrap();
    assert_eq!(loaded.spec.seed, 7);
    let asked = &loaded.asked;
    assert!(
        asked.contains("~/train.txt") && asked.contains("~/val.txt"),
        "{asked}"
    );
    let yaml = loaded.spec.to_yaml();
    assert!(!yaml.contains('~'), "{yaml}");
    for name in ["train.txt", "val.txt", "more.txt"] {
        let whole = home.join(name).display().to_string();
        assert!(yaml.contains(&whole), "{whole}: {yaml}");
    }
    let words = |preset: &str, word: &str| {
        let errors = spec::load(preset, &[word.to_string()], &sources).unwrap_err();
        errors.to_string()
    };
    let gone = home.join("tarin.txt").display().to_string();
    let said = words("quickstart", "data.path=~/tarin.txt");
    assert!(
        said.contains(&gone) && said.contains("did you mean"),
        "{said}"
    );
    let gone = home.join("models/x").display().to_string();
    assert!(words("quickstart", "train.from=~/models/x").contains(&gone));
    // Whole by then: nothing is relative about it.
    assert!(!words("quickstart", "data.path=~/else.csv").contains("relative"));
    assert!(words("quickstart", "data.tokenizer.file.path=~/t.json").contains("home/t.json"));
    let rewards = "rewards=[{model: {path: ~/judge}}]";
    assert!(words("grpo-sort", rewards).contains("home/judge"));
}
