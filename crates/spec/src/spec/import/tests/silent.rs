//! What a file leaves to its tool, keys with an equivalent of another form, and datasets by name.

use super::*;
use serde_json::json;

fn value(text: &str, path: &str) -> Value {
    import("x", text, None).unwrap().draft.value(path)
}

const LF: &str = "model_name_or_path: m\ncutoff_len: 64\n";
const AX: &str = "base_model: m\nsequence_len: 64\n";
const TRL: &str = "dataset_name: d\n";

/// Axolotl names methods of rewards and preferences only; without one it is supervised, but for plain text.
#[test]
fn axolotl_is_supervised_fine_tuning_unless_all_data_are_plain_text() {
    let sets = |list: &str| format!("{AX}datasets: {list}\n");
    for (text, method) in [
        (sets("[{path: a, type: alpaca}]"), "sft"),
        (sets("[{path: a, type: chat_template}]"), "sft"),
        (sets("[{path: a, type: {field_instruction: q}}]"), "sft"),
        (sets("[{path: a}]") + "rl:\n", "sft"),
        (
            sets("[{path: a, type: completion}, {path: b, type: alpaca}]"),
            "sft",
        ),
        (sets("[{path: a, type: completion}]"), "pretrain"),
        (sets("[{path: a, type: \"completion:text\"}]"), "pretrain"),
        (format!("{AX}pretraining_dataset: a\n"), "pretrain"),
        (sets("[{path: a, type: chatml.intel}]") + "rl: dpo\n", "dpo"),
        (sets("[{path: a}]") + "reward_model: true\n", "reward"),
    ] {
        assert_eq!(value(&text, "method"), method, "{text}");
    }
    let masked = sets("[{path: a, type: alpaca}]") + "train_on_inputs: false\nadapter: lora\n";
    assert_eq!(value(&masked, "data.train_on"), "auto");
    assert_eq!(
        value("model_name_or_path: m\nlora_target: all\n", "method"),
        "sft"
    );
}

#[test]
fn what_the_file_leaves_out_is_what_the_tool_does_without_it() {
    let hf = [
        ("train.epochs", json!(3.0)),
        ("train.micro_batch_size", json!(8)),
        ("optimizer", json!("adamw")),
        ("optimizer.adamw.weight_decay", json!(0.0)),
        ("schedule", json!("linear")),
        ("schedule.linear.min_lr", json!(0.0)),
        ("train.clip_norm", json!(1.0)),
        ("seed", json!(42)),
        ("data.val_fraction", json!(0.01)),
        ("data.packing", json!("padded")),
    ];
    for text in [LF, TRL] {
        for (path, wanted) in &hf {
            assert_eq!(value(text, path), *wanted, "{text}: {path}");
        }
    }
    for (text, path, wanted) in [
        (LF, "optimizer.adamw.lr", json!(5e-5)),
        (TRL, "optimizer.adamw.lr", json!(2e-5)),
        (TRL, "model.seq_len", json!(1024)),
        (
            "model_name_or_path: m\nlora_rank: 4\n",
            "model.seq_len",
            json!(2048),
        ),
        (AX, "train.epochs", json!(1.0)),
        (AX, "train.micro_batch_size", json!(1)),
        (AX, "train.warmup_ratio", json!(0.03)),
        (AX, "schedule.cosine.min_lr", json!(0.0)),
        (AX, "optimizer.adamw.weight_decay", json!(0.0)),
    ] {
        assert_eq!(value(text, path), wanted, "{text}: {path}");
    }
    let dpo = format!("{TRL}beta: 0.2\n");
    assert_eq!(value(&dpo, "optimizer.adamw.lr"), 1e-6);
    let grpo = format!("{TRL}reward_funcs: [f]\n");
    assert_eq!(value(&grpo, "rollout.group_size"), 8);
    assert_eq!(value(&grpo, "rollout.max_new_tokens"), 512);
    let simpo = format!("{LF}stage: dpo\npref_loss: simpo\n");
    assert_eq!(value(&simpo, "method.simpo.beta"), 0.1);
    // The spec says where a value comes from, and so does the report.
    let imported = import("x", LF, None).unwrap();
    let yaml = imported.draft.to_yaml(&[]);
    assert!(
        yaml.contains("# the default of llama-factory\n  epochs: 3"),
        "{yaml}"
    );
    let epochs = imported
        .lines
        .iter()
        .find(|l| l.ours.starts_with("train.epochs"));
    assert_eq!(epochs.unwrap().outcome, KeyOutcome::Default);
}

#[test]
fn what_the_file_says_counts_before_any_default() {
    let said = "num_train_epochs: 2\nper_device_train_batch_size: 3\nlr_scheduler_type: cosine\nwarmup_steps: 5\nweight_decay: 0.2\n\
        seed: 7\nval_size: 0.2\npacking: true\nlearning_rate: 1.0e-3\nmax_steps: -1\nreport_to:\n";
    let text = format!("{LF}{said}");
    for (path, wanted) in [
        ("train.epochs", json!(2.0)),
        ("train.micro_batch_size", json!(3)),
        ("schedule.cosine.warmup_steps", json!(5)),
        ("optimizer.adamw.weight_decay", json!(0.2)),
        ("seed", json!(7)),
        ("data.val_fraction", json!(0.2)),
        ("data.packing", json!("packed")),
        ("optimizer.adamw.lr", json!(1e-3)),
    ] {
        assert_eq!(value(&text, path), wanted, "{path}");
    }
    let imported = import("x", &text, None).unwrap();
    assert_eq!(
        outcome(&imported, "max_steps").outcome,
        KeyOutcome::Needless
    );
    assert_eq!(
        outcome(&imported, "report_to").outcome,
        KeyOutcome::Needless
    );
    let steps = format!("{TRL}max_steps: 40\n");
    assert!(value(&steps, "train.epochs").is_null());
    let none = format!("{AX}val_set_size: 0.0\n");
    assert_eq!(value(&none, "data.val_fraction"), 0.01);
    let adafactor = import(
        "x",
        &format!("{LF}optim: adafactor\nadam_epsilon: 1.0e-6\n"),
        None,
    );
    assert_eq!(
        adafactor.unwrap().draft.value("optimizer.adafactor.eps"),
        1e-30
    );
}

#[test]
fn floors_of_schedules_are_taken_over_as_rates_and_as_shares() {
    for (text, path, wanted) in [
        (
            "lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 1.0e-6}\n",
            "cosine.min_lr",
            1e-6,
        ),
        (
            "lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: 0.1}\n",
            "cosine.min_lr",
            2e-6,
        ),
        ("lr_scheduler_type: polynomial\n", "polynomial.power", 1.0),
        ("lr_scheduler_type: polynomial\n", "polynomial.min_lr", 1e-7),
        (
            "lr_scheduler_type: polynomial\nlr_scheduler_kwargs: {lr_end: 1.0e-6}\n",
            "polynomial.min_lr",
            1e-6,
        ),
        ("lr_scheduler_type: linear\n", "linear.min_lr", 0.0),
        (
            "lr_scheduler_type: polynomial\nlr_scheduler_kwargs: {power: 3.0}\n",
            "polynomial.power",
            3.0,
        ),
    ] {
        let text = format!("{TRL}{text}");
        assert_eq!(value(&text, &format!("schedule.{path}")), wanted, "{text}");
    }
    let ax = format!("{AX}learning_rate: 2.0e-4\ncosine_min_lr_ratio: 0.2\n");
    assert_eq!(value(&ax, "schedule.cosine.min_lr"), 4e-5);
}

#[test]
fn modules_with_adapters_are_sets_kinds_or_patterns() {
    let lora =
        |line: &str, path: &str| value(&format!("{LF}{line}\n"), &format!("adapter.lora.{path}"));
    for (line, targets) in [
        ("lora_target: all", "all"),
        ("lora_target: q_proj,v_proj", "minimal"),
        (
            "lora_target: v_proj, q_proj, o_proj, k_proj",
            "attention_only",
        ),
        (
            "lora_target: q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj",
            "custom",
        ),
        ("lora_target: q_proj,k_proj", "custom"),
        ("lora_target: query_key_value,dense", "attention_only"),
        ("lora_target: query_key_value", "custom"),
        ("lora_target: qkv_proj,o_proj", "pattern"),
    ] {
        assert_eq!(lora(line, "targets"), targets, "{line}");
    }
    assert_eq!(
        lora("lora_target: k_proj,q_proj", "custom"),
        json!(["query", "key"])
    );
    assert_eq!(
        lora("lora_target: qkv_proj,o_proj", "patterns"),
        json!(["qkv_proj", "o_proj"])
    );
    let whole = "additional_target: embed_tokens,lm_head";
    assert_eq!(
        lora(whole, "modules_to_save"),
        json!(["embeddings", "head"])
    );
    let regex = import(
        "x",
        &format!("{AX}adapter: lora\nlora_target_modules: \"model.*(q|v)_proj\"\n"),
        None,
    );
    assert_eq!(
        outcome(&regex.unwrap(), "lora_target_modules").outcome,
        KeyOutcome::NoEqual
    );
    let listed =
        "adapter: lora\nlora_target_linear: false\nlora_target_modules: [q_proj, v_proj]\n";
    let listed = import("x", &format!("{AX}{listed}"), None).unwrap();
    assert_eq!(
        outcome(&listed, "lora_target_linear").outcome,
        KeyOutcome::Needless
    );
    assert_eq!(listed.draft.value("adapter.lora.targets"), "minimal");
}

/// A list has no layers of mixers unless it names them; `all` has.
#[test]
fn lists_of_modules_are_the_layers_that_the_base_has_under_these_names() {
    use crate::nn::ModelConfig;
    let base = |says: Value| -> ModelConfig { serde_json::from_value(says).unwrap() };
    let plain = || base(json!({"position": {"rope": {}}, "mlp": {"swiglu": {}}}));
    let qwen = || {
        base(json!({
            "position": {"rope": {}}, "mlp": {"swiglu": {}}, "attention_gate": true,
            "mixer": {"gated_delta_net": {}}, "attention_every": 4,
        }))
    };
    let lfm = || {
        base(json!({
            "position": {"rope": {}}, "mlp": {"swiglu": {}},
            "mixer": {"short_conv": {}}, "attention_every": 4,
        }))
    };
    let granite = || {
        base(json!({
            "position": {"none": {}}, "mlp": {"swiglu": {}}, "norm": {"rmsnorm": {}},
            "mixer": {"mamba2": {}}, "attention_every": 4,
        }))
    };
    let seven = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj";
    let of_seven = ["query", "key", "value", "output", "gate", "up", "down"];
    let inputs = "in_proj_qkv,in_proj_z,in_proj_b,in_proj_a";
    for (model, names, path, wanted) in [
        (None, seven.into(), "custom", json!(of_seven)),
        (Some(plain()), seven.into(), "custom", json!(of_seven)),
        (
            Some(qwen()),
            seven.into(),
            "custom",
            json!([
                "query",
                "key",
                "value",
                "attention_gate",
                "output",
                "gate",
                "up",
                "down"
            ]),
        ),
        (
            Some(granite()),
            "q_proj,in_proj,out_proj,input_linear,output_linear".into(),
            "custom",
            json!(["query", "mixer_in", "mixer_out", "gate", "up", "down"]),
        ),
        (
            Some(plain()),
            "q_proj,v_proj".into(),
            "targets",
            json!("minimal"),
        ),
        (
            Some(qwen()),
            "q_proj,v_proj".into(),
            "custom",
            json!(["query", "value", "attention_gate"]),
        ),
        (
            Some(qwen()),
            "q_proj,k_proj,v_proj,o_proj".into(),
            "targets",
            json!("attention_only"),
        ),
        (
            Some(qwen()),
            format!("o_proj,out_proj,{inputs}"),
            "custom",
            json!(["output", "mixer_in", "mixer_out"]),
        ),
        // One of four that are one kind here.
        (
            Some(qwen()),
            "q_proj,in_proj_z".into(),
            "patterns",
            json!(["q_proj", "in_proj_z", "q_gate_proj"]),
        ),
        (
            Some(lfm()),
            "q_proj,out_proj,in_proj,w1".into(),
            "custom",
            json!(["query", "output", "mixer_in", "mixer_out", "gate"]),
        ),
        (
            Some(plain()),
            "out_proj".into(),
            "custom",
            json!(["output"]),
        ),
    ] {
        let names: String = names;
        let known = Known {
            model: model.map(Box::new),
            ..Known::default()
        };
        let imported = import_with("x", &format!("{LF}lora_target: {names}\n"), &known).unwrap();
        let value = imported.draft.value(&format!("adapter.lora.{path}"));
        assert_eq!(value, wanted, "{names}");
    }
    let all = import("x", &format!("{LF}lora_target: all\n"), None).unwrap();
    assert_eq!(all.draft.value("adapter.lora.targets"), "all");
}

#[test]
fn keys_of_the_data_and_of_noise_have_their_equivalents() {
    let lf = |line: &str, path: &str| value(&format!("{LF}{line}\n"), path);
    assert_eq!(
        lf("neftune_noise_alpha: 5", "method.sft.neftune_alpha"),
        5.0
    );
    let imported = import(
        "x",
        &format!("stage: dpo\n{LF}neftune_noise_alpha: 5\n"),
        None,
    )
    .unwrap();
    let mut lines = imported.lines.iter();
    let line = lines.find(|l| l.theirs.contains("neftune")).unwrap();
    assert_eq!(line.words, "a setting of method: sft alone here");
    assert_eq!(lf("train_on_prompt: true", "data.train_on"), "all");
    assert_eq!(lf("mask_history: true", "data.train_on"), "completion");
    assert_eq!(lf("neat_packing: true", "data.packing"), "packed");
    assert_eq!(lf("neat_packing: false", "data.packing"), "padded");
    let both = |neat: bool| {
        lf(
            &format!("packing: true\nneat_packing: {neat}"),
            "data.packing",
        )
    };
    assert_eq!(
        (both(true), both(false)),
        (json!("packed"), json!("packed"))
    );
    let text = format!(
        "{AX}lora_model_dir: out\nloss_watchdog_threshold: 5.0\neval_sample_packing: false\nevals_per_epoch: 4\n"
    );
    let imported = import("x", &text, None).unwrap();
    assert!(
        imported
            .lines
            .iter()
            .all(|l| l.outcome != KeyOutcome::Unknown)
    );
    assert_eq!(
        outcome(&imported, "lora_model_dir").outcome,
        KeyOutcome::NoEqual
    );
}

/// LLaMA-Factory's datasets are names in a file of its own.
#[test]
fn datasets_by_name_are_found_in_dataset_info() {
    let dir = tempfile::tempdir().unwrap();
    let info = json!({
        "mine": {"file_name": "mine.json", "columns": {"prompt": "q", "response": "a", "query": "input"}},
        "pairs": {"file_name": "pairs.json", "formatting": "sharegpt", "ranking": true,
            "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"}},
        "roles": {"hf_hub_url": "org/set", "subset": "en", "formatting": "sharegpt", "num_samples": 9,
            "columns": {"messages": "messages"}, "tags": {"role_tag": "role", "content_tag": "content"}},
        "texts": {"file_name": "texts.json", "columns": {"prompt": "body"}},
        "book": {"file_name": "book.txt"},
    });
    std::fs::create_dir(dir.path().join("sets")).unwrap();
    std::fs::write(dir.path().join("sets/dataset_info.json"), info.to_string()).unwrap();
    let read = |more: &str| {
        let text = format!("model_name_or_path: m\ncutoff_len: 64\ndataset_dir: sets\n{more}\n");
        let info = DatasetInfo::of(&dir.path().join("x.yaml"), &text);
        let known = Known {
            info: info.as_ref(),
            ..Known::default()
        };
        import_with("x", &text, &known).unwrap()
    };
    let at = |file: &str| dir.path().join("sets").join(file).display().to_string();
    let imported = read("dataset: mine, roles");
    assert_eq!(
        imported.draft.value("data.sources"),
        json!([
            {"path": at("mine.json"), "format": "alpaca", "columns": {"instruction": "q", "output": "a"}},
            {"hub": "org/set", "subset": "en", "format": "messages"},
        ])
    );
    assert_eq!(outcome(&imported, "dataset").outcome, KeyOutcome::Mapped);
    assert_eq!(
        outcome(&imported, "dataset_info.json roles.num_samples").outcome,
        KeyOutcome::NoEqual
    );
    assert_eq!(imported.draft.value("data.mix"), "concatenate");
    let joined = |line: &&Line| line.theirs == "(several datasets)";
    assert!(
        imported
            .lines
            .iter()
            .find(joined)
            .is_some_and(|l| l.outcome == KeyOutcome::Mapped)
    );
    let pairs = read("stage: dpo\ndataset: pairs")
        .draft
        .value("data.sources");
    let columns = json!({"prompt": "conversations"});
    assert_eq!(
        pairs,
        json!([{"path": at("pairs.json"), "format": "preference", "columns": columns}])
    );
    let texts = read("stage: pt\ndataset: texts")
        .draft
        .value("data.sources");
    assert_eq!(
        texts,
        json!([{"path": at("texts.json"), "format": "text", "columns": {"text": "body"}}])
    );
    assert_eq!(
        read("stage: pt\ndataset: book").draft.value("data.path"),
        at("book.txt")
    );
    // Names that are not in it are told as before.
    assert_eq!(
        outcome(&read("dataset: other"), "dataset").outcome,
        KeyOutcome::Differs
    );
}

/// The line of a report about one of their keys.
fn told(text: &str, theirs: &str) -> Line {
    let lines = import("x", text, None).unwrap().lines;
    let found = lines.iter().find(|line| line.theirs.starts_with(theirs));
    found
        .unwrap_or_else(|| panic!("{theirs}: {lines:#?}"))
        .clone()
}

#[test]
fn a_file_of_axolotl_without_its_learning_rate_says_which_counts() {
    let line = told(AX, "(no learning_rate)");
    assert_eq!(line.outcome, KeyOutcome::NoEqual);
    let default = value(AX, "optimizer.adamw.lr");
    assert_eq!(
        line.ours,
        format!("optimizer.adamw.lr: {}", shown(&default))
    );
    assert!(line.words.contains("the default of llmtui"), "{line:?}");
    let said = import("x", &format!("{AX}learning_rate: 1e-4\n"), None).unwrap();
    assert!(!said.lines.iter().any(|l| l.theirs.contains("no learning")));
}

#[test]
fn qlora_says_in_which_format_the_base_is_frozen() {
    let line = told(&format!("{AX}adapter: qlora\n"), "adapter: qlora");
    assert_eq!(
        (line.outcome, &*line.ours),
        (KeyOutcome::Differs, "adapter: lora")
    );
    assert!(line.words.contains("frozen in f32") && line.words.contains("NF4"));
    let plain = told(&format!("{AX}adapter: lora\n"), "adapter: lora");
    assert_eq!(plain.outcome, KeyOutcome::Mapped);
}

#[test]
fn the_tokens_that_trl_learns_of_a_conversation_are_told_even_where_the_file_is_silent() {
    let silent = told(TRL, "(assistant_only_loss: false)");
    assert_eq!(
        (silent.outcome, &*silent.ours),
        (KeyOutcome::Default, "data.train_on: auto")
    );
    let off = told(
        &format!("{TRL}assistant_only_loss: false\n"),
        "assistant_only_loss",
    );
    assert_eq!(off.outcome, KeyOutcome::Differs);
    for line in [silent, off] {
        assert!(line.words.contains("every token"), "{line:?}");
    }
    let on = told(
        &format!("{TRL}assistant_only_loss: true\n"),
        "assistant_only_loss",
    );
    assert_eq!(
        (on.outcome, &*on.ours),
        (KeyOutcome::Mapped, "data.train_on: assistant")
    );
    let dpo = import("x", &format!("{TRL}beta: 0.1\n"), None).unwrap();
    assert!(
        !dpo.lines.iter().any(|l| l.theirs.contains("only_loss")),
        "pairs have no such choice"
    );
}

#[test]
fn the_column_of_plain_text_is_carried_over_and_what_is_not_says_so() {
    let sets = |map: &str| format!("{AX}datasets: [{map}]\n");
    let texts = sets("{path: a.jsonl, field: body, type: completion}");
    let line = told(&texts, "datasets[0].field");
    assert_eq!(
        (line.outcome, &*line.ours),
        (KeyOutcome::Mapped, "columns: text: body")
    );
    let source = &value(&texts, "data.sources")[0];
    assert_eq!(
        (&source["format"], &source["columns"]),
        (&json!("text"), &json!({"text": "body"}))
    );
    let needless = sets("{path: a.jsonl, type: alpaca, field: text}");
    assert_eq!(
        told(&needless, "datasets[0].field").outcome,
        KeyOutcome::Needless
    );
    let other = sets("{path: a.jsonl, type: chat_template, roles_to_train: [user]}");
    let line = told(&other, "datasets[0].roles_to_train");
    assert!(
        line.outcome == KeyOutcome::NoEqual && line.words.contains("not carried over"),
        "{line:?}"
    );
}

/// One row in a micro-batch has no other answers: the rows of a step lie in fewer parts.
#[test]
fn rows_of_kto_lie_together() {
    let batch = |rows: &str| {
        let text = format!("{LF}stage: kto\n{rows}");
        let imported = import("x", &text, None).unwrap();
        let of = |path: &str| imported.draft.value(&format!("train.{path}"));
        (
            of("micro_batch_size"),
            of("grad_accum_steps"),
            imported.lines,
        )
    };
    let rows =
        |n: u64| format!("per_device_train_batch_size: 1\ngradient_accumulation_steps: {n}\n");
    let (micro, parts, lines) = batch(&rows(8));
    assert_eq!((micro, parts), (json!(2), json!(4)));
    let told = |key: &str| {
        lines
            .iter()
            .find(|line| line.theirs.starts_with(key))
            .unwrap()
    };
    for key in ["per_device_train_batch_size", "gradient_accumulation_steps"] {
        assert_eq!(told(key).outcome, KeyOutcome::Differs, "{lines:?}");
    }
    let (micro, parts, _) = batch(&rows(9));
    assert_eq!((micro, parts), (json!(3), json!(3)));
    let (micro, parts, _) = batch(&rows(1));
    assert_eq!((micro, parts), (json!(2), json!(1)));
    let (micro, parts, _) = batch("per_device_train_batch_size: 4\n");
    assert_eq!((micro, parts), (json!(4), json!(1)));
}

#[test]
fn a_count_of_held_out_rows_stays_a_count() {
    for (text, key) in [
        (format!("{AX}val_set_size: 100\n"), "val_set_size"),
        (format!("{LF}val_size: 100\n"), "val_size"),
        (format!("{TRL}test_split_size: 100.0\n"), "test_split_size"),
    ] {
        let imported = import("x", &text, None).unwrap();
        let line = outcome(&imported, key);
        assert_eq!(line.ours, "data.val_rows: 100", "{line:?}");
        assert!(imported.draft.to_yaml(&[]).contains("val_rows: 100"));
    }
    let share = format!("{AX}val_set_size: 0.1\n");
    assert_eq!(value(&share, "data.val_fraction"), 0.1);
    assert!(value(&share, "data.val_rows").is_null());
    // The default share once took the place of what TRL's key says.
    let share = format!("{TRL}test_split_size: 0.2\n");
    assert_eq!(value(&share, "data.val_fraction"), 0.2);
}

#[test]
fn keys_of_trl_that_only_it_needs_are_known() {
    let text = format!(
        "{TRL}padding_free: true\npacking_strategy: bfd\neval_packing: true\ndataset_num_proc: 4\n\
         activation_offloading: true\neos_token: <|im_end|>\nchat_template_path: chat.jinja\n"
    );
    let imported = import("x", &text, None).unwrap();
    assert!(
        imported
            .lines
            .iter()
            .all(|line| line.outcome != KeyOutcome::Unknown),
        "{:?}",
        imported.lines
    );
    assert_eq!(imported.draft.value("data.template"), "chat.jinja");
}

/// It was called the default, which cuts rows.
#[test]
fn a_length_without_limit_has_no_equivalent() {
    let text = format!("{TRL}max_length: null\npacking: true\n");
    let line = told(&text, "max_length");
    assert_eq!(line.outcome, KeyOutcome::NoEqual);
    assert!(line.words.contains("set model.seq_len to your longest row"));
    let lines = import("x", &text, None).unwrap().lines;
    let cut = |line: &&Line| line.theirs.contains("1024");
    assert!(!lines.iter().any(|line| cut(&line)), "{lines:#?}");
    let said = told(
        &format!("{TRL}max_length: 64\npacking: true\n"),
        "max_length",
    );
    assert_eq!(
        (said.outcome, &*said.ours),
        (KeyOutcome::Differs, "model.seq_len: 64")
    );
}

/// RPO's weight was unknown, though the other tools' is mapped.
#[test]
fn the_likelihood_beside_dpo_is_carried_over() {
    let line = told(
        &format!("{TRL}max_length: 64\nbeta: 0.1\nrpo_alpha: 0.5\n"),
        "rpo_alpha",
    );
    assert_eq!(
        (line.outcome, &*line.ours),
        (KeyOutcome::Mapped, "method.dpo.nll_weight: 0.5")
    );
}
