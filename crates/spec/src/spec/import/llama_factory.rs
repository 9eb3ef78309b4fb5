//! Keys of LLaMA-Factory's flat YAML beyond those of Hugging Face's trainer.

use super::defaults::{
    ALPHA, DROPOUT, DefaultSetting, LEN, ONE_ANSWER, RANK, TARGETS, WITHOUT_DROPOUT, has_key,
};
use super::freeze::{Freeze, Frozen};
use super::shared::{
    FOREIGN_ADAPTER, KERNELS, NEW_ROWS, NEW_TOKENS, NO_TRACKER, PACKING, QUANTIZED, WINDOWS,
};
use super::targets::names;
use super::tool::Tool;
use super::{KeyOutcome, Reader, Row, Sets, To, plain, row, shared};
use crate::nn::ModelConfig;
use serde_json::{Map, Value};

pub(super) struct LlamaFactory;
pub(super) static TOOL: LlamaFactory = LlamaFactory;

impl Tool for LlamaFactory {
    fn id(&self) -> &'static str {
        "llama-factory"
    }

    fn title(&self) -> &'static str {
        "LLaMA-Factory"
    }

    fn tables(&self) -> &'static [&'static [Row]] {
        &[ROWS, shared::EVERYWHERE, shared::TRAINER]
    }

    fn marks(&self) -> &'static [&'static str] {
        MARKS
    }

    fn adapts(&self, map: &Map<String, Value>) -> bool {
        let word = map.get("finetuning_type").filter(|value| !value.is_null());
        word.map(plain).is_none_or(|word| word == "lora")
    }

    fn frozen(&self, map: &Map<String, Value>, model: Option<&ModelConfig>) -> Option<Frozen> {
        if map.get("finetuning_type").map(plain).as_deref() != Some("freeze") {
            return None;
        }
        let said = |key: &str| map.get(key).filter(|value| !value.is_null());
        let list = |key: &str, silent: &[&str]| match said(key) {
            Some(value) => names(value),
            None => silent.iter().map(ToString::to_string).collect(),
        };
        let Some(layers) = said(TRAINED_LAYERS).map_or(Some(2), Value::as_i64) else {
            return Some(Err(format!("{TRAINED_LAYERS} is not a whole number")));
        };
        let freeze = Freeze {
            layers,
            modules: list(TRAINED_MODULES, &["all"]),
            extra: list("freeze_extra_modules", &[]),
            is_spread: said("use_llama_pro") == Some(&Value::Bool(true)),
        };
        Some(freeze.frozen(model))
    }

    /// PPO counts rollouts where other stages count optimizer steps.
    fn counts_rollouts(&self, method: &str) -> bool {
        method == "ppo"
    }

    fn default_choices(&self, reader: &mut Reader, map: &Map<String, Value>) {
        reader.apply_default(map, (&["stage"], "method", "sft"));
        // Without a base model there is nothing to adapt.
        if self.adapts(map) && has_key(map, "model_name_or_path") {
            reader.apply_default(map, (&["finetuning_type"], "adapter", "lora"));
        }
        if let Some(Ok(_)) = reader.frozen {
            for (key, silent) in [(TRAINED_LAYERS, "2"), (TRAINED_MODULES, "all")] {
                if !has_key(map, key) {
                    let theirs = format!("({key}: {silent})");
                    reader.line(KeyOutcome::Default, theirs, "train.freeze", "");
                }
            }
        }
    }

    fn learning_rate(&self, _method: &str, _map: &Map<String, Value>) -> Option<&'static str> {
        Some("5e-5")
    }

    fn length(&self, _on_policy: bool, _map: &Map<String, Value>) -> Option<DefaultSetting> {
        Some((&["cutoff_len"], LEN, "2048"))
    }

    fn of_method(&self, method: &str) -> &'static [DefaultSetting] {
        match method {
            "simpo" => &[
                (&["pref_beta"], "method.simpo.beta", "0.1"),
                (&["simpo_gamma"], "method.simpo.gamma", "0.5"),
            ],
            // `GeneratingArguments`; TRL 0.9's `PPOConfig`, but for what its PPO trainer fills in.
            "ppo" => &[
                (&["max_new_tokens"], "rollout.max_new_tokens", "1024"),
                (&["temperature"], "rollout.temperature", "0.95"),
                (&["top_p"], "rollout.top_p", "0.7"),
                (&["top_k"], "rollout.top_k", "50"),
                (&["ppo_epochs"], "rollout.epochs", "4"),
                (&["ppo_buffer_size"], "rollout.steps", "1"),
                (&["ppo_target"], "method.ppo.kl_target", "6"),
                (&["init_kl_coef"], "method.ppo.beta", "0.2"),
                ONE_ANSWER,
                (&["value head"], "method.ppo.critic", "shared"),
            ],
            _ => &[],
        }
    }

    fn of_adapters(&self) -> &'static [DefaultSetting] {
        &[
            (&["lora_rank"], RANK, "8"),
            (&["lora_dropout"], DROPOUT, "0"),
            (&["lora_target"], TARGETS, "all"),
        ]
    }

    /// Twice the rank; its trainers for preferences are TRL's.
    fn default_adapters(&self, reader: &mut Reader, map: &Map<String, Value>) {
        reader.without_dropout(map, WITHOUT_DROPOUT);
        if !has_key(map, "lora_alpha") {
            let rank = reader.draft.value(RANK).as_u64();
            let alpha = (2 * rank.unwrap_or_default()).to_string();
            reader.apply_default_as(&format!("lora_alpha: {alpha}"), ALPHA, &alpha, "");
        }
    }
}

const MARKS: &[&str] = &[
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
    ("default", "plain"),
    ("qwen", "qwen"),
    ("qwen3", "qwen3"),
    ("llama3", "llama3"),
    ("mistral", "mistral"),
    ("gemma", "gemma"),
    ("gemma2", "gemma"),
    ("gemma3", "gemma3"),
    ("phi", "phi3"),
];

/// The last two layers are trained as a whole where nothing else is said.
const TRAINED_LAYERS: &str = "freeze_trainable_layers";
const TRAINED_MODULES: &str = "freeze_trainable_modules";
const OPTIMIZER: &str = "no such optimizer here: adamw8bit and adafactor need little memory too";
const MIX: &str = "give each source its probability as `weight`: they are shares of the tokens";

const ROWS: &[Row] = &[
    row("stage", To::Method(STAGES)),
    row("finetuning_type", To::Tuning),
    row("lora_rank", To::Key("adapter.lora.rank")),
    row("lora_target", To::Targets),
    row("additional_target", To::Whole),
    row("resize_vocab", To::Key("train.resize_vocab")),
    row("add_tokens", To::NoEqual(NEW_TOKENS)),
    row("add_special_tokens", To::NoEqual(NEW_TOKENS)),
    row("new_special_tokens_config", To::NoEqual(NEW_TOKENS)),
    row("init_special_tokens", To::NoEqual(NEW_ROWS)),
    row("adapter_name_or_path", To::NoEqual(FOREIGN_ADAPTER)),
    row(
        "pissa_init",
        To::NoEqual("adapters begin at zero change, as LoRA's do"),
    ),
    row(TRAINED_LAYERS, To::OfFrozen),
    row(TRAINED_MODULES, To::OfFrozen),
    row("freeze_extra_modules", To::OfFrozen),
    row("use_llama_pro", To::OfFrozen),
    row("use_galore", To::NoEqual(OPTIMIZER)),
    row("use_apollo", To::NoEqual(OPTIMIZER)),
    row("use_badam", To::NoEqual(OPTIMIZER)),
    row(
        "pure_bf16",
        To::NoEqual("weights stay f32; train.precision: bf16 multiplies in bf16"),
    ),
    row(
        "include_num_input_tokens_seen",
        To::Needless("tokens are always counted"),
    ),
    row(
        "include_tokens_per_second",
        To::Needless("tokens a second are always measured"),
    ),
    row(
        "enable_thinking",
        To::NoEqual("data.template decides: qwen3 keeps thoughts behind the last question"),
    ),
    row(
        "rope_scaling",
        To::NoEqual(
            "model.position.rope.scaling with a longer model.seq_len stretches the start model's positions: yarn, ntk, linear or llama3",
        ),
    ),
    row(
        "shift_attn",
        To::NoEqual("every token sees all before it, or model.sliding_window of them"),
    ),
    row("image_max_pixels", To::NoEqual("only text is supported")),
    row("video_max_pixels", To::NoEqual("only text is supported")),
    row("ray_run_name", To::NoEqual(NO_TRACKER)),
    row(
        "upcast_layernorm",
        To::Needless("norms are computed in f32"),
    ),
    row(
        "reward_model",
        To::NoEqual(
            "rewards: [{model: {path: FOLDER}}], and method.ppo.critic_from for the critic",
        ),
    ),
    row(
        "reward_model_type",
        To::NoEqual("a reward model here is a whole model or a run of method reward"),
    ),
    row("max_new_tokens", To::Key("rollout.max_new_tokens")),
    row("temperature", To::Key("rollout.temperature")),
    row("top_p", To::Key("rollout.top_p")),
    row("top_k", To::Key("rollout.top_k")),
    row("do_sample", To::Needless("answers are always sampled")),
    row("ppo_epochs", To::Key("rollout.epochs")),
    row("ppo_whiten_rewards", To::Key("method.*.whiten_rewards")),
    row(
        "ppo_score_norm",
        To::NoEqual(
            "scores are taken as they are; method.ppo.whiten_rewards brings rewards of tokens to standard deviation 1 and keeps their mean",
        ),
    ),
    row("ppo_target", To::Key("method.*.kl_target")),
    row("ppo_buffer_size", To::Key("rollout.steps")),
    row(
        "ref_model",
        To::NoEqual("the reference is what the run starts from"),
    ),
    row(
        "ref_model_adapters",
        To::NoEqual("the reference is what the run starts from"),
    ),
    row(
        "create_new_adapter",
        To::Needless("adapters are always new"),
    ),
    row("use_unsloth", To::Needless(KERNELS)),
    row("enable_liger_kernel", To::Needless(KERNELS)),
    row("use_swanlab", To::NoEqual(NO_TRACKER)),
    row("quantization_bit", To::NoEqual(QUANTIZED)),
    row("quantization_method", To::NoEqual(QUANTIZED)),
    row("quantization_type", To::NoEqual(QUANTIZED)),
    row("double_quantization", To::NoEqual(QUANTIZED)),
    row("dataset", To::Data(Sets::Listed)),
    row(
        "eval_dataset",
        To::NoEqual("set data.val_path to the file of held-out rows"),
    ),
    row(
        "dataset_dir",
        To::Needless("sources have their own paths, relative to the working directory"),
    ),
    row("template", To::Template(TEMPLATES)),
    row("cutoff_len", To::Near("model.seq_len", WINDOWS)),
    row("max_samples", To::Key("data.max_rows")),
    row("val_size", To::HeldOut),
    row("train_on_prompt", To::Flag("data.train_on", "all")),
    row("mask_history", To::Flag("data.train_on", "completion")),
    row(
        "tokenized_path",
        To::Needless("tokens are cached by a hash of everything they depend on"),
    ),
    row(
        "streaming",
        To::Needless("tokens are read from files as they are needed"),
    ),
    row(
        "mix_strategy",
        To::Choice(
            "data.mix",
            &[
                ("concat", "concatenate"),
                ("interleave_under", "share"),
                ("interleave_over", "share"),
            ],
        ),
    ),
    row("interleave_probs", To::NoEqual(MIX)),
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
    row("neat_packing", To::Flag("data.packing", "packed")),
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
];
