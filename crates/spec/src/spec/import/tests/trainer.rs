//! Which of TRL's trainers a file is for, and what follows.

use super::*;
use serde_json::json;

fn read(name: &str, text: &str, method: Option<&str>, columns: &[&str]) -> Imported {
    let known = Known {
        from: Some(tool("trl")),
        method,
        columns: columns.iter().map(|c| (*c).to_string()).collect(),
        ..Known::default()
    };
    import_with(name, text, &known).unwrap()
}

fn method(imported: &Imported) -> String {
    let method = imported.draft.value("method");
    match method.as_object().and_then(|map| map.keys().next()) {
        Some(key) => key.clone(),
        None => plain(&method),
    }
}

const BARE: &str = "model_name_or_path: m\ndataset_name: d\nmax_length: 64\n";

/// `beta` is a default that people leave out: such a file trained by its chosen answers, as SFT.
#[test]
fn a_file_without_keys_of_its_trainer_is_told_by_names_and_rows_and_is_called_a_guess() {
    for (name, more, columns, expected, sure) in [
        ("dpo_config", "", &[][..], "dpo", false),
        (
            "x",
            "output_dir: out/Qwen2-0.5B-Reward\n",
            &[],
            "reward",
            false,
        ),
        ("x", "", &["prompt", "chosen", "rejected"], "dpo", false),
        ("x", "", &["prompt", "completion", "label"], "kto", false),
        ("x", "", &[], "sft", false),
        ("x", "packing: true\n", &[], "sft", true),
        ("x", "beta: 0.1\n", &[], "dpo", true),
        ("orpo", "beta: 0.1\n", &[], "orpo", false),
        ("x", "loss_type: kto\n", &[], "kto", true),
        ("x", "loss_type: hinge\n", &[], "dpo", true),
        ("x", "num_generations: 4\n", &[], "grpo", true),
        ("x", "lmbda: 0.3\n", &[], "distill", true),
        ("gkd-qwen", "", &[], "distill", false),
    ] {
        let imported = read(name, &format!("{BARE}{more}"), None, columns);
        assert_eq!(method(&imported), expected, "{name} {more}");
        assert_eq!(imported.doubt.is_none(), sure, "{name} {more}");
    }
    let guess = read("x", BARE, None, &[]).doubt.unwrap();
    assert!(
        guess.contains("sft") && guess.contains("--method dpo"),
        "{guess}"
    );
}

#[test]
fn the_trainer_can_be_said() {
    for said in METHODS {
        let imported = read("sft", BARE, Some(said), &["messages"]);
        assert_eq!(method(&imported), *said);
        assert_eq!(imported.doubt, None);
        let line = fate_of(&imported, "(--method");
        assert_eq!(line.outcome, KeyOutcome::Mapped);
    }
    let reward = read("x", BARE, Some("reward"), &[]);
    assert_eq!(reward.draft.value("optimizer.adamw.lr"), 1e-4);
}

fn fate_of<'a>(imported: &'a Imported, begins: &str) -> &'a Line {
    let found = imported.lines.iter().find(|l| l.theirs.starts_with(begins));
    found.unwrap_or_else(|| panic!("{begins}: {:#?}", imported.lines))
}

#[test]
fn the_columns_of_data_on_this_disk_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pairs.jsonl");
    std::fs::write(
        &file,
        "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}\n",
    )
    .unwrap();
    let columns = columns_of(&format!("dataset_name: {}\n", file.display()));
    assert_eq!(columns, ["prompt", "chosen", "rejected"].map(String::from));
    assert_eq!(
        columns_of("dataset_name: trl-lib/nowhere\n"),
        Vec::<String>::new()
    );
}

/// MPO's list: the losses with their weights, and the likelihood.
#[test]
fn a_list_of_losses_is_a_mixture() {
    let text =
        format!("{BARE}loss_type: [sigmoid, bco_pair, sft]\nloss_weights: [0.8, 0.2, 1.0]\n");
    let imported = read("x", &text, None, &[]);
    let dpo = |key: &str| imported.draft.value(&format!("method.dpo.{key}"));
    assert_eq!(dpo("loss"), "sigmoid");
    assert_eq!(dpo("weight"), 0.8);
    assert_eq!(dpo("mix"), json!([{"loss": "bco_pair", "weight": 0.2}]));
    assert_eq!(dpo("nll_weight"), 1.0);
    assert!(imported.draft.spec().is_ok());
    let one = read("x", &format!("{BARE}loss_type: [ipo]\n"), None, &[]);
    assert_eq!(one.draft.value("method.dpo.loss"), "ipo");
}

/// transformers 5 takes a share in `warmup_steps` and calls `warmup_ratio` old.
#[test]
fn warm_up_below_one_is_a_share_of_the_run() {
    let imported = read("x", &format!("{BARE}warmup_steps: 0.1\n"), None, &[]);
    assert_eq!(imported.draft.value("train.warmup_ratio"), 0.1);
    let steps = read("x", &format!("{BARE}warmup_steps: 20.0\n"), None, &[]);
    assert_eq!(steps.draft.value("schedule.linear.warmup_steps"), 20);
}

#[test]
fn one_kept_checkpoint_becomes_the_fewest() {
    let imported = read("x", &format!("{BARE}save_total_limit: 1\n"), None, &[]);
    assert_eq!(imported.draft.value("checkpoint.keep_last"), 2);
    assert_eq!(
        outcome(&imported, "save_total_limit").outcome,
        KeyOutcome::Differs
    );
}

/// Keys of answers say nothing to a method that writes none.
#[test]
fn settings_of_answers_are_those_of_reinforcement_learning() {
    let lf = "model_name_or_path: m\ntemplate: default\nmax_new_tokens: 99\ntop_p: 0.9\nreward_model: r\n";
    let ppo = import("x", &format!("{lf}stage: ppo\n"), None).unwrap();
    assert_eq!(ppo.draft.value("rollout.max_new_tokens"), 99);
    assert_eq!(outcome(&ppo, "reward_model").outcome, KeyOutcome::NoEqual);
    let board = format!("{lf}include_num_input_tokens_seen: true\nenable_thinking: true\n");
    let board = import("x", &board, None).unwrap();
    assert!(
        board
            .lines
            .iter()
            .all(|line| line.outcome != KeyOutcome::Unknown)
    );
    let sft = import("x", &format!("{lf}stage: sft\n"), None).unwrap();
    assert_eq!(
        outcome(&sft, "max_new_tokens").outcome,
        KeyOutcome::Needless
    );
    // Its default template is Human and Assistant in plain words, not the tokenizer's own.
    assert_eq!(sft.draft.value("data.template"), "plain");
}

/// Both trainers of TRL by their own defaults: the older one learns from the data's answers too.
#[test]
fn distillations_keep_their_trainers_defaults() {
    let text = "model_name_or_path: m\ndataset_name: d\nteacher_model_name_or_path: ORG/big\n";
    let of = |more: &str| read("x", &format!("{text}{more}"), None, &[]);
    let value = |imported: &Imported, path: &str| imported.draft.value(path);
    let gkd = of("lmbda: 0.25\nseq_kd: false\nmax_new_tokens: 77\ntemperature: 0.8\n");
    let successor = of("temperature: 2\ntop_k: 5\n");
    for (imported, path, wanted) in [
        (&gkd, "method.distill.teacher", json!("ORG/big")),
        (&gkd, "method.distill.beta", json!(0.5)),
        (&gkd, "method.distill.on_policy", json!(0.25)),
        (&gkd, "method.distill.temperature", json!(1.0)),
        (&gkd, "rollout.max_new_tokens", json!(77)),
        (&gkd, "optimizer.adamw.lr", json!(2e-5)),
        (&gkd, "model.seq_len", json!(1024)),
        (&successor, "method.distill.beta", json!(1.0)),
        (&successor, "method.distill.on_policy", json!(1.0)),
        (&successor, "method.distill.temperature", json!(2.0)),
        (&successor, "rollout.top_k", json!(5)),
        (&successor, "rollout.max_new_tokens", json!(512)),
        (&successor, "optimizer.adamw.lr", json!(1e-6)),
        (&successor, "model.seq_len", json!(1024)),
    ] {
        assert_eq!(value(imported, path), wanted, "{path}");
    }
    for (imported, wanted) in [(&gkd, 0.8), (&successor, 2.0)] {
        let temperature = value(imported, "rollout.temperature").as_f64().unwrap();
        assert!((temperature - wanted).abs() < 1e-6);
    }
    assert_eq!(outcome(&gkd, "seq_kd").outcome, KeyOutcome::Needless);
    let written = outcome(&of("seq_kd: true\n"), "seq_kd").outcome;
    assert_eq!(written, KeyOutcome::NoEqual);
    // Answers of the data have a limit with their prompt, those of the student one of their own.
    let told =
        |imported: &Imported, of: &str| imported.lines.iter().any(|line| line.theirs.contains(of));
    assert!(told(&gkd, "max_length: 1024") && !told(&successor, "max_length"));
}
