//! Keys of Axolotl's flat YAML.

use super::{
    BASE, EPOCHS, HELD_OUT, NO_TRACKER, OPTIMIZERS, RUNS_DIR, Row, SCHEDULES, Sets, TARGETS, To,
    WINDOWS, row,
};

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
    row(
        "load_in_8bit",
        To::NoEqual("the base is not quantized here"),
    ),
    row(
        "load_in_4bit",
        To::NoEqual("the base is not quantized here"),
    ),
    row(
        "adapter",
        To::Word("adapter", &[("lora", "lora"), ("qlora", "lora")]),
    ),
    row("lora_r", To::Key("adapter.lora.rank")),
    row("lora_alpha", To::Key("adapter.lora.alpha")),
    row("lora_dropout", To::Key("adapter.lora.dropout")),
    row("lora_target_modules", To::NoEqual(TARGETS)),
    row(
        "lora_target_linear",
        To::Flag("adapter.lora.targets", "all"),
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
    row(
        "rl_beta",
        To::NoEqual("belongs to preferences: not in this build"),
    ),
    row("sequence_len", To::Near("model.seq_len", WINDOWS)),
    row(
        "sample_packing",
        To::Either("data.packing", "packed", "padded"),
    ),
    row(
        "pad_to_sequence_len",
        To::Needless("rows of a batch are padded to the longest"),
    ),
    row("micro_batch_size", To::Key("train.micro_batch_size")),
    row(
        "gradient_accumulation_steps",
        To::Key("train.grad_accum_steps"),
    ),
    row("num_epochs", To::NoEqual(EPOCHS)),
    row("max_steps", To::Key("train.max_steps")),
    row("optimizer", To::Word("optimizer", OPTIMIZERS)),
    row("lr_scheduler", To::Word("schedule", SCHEDULES)),
    row("learning_rate", To::Key("optimizer.*.lr")),
    row(
        "weight_decay",
        To::Near(
            "optimizer.*.weight_decay",
            "never applied to norms and biases here",
        ),
    ),
    row("adam_beta1", To::Key("optimizer.*.beta1")),
    row("adam_beta2", To::Key("optimizer.*.beta2")),
    row("adam_epsilon", To::Key("optimizer.*.eps")),
    row("max_grad_norm", To::Key("train.clip_norm")),
    row("warmup_steps", To::Key("schedule.*.warmup_steps")),
    row("warmup_ratio", To::WarmupRatio),
    row("bf16", To::Flag("train.precision", "bf16")),
    row(
        "fp16",
        To::NoEqual("fp16 with loss scaling is not supported; use bf16 or f32"),
    ),
    row("tf32", To::Needless("GPUs only")),
    row(
        "gradient_checkpointing",
        To::Flag("train.activation_checkpointing", "full"),
    ),
    row(
        "flash_attention",
        To::Needless("attention never materializes all scores here"),
    ),
    row(
        "logging_steps",
        To::Near(
            "train.log_every",
            "logging every step is cheap here; 1 gives finer charts",
        ),
    ),
    row("eval_steps", To::Key("eval.every")),
    row("save_steps", To::Key("checkpoint.every")),
    row(
        "save_total_limit",
        To::Near(
            "checkpoint.keep_last",
            "the best one is kept as well; at least 2",
        ),
    ),
    row("evals_per_epoch", To::NoEqual("eval.every is in steps")),
    row(
        "saves_per_epoch",
        To::NoEqual("checkpoint.every is in steps"),
    ),
    row(
        "seed",
        To::Near(
            "seed",
            "seeds weights, batches and samples; numbers differ from other programs",
        ),
    ),
    row("output_dir", To::NoEqual(RUNS_DIR)),
    row(
        "resume_from_checkpoint",
        To::NoEqual("set it on the command line: --resume RUN"),
    ),
    row("wandb_project", To::NoEqual(NO_TRACKER)),
    row("wandb_entity", To::NoEqual(NO_TRACKER)),
    row("wandb_name", To::NoEqual(NO_TRACKER)),
    row("special_tokens", To::NoEqual("defined by the tokenizer")),
    row(
        "deepspeed",
        To::NoEqual("training runs in one process on one machine"),
    ),
    row("strict", To::Needless("unknown keys are always errors")),
];
