//! Events, in the past tense. Appended to the run's log before any viewer sees them; the log is the source of truth.

use super::{Best, CommandId, MetricInfo, Num};
use crate::base::clock::UnixMillis;
use crate::base::finding::Finding;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Metric values by metric id.
pub type Values = BTreeMap<String, Num>;

/// A token that might have come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LikelyToken {
    pub id: u32,
    /// Natural log of its probability before penalties, temperature and truncation.
    pub logprob: Num,
    pub bytes: Vec<u8>,
}

/// A token of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptToken {
    pub id: u32,
    pub bytes: Vec<u8>,
    /// Absent of the first: nothing is before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprob: Option<Num>,
    /// The most likely tokens at its place, likeliest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub top: Vec<LikelyToken>,
}

/// One line of `events.jsonl` and of every link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// [`super::VERSION`] of the writer.
    pub v: u32,
    /// From 1, without gaps, over the whole life of the run. 0 marks a reply of the link itself, which is never logged.
    pub seq: u64,
    /// Wall-clock time of the writer.
    pub t: UnixMillis,
    pub event: Event,
}

/// What the engine is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waiting for another run to end.
    Queued,
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
    /// All steps completed.
    Completed,
    /// Stopped on request; can be resumed.
    Stopped,
    /// The training failed (NaN, data exhausted); `message` gives the reason.
    Failed,
    /// The machine failed: no space for the last checkpoint, no memory, no threads. Can be resumed.
    Starved,
    /// A preflight check failed and the run was not forced.
    Refused,
    /// The spec, the data or the checkpoints must be corrected first; `message` says which.
    Invalid,
    /// A bug in the engine; `message` names the crash file.
    Crashed,
}

impl Outcome {
    /// Before the first step: the spec, the data or the machine must be corrected.
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Refused | Self::Invalid | Self::Starved)
    }
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

/// The past-tense half of the wire. In JSON, `type` names the variant. A variant unknown to this build is kept
/// verbatim in [`Event::Unknown`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Event {
    /// First event of each engine process in a log; several mean the run was resumed.
    Hello {
        run: String,
        /// Program version.
        engine: String,
        pid: u32,
        host: String,
    },
    /// The resolved spec and derived values.
    Started {
        name: String,
        /// The method's id, e.g. `pretrain`.
        method: String,
        spec: serde_json::Value,
        n_params: u64,
        vocab_size: u64,
        max_steps: u64,
        /// Target tokens of one optimizer step.
        batch_tokens: u64,
        /// Tokens of one pass over the training split.
        epoch_tokens: u64,
        /// The checkpoint step this process resumed from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resumed_from: Option<u64>,
        /// Dtype of the matmuls, `f32` or `bf16`; absent in older logs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        precision: Option<String>,
        /// Entropy of the training tokens' frequencies, nats: the loss of a model that knows only these and ignores the context.
        /// Absent if only a part of the tokens is supervised, and in older logs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unigram_entropy: Option<f64>,
    },
    MetricsDeclared {
        metrics: Vec<MetricInfo>,
    },
    PhaseChanged {
        phase: Phase,
        step: u64,
    },
    /// The engine's phase is `queued`, until its next `PhaseChanged`: the run begins when another one has ended.
    Queued {
        /// That run's folder name.
        after: String,
    },
    /// One preflight check.
    Checked {
        #[serde(flatten)]
        finding: Box<Finding>,
        seconds: f64,
        /// The title of the check that begins now; none after the last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<String>,
    },
    /// The status of a rule on the training has changed: to a warning, a failure, or clear again.
    Diagnosed {
        step: u64,
        finding: Box<Finding>,
    },
    /// One optimizer step. `step` counts completed updates: the first is 1.
    Stepped {
        step: u64,
        /// Target tokens consumed since the beginning.
        tokens: u64,
        values: Values,
    },
    /// Readings of probes inside the model, in a logged step: for each metric a list with one value per block.
    Probed {
        step: u64,
        layers: BTreeMap<String, Vec<Num>>,
    },
    Evaluated {
        step: u64,
        tokens: u64,
        values: Values,
        /// Windows of the validation split that were evaluated.
        n_windows: u64,
        /// True if the whole split was evaluated.
        whole: bool,
        seconds: f64,
    },
    Sampled {
        step: u64,
        prompt: String,
        /// The continuation, without the prompt: of a model that thinks first its final message.
        text: String,
        /// What it thought; with an empty text it ended inside its thoughts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thought: Option<String>,
        seconds: f64,
    },
    /// The model of an inference engine: its first message after `Hello`.
    Loaded {
        /// Architecture: `llama`, `gpt2`, …
        architecture: String,
        n_params: u64,
        vocab_size: u64,
        /// Context length in tokens.
        context: u64,
        /// The source of the chat template; absent for a base model, which only completes text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        template: Option<String>,
        /// Storage format of the weights if not f32, e.g. `Q4_1`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quantized: Option<String>,
        /// Number format of the KV cache: `f32` or `bf16`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kv_cache: Option<String>,
        seconds: f64,
        /// A note for the user, e.g. about an unusable template.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
        /// Adapters available with the base, by name; the first is in use.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        adapters: Vec<String>,
        /// Stop strings of a `Generate` that names none: those of the samples of the run that the model is a checkpoint of.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stop: Vec<String>,
        /// The method that trained it on prompts with answers, by its title; absent for a model that was trained on texts, and
        /// where the run is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trained_by: Option<String>,
        /// Answers that it writes at once; absent where it is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parallel: Option<u64>,
    },
    /// The following answers use this adapter, or none.
    AdapterUsed {
        command: CommandId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Download progress of a hub model, in bytes of one file. Comes before `Loaded`, a few times per second.
    Downloading {
        /// `org/name/model.safetensors`
        file: String,
        bytes: u64,
        /// 0 if the hub does not report it.
        total: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes_per_sec: Option<f64>,
    },
    /// The prompt of a `Generate`; comes before its first `Token`.
    Prompted {
        command: CommandId,
        /// The whole prompt as text, conversations rendered by the template.
        text: String,
        /// Length in tokens, including BOS if the model has one.
        prompt_tokens: u64,
        /// The format of thoughts and tool calls in the answer (`data::chat::tool_calls`), where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_calls: Option<String>,
    },
    /// Prefill progress of a `Generate`: before prefill and between chunks of a long prompt.
    PromptRead {
        command: CommandId,
        /// Prompt tokens processed so far, including cached ones.
        tokens: u64,
        /// Prefix tokens served from the KV cache.
        kept: u64,
    },
    /// Tokens of the prompt, in their order, of a `Generate` that wants their log-probabilities.
    PromptScored {
        command: CommandId,
        tokens: Vec<PromptToken>,
    },
    /// One token of a `Generate` answer.
    Token {
        command: CommandId,
        text: String,
        /// Natural log of the token's probability before penalties, temperature and truncation.
        logprob: Num,
        /// Entropy of that distribution in nats; absent in older engines.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entropy: Option<Num>,
        /// Its id in the model's vocabulary; absent in older engines and for text held back at the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u32>,
        /// The token's own bytes, where log-probabilities are wanted: `text` is what it adds to the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes: Option<Vec<u8>>,
        /// The most likely tokens at its place, likeliest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        top: Vec<LikelyToken>,
    },
    /// The end of a `Generate` answer.
    Generated {
        command: CommandId,
        n_tokens: u64,
        prompt_tokens: u64,
        /// Prompt tokens served from the KV cache.
        #[serde(default, skip_serializing_if = "is_zero")]
        kept_tokens: u64,
        seconds: f64,
        /// Time to the first token: prefill. 0 if none was generated.
        #[serde(default)]
        prefill_seconds: f64,
        reason: StopReason,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
        /// It failed because the model could not compute; otherwise what was asked was refused.
        #[serde(default, skip_serializing_if = "is_false")]
        broken: bool,
    },
    Checkpointed {
        step: u64,
        /// Relative to the run directory: `checkpoints/step-001000`.
        path: String,
        bytes: u64,
        seconds: f64,
        /// The best evaluation so far, by the reading that decides.
        best: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        val_loss: Option<Num>,
        /// The reading that decides which checkpoint is the best, if measured at this step; absent in logs of older
        /// programs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Best>,
    },
    /// Hardware of the engine's machine, as serialized by `hardware::Machine`.
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
    /// State was rolled back to `step`: events logged after it no longer count. A resume is a rollback to its checkpoint.
    RolledBack {
        step: u64,
    },
    /// The run began again before its first step: nothing read before counts, not even what was measured at step 0, which a
    /// `RolledBack` to step 0 keeps. Only logs of other programs have it.
    StartedOver,
    /// The update of this step was skipped: its loss or its gradient norm was an outlier.
    Skipped {
        step: u64,
        #[serde(flatten)]
        outlier: Outlier,
    },
    /// The response to a spike or a non-finite value: the run continues from checkpoint `step` with changed settings.
    /// Follows the `RolledBack` to that step.
    Rescued {
        step: u64,
        /// The discarded step, and why.
        from: u64,
        why: String,
        /// Micro-steps whose batches are skipped: the first, and the one after the last.
        skipped: (u64, u64),
        /// The peak learning rate before and after.
        lr: (Num, Num),
        /// The optimizer's state was reset.
        moments_reset: bool,
        /// Number of this rescue in the run, and the maximum.
        count: u64,
        at_most: u64,
        /// What `UndoRescue` would restore.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        undo: Option<UndoPoint>,
    },
    /// The newest rescue was undone: the run continues from the state before it, with its learning rate, and uses the skipped
    /// batches. Follows the `RolledBack` to the rescue's checkpoint; what that rescue's own `RolledBack` invalidated
    /// up to `step` counts again.
    RescueUndone {
        /// The step that continues, and the tokens consumed there.
        step: u64,
        tokens: u64,
        /// Step of the checkpoint that the rescue rolled back to.
        rescue: u64,
        /// The reason for the rescue.
        why: String,
        /// The peak learning rate before and after.
        lr: (Num, Num),
        /// As in `UndoPoint`.
        whole: bool,
        /// Steps since the rescue that are discarded.
        lost: u64,
    },
    Noted {
        step: u64,
        text: String,
    },
    /// Held-out examples as the method sees them, the same at every evaluation.
    Examined {
        step: u64,
        examples: Vec<ExaminedExample>,
    },
    Warned {
        step: u64,
        /// Stable id for filters, e.g. `checkpoint_failed`.
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
        /// Validation loss over the whole split, nats per token, if measured at the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        val_loss: Option<Num>,
        /// The best evaluation by the reading that the method names.
        #[serde(
            default,
            alias = "best_val_loss",
            skip_serializing_if = "Option::is_none"
        )]
        best: Option<Best>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        train_loss: Option<Num>,
        /// Time spent by this engine process.
        seconds: f64,
        /// Empty if completed; otherwise what happened and what to do.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// From a newer writer: kept verbatim and shown as unknown.
    #[serde(untagged)]
    Unknown(serde_json::Value),
}

/// A value far from the preceding ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outlier {
    /// `train/loss`, `grad_norm`.
    pub metric: String,
    pub value: Num,
    /// Mean of the window before it.
    pub usual: Num,
    /// Distance in standard deviations of that window.
    pub sigmas: Num,
}

/// The state that a rescue discarded, kept to be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoPoint {
    pub step: u64,
    /// Whether it is the state just before the rescue. Otherwise that state's weights or moments were non-finite, and it is the
    /// newest checkpoint before it.
    pub whole: bool,
}

/// One example: a text, or the sides of a pair.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExaminedExample {
    pub sequences: Vec<ExaminedSequence>,
}

/// A sequence with the model's predictions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExaminedSequence {
    /// `text`, `chosen`, `rejected`.
    pub label: String,
    /// The end of the text before the supervised tokens.
    pub prompt: String,
    /// The beginning of the supervised tokens: of an answer with thoughts that of its final message.
    pub answer: String,
    /// The beginning of an answer's thoughts; with an empty answer it ended inside them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought: Option<String>,
    /// Supervised tokens.
    pub tokens: u32,
    /// The tokens of that beginning, each with its log-probability in nats; empty if the model scores instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<(String, Num)>,
    /// Σ of their log-probabilities, nats.
    pub logp: Num,
    /// The same by the reference model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_logp: Option<Num>,
    /// The correct result according to the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<String>,
    /// The total reward of an answer that the model generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<Num>,
    /// The same for each reward, before its weight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewards: Vec<(String, Num)>,
    /// Advantage over the other answers of its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advantage: Option<Num>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}
