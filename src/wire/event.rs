//! What happened. Events are appended to the run's log before any viewer hears of them; the log is the truth.

use super::{CommandId, MetricInfo, Num};
use crate::base::clock::UnixMillis;
use crate::base::finding::Finding;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Metric values by metric id.
pub type Values = BTreeMap<String, Num>;

/// One line of `events.jsonl` and of every link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// [`super::VERSION`] of the writer.
    pub v: u32,
    /// From 1, without gaps, over the whole life of the run. 0 marks an answer of a link itself, which is in no log.
    pub seq: u64,
    /// Wall time of the writer.
    pub t: UnixMillis,
    pub event: Event,
}

/// What the engine is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Preparing,
    Preflight,
    Training,
    Evaluating,
    Sampling,
    Checkpointing,
    Paused,
    Stopping,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All steps were done.
    Completed,
    /// Stopped on request; can be resumed.
    Stopped,
    /// The training failed (NaN, out of memory, data exhausted); `message` says why.
    Failed,
    /// A preflight check failed and the run was not forced.
    Refused,
    /// A bug in the engine; `message` names the crash file.
    Crashed,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// `max_new_tokens` reached.
    Length,
    /// A stop string, or a token that ends the text or the turn.
    Stop,
    /// The model's context is full.
    Context,
    Cancelled,
    Failed,
}

/// The past-tense half of the wire. In JSON, `type` names the variant. A variant that this build does not know is kept
/// whole in [`Event::Unknown`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Event {
    /// First event of each engine process in a log; several mean that the run was resumed.
    Hello {
        run: String,
        /// Program version.
        engine: String,
        pid: u32,
        host: String,
    },
    /// The resolved spec and what follows from it.
    Started {
        name: String,
        /// The method's word, e.g. `pretrain`.
        method: String,
        spec: serde_json::Value,
        n_params: u64,
        vocab_size: u64,
        max_steps: u64,
        /// Target tokens of one optimizer step.
        batch_tokens: u64,
        /// Tokens of one pass over the training split.
        epoch_tokens: u64,
        /// The checkpoint step that this process continues from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resumed_from: Option<u64>,
        /// Number format of matrix products in force, `f32` or `bf16`; absent in older logs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        precision: Option<String>,
    },
    MetricsDeclared {
        metrics: Vec<MetricInfo>,
    },
    PhaseChanged {
        phase: Phase,
        step: u64,
    },
    /// One preflight check.
    Checked {
        #[serde(flatten)]
        finding: Box<Finding>,
        seconds: f64,
    },
    /// A rule on the training came out otherwise than before: with a warning, a failure, or clear again.
    Diagnosed {
        step: u64,
        finding: Box<Finding>,
    },
    /// One optimizer step. `step` counts finished updates: the first is 1.
    Stepped {
        step: u64,
        /// Target tokens consumed since the beginning.
        tokens: u64,
        values: Values,
    },
    Evaluated {
        step: u64,
        tokens: u64,
        values: Values,
        /// Windows of the validation split that were used.
        n_windows: u64,
        /// True when every window of the split was used.
        whole: bool,
        seconds: f64,
    },
    Sampled {
        step: u64,
        prompt: String,
        /// The continuation, without the prompt.
        text: String,
        seconds: f64,
    },
    /// What an inference engine holds: its first word after `Hello`.
    Loaded {
        /// In words: `llama`, `gpt2`, …
        architecture: String,
        n_params: u64,
        vocab_size: u64,
        /// Most tokens of a text.
        context: u64,
        /// Whose words turn a conversation into a text; absent where the model has none and completes texts instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        template: Option<String>,
        /// How the weights are held where that is not f32, e.g. `Q4_1`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quantised: Option<String>,
        seconds: f64,
        /// What a user should know, e.g. of a template that cannot be used.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// A model that is on its way from the hub: how much of a file is there. Comes before `Loaded`, a few times a second.
    Downloading {
        /// `org/name/model.safetensors`
        file: String,
        bytes: u64,
        /// 0 where the hub does not tell.
        total: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes_per_sec: Option<f64>,
    },
    /// What a `Generate` gives the model to read; comes before its first `Token`.
    Prompted {
        command: CommandId,
        /// The whole prompt as one text, conversations rendered by the template.
        text: String,
        /// With the token that begins a text, where the model has one.
        prompt_tokens: u64,
    },
    /// How far a `Generate` has read its prompt: comes before reading and between two pieces of a long prompt.
    PromptRead {
        command: CommandId,
        /// Tokens of the prompt that are read by now, the kept ones among them.
        tokens: u64,
        /// Those at its beginning that an earlier prompt had too: they are not read again.
        kept: u64,
    },
    /// One piece of a `Generate` answer.
    Token {
        command: CommandId,
        text: String,
        /// Natural log of the token's probability before penalties, temperature and cuts.
        logprob: Num,
        /// Entropy of the distribution that it was drawn from, nats; absent in older engines.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entropy: Option<Num>,
    },
    /// The end of a `Generate` answer.
    Generated {
        command: CommandId,
        n_tokens: u64,
        prompt_tokens: u64,
        /// Those of the prompt that were not read again, because an earlier one began alike.
        #[serde(default, skip_serializing_if = "is_zero")]
        kept_tokens: u64,
        seconds: f64,
        /// From the prompt to the first token: reading the prompt. 0 where none came.
        #[serde(default)]
        prefill_seconds: f64,
        reason: StopReason,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    Checkpointed {
        step: u64,
        /// Relative to the run directory: `checkpoints/step-001000`.
        path: String,
        bytes: u64,
        seconds: f64,
        /// The lowest validation loss so far.
        best: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        val_loss: Option<Num>,
    },
    /// What the machine of this engine is made of, as `hardware::Machine` writes itself.
    MachineDescribed {
        machine: serde_json::Value,
    },
    /// Readings of the machine, keyed like metrics (`host/cpu_percent` …).
    HardwareSampled {
        values: Values,
    },
    /// A live setting was changed.
    Adjusted {
        step: u64,
        key: String,
        old: Num,
        new: Num,
    },
    /// State went back to `step`: what was logged after it no longer counts. A resume is a roll-back to its checkpoint.
    RolledBack {
        step: u64,
    },
    Noted {
        step: u64,
        text: String,
    },
    Warned {
        step: u64,
        /// Stable word for filters, e.g. `checkpoint_failed`.
        code: String,
        message: String,
        hint: String,
    },
    Accepted {
        id: CommandId,
    },
    Rejected {
        id: CommandId,
        why: String,
    },
    /// Always the last event of an engine process.
    Finished {
        outcome: Outcome,
        step: u64,
        tokens: u64,
        /// Validation loss over the whole split, nats per token, when it was measured at the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        val_loss: Option<Num>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        best_val_loss: Option<Num>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        train_loss: Option<Num>,
        /// Time spent by this engine process.
        seconds: f64,
        /// Empty when completed; else what happened and what to do.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// From a newer writer: kept whole and shown as unknown.
    #[serde(untagged)]
    Unknown(serde_json::Value),
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}
