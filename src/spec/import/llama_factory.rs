//! Keys of LLaMA-Factory's flat YAML beyond those of Hugging Face's trainer.

use super::{NO_ADAPTER, Row, To, WINDOWS, row};

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

pub(super) const ROWS: &[Row] = &[
    row("stage", To::Method(STAGES)),
    row(
        "finetuning_type",
        To::NoEqual("all weights are trained, as with `full`"),
    ),
    row("lora_rank", To::NoEqual(NO_ADAPTER)),
    row("lora_target", To::NoEqual(NO_ADAPTER)),
    row(
        "quantization_bit",
        To::NoEqual("a quantised base needs adapters: not in this build"),
    ),
    row("dataset", To::Data),
    row(
        "eval_dataset",
        To::NoEqual("validation text is the end of the training text: data.val_fraction"),
    ),
    row(
        "dataset_dir",
        To::NoEqual("data.path names the text itself"),
    ),
    row("template", To::NoEqual("plain text has no chat template")),
    row("cutoff_len", To::Near("model.seq_len", WINDOWS)),
    row(
        "max_samples",
        To::NoEqual("the whole text is used; cut the file"),
    ),
    row(
        "val_size",
        To::Near(
            "data.val_fraction",
            "the share comes from the end of the text, not at random",
        ),
    ),
    row(
        "pref_beta",
        To::NoEqual("belongs to preferences: not in this build"),
    ),
    row(
        "pref_loss",
        To::NoEqual("belongs to preferences: not in this build"),
    ),
    row("packing", To::Needless("windows of text are always full")),
    row(
        "neat_packing",
        To::Needless("windows of text are always full"),
    ),
    row("overwrite_cache", To::Needless("nothing is cached")),
    row(
        "preprocessing_num_workers",
        To::Needless("text is read in one go"),
    ),
    row(
        "flash_attn",
        To::Needless("attention never holds all scores here"),
    ),
    row("plot_loss", To::Needless("the workbench draws it")),
    row("trust_remote_code", To::Needless("no foreign code is run")),
    row(
        "save_only_model",
        To::Needless("checkpoints hold everything that a resume needs"),
    ),
];
