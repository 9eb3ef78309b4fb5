//! Keys of TRL's trainers beyond Hugging Face's.

use super::defaults::{
    ALPHA, ANSWER, CPO, DROPOUT, DefaultSetting, GRPO, LEN, ONE_ANSWER, RANK, TARGETS,
    WITHOUT_DROPOUT, has_key,
};
use super::shared::{PACKING, QUANTIZED, WHOLE_TURNS, WINDOWS};
use super::tool::Tool;
use super::{KeyOutcome, Known, Reader, Row, Sets, To, plain, row, shared, trainer};
use serde_json::{Map, Value};

pub(super) struct Trl;
pub(super) static TOOL: Trl = Trl;

impl Tool for Trl {
    fn id(&self) -> &'static str {
        "trl"
    }

    fn title(&self) -> &'static str {
        "TRL"
    }

    fn tables(&self) -> &'static [&'static [Row]] {
        &[ROWS, shared::EVERYWHERE, shared::TRAINER]
    }

    fn marks(&self) -> &'static [&'static str] {
        MARKS
    }

    fn adapts(&self, map: &Map<String, Value>) -> bool {
        map.get("use_peft")
            .is_some_and(|word| plain(word) == "true")
    }

    fn names_its_method(&self) -> bool {
        false
    }

    fn method(&self, reader: &mut Reader, name: &str, map: &Map<String, Value>, known: &Known<'_>) {
        let (method, by) = trainer::trainer(name, map, known.method, &known.columns);
        reader.trainer(&method, &by);
    }

    fn learning_rate(&self, method: &str, map: &Map<String, Value>) -> Option<&'static str> {
        Some(match method {
            "sft" => "2e-5",
            "distill" if is_gkd(map) => "2e-5",
            "reward" => "1e-4",
            "ppo" => "3e-6",
            _ => "1e-6",
        })
    }

    /// Prompts and answers have limits of their own, as in a distillation that begins with prompts alone.
    fn length(&self, on_policy: bool, map: &Map<String, Value>) -> Option<DefaultSetting> {
        (!on_policy && !distills_prompts(map)).then_some((
            &["max_length", "max_seq_length"],
            LEN,
            "1024",
        ))
    }

    fn of_method(&self, method: &str) -> &'static [DefaultSetting] {
        match method {
            "simpo" => CPO,
            "grpo" => GRPO,
            "rloo" => &[
                (&["num_generations", "rloo_k"], "rollout.group_size", "2"),
                ANSWER,
            ],
            "ppo" => &[
                ONE_ANSWER,
                (&["critic learning rate"], "method.ppo.critic_lr_scale", "1"),
                (&["num_ppo_epochs"], "rollout.epochs", "4"),
                (&["response_length"], "rollout.max_new_tokens", "53"),
                (&["temperature"], "rollout.temperature", "0.7"),
            ],
            _ => &[],
        }
    }

    fn default_settings(&self, reader: &mut Reader, map: &Map<String, Value>) {
        if reader.draft.value("method") == "sft" {
            mask(reader, map);
        }
        if reader.draft.value("method") == "distill" {
            distillation(reader, map);
        }
        if reader.writes_answers() || distills_prompts(map) {
            room(reader, map);
        }
    }

    fn of_adapters(&self) -> &'static [DefaultSetting] {
        &[
            (&["lora_r"], RANK, "16"),
            (&["lora_alpha"], ALPHA, "32"),
            (&["lora_dropout"], DROPOUT, "0.05"),
            // PEFT's choice for llama, mistral, qwen and gemma.
            (&["lora_target_modules"], TARGETS, "minimal"),
        ]
    }

    fn default_adapters(&self, reader: &mut Reader, map: &Map<String, Value>) {
        reader.without_dropout(map, &[WITHOUT_DROPOUT, &["reward", "ppo"]].concat());
    }
}

/// Which tokens it learns where the file does not say.
fn mask(reader: &mut Reader, map: &Map<String, Value>) {
    let keys = ["assistant_only_loss", "completion_only_loss"];
    if !keys.iter().any(|key| has_key(map, key)) {
        let theirs = "(assistant_only_loss: false)".into();
        reader.line(
            KeyOutcome::Default,
            theirs,
            "data.train_on: auto",
            WHOLE_TURNS,
        );
    }
}

/// Whether a distillation is for `GKDTrainer`, which learns from the data's answers too; its successor `DistillationTrainer` reads
/// prompts alone.
fn is_gkd(map: &Map<String, Value>) -> bool {
    let keys = ["lmbda", "seq_kd", "max_new_tokens", "max_length", "packing"];
    keys.iter().any(|key| has_key(map, key))
}

fn distills_prompts(map: &Map<String, Value>) -> bool {
    has_key(map, "teacher_model_name_or_path") && !is_gkd(map)
}

/// Defaults of both trainers of distillations.
fn distillation(reader: &mut Reader, map: &Map<String, Value>) {
    const BETA: &str = "method.distill.beta";
    const SHARE: &str = "method.distill.on_policy";
    let gkd: &[DefaultSetting] = &[
        (&["beta"], BETA, "0.5"),
        (&["lmbda"], SHARE, "0.5"),
        (&["temperature"], "rollout.temperature", "0.9"),
        (&["max_new_tokens"], "rollout.max_new_tokens", "128"),
    ];
    let successor: &[DefaultSetting] = &[
        (&["beta"], BETA, "1"),
        (&["every answer is the student's"], SHARE, "1"),
        (&["temperature"], "rollout.temperature", "1"),
        ANSWER,
    ];
    let (defaults, of_the_loss) = match is_gkd(map) {
        true => (gkd, None),
        false => (successor, map.get("temperature").filter(|t| !t.is_null())),
    };
    for default in defaults.iter().copied() {
        reader.apply_default(map, default);
    }
    // The successor divides the logits of its loss by the temperature at which it samples.
    if let Some(said) = of_the_loss {
        let said = plain(said);
        let theirs = format!("temperature: {said}, in the loss too");
        reader.apply_default_as(&theirs, "method.distill.temperature", &said, "");
    }
}

/// TRL limits prompts and answers apart, and newer ones prompts not at all; here a row has room for both.
fn room(reader: &mut Reader, map: &Map<String, Value>) {
    const PROMPT: u64 = 512;
    let said = map.get("max_prompt_length").and_then(Value::as_u64);
    let answer = reader.draft.value("rollout.max_new_tokens").as_u64();
    let (prompt, answer) = (said.unwrap_or(PROMPT), answer.unwrap_or_default());
    let theirs = format!("a prompt of {prompt} tokens and an answer of {answer}");
    let words = "data.too_long handles longer prompts; a larger model.seq_len has room for them";
    let tokens = (prompt + answer).to_string();
    reader.apply_default_as(&theirs, "model.seq_len", &tokens, words);
}

const MARKS: &[&str] = &[
    "dataset_name",
    "datasets",
    "dataset_mixer",
    "dataset_mixture",
    "dataset_splits",
    "dataset_config",
    "dataset_text_field",
    "loss_weights",
    "max_length",
    "max_prompt_length",
    "max_completion_length",
    "num_generations",
    "num_ppo_epochs",
    "cliprange",
    "kl_coef",
    "teacher_model_name_or_path",
    "lmbda",
    "seq_kd",
    "beta",
    "loss_type",
    "use_peft",
    "lora_r",
    "completion_only_loss",
    "assistant_only_loss",
];

const NO_LIMIT: &str = "no limit there: set model.seq_len to your longest row";
const NO_SERVER: &str = "completions are generated by the weights that train";

const ROWS: &[Row] = &[
    row("dataset_name", To::Data(Sets::Name)),
    row("datasets", To::Data(Sets::Maps)),
    row("dataset_mixer", To::Mixer),
    row("dataset_splits", To::OfMixer),
    row("dataset_configs", To::OfMixer),
    row("dataset_mixture", To::Mixture),
    row("test_split_size", To::HeldOut),
    row("dataset_config", To::OfData("subset")),
    row("dataset_train_split", To::OfData("split")),
    row(
        "dataset_test_split",
        To::NoEqual(
            "set data.val_path to a file of held-out rows; otherwise data.val_fraction of the rows is held out",
        ),
    ),
    row(
        "dataset_text_field",
        To::Needless(
            "the format is detected from the columns; override with a source's `columns: {text: NAME}`",
        ),
    ),
    row("max_length", To::Limit(LEN, NO_LIMIT)),
    row("max_seq_length", To::Near("model.seq_len", WINDOWS)),
    row(
        "max_prompt_length",
        To::NoEqual(
            "data.too_long handles long rows; model.seq_len has room for prompt and answer",
        ),
    ),
    row("max_completion_length", To::Key("rollout.max_new_tokens")),
    row("response_length", To::Key("rollout.max_new_tokens")),
    row("max_new_tokens", To::Key("rollout.max_new_tokens")),
    row(
        "teacher_model_name_or_path",
        To::Key("method.distill.teacher"),
    ),
    row(
        "teacher_model_revision",
        To::NoEqual("method.distill.teacher takes ORG/NAME@REVISION"),
    ),
    row(
        "teacher_model_init_kwargs",
        To::Needless("the teacher keeps the formats of its file"),
    ),
    row("lmbda", To::Key("method.distill.on_policy")),
    row(
        "seq_kd",
        To::NoEqual(
            "have the teacher write the answers first (llmtui serve), and train on those by method: sft",
        ),
    ),
    row("num_generations", To::Key("rollout.group_size")),
    row("rloo_k", To::Key("rollout.group_size")),
    row("num_iterations", To::Key("rollout.epochs")),
    row("num_mini_batches", To::Key("rollout.steps")),
    row(
        "steps_per_generation",
        To::Generation(&["train.grad_accum_steps"]),
    ),
    row(
        "generation_batch_size",
        To::Generation(&["train.micro_batch_size", "train.grad_accum_steps"]),
    ),
    row(
        "disable_dropout",
        To::Needless("adapter.lora.dropout is 0 where it holds"),
    ),
    row("normalize_advantages", To::Key("method.*.normalize")),
    row("num_ppo_epochs", To::Key("rollout.epochs")),
    row("temperature", To::Key("rollout.temperature")),
    row("top_p", To::Key("rollout.top_p")),
    row("top_k", To::Key("rollout.top_k")),
    row(
        "mask_truncated_completions",
        To::Key("rollout.mask_truncated"),
    ),
    row(
        "epsilon",
        To::OneOf(&["method.*.clip_low", "method.*.clip"]),
    ),
    row("epsilon_high", To::Key("method.*.clip_high")),
    row("delta", To::Key("method.*.delta")),
    row(
        "scale_rewards",
        To::Choice("method.*.scale", &[("true", "group"), ("false", "none")]),
    ),
    row("importance_sampling_level", To::Key("method.*.ratio")),
    row("kl_coef", To::Key("method.*.beta")),
    row("kl_estimator", To::Key("method.*.kl")),
    row("use_bias_correction_kl", To::Key("method.*.kl_correction")),
    row("cliprange", To::Key("method.*.clip")),
    row("cliprange_value", To::Key("method.*.value_clip")),
    row("vf_coef", To::Key("method.*.value_coef")),
    row("gamma", To::Key("method.*.gamma")),
    row("lam", To::Key("method.*.lambda")),
    row("whiten_rewards", To::Key("method.*.whiten_rewards")),
    row(
        "missing_eos_penalty",
        To::Key("method.*.missing_eos_penalty"),
    ),
    row(
        "reward_model_path",
        To::NoEqual(
            "rewards: [{model: {path: FOLDER}}], and method.ppo.critic_from for the critic",
        ),
    ),
    row("sft_model_path", To::Key("train.from")),
    row(
        "total_episodes",
        To::NoEqual(
            "set train.max_steps to total_episodes × rollout.epochs / (train.micro_batch_size × train.grad_accum_steps)",
        ),
    ),
    row(
        "reward_funcs",
        To::NoEqual(
            "rewards: a list; `llmtui reward test` tests it, {command: …} runs your own program",
        ),
    ),
    row(
        "reward_weights",
        To::NoEqual("a weight beside each of rewards"),
    ),
    row("use_vllm", To::Needless(NO_SERVER)),
    row("vllm_mode", To::Needless(NO_SERVER)),
    row("vllm_device", To::Needless(NO_SERVER)),
    row("vllm_dtype", To::Needless(NO_SERVER)),
    row("vllm_server_host", To::Needless(NO_SERVER)),
    row("vllm_server_port", To::Needless(NO_SERVER)),
    row("vllm_server_timeout", To::Needless(NO_SERVER)),
    row("vllm_gpu_memory_utilization", To::Needless(NO_SERVER)),
    row("vllm_max_model_len", To::Needless(NO_SERVER)),
    row("vllm_max_model_length", To::Needless(NO_SERVER)),
    row("vllm_tensor_parallel_size", To::Needless(NO_SERVER)),
    row("vllm_enable_prefix_caching", To::Needless(NO_SERVER)),
    row(
        "log_completions",
        To::Needless("answers are kept beside the log: rollout.keep"),
    ),
    row("sync_ref_model", To::Key("train.sync_ref_model")),
    row(
        "ref_model_mixup_alpha",
        To::Key("train.ref_model_mixup_alpha"),
    ),
    row(
        "ref_model_sync_steps",
        To::Key("train.ref_model_sync_steps"),
    ),
    row("beta", To::Key("method.*.beta")),
    row("loss_type", To::Loss),
    row("loss_weights", To::Needless("mapped with loss_type")),
    row("label_smoothing", To::Key("method.*.label_smoothing")),
    row("desirable_weight", To::Key("method.*.desirable_weight")),
    row("undesirable_weight", To::Key("method.*.undesirable_weight")),
    row("simpo_gamma", To::Key("method.*.gamma")),
    row("cpo_alpha", To::Key("method.*.nll_weight")),
    row("rpo_alpha", To::Key("method.*.nll_weight")),
    row(
        "center_rewards_coefficient",
        To::Key("method.*.center_rewards_coefficient"),
    ),
    row(
        "precompute_ref_log_probs",
        To::Flag("method.*.reference", "precomputed"),
    ),
    row(
        "packing",
        To::Either("data.packing", "packed", "padded", PACKING),
    ),
    row(
        "packing_strategy",
        To::NoEqual("data.packing: packed lays rows into windows in its own order"),
    ),
    row(
        "eval_packing",
        To::Needless("held-out rows are laid as those of training"),
    ),
    row(
        "padding_free",
        To::Needless("padding has no part in the loss"),
    ),
    row(
        "dataset_num_proc",
        To::Needless("train.threads applies to all work"),
    ),
    row(
        "preprocessing_num_workers",
        To::Needless("train.threads applies to all work"),
    ),
    row(
        "chat_template",
        To::NoEqual("data.template names a .jinja file; auto takes the model's own template"),
    ),
    row(
        "auto_insert_empty_system_msg",
        To::NoEqual(
            "turns are those of the rows; data.template decides what is written around them",
        ),
    ),
    row(
        "use_flash_attention_2",
        To::Needless("attention never materializes all scores here"),
    ),
    row("log_level", To::Needless("the log has everything")),
    row(
        "model_revision",
        To::NoEqual("train.from takes ORG/NAME@REVISION"),
    ),
    row(
        "activation_offloading",
        To::NoEqual("train.activation_checkpointing: full needs little memory for activations"),
    ),
    row(
        "eos_token",
        To::NoEqual("answers end with the token of the tokenizer or of data.template"),
    ),
    row("chat_template_path", To::Key("data.template")),
    row(
        "completion_only_loss",
        To::Either("data.train_on", "completion", "all", ""),
    ),
    row(
        "assistant_only_loss",
        To::NearlyOff("data.train_on", "assistant", WHOLE_TURNS),
    ),
    row("lora_r", To::Key("adapter.lora.rank")),
    row("lora_target_modules", To::Targets),
    row("lora_modules_to_save", To::Whole),
    row("lora_target_parameters", To::Parameters),
    row("load_in_4bit", To::NoEqual(QUANTIZED)),
    row("load_in_8bit", To::NoEqual(QUANTIZED)),
    row("bnb_4bit_quant_type", To::NoEqual(QUANTIZED)),
    row("use_bnb_nested_quant", To::NoEqual(QUANTIZED)),
    row("torch_dtype", To::Needless("train.precision decides")),
    row("dtype", To::Needless("train.precision decides")),
    row(
        "attn_implementation",
        To::Needless("attention never materializes all scores here"),
    ),
    row(
        "trust_remote_code",
        To::Needless("no third-party code is run"),
    ),
];
