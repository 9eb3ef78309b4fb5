//! Keys of LLaMA-Factory's flat YAML beyond those of Hugging Face's trainer.

use super::shared::{HELD_OUT, PACKING, QUANTIZED, TARGETS, WINDOWS};
use super::{Row, Sets, To, row};

pub(super) const MARKS: &[&str] = &[
    "stage",
    "finetuning_type",
    "template",
    "cutoff_len",
    "lora_rank",
    "lora_target",
    "pref_beta",
    "dataset_dir",
    "val_size",
];

const STAGES: &[(&str, &str)] = &[
    ("pt", "pretrain"),
    ("sft", "sft"),
    ("rm", "reward"),
    ("ppo", "ppo"),
    ("dpo", "dpo"),
    ("kto", "kto"),
];

const TEMPLATES: &[(&str, &str)] = &[
    ("chatml", "chatml"),
    ("default", "auto"),
    ("empty", "auto"),
    ("qwen", "qwen"),
    ("qwen3", "qwen3"),
    ("llama3", "llama3"),
    ("mistral", "mistral"),
    ("gemma", "gemma"),
    ("gemma2", "gemma"),
    ("gemma3", "gemma3"),
    ("phi", "phi3"),
];

pub(super) const ROWS: &[Row] = &[
    row("stage", To::Method(STAGES)),
    row("finetuning_type", To::Tuning),
    row("lora_rank", To::Key("adapter.lora.rank")),
    row("lora_target", To::NoEqual(TARGETS)),
    row("quantization_bit", To::NoEqual(QUANTIZED)),
    row("dataset", To::Data(Sets::Listed)),
    row(
        "eval_dataset",
        To::NoEqual("set data.val_path to the file of held-out rows"),
    ),
    row(
        "dataset_dir",
        To::NoEqual("sources have their own paths, relative to the spec's folder"),
    ),
    row("template", To::Template(TEMPLATES)),
    row("cutoff_len", To::Near("model.seq_len", WINDOWS)),
    row(
        "max_samples",
        To::NoEqual("every row is used; cut the file with `llmtui data split` or `head`"),
    ),
    row("val_size", To::Near("data.val_fraction", HELD_OUT)),
    row("pref_beta", To::Key("method.*.beta")),
    row("pref_loss", To::Loss),
    row("pref_ftx", To::Key("method.*.nll_weight")),
    row("simpo_gamma", To::Key("method.*.gamma")),
    row("dpo_label_smoothing", To::Key("method.*.label_smoothing")),
    row("kto_chosen_weight", To::Key("method.*.desirable_weight")),
    row(
        "kto_rejected_weight",
        To::Key("method.*.undesirable_weight"),
    ),
    row(
        "packing",
        To::Either("data.packing", "packed", "padded", PACKING),
    ),
    row(
        "neat_packing",
        To::Needless("packed documents never attend to each other"),
    ),
    row(
        "overwrite_cache",
        To::Needless("tokens are cached by a hash of everything they depend on"),
    ),
    row(
        "preprocessing_num_workers",
        To::Needless("train.threads applies to all work"),
    ),
    row(
        "flash_attn",
        To::Needless("attention never materializes all scores here"),
    ),
    row("plot_loss", To::Needless("the workbench draws it")),
    row(
        "trust_remote_code",
        To::Needless("no third-party code is run"),
    ),
    row(
        "save_only_model",
        To::Needless("checkpoints contain everything a resume needs"),
    ),
];
