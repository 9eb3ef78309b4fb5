//! Commands a viewer may send to an engine. Every command is answered by `Accepted` or `Rejected`, with its id.

use crate::base::sampling::Sampling;
use serde::{Deserialize, Serialize};

/// Chosen by the sender, unique within its connection; the answer event carries it.
pub type CommandId = u64;

/// A command with its id: one line on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: CommandId,
    #[serde(flatten)]
    pub command: Command,
}

/// When a stop takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopWhen {
    /// After the current step, without a checkpoint.
    Now,
    /// After a checkpoint of the current step.
    AfterCheckpoint,
}

/// One turn of a conversation, in Hugging Face's and OpenAI's `messages` format.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// `system`, `user`, `assistant`, `tool`, or another role of the model's template.
    pub role: String,
    #[serde(default)]
    pub content: String,
    /// `tool_calls`, `tool_call_id`, `name` …
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl Turn {
    pub fn new(role: &str, content: impl Into<String>) -> Turn {
        Turn {
            role: role.into(),
            content: content.into(),
            extra: Default::default(),
        }
    }
}

/// The input of a generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Prompt {
    /// Continued verbatim.
    Text(String),
    /// Rendered by the model's chat template. If the last turn is the assistant's, it is continued.
    Turns(Vec<Turn>),
    /// Continued as they are: ids of the model's vocabulary.
    Tokens(Vec<u32>),
    /// The same with tools the model may call.
    WithTools {
        messages: Vec<Turn>,
        /// Definitions as for transformers' `apply_chat_template`; the template renders them into the prompt.
        tools: Vec<serde_json::Value>,
    },
}

/// What a `Generate` asks for besides a text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wanted {
    /// The bytes of each token of the answer, and so many of the most likely tokens at its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<usize>,
    /// `PromptScored` events before the answer, with as many alternatives.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prompt_logprobs: bool,
    /// The token that ends the answer has a `Token` event, too, without text; it is none of the answer's tokens.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub end_token: bool,
    /// The answer is a JSON value of this schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json_schema: Option<Box<serde_json::Value>>,
    /// Calls in the answer have arguments of their tools' schemas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<Calling>,
    /// Prompt, sampling and seed alone decide the answer: the whole prompt is computed. A prefix from the KV cache of an earlier
    /// text was rounded otherwise, above all with quantized weights.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repeatable: bool,
    /// Variables of the chat template for this conversation: `reasoning_effort`, `enable_thinking` …
    #[serde(skip_serializing_if = "no_variables")]
    pub template: Box<serde_json::Map<String, serde_json::Value>>,
}

fn no_variables(template: &serde_json::Map<String, serde_json::Value>) -> bool {
    template.is_empty()
}

/// Calls of the tools of a prompt, in a format that is known. Where a JSON schema is wanted as well, the answer is one or the other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Calling {
    /// The answer is a call; otherwise it may be text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Of this function alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// At most one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub one: bool,
}

impl Wanted {
    fn is_nothing(&self) -> bool {
        *self == Wanted::default()
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Prompt {
        Prompt::Text(text.into())
    }
}

/// The imperative half of the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Command {
    Pause,
    Resume,
    Stop {
        when: StopWhen,
    },
    Checkpoint,
    Evaluate,
    /// Sample from the current training weights; answered by `Sampled`.
    Sample {
        prompt: String,
        #[serde(default)]
        sampling: Sampling,
    },
    /// Stream an answer token by token; inference engines only. Answered by `Prompted`, `Token` events and
    /// `Generated`.
    Generate {
        prompt: Prompt,
        #[serde(default)]
        sampling: Sampling,
        #[serde(default, skip_serializing_if = "Wanted::is_nothing")]
        wanted: Wanted,
    },
    /// Use this adapter for the following answers, or none; inference engines only. Answered by `AdapterUsed`.
    UseAdapter {
        /// One of `Loaded`'s; `None` is the base alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Cancel the `Generate` with that id.
    Cancel {
        target: CommandId,
    },
    /// Change a live setting, e.g. `lr` or `clip_norm`; answered by `Adjusted`.
    Adjust {
        key: String,
        value: f64,
    },
    /// Roll back to a kept checkpoint.
    Rollback {
        step: u64,
    },
    /// Restore the state from before the newest rescue, with its learning rate and its batches; answered by
    /// `RescueUndone`.
    UndoRescue,
    Note {
        text: String,
    },
    /// Send every event from this sequence number on, then follow.
    Subscribe {
        from_seq: u64,
    },
    /// The viewer detaches; the run continues.
    Detach,
    Ping,
}
