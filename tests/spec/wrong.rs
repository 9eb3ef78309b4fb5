//! Invalid files and arguments: each error has its location, the cause and what helps.

use super::*;

/// (text of a file, phrases that the error must contain)
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
    ("model:", &["the value is missing"]),
    (
        "model:\n  position: roep",
        &["unknown value `roep`", "did you mean rope?"],
    ),
    (
        "model:\n  position: {learned: {}, rope: {}}",
        &["both learned and rope"],
    ),
    (
        "model: {position: {rope: {theta: 0.5}}}",
        &["0.5 is too small"],
    ),
    (
        "data: {val_fraction: 0}",
        &["held-out", "0.01 leaves 99 %", "data.val_path"],
    ),
    ("data: {val_fraction: -1}", &["a number above 0, up to 0.9"]),
    ("optimizer: sgd", &["unknown value `sgd`", "adamw"]),
    (
        "optimizer: {adamw: {momentum: 0.9}}",
        &["optimizer.adamw.momentum", "unknown key"],
    ),
    (
        "lr: 1e-3\noptimizer: {adamw: {lr: 1e-4}}",
        &["set twice", "remove one"],
    ),
    ("lr: fast", &["a number", "the text `fast`"]),
    ("lr: 0", &["nothing is learned"]),
    (
        "optimizer: {adamw: {eps: 0}}",
        &["optimizer.adamw.eps", "divides by 0", "1e-8 is typical"],
    ),
    (
        "optimizer: {muon: {adamw_eps: 1e-30}}",
        &["optimizer.muon.adamw_eps", "the minimum is 1e-20"],
    ),
    (
        "optimizer: {adafactor: {eps: 0}}",
        &["optimizer.adafactor.eps", "the minimum is 1e-37"],
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
    ("activation_checkpointing: ful", &["did you mean full?"]),
    (
        "activation_checkpointing: all",
        &["unknown value `all`", "one of: none, every_n, full"],
    ),
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
        &["unknown corpus", "tinyshakespeare"],
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
        "train: {batch_ramp: [{until_step: 10, grad_accum_steps: 1}]}",
        &["no fewer micro-steps than train.grad_accum_steps=1"],
    ),
    (
        "train: {grad_accum_steps: 8, batch_ramp: [{until_step: 10, grad_accum_steps: 2}, {until_step: 5, grad_accum_steps: 4}]}",
        &[
            "{grad_accum_steps: 4, until_step: 5} ends no later",
            "step 10",
        ],
    ),
    (
        "train: {grad_accum_steps: 8, batch_ramp: [{until_step: 10, grad_accum_steps: 2}, {until_step: 20, grad_accum_steps: 2}]}",
        &["no more micro-steps than the stage before it, 2"],
    ),
    (
        "method: {dpo: {mix: hinge}}",
        &[
            "my.yaml:1",
            "method.dpo.mix",
            "expected a list",
            "write [{loss: …, weight: …}]",
        ],
    ),
    (
        "method: {dpo: {mix: [hinge]}}",
        &[
            "method.dpo.mix[0]",
            "expected a section of keys, found the text `hinge`",
            "write {loss: …, weight: …}",
        ],
    ),
    (
        "method: {dpo: {mix: [{loss: hinge, weight: 1}, {loss: hing, weight: 0.5}]}}",
        &[
            "method.dpo.mix[1].loss",
            "found the text `hing`",
            "did you mean hinge?",
        ],
    ),
    (
        "method: {dpo: {mix: [{loss: hinge, weight: \"2\"}]}}",
        &[
            "mix[0].weight",
            "expected a number",
            "write 2 without quotes",
        ],
    ),
    // YAML takes it for a text.
    ("max_steps: 010", &["max_steps", "write 10"]),
    (
        "method: {dpo: {mix: [{loss: hinge}]}}",
        &["method.dpo.mix[0]", "weight is missing"],
    ),
    (
        "method: {dpo: {mix: [{los: hinge, weight: 1}]}}",
        &["method.dpo.mix[0]", "unknown key los", "did you mean loss?"],
    ),
    (
        "train: {batch_ramp: [{until_step: x, grad_accum_steps: 1}]}",
        &["train.batch_ramp[0].until_step", "expected a whole number"],
    ),
    (
        "rewards: [{length: {fre: 3}}]",
        &[
            "my.yaml:1",
            "rewards[0]",
            "length: unknown key fre",
            "did you mean free?",
        ],
    ),
    (
        "rewards: [accuracy]",
        &["unknown reward `accuracy`", "one of exact, number,"],
    ),
    (
        "tokenizer: tok",
        &["unknown value `tok`", "data.tokenizer.file.path=tok"],
    ),
    (
        "tokenizer: ../my-tok",
        &["try: data.tokenizer.file.path=../my-tok"],
    ),
    (
        "adapter: {lora: {targets: [q_proj, v_proj]}}",
        // The default model is a GPT-2, whose queries and values are one matrix.
        &[
            "no linear layer of this model has a name like that",
            "llmtui model show",
        ],
    ),
    (
        "adapter: {lora: {targets: q_proj}}",
        &["-s adapter.lora.targets=custom -s adapter.lora.custom=[query]"],
    ),
    (
        "adapter: {lora: {targets: custom, custom: [k_proj, query]}}",
        &["-s adapter.lora.targets=custom -s adapter.lora.custom=[query,key]"],
    ),
    (
        "adapter: {lora: {targets: [Wqkv, q_proj]}}",
        &["no linear layer of this model has a name like that"],
    ),
    ("precision: float32", &["did you mean f32?"]),
    ("precision: bf", &["did you mean bf16?"]),
    ("clip: 1", &["did you mean clip_norm?"]),
    ("heads: 4", &["did you mean n_head?"]),
    ("width: 4", &["did you mean model.d_model?"]),
    ("grad_accum: 4", &["did you mean train.grad_accum_steps?"]),
    ("batch: 4", &["did you mean train.micro_batch_size?"]),
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
    ("sample: {sampling: {top_p: 0}}", &["top_p must be above 0"]),
    (
        "sample: {sampling: {stop: [1]}}",
        &["expected text, found 1"],
    ),
    ("a: [1\nb: 2", &["not valid YAML", "my.yaml:"]),
    ("seed: 1\nseed: 2", &["duplicate key `seed`"]),
    ("- a\n- b", &["not a map of keys"]),
    ("extends: [a, b]", &["extends at most one other"]),
    (
        "extends: nobody",
        &["my.yaml:1", "unknown preset `nobody`", "quickstart"],
    ),
    ("extends: my.yaml", &["forms a cycle"]),
];

#[test]
fn every_wrong_file_gets_a_helpful_message() {
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

/// What was typed meant something, and the message said only what it is not.
#[test]
fn what_people_type_out_of_habit_gets_the_right_words() {
    let (dir, sources) = nowhere();
    fs::write(dir.path().join("foo.txt"), "text").unwrap();
    for (word, hint) in [
        ("data=foo.txt", "data.path=foo.txt"),
        ("model=org/name", "train.from=org/name"),
        ("bs=3", "train.micro_batch_size"),
        ("warmup=10", "warmup_steps"),
        ("global_batch_size=64", "train.grad_accum_steps"),
        ("dataset_path=foo.txt", "data.path"),
        ("lr=1e-3,2e-3", "llmtui sweep SPEC --over lr=1e-3,2e-3"),
        ("seed=[1, 2]", "--over seed=1,2"),
        ("max_steps=1,000", "write 1000"),
    ] {
        let errors = spec::load("quickstart", &[word.into()], &sources).unwrap_err();
        let hints: Vec<&str> = errors.issues().iter().map(|i| i.hint.as_str()).collect();
        assert!(hints.iter().any(|h| h.contains(hint)), "{word}: {errors}");
    }
    for (preset, hint) in [
        ("grpo", "grpo-arithmetic, grpo-gsm8k or grpo-sort"),
        ("ppo", "ppo-demo"),
        ("quikstart", "quickstart"),
    ] {
        let errors = spec::load(preset, &[], &sources).unwrap_err();
        assert!(errors.to_string().contains(hint), "{preset}: {errors}");
    }
}

#[test]
fn all_issues_are_reported_at_once_each_with_its_own_origin() {
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

/// Items of lists are read by their own types: the first faulty one hid the others, and every fault of a file.
#[test]
fn every_item_of_a_list_and_every_missing_file_is_reported_at_once() {
    let errors = |text: &str| -> Vec<(String, String)> {
        let (dir, sources) = nowhere();
        fs::write(dir.path().join("my.yaml"), text).unwrap();
        let errors = spec::load("my.yaml", &[], &sources).unwrap_err();
        let issues = errors.issues().iter();
        issues.map(|i| (i.path.clone(), i.hint.clone())).collect()
    };
    let found = errors(
        "extends: grpo-sort\nrewards: [numbr, exact, {lenght: {}}, tgas]\ntrain: {from: nowhere/x.gguf}\noptimzer: 3\n",
    );
    let meant = |path: &str| {
        let issue = found.iter().find(|(at, _)| at == path);
        issue
            .map(|(_, hint)| hint.as_str())
            .unwrap_or_else(|| panic!("{path}: {found:?}"))
    };
    assert_eq!(meant("optimzer"), "did you mean optimizer?");
    assert_eq!(meant("rewards[0]"), "did you mean number?");
    assert_eq!(meant("rewards[2]"), "did you mean length?");
    assert_eq!(meant("rewards[3]"), "did you mean tags?");
    assert!(!meant("train.from").is_empty());
    assert_eq!(found.len(), 5, "{found:?}");
    let found = errors("data: {sources: [\"a | b | x\", \"a.txt\", {pth: b}]}\n");
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["data.sources[0]", "data.sources[2].pth"]);
}

#[test]
fn a_rule_between_values_names_the_users_own_and_not_the_presets() {
    let (dir, sources) = nowhere();
    let said = |target: &str, set: &[String]| {
        let errors = spec::load(target, set, &sources).unwrap_err();
        let issue = errors
            .issues()
            .iter()
            .find(|i| i.what.contains("multiple of n_head"));
        let issue = issue.unwrap_or_else(|| panic!("{errors}"));
        format!("{} {}", issue.origin, issue.path)
    };
    let set = ["model.d_model=130".to_string()];
    assert_eq!(
        said("quickstart", &set),
        "-s model.d_model=130 model.d_model"
    );
    fs::write(
        dir.path().join("my.yaml"),
        "extends: quickstart\nmodel:\n  d_model: 130\n",
    )
    .unwrap();
    assert_eq!(said("my.yaml", &[]), "my.yaml:3 model.d_model");
    assert_eq!(
        said("my.yaml", &["n_head=3".into()]),
        "-s n_head=3 model.n_head"
    );
}

#[test]
fn a_missing_file_gets_similar_names() {
    let (dir, sources) = nowhere();
    fs::write(dir.path().join("corpus.txt"), "x").unwrap();
    let error = spec::load("quickstart", &["data.path=corpsu.txt".into()], &sources).unwrap_err();
    assert!(
        error.to_string().contains("did you mean corpus.txt?"),
        "{error}"
    );
    // Two of four letters differ: another word, not a typo.
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
fn an_unknown_preset_or_file_is_named_with_similar_ones() {
    let (dir, sources) = nowhere();
    fs::write(dir.path().join("my.yaml"), "").unwrap();
    for (target, phrase) in [
        ("quickstat", "did you mean quickstart?"),
        ("mx.yaml", "did you mean my.yaml?"),
        ("my", "did you mean my.yaml?"),
        ("other.toml", "specs are YAML"),
        ("zzzzzzzzz", "known: "),
        ("./", "is a folder"),
        ("", "the name of the spec is empty"),
    ] {
        let error = spec::load(target, &[], &sources).unwrap_err().to_string();
        assert!(error.contains(phrase), "{target}: {error}");
    }
}
