//! A tool's defaults for missing keys, written into the spec: this program's own defaults would train differently.
//!
//! Sources: transformers 4.57 `TrainingArguments`; TRL 1.16 `*Config`, `ModelConfig`; LLaMA-Factory 0.9 `hparams/`; Axolotl
//! 0.12 `utils/schemas/` and `core/builders/base.py`; PEFT 0.17 `TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING`.

use super::shared::{NO_RATE, NOTHING_HELD_OUT, STEPS, WHOLE_TURNS};
use super::{Dialect, Fate, Reader, plain};
use crate::spec::draft::shown;
use serde_json::{Map, Value};

/// The smallest share held out where a tool holds nothing out.
pub(super) const LEAST_HELD_OUT: &str = "0.01";

/// A default: the tool's keys, any of which says otherwise; the path here; the value.
type Silent = (&'static [&'static str], &'static str, &'static str);

/// Of Hugging Face's trainer, which all of these tools are built on.
const TRAINER: &[Silent] = &[
    (
        &["gradient_accumulation_steps"],
        "train.grad_accum_steps",
        "1",
    ),
    (&["weight_decay"], "optimizer.*.weight_decay", "0"),
    (&["adam_beta1"], "optimizer.*.beta1", "0.9"),
    (&["adam_beta2"], "optimizer.*.beta2", "0.999"),
    (&["adam_epsilon"], "optimizer.*.eps", "1e-8"),
    (&["max_grad_norm"], "train.clip_norm", "1"),
    (&["seed"], "seed", "42"),
];

const BATCH: Silent = (
    &["per_device_train_batch_size"],
    "train.micro_batch_size",
    "8",
);
const WARM_UP: Silent = (
    &["warmup_steps", "warmup_ratio"],
    "schedule.*.warmup_steps",
    "0",
);

impl Dialect {
    /// Choices, which come before the settings below them.
    fn choices(self) -> [Silent; 2] {
        match self {
            Dialect::Axolotl => [
                (&["lr_scheduler"], "schedule", "cosine"),
                (&["optimizer"], "optimizer", "adamw"),
            ],
            _ => [
                (&["lr_scheduler_type"], "schedule", "linear"),
                (&["optim"], "optimizer", "adamw"),
            ],
        }
    }

    fn learning_rate(self, method: &str) -> Option<&'static str> {
        match (self, method) {
            // Axolotl wants it in the file.
            (Dialect::Axolotl, _) => None,
            (Dialect::LlamaFactory, _) => Some("5e-5"),
            (Dialect::Trl, "sft") => Some("2e-5"),
            (Dialect::Trl, "reward") => Some("1e-4"),
            (Dialect::Trl, "ppo") => Some("3e-6"),
            (Dialect::Trl, _) => Some("1e-6"),
        }
    }

    /// The longest row.
    fn length(self, on_policy: bool) -> Option<Silent> {
        const LEN: &str = "model.seq_len";
        match self {
            Dialect::LlamaFactory => Some((&["cutoff_len"], LEN, "2048")),
            Dialect::Axolotl => Some((&["sequence_len"], LEN, "512")),
            // Prompts and answers have limits of their own.
            Dialect::Trl if on_policy => None,
            Dialect::Trl => Some((&["max_length", "max_seq_length"], LEN, "1024")),
        }
    }

    fn epochs(self) -> Silent {
        match self {
            Dialect::Axolotl => (&["num_epochs"], "train.epochs", "1"),
            _ => (&["num_train_epochs"], "train.epochs", "3"),
        }
    }

    /// Passes over the data, as the file or the tool says.
    pub(super) fn epochs_of(self, map: &Map<String, Value>) -> f64 {
        let (keys, _, silent) = self.epochs();
        let said = keys.iter().find_map(|key| map.get(*key)?.as_f64());
        // The table's values are numbers.
        said.unwrap_or_else(|| silent.parse().unwrap_or(1.0))
    }

    /// Defaults of a method.
    fn of_method(self, method: &str) -> &'static [Silent] {
        const ANSWER: Silent = (&["max_completion_length"], "rollout.max_new_tokens", "512");
        const ONE_ANSWER: Silent = (&["answers to each prompt"], "rollout.group_size", "1");
        match (self, method) {
            (Dialect::LlamaFactory, "simpo") => &[
                (&["pref_beta"], "method.simpo.beta", "0.1"),
                (&["simpo_gamma"], "method.simpo.gamma", "0.5"),
            ],
            // TRL's `CPOConfig`, which Axolotl fills in.
            (Dialect::Axolotl | Dialect::Trl, "simpo") => &[
                (&["beta", "rl_beta"], "method.simpo.beta", "0.1"),
                (&["simpo_gamma"], "method.simpo.gamma", "0.5"),
                (&["cpo_alpha"], "method.simpo.nll_weight", "1"),
            ],
            // Axolotl hands its block `trl` on.
            (Dialect::Axolotl | Dialect::Trl, "grpo") => {
                &[(&["num_generations"], "rollout.group_size", "8"), ANSWER]
            }
            (Dialect::Trl, "rloo") => &[
                (&["num_generations", "rloo_k"], "rollout.group_size", "2"),
                ANSWER,
            ],
            // `GeneratingArguments`; TRL 0.9's `PPOConfig`, but for what its PPO trainer fills in.
            (Dialect::LlamaFactory, "ppo") => &[
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
            (Dialect::Trl, "ppo") => &[
                ONE_ANSWER,
                (&["critic learning rate"], "method.ppo.critic_lr_scale", "1"),
                (&["num_ppo_epochs"], "rollout.epochs", "4"),
                (&["response_length"], "rollout.max_new_tokens", "53"),
                (&["temperature"], "rollout.temperature", "0.7"),
            ],
            _ => &[],
        }
    }

    /// Defaults of adapters.
    fn of_adapters(self) -> &'static [Silent] {
        const RANK: &str = "adapter.lora.rank";
        const ALPHA: &str = "adapter.lora.alpha";
        const DROPOUT: &str = "adapter.lora.dropout";
        const TARGETS: &str = "adapter.lora.targets";
        match self {
            Dialect::LlamaFactory => &[
                (&["lora_rank"], RANK, "8"),
                (&["lora_dropout"], DROPOUT, "0"),
                (&["lora_target"], TARGETS, "all"),
            ],
            Dialect::Axolotl => &[(&["lora_dropout"], DROPOUT, "0")],
            Dialect::Trl => &[
                (&["lora_r"], RANK, "16"),
                (&["lora_alpha"], ALPHA, "32"),
                (&["lora_dropout"], DROPOUT, "0.05"),
                // PEFT's choice for llama, mistral, qwen and gemma.
                (&["lora_target_modules"], TARGETS, "minimal"),
            ],
        }
    }
}

/// Whether a file says a key; an empty one is as good as none.
pub(super) fn says(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).is_some_and(|value| !value.is_null())
}

/// Whether a file says what is held out.
fn says_held_out(map: &Map<String, Value>) -> bool {
    let mixture = map.get("dataset_mixture").and_then(Value::as_object);
    let keys = ["val_size", "val_set_size", "test_split_size"];
    keys.iter().any(|key| says(map, key))
        || mixture.is_some_and(|mixture| says(mixture, "test_split_size"))
}

impl Reader {
    /// What the file leaves to the tool and everything else hangs on: the method and other choices.
    pub(super) fn silent_choices(&mut self, map: &Map<String, Value>) {
        if self.dialect == Dialect::LlamaFactory && !says(map, "stage") {
            self.silent(map, (&["stage"], "method", "sft"));
        }
        for choice in self.dialect.choices() {
            self.silent(map, choice);
        }
        // Without a base model there is nothing to adapt.
        let adapts = self.dialect == Dialect::LlamaFactory && self.adapts;
        if adapts && says(map, "model_name_or_path") {
            self.silent(map, (&["finetuning_type"], "adapter", "lora"));
        }
    }

    /// The learning rate, which others are shares of.
    pub(super) fn silent_rate(&mut self, map: &Map<String, Value>) {
        let method = plain(&self.draft.value("method"));
        if let Some(rate) = self.dialect.learning_rate(&method) {
            self.silent(map, (&["learning_rate"], "optimizer.*.lr", rate));
        } else if !says(map, "learning_rate")
            && let Some(path) = self.draft.settle("optimizer.*.lr")
        {
            let ours = format!("{path}: {}", shown(&self.draft.value(&path)));
            self.line(Fate::NoEqual, "(no learning_rate)".into(), &ours, NO_RATE);
        }
    }

    /// Which tokens TRL learns where the file does not say.
    fn silent_mask(&mut self, map: &Map<String, Value>) {
        let keys = ["assistant_only_loss", "completion_only_loss"];
        if self.dialect == Dialect::Trl && !keys.iter().any(|key| says(map, key)) {
            let theirs = "(assistant_only_loss: false)".into();
            self.line(Fate::Default, theirs, "data.train_on: auto", WHOLE_TURNS);
        }
    }

    /// All other settings the file leaves to the tool.
    pub(super) fn silent_settings(&mut self, map: &Map<String, Value>) {
        let method = plain(&self.draft.value("method"));
        let adam = ["adamw", "adamw8bit", "schedule_free"];
        let is_adam = adam.contains(&&*plain(&self.draft.value("optimizer")));
        for silent in TRAINER.iter().copied() {
            if is_adam || silent.0 != ["adam_epsilon"] {
                self.silent(map, silent);
            }
        }
        self.silent_schedule();
        self.silent_wsd(map);
        self.silent_epochs(map);
        match self.dialect {
            Dialect::Axolotl => {
                self.silent(map, (&["micro_batch_size"], "train.micro_batch_size", "1"));
                let warms_up = self.draft.value("schedule") != "none";
                if warms_up && !says(map, "warmup_steps") && !says(map, "warmup_ratio") {
                    let words = "at most 100 steps there";
                    self.silent_as("warmup_ratio: 0.03", "train.warmup_ratio", "0.03", words);
                }
            }
            _ => {
                self.silent(map, BATCH);
                self.silent(map, WARM_UP);
            }
        }
        if let Some(length) = self.dialect.length(self.writes_answers()) {
            self.silent(map, length);
        }
        // Rows that share a window make longer batches and fewer steps.
        if method == "sft" {
            let (keys, path) = (&["packing", "sample_packing"], "data.packing");
            // Its way of packing, which implies packing where it is on and says nothing where it is off.
            if map.get("neat_packing") != Some(&Value::Bool(true)) {
                self.silent(map, (keys, path, "padded"));
            }
            self.silent_mask(map);
        }
        if !says_held_out(map) {
            let path = "data.val_fraction";
            self.silent_as("no rows held out", path, LEAST_HELD_OUT, NOTHING_HELD_OUT);
        }
        for silent in self.dialect.of_method(&method).iter().copied() {
            self.silent(map, silent);
        }
        if self.dialect == Dialect::Trl && self.writes_answers() {
            self.silent_room(map);
        }
        // Both sides of TRL's clipping, unless it is set separately.
        if let Some(epsilon) = map.get("epsilon").filter(|_| says(map, "epsilon")) {
            let epsilon = plain(epsilon);
            let theirs = format!("epsilon_high: {epsilon}");
            if !says(map, "epsilon_high") {
                self.silent_as(&theirs, "method.*.clip_high", &epsilon, "");
            }
        }
        if !self.draft.value("adapter").is_null() {
            self.silent_adapters(map);
        }
    }

    /// TRL limits prompts and answers apart, and newer ones prompts not at all; here a row has room for both.
    fn silent_room(&mut self, map: &Map<String, Value>) {
        const PROMPT: u64 = 512;
        let said = map.get("max_prompt_length").and_then(Value::as_u64);
        let answer = self.draft.value("rollout.max_new_tokens").as_u64();
        let (prompt, answer) = (said.unwrap_or(PROMPT), answer.unwrap_or_default());
        let theirs = format!("a prompt of {prompt} tokens and an answer of {answer}");
        let words =
            "data.too_long handles longer prompts; a larger model.seq_len has room for them";
        let tokens = (prompt + answer).to_string();
        self.silent_as(&theirs, "model.seq_len", &tokens, words);
    }

    /// Passes over the data; the steps of a run on its own answers are for people to say.
    fn silent_epochs(&mut self, map: &Map<String, Value>) {
        let epochs @ (keys, _, passes) = self.dialect.epochs();
        let says = keys.iter().any(|key| says(map, key));
        match self.writes_answers() {
            _ if says || self.max_steps.is_some() => {}
            true => self.line(Fate::NoEqual, format!("({}: {passes})", keys[0]), "", STEPS),
            false => self.silent(map, epochs),
        }
    }

    /// Their schedules end at 0 by default; a polynomial is a straight line.
    fn silent_schedule(&mut self) {
        let floor = self.draft.settle("schedule.*.min_lr");
        if floor.is_some_and(|path| self.draft.value(&path).is_null()) {
            self.silent_as("the schedule ends at 0", "schedule.*.min_lr", "0", "");
        }
        let power = "schedule.polynomial.power";
        if self.draft.value("schedule") == "polynomial" && !self.says_power {
            self.silent_as("power: 1", power, "1", "");
        }
    }

    fn silent_adapters(&mut self, map: &Map<String, Value>) {
        for silent in self.dialect.of_adapters().iter().copied() {
            self.silent(map, silent);
        }
        if self.dialect == Dialect::LlamaFactory && !says(map, "lora_alpha") {
            let rank = self.draft.value("adapter.lora.rank").as_u64();
            let alpha = (2 * rank.unwrap_or_default()).to_string();
            let theirs = format!("lora_alpha: {alpha}");
            self.silent_as(&theirs, "adapter.lora.alpha", &alpha, "");
        }
    }

    fn silent(&mut self, map: &Map<String, Value>, (keys, path, value): Silent) {
        if !keys.iter().any(|key| says(map, key)) {
            self.silent_as(&format!("{}: {value}", keys[0]), path, value, "");
        }
    }

    /// A default in the tool's words, as a setting here; what this spec has no place for is left out.
    pub(super) fn silent_as(&mut self, theirs: &str, path: &str, value: &str, words: &str) {
        let Some(full) = self.draft.settle(path) else {
            return;
        };
        let theirs = format!("({theirs})");
        let why = format!("the default of {}", self.dialect.id());
        match self.draft.set(&full, value, &why) {
            Ok(()) => {
                let ours = format!("{full}: {}", shown(&self.draft.value(&full)));
                self.line(Fate::Default, theirs, &ours, words);
            }
            Err(issue) => self.refused(theirs, &full, &issue),
        }
    }
}
