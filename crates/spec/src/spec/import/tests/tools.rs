//! Which tool a file is of, and words of tools: optimizers, and Axolotl's block of TRL's settings.

use super::*;

fn error(text: &str) -> String {
    import("x", text, None).unwrap_err().to_string()
}

/// One key that tools share made Axolotl or TRL of any file, with a spec of nearly nothing but defaults.
#[test]
fn configs_of_other_tools_are_refused() {
    let torchtune = "tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, path: t}\nmodel: {_component_: m}\n\
        seed: null\nshuffle: true\nbatch_size: 4\noptimizer: {_component_: torch.optim.AdamW, lr: 3e-4}\nepochs: 1\n\
        gradient_accumulation_steps: 8\noutput_dir: out\n";
    assert!(
        error(torchtune).contains("torchtune"),
        "{}",
        error(torchtune)
    );
    let litgpt = "checkpoint_dir: c\nout_dir: o\nprecision: bf16-true\ndevices: 1\nlora_r: 8\nlora_alpha: 16\nlora_dropout: 0.05\n\
        lora_query: true\ndata: {class_path: litgpt.data.Alpaca}\ntrain: {epochs: 2}\nseed: 1337\n";
    assert!(error(litgpt).contains("LitGPT"), "{}", error(litgpt));
    for text in [
        "out_dir: o\nblock_size: 256\nn_layer: 6\nlearning_rate: 1e-3\nmax_iters: 5000\ndataset: shakespeare_char\nbeta2: 0.99\n",
        "lora_r: 8\na: 1\nb: 2\nc: 3\nseed: 1\n",
        "learning_rate: 1e-3\nseed: 1\n",
    ] {
        assert!(error(text).contains("no key identifies"), "{text}");
    }
    // A dump of Hugging Face's arguments is one of its trainers, and what people say counts.
    let hf = "model_name_or_path: m\nper_device_train_batch_size: 2\nnum_train_epochs: 1\nfoo: 1\nbar: 2\nbaz: 3\nqux: 4\n";
    assert_eq!(import("x", hf, None).unwrap().dialect, tool("trl"));
    assert!(import("x", torchtune, Some(tool("axolotl"))).is_ok());
}

#[test]
fn optimizers_of_tools_are_the_rules_that_they_are() {
    let of = |text: String| {
        let imported = import("x", &text, None).unwrap();
        plain(&imported.draft.value("optimizer"))
    };
    for (word, ours) in [
        ("lion_pytorch", "lion"),
        ("lion_8bit", "lion"),
        ("paged_lion_8bit", "lion"),
        ("adamw_torch_8bit", "adamw8bit"),
        ("ao_adamw_8bit", "adamw8bit"),
    ] {
        let axolotl = format!("base_model: m\nsequence_len: 64\noptimizer: {word}\n");
        assert_eq!(of(axolotl), ours, "{word}");
        assert_eq!(
            of(format!("dataset_name: d\noptim: {word}\n")),
            ours,
            "{word}"
        );
    }
    for (word, embeddings_differ) in [("adamw_bnb_8bit", true), ("ao_adamw_8bit", false)] {
        let imported = import("x", &format!("dataset_name: d\noptim: {word}\n"), None).unwrap();
        let words = &outcome(&imported, "optim").words;
        assert_eq!(words.contains("embeddings"), embeddings_differ, "{words}");
    }
    // Moments of 32 bits are those of this program.
    let same = import("x", "dataset_name: d\noptim: lion_32bit\n", None).unwrap();
    assert_eq!(outcome(&same, "optim").outcome, KeyOutcome::Mapped);
    let fewer = import("x", "dataset_name: d\noptim: lion_8bit\n", None).unwrap();
    assert_eq!(outcome(&fewer, "optim").outcome, KeyOutcome::Differs);
}

const GRPO: &str = "base_model: m\nrl: grpo\nsequence_len: 512\nmax_steps: 40\nmicro_batch_size: 4\ngradient_accumulation_steps: 2\n";

/// The whole block was dropped.
#[test]
fn axolotls_block_of_trl_is_read_as_trls_keys() {
    let block = "trl:\n  beta: 0.02\n  max_completion_length: 77\n  num_generations: 4\n  temperature: 0.7\n  epsilon: 0.1\n  \
        use_vllm: true\n  vllm_server_host: 0.0.0.0\n  scale_rewards: false\n  sync_ref_model: true\n  ref_model_mixup_alpha: 0.9\n  \
        ref_model_sync_steps: 64\n  reward_funcs: [r.f]\n  what: 1\n  top_p: null\n";
    let imported = import("x", &format!("{GRPO}{block}"), None).unwrap();
    assert_eq!(imported.dialect, tool("axolotl"));
    for (path, wanted) in [
        ("method.grpo.beta", serde_json::json!(0.02)),
        ("rollout.max_new_tokens", serde_json::json!(77)),
        ("rollout.group_size", serde_json::json!(4)),
        ("method.grpo.clip_low", serde_json::json!(0.1)),
        ("method.grpo.clip_high", serde_json::json!(0.1)),
        ("method.grpo.scale", serde_json::json!("none")),
        ("train.sync_ref_model", serde_json::json!(true)),
        ("train.ref_model_mixup_alpha", serde_json::json!(0.9)),
        ("train.ref_model_sync_steps", serde_json::json!(64)),
    ] {
        assert_eq!(imported.draft.value(path), wanted, "{path}");
    }
    let temperature = imported.draft.value("rollout.temperature").as_f64();
    assert!((temperature.unwrap() - 0.7).abs() < 1e-6);
    for (key, expected) in [
        ("trl.beta", KeyOutcome::Mapped),
        ("trl.use_vllm", KeyOutcome::Needless),
        ("trl.vllm_server_host", KeyOutcome::Needless),
        ("trl.reward_funcs", KeyOutcome::NoEqual),
        ("trl.what", KeyOutcome::Unknown),
        ("trl.top_p", KeyOutcome::Needless),
    ] {
        assert_eq!(outcome(&imported, key).outcome, expected, "{key}");
    }
    // Without a block, TRL's defaults are told.
    let silent = import("x", GRPO, None).unwrap();
    assert_eq!(silent.draft.value("rollout.group_size"), 8);
    let told = |line: &&Line| line.theirs == "(num_generations: 8)";
    assert_eq!(
        silent.lines.iter().find(told).unwrap().outcome,
        KeyOutcome::Default
    );
}
