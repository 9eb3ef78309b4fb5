//! Files of GRPO, RLOO and PPO: methods that learn from the model's own answers.

use super::*;
use serde_json::json;

pub const GRPO: &str = "
model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct
dataset_name: trl-lib/DeepMath-103K
reward_funcs: [accuracy_reward]
learning_rate: 1.0e-6
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
steps_per_generation: 4
num_generations: 4
max_completion_length: 64
num_iterations: 2
loss_type: grpo
epsilon: 0.1
beta: 0.02
max_steps: 100
";

pub const RLOO: &str = "
model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct
dataset_name: trl-lib/tldr
reward_funcs: [f]
per_device_train_batch_size: 4
gradient_accumulation_steps: 4
generation_batch_size: 32
num_generations: 2
max_completion_length: 64
normalize_advantages: true
epsilon: 0.3
max_steps: 100
";

pub const PPO: &str = "
sft_model_path: cleanrl/sft
reward_model_path: cleanrl/rm
dataset_name: trl-internal-testing/tldr
per_device_train_batch_size: 4
gradient_accumulation_steps: 4
num_ppo_epochs: 2
num_mini_batches: 3
response_length: 53
missing_eos_penalty: 1.0
whiten_rewards: true
cliprange: 0.1
max_steps: 100
";

pub const LLAMA_FACTORY_PPO: &str = "
model_name_or_path: meta-llama/Llama-3.2-1B
stage: ppo
finetuning_type: lora
reward_model: saves/rm
dataset: identity.json
template: llama3
cutoff_len: 2048
ppo_buffer_size: 2
ppo_target: 4.0
max_steps: 100
";

pub fn is_on_policy(imported: &Imported) -> bool {
    ["grpo", "rloo", "ppo"].contains(&&*plain(&imported.draft.value("method")))
}

fn of(text: &str) -> Imported {
    import("x", text, None).unwrap()
}

fn all_are(imported: &Imported, wanted: &[(&str, Value)]) {
    for (path, value) in wanted {
        assert_eq!(imported.draft.value(path), *value, "{path}");
    }
}

/// `grpo` is the method's name too: the key was taken for "the method's own", and the default aggregation stayed.
#[test]
fn the_loss_of_grpo_is_its_aggregation() {
    for word in ["grpo", "bnpo", "dapo", "dr_grpo"] {
        let imported = of(&GRPO.replace("loss_type: grpo", &format!("loss_type: {word}")));
        assert_eq!(imported.draft.value("method.grpo.aggregation"), word);
        assert_eq!(outcome(&imported, "loss_type").outcome, KeyOutcome::Mapped);
    }
    // Others are refused with those that there are.
    let other = of(&GRPO.replace("loss_type: grpo", "loss_type: cispo"));
    let line = outcome(&other, "loss_type");
    assert!(
        line.outcome == KeyOutcome::NoEqual && line.words.contains("dr_grpo"),
        "{line:?}"
    );
}

/// Passes over the data were written, and the spec refused them.
#[test]
fn a_run_on_its_own_answers_is_as_long_as_its_steps() {
    for (text, method) in [
        (GRPO, "grpo"),
        (RLOO, "rloo"),
        (PPO, "ppo"),
        (LLAMA_FACTORY_PPO, "ppo"),
    ] {
        let text = text.replace("max_steps: 100\n", "");
        for (text, key) in [
            (
                format!("{text}num_train_epochs: 2.0\n"),
                "num_train_epochs: 2.0",
            ),
            (text, "(num_train_epochs: 3)"),
        ] {
            let mut imported = of(&text);
            assert_eq!(imported.draft.value("method"), method);
            assert!(imported.draft.value("train.epochs").is_null(), "{text}");
            let line = imported.lines.iter().find(|line| line.theirs == key);
            let line = line.unwrap_or_else(|| panic!("{key}: {:#?}", imported.lines));
            assert!(
                line.outcome == KeyOutcome::NoEqual && line.words.contains("set train.max_steps"),
                "{line:?}"
            );
            for (path, value) in [("rewards", "[exact]"), ("train.max_steps", "100")] {
                imported.draft.set(path, value, "").unwrap();
            }
            let spec = imported.draft.spec();
            assert!(spec.is_ok(), "{}", spec.unwrap_err());
        }
    }
}

#[test]
fn what_trl_writes_at_once_is_counted_in_optimizer_steps() {
    all_are(
        &of(GRPO),
        &[
            ("rollout.steps", json!(2)),
            ("rollout.epochs", json!(2)),
            ("method.grpo.clip_low", json!(0.1)),
        ],
    );
    all_are(
        &of(RLOO),
        &[
            ("rollout.steps", json!(2)),
            ("method.rloo.normalize", json!(true)),
            ("method.rloo.clip", json!(0.3)),
        ],
    );
    all_are(&of(PPO), &[("rollout.steps", json!(3))]);
    // Less than an optimizer step, and no whole number of them.
    for steps in [1, 3, 0] {
        let text = GRPO.replace(
            "steps_per_generation: 4",
            &format!("steps_per_generation: {steps}"),
        );
        let imported = of(&text);
        let line = outcome(&imported, "steps_per_generation");
        assert!(
            line.outcome == KeyOutcome::NoEqual && line.words.contains("of 2 each"),
            "{line:?}"
        );
        assert_eq!(imported.draft.value("rollout.steps"), 1);
    }
    // Where the file has no accumulation the tool's is 1.
    let silent = GRPO.replace("gradient_accumulation_steps: 2\n", "");
    assert_eq!(of(&silent).draft.value("rollout.steps"), 4);
    let dpo = of("dataset_name: d\nloss_type: sigmoid\nsteps_per_generation: 4\n");
    assert_eq!(
        outcome(&dpo, "steps_per_generation").outcome,
        KeyOutcome::Needless
    );
}

#[test]
fn ppo_of_llama_factory_has_its_defaults_and_its_target() {
    let said = [
        ("method.ppo.kl_target", json!(4.0)),
        ("rollout.steps", json!(2)),
    ];
    let silent = [
        ("method.ppo.beta", json!(0.2)),
        ("method.ppo.critic", json!("shared")),
        ("rollout.group_size", json!(1)),
        ("rollout.epochs", json!(4)),
        ("rollout.max_new_tokens", json!(1024)),
        ("rollout.top_k", json!(50)),
    ];
    let imported = of(&format!("{LLAMA_FACTORY_PPO}save_steps: 10\n"));
    all_are(&imported, &said);
    // Two steps and four epochs of each rollout, which is a step there.
    for (key, path, steps) in [
        ("max_steps", "train.max_steps", 800),
        ("save_steps", "checkpoint.every", 80),
    ] {
        assert_eq!(imported.draft.value(path), steps, "{path}");
        assert_eq!(outcome(&imported, key).outcome, KeyOutcome::Differs);
    }
    all_are(&imported, &silent);
    for (path, wanted) in [("temperature", 0.95), ("top_p", 0.7)] {
        let value = imported.draft.value(&format!("rollout.{path}"));
        assert!(
            (value.as_f64().unwrap() - wanted).abs() < 1e-6,
            "{path}: {value}"
        );
    }
    let without = LLAMA_FACTORY_PPO
        .replace("ppo_target: 4.0\n", "")
        .replace("ppo_buffer_size: 2\n", "");
    all_are(
        &of(&without),
        &[
            ("method.ppo.kl_target", json!(6.0)),
            ("rollout.steps", json!(1)),
        ],
    );
    // One optimizer trains policy and critic in TRL, which answers each prompt once.
    all_are(
        &of(PPO),
        &[
            ("method.ppo.critic_lr_scale", json!(1.0)),
            ("rollout.group_size", json!(1)),
        ],
    );
}

/// The spec of a file had no room for the tool's own longest answer.
#[test]
fn rows_of_trl_have_room_for_prompt_and_answer() {
    let room = |text: &str| of(text).draft.value("model.seq_len");
    assert_eq!(room(GRPO), 512 + 64);
    assert_eq!(room(&format!("{GRPO}max_prompt_length: 100\n")), 164);
    assert_eq!(room(PPO), 512 + 53);
}

/// It writes contents without any marks, which no template here does.
#[test]
fn the_empty_template_of_llama_factory_is_not_the_tokenizers_own() {
    let imported = of("model_name_or_path: m\nstage: sft\ntemplate: empty\n");
    assert_eq!(outcome(&imported, "template").outcome, KeyOutcome::NoEqual);
}
