//! Keys of Axolotl's flat YAML.

use super::shared::{
    BASE, HELD_OUT, NO_TRACKER, OPTIMIZERS, PACKING, QUANTIZED, SCHEDULES, TARGETS, WINDOWS,
};
use super::{Row, Sets, To, row};

pub(super) const MARKS: &[&str] = &[
    "base_model",
    "datasets",
    "sequence_len",
    "micro_batch_size",
    "adapter",
    "val_set_size",
    "num_epochs",
    "sample_packing",
    "train_on_inputs",
    "rl",
];

const RL: &[(&str, &str)] = &[
    ("dpo", "dpo"),
    ("ipo", "dpo"),
    ("kto", "kto"),
    ("orpo", "orpo"),
    ("simpo", "simpo"),
    ("grpo", "grpo"),
];

const TEMPLATES: &[(&str, &str)] = &[
    ("tokenizer_default", "auto"),
    ("chatml", "chatml"),
    ("llama3", "llama3"),
    ("gemma", "gemma"),
    ("gemma3", "gemma3"),
    ("phi_3", "phi3"),
    ("mistral_v1", "mistral"),
    ("qwen_25", "qwen"),
    ("qwen3", "qwen3"),
];

pub(super) const ROWS: &[Row] = &[
    row("base_model", To::Near("train.from", BASE)),
    row(
        "model_type",
        To::NoEqual("model.* defines the architecture"),
    ),
    row(
        "tokenizer_type",
        To::NoEqual("data.tokenizer: char, bpe or file"),
    ),
    row("load_in_8bit", To::NoEqual(QUANTIZED)),
    row("load_in_4bit", To::NoEqual(QUANTIZED)),
    row(
        "adapter",
        To::Word("adapter", &[("lora", "lora"), ("qlora", "lora")]),
    ),
    row("lora_r", To::Key("adapter.lora.rank")),
    row("lora_target_modules", To::NoEqual(TARGETS)),
    row(
        "lora_target_linear",
        To::NearlyOff("adapter.lora.targets", "all", TARGETS),
    ),
    row("datasets", To::Data(Sets::Maps)),
    row("pretraining_dataset", To::Data(Sets::Maps)),
    row("chat_template", To::Template(TEMPLATES)),
    row("train_on_inputs", To::Flag("data.train_on", "all")),
    row(
        "dataset_prepared_path",
        To::Needless("data.cache is keyed by a hash of everything the tokens depend on"),
    ),
    row("val_set_size", To::Near("data.val_fraction", HELD_OUT)),
    row("rl", To::Method(RL)),
    row("reward_model", To::Method(&[("true", "reward")])),
    row(
        "center_rewards_coefficient",
        To::Key("method.*.center_rewards_coefficient"),
    ),
    row("rl_beta", To::Key("method.*.beta")),
    row("rpo_alpha", To::Key("method.*.nll_weight")),
    row("cpo_alpha", To::Key("method.*.nll_weight")),
    row("simpo_gamma", To::Key("method.*.gamma")),
    row("kto_desirable_weight", To::Key("method.*.desirable_weight")),
    row(
        "kto_undesirable_weight",
        To::Key("method.*.undesirable_weight"),
    ),
    row("sequence_len", To::Near("model.seq_len", WINDOWS)),
    row(
        "sample_packing",
        To::Either("data.packing", "packed", "padded", PACKING),
    ),
    row(
        "pad_to_sequence_len",
        To::Needless("rows of a batch are padded to the longest"),
    ),
    row("micro_batch_size", To::Key("train.micro_batch_size")),
    row("num_epochs", To::Epochs),
    row("optimizer", To::Word("optimizer", OPTIMIZERS)),
    row("lr_scheduler", To::Word("schedule", SCHEDULES)),
    row(
        "tf32",
        To::NoEqual("train.precision is bf16 or f32 on GPUs too"),
    ),
    row(
        "flash_attention",
        To::Needless("attention never materializes all scores here"),
    ),
    row("evals_per_epoch", To::NoEqual("eval.every is in steps")),
    row(
        "saves_per_epoch",
        To::NoEqual("checkpoint.every is in steps"),
    ),
    row("wandb_project", To::NoEqual(NO_TRACKER)),
    row("wandb_entity", To::NoEqual(NO_TRACKER)),
    row("wandb_name", To::NoEqual(NO_TRACKER)),
    row("special_tokens", To::NoEqual("defined by the tokenizer")),
    row("strict", To::Needless("unknown keys are always errors")),
];
