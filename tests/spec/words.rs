//! Short names, plain words as values, and the switches of other tools.

use super::models::base;
use super::*;
use llmtui::nn::{ActivationCheckpointing, Precision};

#[test]
fn every_alias_works_on_the_command_line_and_in_a_file() {
    let (dir, sources) = nowhere();
    base(
        dir.path(),
        &spec::load("quickstart", &[], &sources).unwrap().spec,
    );
    fs::write(dir.path().join("t.txt"), "text").unwrap();
    let hybrid = "extends: quickstart\nmodel: {mixer: {short_conv: {}}}\n";
    fs::write(dir.path().join("hybrid.yaml"), hybrid).unwrap();
    let latent = "extends: quickstart\nmodel: {mla: {}, position: {rope: {}}}\n";
    fs::write(dir.path().join("latent.yaml"), latent).unwrap();
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
            "model.n_head" | "model.n_kv_head" | "keep_last" | "rollout.group_size" => "4",
            "model.d_model" => "256",
            "model.attention_type" => "mha",
            "model.attention_bias" => "qkv",
            "model.qk_norm"
            | "model.parallel_residual"
            | "model.moe.norm_topk"
            | "train.resize_vocab"
            | "checkpoint.save_best" => "true",
            "model.dropout" | "adapter.lora.dropout" => "0.5",
            "model.moe.top_k" => "1",
            "model.mla.rope_dim" => "8",
            "model.moe.scoring" => "sigmoid",
            "model.moe.dense_blocks" => "[1]",
            "model.moe.every" | "model.position.rope.nope_every" => "2",
            "model.vocab_size" => "2000",
            "model.tie_embeddings" | "optimizer.muon.nesterov" => "false",
            "adapter.lora.targets" => "ffn_only",
            "optimizer.sophia.rho" => "0.5",
            t if t.starts_with("method.") || t.ends_with("momentum") => "0.5",
            "rollout.temperature" | "rollout.top_p" => "0.5",
            "name" | "sample.prompt" => "abc",
            "model.attention_blocks" => "[1]",
            "model.attention_gate" | "model.mixer.short_conv.bias" => "true",
            "model.mixer.gated_delta_net.n_key_head" => "2",
            "model.mixer.gated_delta_net.n_value_head" => "8",
            "model.mixer.mamba2.n_group" => "2",
            "model.mixer.mamba2.bias" => "true",
            "model.mixer.mamba2.conv_bias" => "false",
            "train.warmup_ratio" => "0.5",
            t if t.ends_with("min_lr") || t.ends_with(".lr") || t.ends_with(".eps") => "2e-4",
            t if t.ends_with("beta1") || t.ends_with("beta2") || t.ends_with("fraction") => "0.5",
            _ => "7",
        };
        // The built-in text of the quickstart has no rows.
        let base = match *target {
            "data.max_rows" | "data.val_rows" => "dpo-demo",
            t if t.starts_with("method.") || t.starts_with("rollout.") => "ppo-demo",
            "model.attention_every" | "model.attention_blocks" => "hybrid.yaml",
            t if t.starts_with("model.mla.") => "latent.yaml",
            _ => "quickstart",
        };
        let by_word = spec::load(base, &[format!("{name}={value}")], &sources)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let dashed = name.replace('_', "-");
        let nested = dashed.replacen('.', ": {", 1);
        let close = if name.contains('.') { "}" } else { "" };
        let called = base.trim_end_matches(".yaml");
        let text = format!("extends: {base}\nname: {called}\n{nested}: {value}{close}\n");
        let text = if *name == "run_name" {
            text.replace(&format!("name: {called}\n"), "")
        } else {
            text
        };
        fs::write(dir.path().join("f.yaml"), text).unwrap();
        let by_file = spec::load("f.yaml", &[], &sources).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(by_word.spec, by_file.spec, "{name}");
        let plain = spec::load(base, &[], &sources).unwrap();
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
fn switches_of_other_tools_map_to_our_settings() {
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
        let printed = format!("activation_checkpointing={text}");
        let every_three = ActivationCheckpointing::EveryN { n: 3 };
        assert_eq!(checkpointing(&printed).unwrap(), every_three);
    }
    let precision = |word: &str| set(&[word]).unwrap().spec.train.precision;
    assert_eq!(precision("bf16=false"), Precision::F32);
    assert_eq!(precision("bf16=auto"), Precision::Auto);
    // A spec may request what only another machine has; this one is checked before a start.
    let asked = set(&["bf16=true"]).unwrap().spec;
    assert_eq!(asked.train.precision, Precision::Bf16);
    assert_eq!(
        asked.computes_here().is_ok(),
        Precision::Bf16.resolve().is_ok()
    );
    let on_ranks = set(&["bf16=true", "engine=torch"]).unwrap().spec;
    assert!(on_ranks.computes_here().is_ok());
}
