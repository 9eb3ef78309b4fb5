//! A tool's defaults for missing keys, written into the spec: this program's own defaults would train differently.
//!
//! Sources: transformers 4.57 `TrainingArguments`; TRL 1.16 `*Config`, `ModelConfig`; LLaMA-Factory 0.9 `hparams/`; Axolotl
//! 0.12 `utils/schemas/` and `core/builders/base.py`; PEFT 0.17 `TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING`.

use super::shared::{NO_RATE, NOTHING_HELD_OUT, STEPS};
use super::tool::Tool;
use super::{KeyOutcome, Line, Reader, To, plain};
use crate::spec::draft::shown;
use serde_json::{Map, Value};

/// The smallest share held out where a tool holds nothing out.
pub(super) const LEAST_HELD_OUT: &str = "0.01";

/// A default: the tool's keys, any of which says otherwise; the path here; the value.
pub(super) type DefaultSetting = (&'static [&'static str], &'static str, &'static str);

/// Of Hugging Face's trainer, which all of these tools are built on.
const TRAINER: &[DefaultSetting] = &[
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

/// Of Hugging Face's trainer as well, where a tool has no batch and no warm-up of its own.
pub(super) const BATCH_AND_WARM_UP: [DefaultSetting; 2] = [
    (
        &["per_device_train_batch_size"],
        "train.micro_batch_size",
        "8",
    ),
    (
        &["warmup_steps", "warmup_ratio"],
        "schedule.*.warmup_steps",
        "0",
    ),
];

/// Paths of an adapter's settings.
pub(super) const RANK: &str = "adapter.lora.rank";
pub(super) const ALPHA: &str = "adapter.lora.alpha";
pub(super) const DROPOUT: &str = "adapter.lora.dropout";
pub(super) const TARGETS: &str = "adapter.lora.targets";
/// That of a row's length.
pub(super) const LEN: &str = "model.seq_len";

/// Settings of rollouts that several tools have.
pub(super) const ANSWER: DefaultSetting =
    (&["max_completion_length"], "rollout.max_new_tokens", "512");
pub(super) const ONE_ANSWER: DefaultSetting =
    (&["answers to each prompt"], "rollout.group_size", "1");

/// Methods whose trainers in TRL turn dropout off by default.
pub(super) const WITHOUT_DROPOUT: &[&str] = &["dpo", "kto", "orpo", "simpo", "cpo"];

/// TRL's `CPOConfig`, which Axolotl fills in.
pub(super) const CPO: &[DefaultSetting] = &[
    (&["beta", "rl_beta"], "method.simpo.beta", "0.1"),
    (&["simpo_gamma"], "method.simpo.gamma", "0.5"),
    (&["cpo_alpha"], "method.simpo.nll_weight", "1"),
];

/// TRL's `GRPOConfig`, to which Axolotl hands its block `trl`.
pub(super) const GRPO: &[DefaultSetting] =
    &[(&["num_generations"], "rollout.group_size", "8"), ANSWER];

/// Passes over the data, as the file or the tool says.
pub(super) fn epochs_of(tool: &dyn Tool, map: &Map<String, Value>) -> f64 {
    let (keys, _, default) = tool.epochs();
    let said = keys.iter().find_map(|key| map.get(*key)?.as_f64());
    // The table's values are numbers.
    said.unwrap_or_else(|| default.parse().unwrap_or(1.0))
}

/// Whether a file says a key; an empty one is as good as none.
pub(super) fn has_key(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).is_some_and(|value| !value.is_null())
}

/// Whether a file says what is held out.
fn has_held_out(map: &Map<String, Value>) -> bool {
    let mixture = map.get("dataset_mixture").and_then(Value::as_object);
    let keys = ["val_size", "val_set_size", "test_split_size"];
    keys.iter().any(|key| has_key(map, key))
        || mixture.is_some_and(|mixture| has_key(mixture, "test_split_size"))
}

impl Reader {
    /// What the file leaves to the tool and everything else hangs on: the method and other choices.
    pub(super) fn default_choices(&mut self, map: &Map<String, Value>) {
        let tool = self.dialect.tool();
        for choice in tool.choices() {
            self.apply_default(map, choice);
        }
        tool.default_choices(self, map);
    }

    /// The learning rate, which others are shares of.
    pub(super) fn default_rate(&mut self, map: &Map<String, Value>) {
        let method = plain(&self.draft.value("method"));
        if let Some(rate) = self.dialect.tool().learning_rate(&method, map) {
            self.apply_default(map, (&["learning_rate"], "optimizer.*.lr", rate));
        } else if !has_key(map, "learning_rate")
            && let Some(path) = self.draft.resolve_wildcard("optimizer.*.lr")
        {
            let ours = format!("{path}: {}", shown(&self.draft.value(&path)));
            self.line(
                KeyOutcome::NoEqual,
                "(no learning_rate)".into(),
                &ours,
                NO_RATE,
            );
        }
    }

    /// All other settings the file leaves to the tool.
    pub(super) fn default_settings(&mut self, map: &Map<String, Value>) {
        let method = plain(&self.draft.value("method"));
        let adam = ["adamw", "adamw8bit", "schedule_free"];
        let is_adam = adam.contains(&&*plain(&self.draft.value("optimizer")));
        for default in TRAINER.iter().copied() {
            if is_adam || default.0 != ["adam_epsilon"] {
                self.apply_default(map, default);
            }
        }
        self.default_schedule();
        self.default_wsd(map);
        self.default_epochs(map);
        let tool = self.dialect.tool();
        tool.default_batch(self, map);
        if let Some(length) = tool.length(self.writes_answers(), map)
            && !length.0.iter().any(|key| self.lifts_limit(map, key))
        {
            self.apply_default(map, length);
        }
        // Rows that share a window make longer batches and fewer steps.
        if method == "sft" {
            let (keys, path) = (&["packing", "sample_packing"], "data.packing");
            // Its way of packing, which implies packing where it is on and says nothing where it is off.
            if map.get("neat_packing") != Some(&Value::Bool(true)) {
                self.apply_default(map, (keys, path, "padded"));
            }
        }
        if !has_held_out(map) {
            let path = "data.val_fraction";
            self.apply_default_as("no rows held out", path, LEAST_HELD_OUT, NOTHING_HELD_OUT);
        }
        for default in tool.of_method(&method).iter().copied() {
            self.apply_default(map, default);
        }
        tool.default_settings(self, map);
        // Both bounds of TRL's clipping, unless the upper one is set separately.
        if let Some(epsilon) = map.get("epsilon").filter(|_| has_key(map, "epsilon")) {
            let epsilon = plain(epsilon);
            let theirs = format!("epsilon_high: {epsilon}");
            if !has_key(map, "epsilon_high") {
                self.apply_default_as(&theirs, "method.*.clip_high", &epsilon, "");
            }
        }
        if !self.draft.value("adapter").is_null() {
            self.default_adapters(map);
        }
    }

    /// Whether a file says with null that there is no limit.
    fn lifts_limit(&self, map: &Map<String, Value>, key: &str) -> bool {
        let limits = self
            .row(key)
            .is_some_and(|row| matches!(row.to, To::Limit(..)));
        limits && map.get(key).is_some_and(Value::is_null)
    }

    /// Passes over the data; the steps of a run on its own answers are for people to say.
    fn default_epochs(&mut self, map: &Map<String, Value>) {
        let epochs @ (keys, _, passes) = self.dialect.tool().epochs();
        let says = keys.iter().any(|key| has_key(map, key));
        match self.writes_answers() {
            _ if says || self.max_steps.is_some() => {}
            true => self.line(
                KeyOutcome::NoEqual,
                format!("({}: {passes})", keys[0]),
                "",
                STEPS,
            ),
            false => self.apply_default(map, epochs),
        }
    }

    /// Their schedules end at 0 by default; a polynomial is a straight line and ends at 1e-7.
    fn default_schedule(&mut self) {
        let is_polynomial = self.draft.value("schedule") == "polynomial";
        let (theirs, end) = match is_polynomial {
            true => ("lr_end: 1e-7", "1e-7"),
            false => ("the schedule ends at 0", "0"),
        };
        let floor = self.draft.resolve_wildcard("schedule.*.min_lr");
        if floor.is_some_and(|path| self.draft.value(&path).is_null()) {
            self.apply_default_as(theirs, "schedule.*.min_lr", end, "");
        }
        if is_polynomial && !self.says_power {
            self.apply_default_as("power: 1", "schedule.polynomial.power", "1", "");
        }
    }

    fn default_adapters(&mut self, map: &Map<String, Value>) {
        let tool = self.dialect.tool();
        for default in tool.of_adapters().iter().copied() {
            self.apply_default(map, default);
        }
        tool.default_adapters(self, map);
    }

    /// TRL sets every dropout of these methods to 0 unless `disable_dropout` says otherwise, that of adapters too: they are
    /// part of the model by then.
    pub(super) fn without_dropout(&mut self, map: &Map<String, Value>, methods: &[&str]) {
        let method = plain(&self.draft.value("method"));
        let said = map.get("disable_dropout").and_then(Value::as_bool);
        let is_off = said.unwrap_or(methods.contains(&&*method));
        let why =
            "disable_dropout: the trainer sets every dropout to 0 as it begins, lora_dropout too";
        if !is_off || self.draft.value(DROPOUT) == 0.0 || self.draft.set(DROPOUT, "0", why).is_err()
        {
            return;
        }
        let said = |line: &&mut Line| line.ours.starts_with(DROPOUT);
        if let Some(line) = self.lines.iter_mut().find(said) {
            line.ours = format!("{DROPOUT}: {}", shown(&self.draft.value(DROPOUT)));
            line.words = why.into();
            if line.outcome == KeyOutcome::Mapped {
                line.outcome = KeyOutcome::Differs;
            }
        }
    }

    pub(super) fn apply_default(
        &mut self,
        map: &Map<String, Value>,
        (keys, path, value): DefaultSetting,
    ) {
        if !keys.iter().any(|key| has_key(map, key)) {
            self.apply_default_as(&format!("{}: {value}", keys[0]), path, value, "");
        }
    }

    /// A default in the tool's words, as a setting here; what this spec has no place for is left out.
    pub(super) fn apply_default_as(&mut self, theirs: &str, path: &str, value: &str, words: &str) {
        let Some(full) = self.draft.resolve_wildcard(path) else {
            return;
        };
        let theirs = format!("({theirs})");
        let why = format!("the default of {}", self.dialect.id());
        match self.draft.set(&full, value, &why) {
            Ok(()) => {
                let ours = format!("{full}: {}", shown(&self.draft.value(&full)));
                self.line(KeyOutcome::Default, theirs, &ours, words);
            }
            Err(issue) => self.refused(theirs, &full, &issue),
        }
    }
}
