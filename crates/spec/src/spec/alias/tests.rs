//! What other names stand for, among them every name of the LLM-Lab manual.

use super::*;
use crate::spec::schema;

#[test]
fn what_is_a_setting_here_is_named_where_it_is_said_as_a_member() {
    use crate::spec::{SpecSources, load};
    for (word, hint) in [
        ("qlora", "train.from=MODEL.gguf"),
        ("dora", "adapter.lora.dora=true"),
        ("rslora", "adapter.lora.rslora=true"),
    ] {
        let set = [format!("adapter={word}")];
        let said = load("quickstart", &set, &SpecSources::default()).unwrap_err();
        assert!(said.to_string().contains(hint), "{said}");
    }
}

#[test]
fn members_are_known_by_their_other_names_too() {
    use crate::spec::{SpecSources, load};
    let set = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|w| (*w).to_string()).collect();
        load("quickstart", &words, &SpecSources::default())
    };
    let spec = set(&["steps=100", "context=32", "method=cpt"])
        .unwrap()
        .spec;
    assert_eq!((spec.train.max_steps, spec.model.seq_len), (100, 32));
    let others = [
        "optimizer=schedule_free_adamw",
        "schedule=inverse_square_root",
    ];
    for word in others {
        let loaded = set(&[word]);
        assert!(loaded.is_ok(), "{word}: {}", loaded.unwrap_err());
    }
    let ours = member("method", "ipo", json!({"beta": 0.2}));
    assert_eq!(ours, Some(json!({"dpo": {"beta": 0.2, "loss": "ipo"}})));
    let said = set(&["method=foo"]).unwrap_err().to_string();
    assert!(!said.contains("did you mean"), "{said}");
}

/// Keys of other tools were accepted, their values refused.
#[test]
fn optimizers_and_schedules_of_other_trainers_are_known_by_their_words() {
    for (word, path) in [
        ("optim=adamw_torch", "optimizer.adamw"),
        ("optim=adamw_torch_fused", "optimizer.adamw"),
        ("optim=paged_adamw_8bit", "optimizer.adamw8bit"),
        ("optim=lion_32bit", "optimizer.lion"),
        (
            "lr_scheduler_type=constant_with_warmup",
            "schedule.constant",
        ),
        ("lr_scheduler_type=cosine_with_min_lr", "schedule.cosine"),
        ("lr_scheduler_type=warmup_stable_decay", "schedule.wsd"),
        // Our own word.
        ("schedule=constant", "schedule.constant"),
    ] {
        set_in("quickstart", &[word], path, &json!({}));
    }
    set_in(
        "quickstart",
        &["optim=adamw_torch", "learning_rate=2e-4"],
        "optimizer.adamw.lr",
        &json!(2e-4),
    );
    assert_eq!(member("optimizer", "sgd", json!({})), None, "there is none");
}

#[test]
fn aliases_work_at_the_top_and_in_their_own_section() {
    assert_eq!(resolve("lr"), Some("optimizer.*.lr"));
    assert_eq!(resolve("model.from"), Some("train.from"));
    assert_eq!(
        resolve("optimizer.adamw.learning_rate"),
        Some("optimizer.*.lr")
    );
    assert_eq!(resolve("model.max_seq_len"), Some("model.seq_len"));
    assert_eq!(resolve("model.learning_rate"), None);
}

/// A name that is set where it stands in a preset: the value at a path; of `{}` it is enough that it is there.
fn set_in(preset: &str, words: &[&str], path: &str, wanted: &Value) {
    use crate::spec::{SpecSources, load};
    let words: Vec<String> = words.iter().map(|w| (*w).to_string()).collect();
    let loaded = load(preset, &words, &SpecSources::default());
    let loaded = loaded.unwrap_or_else(|e| panic!("{words:?}: {e}"));
    let value = loaded.spec.to_value();
    let found = value.pointer(&format!("/{}", path.replace('.', "/")));
    let found = found.unwrap_or_else(|| panic!("{words:?}: no {path}"));
    match (wanted.as_f64(), found.as_f64()) {
        (Some(wanted), Some(found)) => assert!((wanted - found).abs() < 1e-7, "{words:?}"),
        _ if *wanted == json!({}) => {}
        _ => assert_eq!(found, wanted, "{words:?}"),
    }
}

#[test]
fn names_of_models_and_base_training_in_the_llm_lab_manual_are_settings() {
    for (word, path, wanted) in [
        (
            "positional_encoding=sinusoidal",
            "model.position.sinusoidal",
            json!({}),
        ),
        (
            "positional_encoding=alibi",
            "model.position.alibi",
            json!({}),
        ),
        (
            "positional_encoding=yarn",
            "model.position.rope.scaling.yarn",
            json!({}),
        ),
        ("attention_type=mqa", "model.attention_type", json!("mqa")),
        ("norm_type=layernorm", "model.norm.layernorm", json!({})),
        ("activation=leaky_relu", "model.mlp.leaky_relu", json!({})),
        ("d_model=64", "model.d_model", json!(64)),
        ("n_heads=2", "model.n_head", json!(2)),
        ("n_kv_heads=2", "model.n_kv_head", json!(2)),
        ("d_ff=320", "model.d_ff", json!(320)),
        ("n_layers=2", "model.n_layer", json!(2)),
        ("vocab_size=2000", "model.vocab_size", json!(2000)),
        ("max_seq_len=32", "model.seq_len", json!(32)),
        ("dropout=0.1", "model.dropout", json!(0.1)),
        ("sliding_window=16", "model.sliding_window", json!(16)),
        ("attention_bias=true", "model.attention_bias", json!("all")),
        ("norm_eps=1e-4", "model.norm.layernorm.eps", json!(1e-4)),
        ("max_steps=77", "train.max_steps", json!(77)),
        ("optimizer=adafactor", "optimizer.adafactor", json!({})),
        ("adamw_beta1=0.8", "optimizer.adamw.beta1", json!(0.8)),
        ("adamw_beta2=0.9", "optimizer.adamw.beta2", json!(0.9)),
        ("adamw_eps=1e-6", "optimizer.adamw.eps", json!(1e-6)),
        ("lion_beta1=0.8", "optimizer.lion.beta1", json!(0.8)),
        ("lion_beta2=0.9", "optimizer.lion.beta2", json!(0.9)),
        ("sophia_beta1=0.9", "optimizer.sophia.beta1", json!(0.9)),
        ("sophia_beta2=0.9", "optimizer.sophia.beta2", json!(0.9)),
        ("sophia_rho=0.1", "optimizer.sophia.rho", json!(0.1)),
        ("muon_momentum=0.9", "optimizer.muon.momentum", json!(0.9)),
        (
            "muon_nesterov=false",
            "optimizer.muon.nesterov",
            json!(false),
        ),
        ("lr=2e-4", "optimizer.adamw.lr", json!(2e-4)),
        (
            "weight_decay=0.2",
            "optimizer.adamw.weight_decay",
            json!(0.2),
        ),
        ("scheduler=polynomial", "schedule.polynomial", json!({})),
        ("warmup_steps=7", "schedule.cosine.warmup_steps", json!(7)),
        ("batch_size=3", "train.micro_batch_size", json!(3)),
        (
            "gradient_accumulation_steps=3",
            "train.grad_accum_steps",
            json!(3),
        ),
        ("grad_clip=0.5", "train.clip_norm", json!(0.5)),
        ("eval_every=7", "eval.every", json!(7)),
        ("learning_rate=2e-4", "optimizer.adamw.lr", json!(2e-4)),
        ("max_grad_norm=0.5", "train.clip_norm", json!(0.5)),
        ("log_every=7", "train.log_every", json!(7)),
        ("save_every=7", "checkpoint.every", json!(7)),
    ] {
        set_in("quickstart", &[word], path, &wanted);
    }
}

#[test]
fn names_of_fine_tuning_in_the_llm_lab_manual_are_settings_by_method() {
    for (preset, word, path, wanted) in [
        (
            "sft-lora-demo",
            "lora_preset=attention_only",
            "adapter.lora.targets",
            json!("attention_only"),
        ),
        ("sft-lora-demo", "lora_r=4", "adapter.lora.rank", json!(4)),
        (
            "sft-lora-demo",
            "lora_alpha=24",
            "adapter.lora.alpha",
            json!(24),
        ),
        (
            "sft-lora-demo",
            "lora_dropout=0.2",
            "adapter.lora.dropout",
            json!(0.2),
        ),
        ("dpo-demo", "beta=0.3", "method.dpo.beta", json!(0.3)),
        ("dpo-demo", "clip_range=0.3", "method.dpo.beta", json!(0.3)),
        ("ppo-demo", "clip_range=0.3", "method.ppo.clip", json!(0.3)),
        (
            "grpo-sort",
            "clip_range=0.3",
            "method.grpo.clip_low",
            json!(0.3),
        ),
        (
            "grpo-sort",
            "clip_range=0.3",
            "method.grpo.clip_high",
            json!(0.3),
        ),
        (
            "rloo-sort",
            "clip_range=0.3",
            "method.rloo.clip",
            json!(0.3),
        ),
        (
            "ppo-demo",
            "vf_coef=0.3",
            "method.ppo.value_coef",
            json!(0.3),
        ),
        ("ppo-demo", "gamma=0.9", "method.ppo.gamma", json!(0.9)),
        (
            "ppo-demo",
            "gae_lambda=0.9",
            "method.ppo.lambda",
            json!(0.9),
        ),
        ("ppo-demo", "ppo_epochs=3", "rollout.epochs", json!(3)),
        (
            "ppo-demo",
            "max_new_tokens=5",
            "rollout.max_new_tokens",
            json!(5),
        ),
        (
            "ppo-demo",
            "temperature=0.7",
            "rollout.temperature",
            json!(0.7),
        ),
        ("ppo-demo", "top_k=7", "rollout.top_k", json!(7)),
        ("ppo-demo", "top_p=0.9", "rollout.top_p", json!(0.9)),
        (
            "sft-demo",
            "max_new_tokens=5",
            "sample.sampling.max_new_tokens",
            json!(5),
        ),
        (
            "sft-demo",
            "temperature=0.7",
            "sample.sampling.temperature",
            json!(0.7),
        ),
        ("sft-demo", "top_k=7", "sample.sampling.top_k", json!(7)),
        ("sft-demo", "top_p=0.9", "sample.sampling.top_p", json!(0.9)),
        ("grpo-sort", "group_size=4", "rollout.group_size", json!(4)),
        (
            "grpo-sort",
            "grpo_temperature=0.7",
            "rollout.temperature",
            json!(0.7),
        ),
    ] {
        set_in(preset, &[word], path, &wanted);
    }
}

/// What no setting stands for one to one.
#[test]
fn other_names_of_the_llm_lab_manual_have_words_of_their_own() {
    use crate::spec::{SpecSources, load};
    for (word, hint) in [
        (
            "tokenizer_name=gpt2",
            "data.tokenizer={file: {path: FOLDER}}",
        ),
        ("eval_steps=50", "eval_every for the interval, eval_batches"),
        ("save_best_only=true", "the best checkpoint is always kept"),
        ("output_dir=out", "--runs-dir"),
        // Its place is named by what is missing there.
        ("policy_checkpoint=nowhere", "train.from"),
        ("use_lora=true", "-s adapter=lora"),
        ("lora_target_modules=[q_proj]", "adapter.lora.targets"),
        (
            "reward_model_name=org/rm",
            "rewards=[{model: {path: FOLDER}}]",
        ),
        ("reference_checkpoint=none", "method.dpo.reference"),
        ("mini_batch_size=32", "train.micro_batch_size"),
    ] {
        let said = load("quickstart", &[word.into()], &SpecSources::default()).unwrap_err();
        assert!(said.to_string().contains(hint), "{word}: {said}");
    }
}

/// Muon has keys of exactly these names; what it calls otherwise is under its own name.
#[test]
fn names_of_adamw_are_those_of_the_part_that_adamw_updates_under_muon() {
    let muon = |word, path: &str, wanted: Value| {
        let path = format!("optimizer.{path}");
        set_in("smoke", &["optimizer=muon", word], &path, &wanted);
    };
    muon("adamw_beta1=0.8", "muon.adamw_beta1", json!(0.8));
    muon("adamw-beta2=0.8", "muon.adamw_beta2", json!(0.8));
    muon("adamw_eps=1e-6", "muon.adamw_eps", json!(1e-6));
    muon("adam_beta1=0.8", "muon.adamw_beta1", json!(0.8));
    muon("optimizer.adamw_beta1=0.8", "muon.adamw_beta1", json!(0.8));
    muon(
        "optimizer={muon: {muon_momentum: 0.9}}",
        "muon.momentum",
        json!(0.9),
    );
    let adamw = ["optimizer.adamw_beta1=0.8"];
    set_in("smoke", &adamw, "optimizer.adamw.beta1", &json!(0.8));
}

#[test]
fn aliases_are_unique_lead_somewhere_and_hide_nothing() {
    let root = schema::root();
    for (i, (name, target)) in ALIASES.iter().enumerate() {
        assert!(
            ALIASES[..i].iter().all(|(other, _)| other != name),
            "{name} is listed twice"
        );
        assert!(root.at(name).is_none(), "{name} hides a real key");
        let mut found = 0;
        root.walk("", &mut |path, _| {
            found += usize::from(matches(target, path))
        });
        assert!(found > 0, "{name}: no such place: {target}");
    }
}

#[test]
fn a_stretching_alone_stands_for_rotary_positions_with_it() {
    let settings = json!({"factor": 8});
    assert_eq!(
        member("model.position", "yarn", settings.clone()),
        Some(json!({"rope": {"scaling": {"yarn": {"factor": 8}}}}))
    );
    assert_eq!(member("model.position", "rope", settings.clone()), None);
    assert_eq!(member("model.norm", "yarn", settings), None);
}

fn matches(target: &str, path: &str) -> bool {
    let (t, p): (Vec<_>, Vec<_>) = (target.split('.').collect(), path.split('.').collect());
    t.len() == p.len() && t.iter().zip(&p).all(|(t, p)| t == p || *t == "*")
}
