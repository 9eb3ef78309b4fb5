//! The bodies of replies, in the shapes of OpenAI's API.

use super::model::Score;
use super::request::Endpoint;
use crate::data::chat::tool_calls::Call;
use serde_json::{Map, Value, json};

/// What all parts of a reply share.
#[derive(Debug, Clone)]
pub struct Head {
    pub endpoint: Endpoint,
    /// `chatcmpl-…` or `cmpl-…`.
    pub id: String,
    /// Seconds since the Unix epoch.
    pub created: u64,
    pub model: String,
    /// Log-probabilities are asked for, with so many alternatives.
    pub logprobs: Option<usize>,
}

impl Head {
    pub fn new(endpoint: Endpoint, created: u64, model: String, logprobs: Option<usize>) -> Head {
        let kind = match endpoint {
            Endpoint::Chat => "chatcmpl",
            Endpoint::Completions => "cmpl",
        };
        Head {
            endpoint,
            id: format!("{kind}-{:016x}", crate::run::id::random()),
            created,
            model,
            logprobs,
        }
    }

    /// The whole reply.
    pub fn whole(&self, choices: Vec<Choice>, usage: Usage) -> Value {
        let choices: Vec<Value> = choices.into_iter().map(|c| self.choice(c)).collect();
        let mut body = self.around(choices, false);
        body["usage"] = usage.json();
        body
    }

    fn around(&self, choices: Vec<Value>, is_chunk: bool) -> Value {
        let object = match (self.endpoint, is_chunk) {
            (Endpoint::Chat, false) => "chat.completion",
            (Endpoint::Chat, true) => "chat.completion.chunk",
            (Endpoint::Completions, _) => "text_completion",
        };
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    fn choice(&self, choice: Choice) -> Value {
        let logprobs = self.logprobs_of(&choice.tokens);
        let mut value = match self.endpoint {
            Endpoint::Chat => json!({"index": choice.index, "message": message(&choice)}),
            Endpoint::Completions => json!({"index": choice.index, "text": choice.text}),
        };
        value["logprobs"] = logprobs;
        value["finish_reason"] = choice.finish.word().into();
        value
    }

    /// The first chunk of an answer in a stream; completions have none.
    pub fn opening(&self, index: u64) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": ""});
        let choice =
            json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null});
        (self.endpoint == Endpoint::Chat).then(|| self.around(vec![choice], true))
    }

    /// A token's chunk.
    pub fn piece(&self, index: u64, token: &Token) -> Value {
        let mut choice = match self.endpoint {
            Endpoint::Chat if token.is_thought => {
                json!({"index": index, "delta": {"reasoning_content": token.text}})
            }
            Endpoint::Chat => json!({"index": index, "delta": {"content": token.text}}),
            Endpoint::Completions => json!({"index": index, "text": token.text}),
        };
        choice["logprobs"] = self.logprobs_of(std::slice::from_ref(token));
        choice["finish_reason"] = Value::Null;
        self.around(vec![choice], true)
    }

    /// The chunk of an answer's tool call number `at`.
    pub fn call(&self, index: u64, at: usize, call: &Call) -> Value {
        let mut call = tool_call(call);
        call["index"] = at.into();
        let delta = json!({"tool_calls": [call]});
        let choice =
            json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null});
        self.around(vec![choice], true)
    }

    /// The chunk that ends an answer.
    pub fn closing(&self, index: u64, finish: Finish) -> Value {
        let mut choice = match self.endpoint {
            Endpoint::Chat => json!({"index": index, "delta": {}}),
            Endpoint::Completions => json!({"index": index, "text": ""}),
        };
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = finish.word().into();
        self.around(vec![choice], true)
    }

    /// The last chunk, where it is asked for.
    pub fn used(&self, usage: Usage) -> Value {
        let mut body = self.around(Vec::new(), true);
        body["usage"] = usage.json();
        body
    }

    fn logprobs_of(&self, tokens: &[Token]) -> Value {
        let Some(n) = self.logprobs else {
            return Value::Null;
        };
        // Text without a token of its own has no probability.
        let scores = || tokens.iter().filter_map(|token| token.score.as_ref());
        match self.endpoint {
            Endpoint::Chat => {
                let content = scores().map(|score| {
                    let mut token = likely(&score.bytes, score.logprob);
                    let top = score.top.iter();
                    token["top_logprobs"] = top.map(|(b, p)| likely(b, Some(*p))).collect();
                    token
                });
                json!({"content": content.collect::<Vec<_>>()})
            }
            Endpoint::Completions => {
                let known = tokens.iter().filter(|token| token.score.is_some());
                let top = (n > 0).then(|| scores().map(by_text).collect::<Vec<_>>());
                json!({
                    "tokens": scores().map(|score| spelt(&score.bytes)).collect::<Vec<_>>(),
                    "token_logprobs": scores().map(|score| score.logprob).collect::<Vec<_>>(),
                    "top_logprobs": top,
                    "text_offset": known.map(|token| token.at).collect::<Vec<_>>(),
                })
            }
        }
    }
}

fn likely(bytes: &[u8], logprob: Option<f64>) -> Value {
    json!({"token": spelt(bytes), "logprob": logprob, "bytes": bytes})
}

/// The alternatives and the token itself, by their texts; null for a token that has none.
fn by_text(score: &Score) -> Value {
    let own = score.logprob.map(|logprob| (&score.bytes, logprob));
    let top = score.top.iter().map(|(bytes, logprob)| (bytes, *logprob));
    let mut all = Map::new();
    // Of two tokens of the same text the likelier one.
    for (bytes, logprob) in top.chain(own) {
        all.entry(spelt(bytes)).or_insert_with(|| logprob.into());
    }
    match all.is_empty() {
        true => Value::Null,
        false => all.into(),
    }
}

/// A token's text; of a part of a character its bytes: `bytes:\xf0\x9f`.
fn spelt(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => {
            let digits = bytes.iter().map(|byte| format!("\\x{byte:02x}"));
            format!("bytes:{}", digits.collect::<String>())
        }
    }
}

/// The message of an answer: without a text if it only calls tools.
fn message(choice: &Choice) -> Value {
    let mut message = json!({"role": "assistant", "content": choice.text});
    if !choice.thought.is_empty() {
        message["reasoning_content"] = choice.thought.as_str().into();
    }
    if !choice.calls.is_empty() {
        if choice.text.is_empty() {
            message["content"] = Value::Null;
        }
        message["tool_calls"] = choice.calls.iter().map(tool_call).collect();
    }
    message
}

fn tool_call(call: &Call) -> Value {
    json!({
        "id": call.id.clone().unwrap_or_else(call_id),
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    })
}

/// An id for a call without one: nine letters and digits, as Mistral's templates require.
fn call_id() -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut left = crate::run::id::random();
    let digits = (0..9).map(|_| {
        let digit = DIGITS[(left % 36) as usize];
        left /= 36;
        char::from(digit)
    });
    digits.collect()
}

/// A token of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// What it adds to the answer.
    pub text: String,
    /// Absent for text that has no token of its own.
    pub score: Option<Score>,
    /// Characters of the answer before it.
    pub at: usize,
    /// What it adds is a thought, not text.
    pub is_thought: bool,
}

/// A finished answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    pub index: u64,
    pub thought: String,
    pub text: String,
    pub tokens: Vec<Token>,
    pub calls: Vec<Call>,
    pub finish: Finish,
}

impl Choice {
    pub fn new(index: u64) -> Choice {
        Choice {
            index,
            thought: String::new(),
            text: String::new(),
            tokens: Vec::new(),
            calls: Vec::new(),
            finish: Finish::Length,
        }
    }

    pub fn push(&mut self, token: Token) {
        match token.is_thought {
            true => self.thought.push_str(&token.text),
            false => self.text.push_str(&token.text),
        }
        self.tokens.push(token);
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    Stop,
    Length,
    ToolCalls,
}

impl Finish {
    fn word(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::ToolCalls => "tool_calls",
        }
    }
}

/// Tokens of a request and its answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Each prompt counted once, however many answers it has.
    pub prompt: u64,
    pub completion: u64,
}

impl Usage {
    pub fn add(&mut self, other: Usage) {
        self.prompt += other.prompt;
        self.completion += other.completion;
    }

    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        })
    }
}

/// The body of an error. `kind` is OpenAI's: `invalid_request_error`, `server_error` …
pub fn error(kind: &str, what: &str, param: Option<&str>) -> Value {
    json!({"error": {"message": what, "type": kind, "param": param, "code": null}})
}

/// The list of models.
pub fn models(names: &[&str], created: u64) -> Value {
    let all: Vec<Value> = names.iter().map(|name| model(name, created)).collect();
    json!({"object": "list", "data": all})
}

/// One of them.
pub fn model(name: &str, created: u64) -> Value {
    json!({"id": name, "object": "model", "created": created, "owned_by": "llmtui"})
}
