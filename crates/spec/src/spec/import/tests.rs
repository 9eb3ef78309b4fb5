//! Files as found in the wild, and properties of every table.

mod answers;
mod cadence;
mod rows;
mod sets;
mod silent;
mod tokens;
mod tools;
mod trainer;
mod twice;
mod warm_up;
mod wsd;

use super::*;
use crate::spec::{SpecSources, load_text};

const LLAMA_FACTORY: &str = "
### model
model_name_or_path: meta-llama/Llama-3.2-1B
trust_remote_code: true
### method
stage: pt
do_train: true
finetuning_type: full
### dataset
dataset: my.txt
cutoff_len: 256
overwrite_cache: true
preprocessing_num_workers: 16
### output
output_dir: saves/llama/pt
logging_steps: 10
save_steps: 500
report_to: none
### train
per_device_train_batch_size: 4
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
max_steps: 3000
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
val_size: 0.05
eval_steps: 250
an_invented_key: 7
";

const AXOLOTL: &str = "
base_model: NousResearch/Llama-3.2-1B
load_in_8bit: false
load_in_4bit: true
datasets:
  - path: teknium/GPT4-LLM-Cleaned
    type: alpaca
val_set_size: 0.1
output_dir: ./outputs/qlora-out
adapter: qlora
lora_r: 32
lora_target_modules: [gate_proj, up_proj]
sequence_len: 2048
sample_packing: true
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 1
optimizer: adamw_bnb_8bit
lr_scheduler: cosine
learning_rate: 0.0002
bf16: auto
warmup_steps: 10
weight_decay: 0.0
rl: dpo
";

const TRL: &str = "
model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct
dataset_name: trl-lib/ultrafeedback_binarized
learning_rate: 5.0e-7
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
max_length: 1024
beta: 0.1
logging_steps: 25
max_grad_norm: 0.5
optim: adamw_torch
lr_scheduler_type: reduce_lr_on_plateau
seed: 42
";

fn tool(id: &str) -> Dialect {
    Dialect::by_id(id).unwrap()
}

pub(super) fn outcome<'a>(imported: &'a Imported, key: &str) -> &'a Line {
    let starts = format!("{key}:");
    let found = imported
        .lines
        .iter()
        .find(|l| l.theirs.starts_with(&starts));
    found.unwrap_or_else(|| panic!("{key} is not in the report: {:#?}", imported.lines))
}

#[test]
fn llama_factory_maps_numbers_and_says_what_has_no_equal() {
    let imported = import("lf", LLAMA_FACTORY, None).unwrap();
    assert_eq!(imported.dialect, tool("llama-factory"));
    let draft = &imported.draft;
    assert_eq!(draft.value("train.max_steps"), 3000);
    assert_eq!(draft.value("train.warmup_ratio"), 0.1);
    assert_eq!(draft.spec().unwrap().schedule.warmup_steps(), 300);
    assert_eq!(draft.value("optimizer.adamw.lr"), 1e-4);
    assert_eq!(draft.value("data.path"), "my.txt");
    assert_eq!(
        outcome(&imported, "cutoff_len").outcome,
        KeyOutcome::Differs
    );
    assert_eq!(draft.value("train.from"), "meta-llama/Llama-3.2-1B");
    assert_eq!(
        outcome(&imported, "an_invented_key").outcome,
        KeyOutcome::Unknown
    );
    assert_eq!(outcome(&imported, "stage").outcome, KeyOutcome::Mapped);
}

#[test]
fn torch_compile_is_a_setting_of_pytorch_and_chooses_no_engine() {
    for (dialect, text) in [("lf", LLAMA_FACTORY), ("trl", TRL)] {
        let on = import(dialect, &format!("{text}\ntorch_compile: true\n"), None).unwrap();
        let line = outcome(&on, "torch_compile");
        assert_eq!(line.outcome, KeyOutcome::NoEqual);
        assert!(
            line.words.contains("engine.torch.compile: true"),
            "{line:?}"
        );
        assert!(on.draft.value("engine").is_null() || on.draft.value("engine") == "candle");
        let off = import(dialect, &format!("{text}\ntorch_compile: false\n"), None).unwrap();
        assert_eq!(outcome(&off, "torch_compile").outcome, KeyOutcome::Needless);
    }
}

#[test]
fn kinds_of_lora_become_settings_of_the_adapter() {
    let lora = LLAMA_FACTORY.replace(
        "finetuning_type: full",
        "finetuning_type: lora\nlora_rank: 4",
    );
    let with = |line: &str| import("lf", &format!("{lora}{line}\n"), None).unwrap();
    for (line, key, value) in [
        ("use_rslora: true", "adapter.lora.rslora", true.into()),
        ("use_dora: true", "adapter.lora.dora", true.into()),
        (
            "loraplus_lr_ratio: 16.0",
            "adapter.lora.b_lr_ratio",
            serde_json::json!(16.0),
        ),
    ] {
        let imported = with(line);
        assert_eq!(imported.draft.value("adapter.lora.rank"), 4);
        assert_eq!(imported.draft.value(key), value, "{line}");
        let name = line.split(':').next().unwrap();
        assert_eq!(
            outcome(&imported, name).outcome,
            KeyOutcome::Mapped,
            "{line}"
        );
    }
    assert_ne!(
        with("use_dora: false").draft.value("adapter.lora.dora"),
        true
    );
}

/// LLaMA-Factory trains adapters unless told otherwise, and no tool reads their settings where they are off.
#[test]
fn adapters_train_where_the_tool_trains_them_with_its_own_defaults() {
    let lora = |text: &str| {
        let draft = import("x", text, None).unwrap().draft;
        let value = |name: &str| draft.value(&format!("adapter.lora.{name}"));
        let numbers = ["rank", "alpha", "dropout"].map(|name| value(name).as_f64());
        (!draft.value("adapter").is_null()).then(|| numbers.map(Option::unwrap))
    };
    let lf = "model_name_or_path: m\nstage: sft\n";
    let with = |more: &str| lora(&format!("{lf}{more}"));
    assert_eq!(with(""), Some([8.0, 16.0, 0.0]));
    assert_eq!(with("finetuning_type: lora\n"), Some([8.0, 16.0, 0.0]));
    let said = "lora_rank: 32\nlora_dropout: 0.1\n";
    assert_eq!(with(said), Some([32.0, 64.0, 0.1]));
    assert_eq!(with(&format!("finetuning_type: full\n{said}")), None);
    assert_eq!(with("finetuning_type: freeze\n"), None);
    let ax = "base_model: m\nsequence_len: 64\nlora_r: 4\nlora_alpha: 12\n";
    assert_eq!(
        lora(&format!("{ax}adapter: qlora\n")),
        Some([4.0, 12.0, 0.0])
    );
    assert_eq!(lora(ax), None);
    let trl = "dataset_name: d\nlora_dropout: 0.2\n";
    assert_eq!(
        lora(&format!("{trl}use_peft: true\n")),
        Some([16.0, 32.0, 0.2])
    );
    let rank = lora(&format!("{trl}lora_r: 4\nuse_peft: true\n"));
    assert_eq!(rank, Some([4.0, 32.0, 0.2]));
    assert_eq!(lora(trl), None);
    let off = import("x", trl, None).unwrap();
    let line = outcome(&off, "lora_dropout");
    assert_eq!(line.outcome, KeyOutcome::Needless);
    assert!(line.words.contains("trains all weights"), "{}", line.words);
    // What was not in the file is told as such.
    let imported = import("x", lf, None).unwrap();
    let told = |l: &&Line| l.outcome == KeyOutcome::Default && l.ours.starts_with("adapter");
    assert_eq!(imported.lines.iter().filter(told).count(), 5);
}

/// TRL's trainers for preferences set every `nn.Dropout` to 0 after PEFT has added its own.
#[test]
fn adapters_of_preferences_train_without_dropout_as_in_trl() {
    let trl = "dataset_name: d\nuse_peft: true\n";
    let ax = "base_model: m\nsequence_len: 64\nadapter: lora\n";
    for (text, more, dropout) in [
        (trl, "beta: 0.1\nloss_type: sigmoid\n", 0.0),
        (trl, "beta: 0.1\nlora_dropout: 0.2\n", 0.0),
        (
            trl,
            "beta: 0.1\nlora_dropout: 0.2\ndisable_dropout: false\n",
            0.2,
        ),
        (trl, "cpo_alpha: 1.0\nbeta: 0.1\nlora_dropout: 0.2\n", 0.0),
        (trl, "num_generations: 4\n", 0.05),
        (trl, "num_generations: 4\ndisable_dropout: true\n", 0.0),
        (trl, "", 0.05),
        (ax, "rl: dpo\nlora_dropout: 0.1\n", 0.0),
        (ax, "lora_dropout: 0.1\n", 0.1),
    ] {
        let imported = import("x", &format!("{text}{more}"), None).unwrap();
        let found = imported.draft.value("adapter.lora.dropout").as_f64();
        assert_eq!(found, Some(dropout), "{more}");
        let line = imported
            .lines
            .iter()
            .find(|l| l.theirs.contains("lora_dropout"));
        let told = line.unwrap().words.contains("disable_dropout");
        assert_eq!(told, dropout == 0.0, "{more}: {line:?}");
    }
}

/// A switch that is off is left out only where off is the default here.
#[test]
fn switches_that_are_off_are_off_here_too() {
    let trl = |line: &str| import("x", &format!("dataset_name: d\n{line}\n"), None).unwrap();
    for (line, path, value) in [
        ("completion_only_loss: false", "data.train_on", "all"),
        ("completion_only_loss: true", "data.train_on", "completion"),
        ("bf16: false", "train.precision", "f32"),
        ("bf16: true", "train.precision", "auto"),
        ("bf16: auto", "train.precision", "auto"),
    ] {
        assert_eq!(trl(line).draft.value(path), value, "{line}");
    }
    let off = trl("assistant_only_loss: false");
    let line = outcome(&off, "assistant_only_loss");
    assert_eq!(line.outcome, KeyOutcome::Differs);
    assert!(line.ours == "data.train_on: auto" && line.words.contains("all learns every"));
    let ax = "base_model: m\nadapter: lora\nlora_target_linear: false\n";
    let ax = import("x", ax, None).unwrap();
    assert_eq!(
        outcome(&ax, "lora_target_linear").outcome,
        KeyOutcome::NoEqual
    );
    assert_eq!(
        outcome(&trl("bf16: maybe"), "bf16").outcome,
        KeyOutcome::NoEqual
    );
}

#[test]
fn parameters_of_experts_have_adapters_beside_the_modules_that_are_listed() {
    let both = "lora_target_parameters: [mlp.experts.gate_up_proj, mlp.experts.down_proj]";
    let imported = |lines: &str| {
        let text = format!("base_model: m\nadapter: lora\nlora_r: 8\n{lines}\n");
        import("x", &text, None).unwrap()
    };
    for (lines, targets, custom) in [
        (both.to_string(), "custom", vec!["experts"]),
        (
            format!("lora_target_linear: true\n{both}"),
            "all_and_experts",
            Vec::new(),
        ),
        (
            format!("{both}\nlora_target_modules: [q_proj, v_proj]"),
            "custom",
            vec!["query", "value", "experts"],
        ),
        (
            format!("lora_target_modules: [k_proj, o_proj]\n{both}"),
            "custom",
            vec!["key", "output", "experts"],
        ),
    ] {
        let found = imported(&lines);
        let line = outcome(&found, "lora_target_parameters");
        assert_eq!(line.outcome, KeyOutcome::Mapped, "{lines}: {}", line.words);
        assert_eq!(
            found.draft.value("adapter.lora.targets"),
            targets,
            "{lines}"
        );
        let list = found.draft.value("adapter.lora.custom");
        assert_eq!(list, serde_json::json!(custom), "{lines}");
    }
    let one = imported("lora_target_parameters: [mlp.experts.down_proj]");
    let line = outcome(&one, "lora_target_parameters");
    assert_eq!(line.outcome, KeyOutcome::NoEqual);
    assert!(line.words.contains("all_and_experts"), "{}", line.words);
}

#[test]
fn axolotl_and_trl_are_told_by_their_keys_and_methods_that_are_missing_are_named() {
    let imported = import("ax", AXOLOTL, None).unwrap();
    assert_eq!(imported.dialect, tool("axolotl"));
    assert_eq!(imported.draft.value("model.seq_len"), 2048);
    assert_eq!(imported.draft.value("optimizer"), "adamw8bit");
    assert_eq!(outcome(&imported, "optimizer").outcome, KeyOutcome::Differs);
    assert_eq!(
        outcome(&imported, "load_in_8bit").outcome,
        KeyOutcome::Needless
    );
    assert_eq!(
        outcome(&imported, "load_in_4bit").outcome,
        KeyOutcome::NoEqual
    );
    assert_eq!(imported.draft.value("adapter.lora.rank"), 32);
    assert_eq!(
        outcome(&imported, "lora_target_modules").outcome,
        KeyOutcome::Mapped
    );
    let custom = imported.draft.value("adapter.lora.custom");
    assert_eq!(custom, serde_json::json!(["gate", "up"]));
    let source = &imported.draft.value("data.sources")[0];
    assert_eq!(
        (source["name"].as_str(), source["format"].as_str()),
        (Some("teknium/GPT4-LLM-Cleaned"), Some("alpaca")),
        "{source}"
    );
    assert_eq!(
        outcome(&imported, "datasets[0].type").outcome,
        KeyOutcome::Mapped
    );
    assert_eq!(imported.draft.value("data.packing"), "packed");
    let trl = import("trl", TRL, None).unwrap();
    assert_eq!(trl.dialect, tool("trl"));
    assert_eq!(trl.draft.value("train.clip_norm"), 0.5);
    assert!(
        outcome(&trl, "lr_scheduler_type")
            .words
            .contains("reduce_lr_on_plateau is not supported")
    );
    let method = trl.lines.iter().find(|l| l.theirs.contains("mean dpo"));
    assert!(method.is_some(), "{:#?}", trl.lines);
}

/// Preference settings of three tools, with names of their own, come to the same methods.
#[test]
fn preferences_go_over_with_their_losses_and_strengths() {
    let value = |text: &str, path: &str| import("x", text, None).unwrap().draft.value(path);
    let trl = "dataset_name: org/set\nloss_type: hinge\nbeta: 0.3\nlabel_smoothing: 0.1\nprecompute_ref_log_probs: true\n";
    assert_eq!(value(trl, "method.dpo.loss"), "hinge");
    assert_eq!(value(trl, "method.dpo.beta"), 0.3);
    assert_eq!(value(trl, "method.dpo.reference"), "precomputed");
    let lf = "pref_beta: 2.5\npref_loss: simpo\nsimpo_gamma: 0.5\nstage: dpo\ncutoff_len: 64\n";
    assert_eq!(value(lf, "method.simpo.beta"), 2.5);
    assert_eq!(value(lf, "method.simpo.gamma"), 0.5);
    let lf = "stage: kto\npref_beta: 0.2\nkto_rejected_weight: 1.5\ncutoff_len: 64\n";
    assert_eq!(value(lf, "method.kto.undesirable_weight"), 1.5);
    let ax = "base_model: m\nrl_beta: 0.4\nrl: ipo\nsequence_len: 64\n";
    assert_eq!(value(ax, "method.dpo.loss"), "ipo");
    assert_eq!(value(ax, "method.dpo.beta"), 0.4);
    // A loss that nobody trains here is named, with those that are.
    let other = import(
        "x",
        "dataset_name: d\nloss_type: exo_pair\nbeta: 0.1\n",
        None,
    )
    .unwrap();
    let line = outcome(&other, "loss_type");
    assert_eq!(line.outcome, KeyOutcome::NoEqual);
    assert!(line.words.contains("sigmoid, hinge, ipo"), "{}", line.words);
}

#[test]
fn learning_from_rewards_goes_over_with_its_settings() {
    let value = |text: &str, path: &str| import("x", text, None).unwrap().draft.value(path);
    let grpo = "dataset_name: org/set\nnum_generations: 8\nmax_completion_length: 200\nbeta: 0.02\nloss_type: dr_grpo\n\
        epsilon: 0.1\nepsilon_high: 0.28\nscale_rewards: false\nmask_truncated_completions: true\nnum_iterations: 2\ntemperature: 0.9\n\
        use_bias_correction_kl: false\n";
    for (key, wanted) in [
        ("method.grpo.aggregation", serde_json::json!("dr_grpo")),
        ("method.grpo.clip_low", 0.1.into()),
        ("method.grpo.clip_high", 0.28.into()),
        ("method.grpo.scale", "none".into()),
        ("method.grpo.beta", 0.02.into()),
        ("method.grpo.kl_correction", false.into()),
        ("rollout.group_size", 8.into()),
        ("rollout.max_new_tokens", 200.into()),
        ("rollout.mask_truncated", true.into()),
        ("rollout.epochs", 2.into()),
        ("rollout.temperature", 0.9.into()),
    ] {
        assert_eq!(value(grpo, key), wanted, "{key}");
    }
    let ppo = "dataset_name: org/set\nnum_ppo_epochs: 4\nkl_coef: 0.1\ncliprange: 0.15\ncliprange_value: 0.3\nvf_coef: 0.2\n\
        gamma: 0.99\nlam: 0.9\nwhiten_rewards: true\nmissing_eos_penalty: 1.0\nresponse_length: 53\nreward_model_path: org/rm\n";
    for (key, wanted) in [
        ("method.ppo.beta", serde_json::json!(0.1)),
        ("method.ppo.clip", 0.15.into()),
        ("method.ppo.value_clip", 0.3.into()),
        ("method.ppo.value_coef", 0.2.into()),
        ("method.ppo.gamma", 0.99.into()),
        ("method.ppo.lambda", 0.9.into()),
        ("method.ppo.whiten_rewards", true.into()),
        ("method.ppo.missing_eos_penalty", 1.0.into()),
        ("rollout.epochs", 4.into()),
        ("rollout.max_new_tokens", 53.into()),
    ] {
        assert_eq!(value(ppo, key), wanted, "{key}");
    }
    let imported = import("trl", ppo, None).unwrap();
    assert_eq!(
        outcome(&imported, "reward_model_path").outcome,
        KeyOutcome::NoEqual
    );
    // Both programs count answers.
    let imported = import("trl", grpo, None).unwrap();
    assert_eq!(
        outcome(&imported, "num_generations").outcome,
        KeyOutcome::Mapped
    );
    for (keys, method) in [
        (&["reward_funcs", "beta"][..], "grpo"),
        (&["reward_funcs", "epsilon_high"], "grpo"),
        (&["rloo_k", "num_ppo_epochs", "kl_coef"], "rloo"),
        (&["reward_funcs", "normalize_advantages"], "rloo"),
        (&["num_ppo_epochs", "kl_coef"], "ppo"),
        (&["beta"], "dpo"),
        (&["max_length"], "sft"),
    ] {
        let map = keys.iter().map(|key| ((*key).to_string(), 1.into()));
        let (found, _) = super::trainer::trainer("x", &map.collect(), None, &[]);
        assert_eq!(found, method, "{keys:?}");
    }
}

/// Nothing is lost: every key of a file stands in its report once, and what was written loads.
#[test]
fn every_key_is_reported_once_and_the_file_loads() {
    for (name, text) in [
        ("lf", LLAMA_FACTORY),
        ("ax", AXOLOTL),
        ("trl", TRL),
        ("grpo", answers::GRPO),
        ("rloo", answers::RLOO),
        ("ppo", answers::PPO),
        ("lf-ppo", answers::LLAMA_FACTORY_PPO),
    ] {
        let mut imported = import(name, text, None).unwrap();
        let map = yaml::parse(text).unwrap();
        for key in map.as_object().unwrap().keys() {
            let starts = format!("{key}:");
            let n = imported
                .lines
                .iter()
                .filter(|l| l.theirs.starts_with(&starts))
                .count();
            assert_eq!(n, 1, "{name}: {key}");
        }
        // Rewards are for people to choose.
        if answers::is_on_policy(&imported) {
            imported.draft.set("rewards", "[exact]", "").unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("my.txt"), "text").unwrap();
        let sources = SpecSources {
            config_dir: None,
            project_dir: dir.path().into(),
            ..SpecSources::default()
        };
        let written = imported.draft.to_yaml(&[]);
        // Everything loads but the base model, which nobody has brought here.
        let errors = load_text(name, &written, &sources).unwrap_err();
        assert!(
            errors.issues().iter().all(|i| i.path == "train.from"),
            "{errors}\n{written}"
        );
        let mut draft = imported.draft.clone();
        draft.reset("train.from");
        // As the base model has it: its adapters name the gate.
        draft.set("model.mlp", "swiglu", "").unwrap();
        let loaded = load_text(name, &draft.to_yaml(&[]), &sources);
        let loaded = loaded.unwrap_or_else(|e| panic!("{e}\n{written}"));
        draft.set_project(dir.path());
        assert_eq!(loaded.spec, draft.spec().unwrap());
    }
}

#[test]
fn data_goes_over_with_its_parts_and_without_any_no_run_can_begin() {
    let trl = "dataset_name: org/set\ndataset_config: small\ndataset_train_split: train_sft\nassistant_only_loss: true\n";
    let trl = import("trl", trl, None).unwrap().draft;
    let source = &trl.value("data.sources")[0];
    assert_eq!(
        *source,
        serde_json::json!({"name": "org/set", "subset": "small", "split": "train_sft"})
    );
    assert_eq!(trl.value("data.train_on"), "assistant");
    assert_eq!(trl.value("method"), "sft");

    let lf = "stage: sft\ntemplate: llama3\ndataset: identity, my/rows.jsonl\n";
    let imported = import("lf", lf, None).unwrap();
    assert_eq!(
        imported
            .draft
            .value("data.sources")
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    assert_eq!(imported.draft.value("data.template"), "llama3");
    assert_eq!(imported.draft.value("data.mix"), "concatenate");
    let interleaved = format!("{lf}mix_strategy: interleave_over\n");
    let interleaved = import("lf", &interleaved, None).unwrap();
    assert_eq!(interleaved.draft.value("data.mix"), "share");
    assert!(
        outcome(&imported, "dataset")
            .words
            .contains("dataset_info.json")
    );

    let none = import("lf", "stage: sft\ncutoff_len: 64\n", None).unwrap();
    let sources = SpecSources::default();
    let error = load_text("x", &none.draft.to_yaml(&[]), &sources).unwrap_err();
    assert!(error.to_string().contains("NAME-YOUR-DATA"), "{error}");
}

#[test]
fn what_is_no_spec_of_any_tool_is_refused() {
    assert!(matches!(import("x", "- a", None), Err(ImportError::NoMap)));
    assert!(matches!(
        import("x", "a: [", None),
        Err(ImportError::Yaml(_))
    ));
    assert!(matches!(
        import("x", "colour: red", None),
        Err(ImportError::NoDialect)
    ));
    let forced = import("x", "colour: red", Some(tool("trl"))).unwrap();
    assert_eq!(outcome(&forced, "colour").outcome, KeyOutcome::Unknown);
}

#[test]
fn every_row_leads_to_a_place_of_the_schema_and_stands_once() {
    let draft = Draft::blank("x");
    for &dialect in Dialect::ALL {
        assert_eq!(Dialect::by_id(dialect.id()), Some(dialect));
        let rows: Vec<&Row> = dialect.tool().tables().iter().copied().flatten().collect();
        for (i, row) in rows.iter().enumerate() {
            assert!(
                rows[..i].iter().all(|r| r.key != row.key),
                "{} twice",
                row.key
            );
            let path = match row.to {
                To::Key(path)
                | To::Near(path, _)
                | To::Word(path, _)
                | To::Choice(path, _)
                | To::Flag(path, _)
                | To::NearlyOff(path, ..)
                | To::Either(path, ..) => path,
                _ => continue,
            };
            // Settings of a method are those of some method, not of the blank spec's.
            let known = match path.strip_prefix("method.*.") {
                Some(name) => {
                    let methods = root().at("method").unwrap().children();
                    methods.iter().any(|(_, node)| node.child(name).is_some())
                }
                None => draft.resolve_wildcard(path).is_some(),
            };
            assert!(known, "{}: no place {path}", row.key);
        }
        for mark in dialect.tool().marks() {
            assert!(dialect.row(mark).is_some(), "{mark}");
        }
    }
}

#[test]
fn epochs_are_taken_over_unless_steps_are_said_too() {
    let imported = |text: &str| import("a", &format!("stage: sft\n{text}"), None).unwrap();
    let alone = imported("num_train_epochs: 3.0\n");
    assert_eq!(alone.draft.value("train.epochs"), 3.0);
    let both = imported("num_train_epochs: 3.0\nmax_steps: 40\n");
    assert!(both.draft.value("train.epochs").is_null());
    assert_eq!(both.draft.value("train.max_steps"), 40);
    let outcome = |line: &&Line| line.theirs.starts_with("num_train_epochs");
    assert_eq!(
        both.lines.iter().find(outcome).unwrap().outcome,
        KeyOutcome::Needless
    );
}
