//! Keys and words that several dialects share.

use super::{Row, To, row};

pub(in crate::spec) const OPTIMIZERS: &[(&str, &str)] = &[
    ("adamw_torch", "adamw"),
    ("adamw_torch_fused", "adamw"),
    ("adamw_torch_xla", "adamw"),
    ("adamw_torch_npu_fused", "adamw"),
    ("adamw_apex_fused", "adamw"),
    ("adamw_hf", "adamw"),
    ("adamw_torch_8bit", "adamw8bit"),
    ("ao_adamw_8bit", "adamw8bit"),
    ("adamw_bnb_8bit", "adamw8bit"),
    ("adamw_8bit", "adamw8bit"),
    ("paged_adamw_8bit", "adamw8bit"),
    ("paged_adamw_32bit", "adamw"),
    ("adamw", "adamw"),
    ("adafactor", "adafactor"),
    ("lion", "lion"),
    ("lion_pytorch", "lion"),
    ("lion_32bit", "lion"),
    ("lion_8bit", "lion"),
    ("paged_lion_32bit", "lion"),
    ("paged_lion_8bit", "lion"),
    ("schedule_free_adamw", "schedule_free"),
    ("muon", "muon"),
    ("sgd", "sgd"),
];

pub(in crate::spec) const SCHEDULES: &[(&str, &str)] = &[
    ("cosine", "cosine"),
    ("linear", "linear"),
    ("constant", "none"),
    ("cosine_with_min_lr", "cosine"),
    ("constant_with_warmup", "constant"),
    ("polynomial", "polynomial"),
    ("inverse_sqrt", "inverse_sqrt"),
    ("warmup_stable_decay", "wsd"),
];

/// Embeddings beside 8-bit moments: Hugging Face's trainer keeps bitsandbytes' in 32 bits.
pub(super) const EIGHT_BITS: &str =
    "moments stay in this machine's memory; those of embeddings have 8 bits too, 32 in the tool";

pub(super) const BASE: &str =
    "a local folder, or a hub id downloaded with `llmtui model pull`; it defines the model";
pub(super) const TARGETS: &str = "adapter.lora.targets takes all, all_and_experts, minimal, attention_only or ffn_only, a list in custom, or names in patterns";
/// Weights are quantized before a run, not by it.
pub(super) const QUANTIZED: &str = "llmtui quantize makes a GGUF file; with train.from=FILE.gguf its weights stay quantized under the adapters";
/// What a base is under `qlora`, as long as train.from names no GGUF file.
pub(super) const UNQUANTIZED: &str = "the base is frozen in f32 here, not in the tool's 4-bit NF4: llmtui quantize makes a GGUF file (q4_k is as small), and with train.from=FILE.gguf the base is frozen in that file's format";
/// Where a learning rate is wanted and none is there.
pub(super) const NO_RATE: &str = "the tool requires learning_rate and the file has none: this is the default of llmtui, set your own; 1e-4 to 2e-4 is usual with adapters, 1e-5 to 2e-5 without";
/// What TRL learns of a conversation by default.
pub(super) const WHOLE_TURNS: &str = "of a conversation the tool learns every token, auto only the assistant's turns; data.train_on: all learns every token too, of prompts as well";
/// How long a run on its own answers is.
pub(super) const STEPS: &str = "a run on its own answers is as long as its steps: set train.max_steps to prompts × epochs × rollout.group_size × rollout.epochs \
     / (train.micro_batch_size × train.grad_accum_steps)";
pub(super) const ADAPTER: &str = "adapter: lora trains adapters; without it all weights train";
pub(super) const NO_TRACKER: &str = "nothing is uploaded: llmtui metrics RUN --tensorboard DIR writes curves for TensorBoard and wandb sync; the log is runs/<id>/events.jsonl";
pub(super) const WINDOWS: &str =
    "data.too_long handles longer rows; without train.from it is the model's context, too";
pub(super) const PACKING: &str = "packed documents never attend to each other here";
pub(super) const HELD_OUT: &str = "random rows, or the end of a single text";
pub(super) const NOTHING_HELD_OUT: &str =
    "the tool holds nothing out; a run needs a little to tell learning from memorizing";
pub(super) const NO_UPLOAD: &str = "nothing is uploaded";
pub(super) const KERNELS: &str = "kernels are chosen by the engine";
pub(super) const FOREIGN_ADAPTER: &str = "training begins with new adapters, not with these: merge them into the base model and name that folder in train.from";
pub(super) const NEW_TOKENS: &str = "tokens are added in the tokenizer's own files, whose folder data.tokenizer.file.path names; train.resize_vocab: true gives them rows";
pub(super) const NEW_ROWS: &str = "the row of a new token begins as the mean of the others";
pub(super) const SHARDS: &str =
    "engine: torch trains on several GPUs; engine.torch.shard takes ddp or fsdp2, which is ZeRO-3";
/// The setting chooses PyTorch; what trains is not an import's to decide.
const COMPILE: &str = "set it with PyTorch, which it chooses: engine.torch.compile: true; the engine of this program has nothing to compile";
const RESUME: &str = "checkpoints contain everything a resume needs";
pub(super) const RUNS_DIR: &str = "set it on the command line: --runs-dir DIR";

/// Keys that mean the same in all of them.
pub(super) const EVERYWHERE: &[Row] = &[
    row(
        "gradient_accumulation_steps",
        To::Key("train.grad_accum_steps"),
    ),
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
    row("max_steps", To::Key("train.max_steps")),
    row("warmup_steps", To::WarmUp),
    row("warmup_ratio", To::WarmUp),
    row("lr_scheduler_kwargs", To::ScheduleSettings),
    row("neftune_noise_alpha", To::Key("method.*.neftune_alpha")),
    row(
        "group_by_length",
        To::Needless("rows of a batch are padded to the longest; batches stay random"),
    ),
    row(
        "gradient_checkpointing_kwargs",
        To::Needless("results are the same either way"),
    ),
    row("torch_compile", To::NoEqual(COMPILE)),
    row(
        "logging_first_step",
        To::Needless("the first step is always logged"),
    ),
    row("save_only_model", To::Needless(RESUME)),
    row(
        "logging_steps",
        To::Near(
            "train.log_every",
            "logging every step is cheap here; 1 gives finer charts",
        ),
    ),
    row("save_steps", To::Key("checkpoint.every")),
    row("save_total_limit", To::Kept),
    row("eval_steps", To::Key("eval.every")),
    row("eval_strategy", To::Strategy("eval.every")),
    row("evaluation_strategy", To::Strategy("eval.every")),
    row("save_strategy", To::Strategy("checkpoint.every")),
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
    row(
        "bf16",
        To::Either(
            "train.precision",
            "auto",
            "f32",
            "bf16 on a GPU, and on a processor that is faster with it; weights and moments are f32",
        ),
    ),
    row(
        "fp16",
        To::NoEqual("fp16 with loss scaling is not supported; use bf16 or f32"),
    ),
    row(
        "gradient_checkpointing",
        To::Flag("train.activation_checkpointing", "full"),
    ),
    row("deepspeed", To::NoEqual(SHARDS)),
    row("lora_alpha", To::Key("adapter.lora.alpha")),
    row("lora_dropout", To::Key("adapter.lora.dropout")),
    row("use_rslora", To::Flag("adapter.lora.rslora", "true")),
    row("use_dora", To::Flag("adapter.lora.dora", "true")),
    row("peft_use_rslora", To::Flag("adapter.lora.rslora", "true")),
    row("peft_use_dora", To::Flag("adapter.lora.dora", "true")),
    row("loraplus_lr_ratio", To::Key("adapter.lora.b_lr_ratio")),
];

const TOTAL: &str = "it is the total of all GPUs here: multiply it by their number";

/// Other keys of Hugging Face's TrainingArguments, for the tools built on its trainer.
pub(super) const TRAINER: &[Row] = &[
    row("model_name_or_path", To::Near("train.from", BASE)),
    row(
        "per_device_train_batch_size",
        To::Near("train.micro_batch_size", TOTAL),
    ),
    row(
        "per_device_eval_batch_size",
        To::Needless("evaluation uses train.micro_batch_size"),
    ),
    row("num_train_epochs", To::Epochs),
    row("optim", To::Word("optimizer", OPTIMIZERS)),
    row("lr_scheduler_type", To::Word("schedule", SCHEDULES)),
    row("run_name", To::Key("name")),
    row(
        "overwrite_output_dir",
        To::Needless("every run has its own folder"),
    ),
    row("report_to", To::NoEqual(NO_TRACKER)),
    row("do_train", To::Needless("llmtui train does")),
    row("do_eval", To::Needless("set eval.every")),
    row(
        "ddp_timeout",
        To::Needless("ranks wait for each other as long as PyTorch does by default"),
    ),
    row(
        "dataloader_num_workers",
        To::Needless("batches are prefetched on their own thread"),
    ),
    row(
        "remove_unused_columns",
        To::Needless("a format ignores columns it does not use"),
    ),
    row("logging_strategy", To::Needless("set train.log_every")),
    row("logging_dir", To::NoEqual(RUNS_DIR)),
    row(
        "load_best_model_at_end",
        To::Needless("the best checkpoint is always kept"),
    ),
    row("metric_for_best_model", To::NoEqual("set eval.best_by")),
    row(
        "greater_is_better",
        To::Needless("every reading knows its direction"),
    ),
    row(
        "label_smoothing_factor",
        To::NoEqual("the loss is the plain likelihood"),
    ),
    row("data_seed", To::NoEqual("seed draws the batches too")),
    row("hub_model_id", To::NoEqual(NO_UPLOAD)),
    row("hub_strategy", To::NoEqual(NO_UPLOAD)),
    row("hub_token", To::NoEqual(NO_UPLOAD)),
    row("hub_private_repo", To::NoEqual(NO_UPLOAD)),
    row("push_to_hub", To::NoEqual(NO_UPLOAD)),
    row("push_to_hub_token", To::NoEqual(NO_UPLOAD)),
    row("push_to_hub_model_id", To::NoEqual(NO_UPLOAD)),
    row("use_liger_kernel", To::Needless(KERNELS)),
    row("use_peft", To::Flag("adapter", "lora")),
];
