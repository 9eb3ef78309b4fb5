//! Keys of Axolotl's flat YAML.

use super::defaults::{CPO, DROPOUT, DefaultSetting, GRPO, LEN, WITHOUT_DROPOUT, has_key};
use super::freeze::{Frozen, unfrozen};
use super::shared::{
    BASE, FOREIGN_ADAPTER, KERNELS, NEW_ROWS, NEW_TOKENS, NO_TRACKER, NO_UPLOAD, OPTIMIZERS,
    PACKING, QUANTIZED, SCHEDULES, SHARDS, WINDOWS,
};
use super::tool::Tool;
use super::{Known, Reader, Row, Sets, To, plain, row, shared};
use crate::nn::ModelConfig;
use serde_json::{Map, Value};

pub(super) struct Axolotl;
pub(super) static TOOL: Axolotl = Axolotl;

impl Tool for Axolotl {
    fn id(&self) -> &'static str {
        "axolotl"
    }

    fn title(&self) -> &'static str {
        "Axolotl"
    }

    fn tables(&self) -> &'static [&'static [Row]] {
        &[ROWS, shared::EVERYWHERE]
    }

    fn marks(&self) -> &'static [&'static str] {
        MARKS
    }

    fn accepts_trainer_keys(&self) -> bool {
        false
    }

    fn adapts(&self, map: &Map<String, Value>) -> bool {
        let word = map.get("adapter").filter(|value| !value.is_null());
        let word = word.map(plain);
        word.is_some_and(|word| ["lora", "qlora"].contains(&&*word))
    }

    fn frozen(&self, map: &Map<String, Value>, model: Option<&ModelConfig>) -> Option<Frozen> {
        let patterns = map.get("unfrozen_parameters")?.as_array()?;
        if patterns.is_empty() {
            return None;
        }
        Some(match self.adapts(map) {
            true => Err("beside adapters all other weights are frozen here".into()),
            false => unfrozen(&patterns.iter().map(plain).collect::<Vec<_>>(), model),
        })
    }

    fn method(
        &self,
        reader: &mut Reader,
        _name: &str,
        map: &Map<String, Value>,
        _known: &Known<'_>,
    ) {
        if let Some(method) = method(map) {
            reader.method(method);
        }
    }

    /// Settings of TRL's trainers.
    fn block(&self) -> Option<&'static str> {
        Some("trl")
    }

    fn choices(&self) -> [DefaultSetting; 2] {
        [
            (&["lr_scheduler"], "schedule", "cosine"),
            (&["optimizer"], "optimizer", "adamw"),
        ]
    }

    fn learning_rate(&self, _method: &str, _map: &Map<String, Value>) -> Option<&'static str> {
        None
    }

    fn length(&self, _on_policy: bool, _map: &Map<String, Value>) -> Option<DefaultSetting> {
        Some((&["sequence_len"], LEN, "512"))
    }

    fn epochs(&self) -> DefaultSetting {
        (&["num_epochs"], "train.epochs", "1")
    }

    fn default_batch(&self, reader: &mut Reader, map: &Map<String, Value>) {
        reader.apply_default(map, (&["micro_batch_size"], "train.micro_batch_size", "1"));
        let warms_up = reader.draft.value("schedule") != "none";
        if warms_up && !has_key(map, "warmup_steps") && !has_key(map, "warmup_ratio") {
            let words = "at most 100 steps there";
            reader.apply_default_as("warmup_ratio: 0.03", "train.warmup_ratio", "0.03", words);
        }
    }

    fn of_method(&self, method: &str) -> &'static [DefaultSetting] {
        match method {
            "simpo" => CPO,
            "grpo" => GRPO,
            _ => &[],
        }
    }

    fn of_adapters(&self) -> &'static [DefaultSetting] {
        &[(&["lora_dropout"], DROPOUT, "0")]
    }

    /// TRL's trainers are behind it.
    fn default_adapters(&self, reader: &mut Reader, map: &Map<String, Value>) {
        reader.without_dropout(map, WITHOUT_DROPOUT);
    }
}

const MARKS: &[&str] = &[
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

/// The method where the file names none: supervised fine-tuning, unless all data are plain text.
fn method(map: &Map<String, Value>) -> Option<&'static str> {
    let off = |value: &Value| matches!(value, Value::Null | Value::Bool(false));
    let on = |key: &str| map.get(key).is_some_and(|value| !off(value));
    if on("rl") || on("reward_model") || on("process_reward_model") {
        return None;
    }
    let is_text = |set: &Value| {
        let kind = set.get("type").map(plain).unwrap_or_default();
        let kind = kind.split([':', '.']).next().unwrap_or_default();
        matches!(kind, "completion" | "pretrain")
    };
    let texts = match map.get("datasets") {
        Some(Value::Array(sets)) => !sets.is_empty() && sets.iter().all(is_text),
        Some(set) => is_text(set),
        None => false,
    };
    Some(match on("pretraining_dataset") || texts {
        true => "pretrain",
        false => "sft",
    })
}

const ROWS: &[Row] = &[
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
    row("lora_target_modules", To::Targets),
    row("lora_target_linear", To::AllLinear),
    row("lora_modules_to_save", To::Whole),
    row("lora_target_parameters", To::Parameters),
    row("lora_model_dir", To::NoEqual(FOREIGN_ADAPTER)),
    row(
        "lora_fan_in_fan_out",
        To::Needless("the layout of the weights is known"),
    ),
    row("lora_mlp_kernel", To::Needless(KERNELS)),
    row("lora_qkv_kernel", To::Needless(KERNELS)),
    row("lora_o_kernel", To::Needless(KERNELS)),
    row("datasets", To::Data(Sets::Maps)),
    row("pretraining_dataset", To::Data(Sets::Maps)),
    row("chat_template", To::Template(TEMPLATES)),
    row("train_on_inputs", To::Flag("data.train_on", "all")),
    row(
        "dataset_prepared_path",
        To::Needless("data.cache is keyed by a hash of everything the tokens depend on"),
    ),
    row("val_set_size", To::HeldOut),
    row(
        "test_datasets",
        To::NoEqual("set data.val_path to the file of held-out rows"),
    ),
    row("rl", To::Method(RL)),
    row("reward_model", To::Method(&[("true", "reward")])),
    row(
        "center_rewards_coefficient",
        To::Key("method.*.center_rewards_coefficient"),
    ),
    row("dpo_beta", To::Key("method.*.beta")),
    row("rl_beta", To::Key("method.*.beta")),
    row("orpo_alpha", To::Key("method.*.beta")),
    // A map is read as keys of its own.
    row(
        "trl",
        To::NoEqual("settings of GRPO: rollout, rewards and method.grpo"),
    ),
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
        "eval_sample_packing",
        To::Needless("held-out rows are laid out as data.packing says"),
    ),
    row(
        "pad_to_sequence_len",
        To::Needless("rows of a batch are padded to the longest"),
    ),
    row("micro_batch_size", To::Key("train.micro_batch_size")),
    row("num_epochs", To::Epochs),
    row("optimizer", To::Word("optimizer", OPTIMIZERS)),
    row("lr_scheduler", To::Word("schedule", SCHEDULES)),
    row("cosine_min_lr_ratio", To::Floor),
    row(
        "cosine_constant_lr_ratio",
        To::NoEqual("cosine falls to the last step; wsd holds the rate and then decays"),
    ),
    row(
        "eval_batch_size",
        To::Needless("evaluation uses train.micro_batch_size"),
    ),
    row("early_stopping_patience", To::Key("eval.patience")),
    row(
        "loss_watchdog_threshold",
        To::NoEqual("there is no fixed loss limit: rescue.policy decides what a spike does"),
    ),
    row(
        "loss_watchdog_patience",
        To::NoEqual("rescue.patience counts losses in a row that are outliers"),
    ),
    row("fsdp", To::NoEqual(SHARDS)),
    row("fsdp_config", To::NoEqual(SHARDS)),
    row(
        "local_rank",
        To::Needless("ranks are numbered by the engine"),
    ),
    row("xformers_attention", To::Needless(KERNELS)),
    row("sdp_attention", To::Needless(KERNELS)),
    row(
        "s2_attention",
        To::NoEqual("every token sees all before it, or model.sliding_window of them"),
    ),
    row("plugins", To::NoEqual("no third-party code is run")),
    row(
        "eval_table_size",
        To::NoEqual("sample.every samples during training"),
    ),
    row(
        "eval_max_new_tokens",
        To::NoEqual("sample.sampling.max_new_tokens"),
    ),
    row(
        "save_safetensors",
        To::Needless("weights are always saved this way"),
    ),
    row(
        "tf32",
        To::NoEqual("train.precision is bf16 or f32 on GPUs too"),
    ),
    row(
        "flash_attention",
        To::Needless("attention never materializes all scores here"),
    ),
    row("evals_per_epoch", To::PerEpoch("eval.every")),
    row("saves_per_epoch", To::PerEpoch("checkpoint.every")),
    row("wandb_project", To::NoEqual(NO_TRACKER)),
    row("wandb_entity", To::NoEqual(NO_TRACKER)),
    row("wandb_name", To::NoEqual(NO_TRACKER)),
    row("wandb_watch", To::NoEqual(NO_TRACKER)),
    row("wandb_log_model", To::NoEqual(NO_TRACKER)),
    row("hub_model_id", To::NoEqual(NO_UPLOAD)),
    row("hub_strategy", To::NoEqual(NO_UPLOAD)),
    row("hub_token", To::NoEqual(NO_UPLOAD)),
    row("push_to_hub", To::NoEqual(NO_UPLOAD)),
    row("attn_implementation", To::Needless(KERNELS)),
    row("flex_attention", To::Needless(KERNELS)),
    row("eager_attention", To::Needless(KERNELS)),
    row("flash_attn_cross_entropy", To::Needless(KERNELS)),
    row("flash_attn_rms_norm", To::Needless(KERNELS)),
    row("flash_attn_fuse_mlp", To::Needless(KERNELS)),
    row("flash_attn_fuse_qkv", To::Needless(KERNELS)),
    row("liger_rope", To::Needless(KERNELS)),
    row("liger_rms_norm", To::Needless(KERNELS)),
    row("liger_glu_activation", To::Needless(KERNELS)),
    row("liger_layer_norm", To::Needless(KERNELS)),
    row("liger_cross_entropy", To::Needless(KERNELS)),
    row("liger_fused_linear_cross_entropy", To::Needless(KERNELS)),
    row(
        "trust_remote_code",
        To::Needless("no third-party code is run"),
    ),
    row(
        "dataset_processes",
        To::Needless("train.threads applies to all work"),
    ),
    row(
        "dataset_num_proc",
        To::Needless("train.threads applies to all work"),
    ),
    row(
        "dataloader_num_workers",
        To::Needless("batches are prefetched on their own thread"),
    ),
    row(
        "dataloader_prefetch_factor",
        To::Needless("batches are prefetched on their own thread"),
    ),
    row(
        "dataloader_pin_memory",
        To::Needless("batches are prefetched on their own thread"),
    ),
    row(
        "shuffle_merged_datasets",
        To::Needless("batches are drawn at random from all sources"),
    ),
    row("excess_length_strategy", To::Key("data.too_long")),
    row("use_tensorboard", To::NoEqual(NO_TRACKER)),
    row("use_wandb", To::NoEqual(NO_TRACKER)),
    row("use_mlflow", To::NoEqual(NO_TRACKER)),
    row("use_comet", To::NoEqual(NO_TRACKER)),
    row(
        "lora_on_cpu",
        To::Needless("weights are read once, to where they train"),
    ),
    row("unfrozen_parameters", To::Unfrozen),
    row(
        "tokenizer_config",
        To::NoEqual("data.tokenizer.file.path names a tokenizer of its own"),
    ),
    row(
        "lr_quadratic_warmup",
        To::NoEqual("the learning rate rises in a straight line"),
    ),
    row(
        "embedding_lr",
        To::NoEqual("all weights have one learning rate"),
    ),
    row(
        "embedding_lr_scale",
        To::NoEqual("all weights have one learning rate"),
    ),
    row("torch_dtype", To::Needless("train.precision decides")),
    row(
        "auto_resume_from_checkpoints",
        To::NoEqual("set it on the command line: --resume RUN"),
    ),
    row(
        "peft_init_lora_weights",
        To::NoEqual("adapters begin at zero change, as LoRA's do"),
    ),
    row("special_tokens", To::NoEqual("defined by the tokenizer")),
    row("tokens", To::NoEqual(NEW_TOKENS)),
    row("added_tokens_overrides", To::NoEqual(NEW_TOKENS)),
    row(
        "resize_token_embeddings_to_32x",
        To::Near(
            "train.resize_vocab",
            "tables grow to the tokenizer's tokens; model.vocab_size says more rows, a multiple of 32 for one",
        ),
    ),
    row("mean_resizing_embeddings", To::Needless(NEW_ROWS)),
    row(
        "shrink_embeddings",
        To::NoEqual("embeddings only grow, never shrink"),
    ),
    row("strict", To::Needless("unknown keys are always errors")),
];
